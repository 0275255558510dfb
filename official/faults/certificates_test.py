"""Workers that know each other by certificates (mutual TLS), and what becomes of those whose certificates do not fit."""

from pathlib import Path

from official.faults import certificates, harness, workers

HOST = "127.0.0.1"
TIMEOUT = 8  # seconds that workers wait for each other
TOO_LONG = 10 * harness.DEADLINE


class CertificatesTest(workers.WorkersCase):
    def setUp(self) -> None:
        super().setUp()
        self.certs, self.other = self.folder / "certs", self.folder / "other"
        certificates.make(self.certs, HOST, "other.example")
        certificates.make(self.other, HOST)

    def assert_ends(self, flags0: tuple[str, ...], flags1: tuple[str, ...], words0: tuple, words1: tuple) -> None:
        """Both workers end with one line that has these words; one with exit status 2 does not wait for the other."""
        flags_of = {}
        for worker, (flags, (code, *_)) in enumerate(((flags0, words0), (flags1, words1))):
            seconds = TOO_LONG if code == 2 else TIMEOUT
            flags_of[worker] = (*flags, f"--start_timeout_secs={seconds}")
        processes = self.start_workers(self.folder / "model", 2, "--max_train_steps=1", flags_of=flags_of)
        for process, (code, *words) in zip(processes, (words0, words1)):
            self.assert_refused(self.finish(process), code, *words)

    def test_workers_with_certificates_have_the_bits_of_one_process(self) -> None:
        alone, encrypted = self.folder / "alone", self.folder / "encrypted"
        self.train_alone(alone)
        outcomes = self.train_workers(encrypted, 2, "--num_cpu_devices=2", *certificates.flags(self.certs))
        self.assert_same_checkpoint(encrypted, alone)
        for outcome in outcomes:
            self.assertNotIn("refused", outcome.stderr)

    def test_one_process_does_not_use_them(self) -> None:
        self.train(self.folder / "model", 1, *certificates.flags(Path("/dev/null/none")))

    def test_a_certificate_that_does_not_fit_ends_both_workers(self) -> None:
        good = certificates.flags(self.certs)
        bundle = self.folder / "bundle.crt"
        bundle.write_text((self.certs / "ca.crt").read_text() + (self.other / "ca.crt").read_text())
        expired = self.folder / "expired"
        certificates.make(expired, HOST)
        certificates.make_expired(expired, HOST)
        absent = (1, f"after {TIMEOUT} s there is no worker 1 at {HOST}:")
        stranger = (*absent, "refused", f"the last from {HOST}: gone without a proof")
        for name, flags0, flags1, words0, words1 in (
            (
                "another authority",
                good,
                certificates.flags(self.other),
                stranger,
                (2, f"worker 0 at {HOST}:", "is refused: its certificate for IP Address:127.0.0.1 is not accepted"),
            ),
            (
                "another authority, which only worker 1 knows",
                good,
                certificates.flags(self.other, ca=bundle),
                stranger,
                (2, f"worker 0 at {HOST}:", "it does not accept the certificate of this worker, --tls_cert="),
            ),
            ("no certificate", good, (), stranger, (1, f"waited {TIMEOUT} s for worker 0 at {HOST}:", "if it uses TLS")),
            (
                "no certificate at worker 0",
                (),
                good,
                stranger,
                (2, f"worker 0 at {HOST}:", "makes no handshake of TLS", "give all workers --tls_cert"),
            ),
            (
                "expired",
                good,
                certificates.flags(expired),
                absent,
                (2, "--tls_cert=", "is not accepted by --tls_ca=", "has expired (20"),
            ),
            (
                "another host",
                good,
                certificates.flags(self.certs, "other.example"),
                absent,
                (2, "--tls_cert=", "is for DNS:other.example, but the others reach this worker at the host 127.0.0.1"),
            ),
            (
                "another host at worker 0",
                certificates.flags(self.certs, "other.example"),
                good,
                (2, "--tls_cert=", "is for DNS:other.example"),
                (1, f"waited {TIMEOUT} s for worker 0 at {HOST}:", "Connection refused"),
            ),
        ):
            with self.subTest(name):
                self.assert_ends(flags0, flags1, words0, words1)

    def test_files_that_are_none_are_refused_at_once(self) -> None:
        cert, key, ca = certificates.flags(self.certs)
        open_key = self.folder / "open.key"
        open_key.write_text((self.certs / f"{HOST}.key").read_text())
        open_key.chmod(0o644)
        no_pem = self.folder / "no_pem"
        no_pem.write_text("-----BEGIN CERTIFICATE-----\n")
        no_pem.chmod(0o600)
        other_key = f"--tls_key={self.other}/{HOST}.key"
        for flags, words in (
            ((cert, ca), ("there is no --tls_key; give all of --tls_cert=FILE --tls_key=FILE --tls_ca=FILE",)),
            ((cert, key, "--tls_ca=/dev/null/none"), ("--tls_ca=/dev/null/none cannot be read: ",)),
            ((cert, f"--tls_key={open_key}", ca), (f"--tls_key={open_key} can be used by others; ", "chmod 600")),
            ((f"--tls_cert={no_pem}", key, ca), (f"--tls_cert={no_pem} has no certificate in PEM",)),
            ((cert, key, f"--tls_ca={no_pem}"), (f"--tls_ca={no_pem} has no certificate in PEM",)),
            ((cert, f"--tls_key={no_pem}", ca), (f"--tls_key={no_pem} has no key in PEM",)),
            ((cert, other_key, ca), (f"{other_key} is not the key of {cert}",)),
        ):
            with self.subTest(flags):
                command = self.command(self.folder / "model", "--max_train_steps=1", *flags)
                outcome = self.execute(command, {"TF_CONFIG": workers.tf_configs(2)[0]})
                self.assert_refused(outcome, 2, *words)


if __name__ == "__main__":
    harness.main()
