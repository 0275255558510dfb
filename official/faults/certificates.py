"""Certificates for tests, made as tools/make_certs makes them for users."""

import subprocess
from pathlib import Path


def make(folder: Path, *hosts: str) -> None:
    """Makes an authority in a folder, which may be there already, and a certificate for each host."""
    made = subprocess.run(["tools/make_certs", folder, *hosts], capture_output=True, text=True, check=False)
    if made.returncode != 0:
        raise AssertionError(made.stdout + made.stderr)


def make_expired(folder: Path, host: str) -> None:
    """Puts a certificate in place of that of an address which is the same but for its time, which is over."""
    cert, key = folder / f"{host}.crt", folder / f"{host}.key"
    extensions, request = folder / "extensions", folder / "request"
    extensions.write_text(f"subjectAltName=IP:{host}\n")
    (folder / "config").write_text("[req]\ndistinguished_name=name\n[name]\n")
    authority = ["-CA", folder / "ca.crt", "-CAkey", folder / "ca.key", "-set_serial", "5"]
    for command in (
        ["req", "-new", "-config", folder / "config", "-key", key, "-subj", "/CN=worker", "-out", request],
        ["x509", "-req", "-in", request, *authority, "-days", "-1", "-extfile", extensions, "-out", cert],
    ):
        subprocess.run(["openssl", *command], capture_output=True, check=True)


def flags(folder: Path, host: str = "127.0.0.1", ca: Path | None = None) -> tuple[str, ...]:
    """The flags of a worker that is reached at a host."""
    return (
        f"--tls_cert={folder}/{host}.crt",
        f"--tls_key={folder}/{host}.key",
        f"--tls_ca={ca or folder / 'ca.crt'}",
    )
