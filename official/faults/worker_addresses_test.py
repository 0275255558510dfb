"""The address of a worker is taken, not its own or not known yet: a line says which, why, and what to try. Where it is
known later, a worker finds it, and the time of day does not change how long it looks."""

import multiprocessing
import os
import socket
import subprocess
import time
from pathlib import Path

from official.faults import harness, workers

START_TIMEOUT = 3  # seconds
LOOKS_AGAIN = 30  # seconds after which gRPC by itself looks a name up again
NOBODY = 65534
# $1, $2: what become /etc/hosts and /etc/nsswitch.conf; then comes the command.
WITH_HOSTS = 'mount --bind "$1" /etc/hosts && mount --bind "$2" /etc/nsswitch.conf && shift 2 && exec "$@"'


class WorkerAddressesTest(workers.WorkersCase):
    def setUp(self) -> None:
        super().setUp()
        self.model_dir = self.folder / "model"

    def begin(self, addresses: list[str], *flags: str, **start_workers) -> list[subprocess.Popen]:
        flags = ("--insecure_cluster", "--max_train_steps=2", *flags)
        configs = workers.configs_of(addresses)
        return self.start_workers(self.model_dir, len(addresses), *flags, configs=configs, **start_workers)

    def assert_cannot_listen(self, address: str, worker: int, reason: str, **begin) -> str:
        """Worker `worker` of two cannot listen at its address for this reason, and the other waits for it in vain.
        Returns the line that says so."""
        addresses = workers.free_addresses(2)
        addresses[worker] = address
        processes = self.begin(addresses, f"--start_timeout_secs={START_TIMEOUT}", **begin)
        outcomes = [self.finish(process) for process in processes]
        self.assert_refused(
            outcomes[worker],
            73,
            f"worker {worker} cannot listen on {address}: {reason}; is that an address of this machine, "
            "and does no other run use it?",
        )
        missing = f"waited {START_TIMEOUT} s for worker 0 at {address}" if worker == 0 else f"no worker 1 at {address}"
        self.assert_refused(outcomes[1 - worker], 1, missing, "start all workers, or raise --start_timeout_secs")
        self.assertEqual(list(self.model_dir.glob("*ckpt*")), [])
        return outcomes[worker].error

    def test_a_port_is_taken(self) -> None:
        self.check_taken_ports()

    def test_a_port_is_taken_by_another_user(self) -> None:
        if os.geteuid() != 0:
            self.skipTest("only root can start processes of another user")
        self.check_taken_ports(NOBODY)

    def check_taken_ports(self, user: int | None = None) -> None:
        for worker in (0, 1):
            with self.subTest(worker=worker):
                (address,) = workers.free_addresses(1)
                context = multiprocessing.get_context("fork")
                listens = context.Event()
                listener = context.Process(target=listen, args=(address, user, listens), daemon=True)
                listener.start()
                self.addCleanup(listener.kill)
                self.assertTrue(listens.wait(harness.DEADLINE))
                told = self.assert_cannot_listen(address, worker, "Address already in use")
                self.assertNotIn("--listen_on_all_interfaces", told)

    def test_an_address_of_another_machine(self) -> None:
        told = self.assert_cannot_listen("192.0.2.1:2222", 1, "Cannot assign requested address")  # RFC 5737
        self.assertIn("reach this machine by it all the same, give --listen_on_all_interfaces", told)

    def test_a_port_of_root(self) -> None:
        if int(Path("/proc/sys/net/ipv4/ip_unprivileged_port_start").read_text()) <= 1:
            self.skipTest("every user may listen at port 1 here")
        # Root may without this capability as little as others.
        powerless = ["setpriv", "--bounding-set=-net_bind_service"] if os.geteuid() == 0 else []
        outcome = self.execute([*powerless, "true"])
        if outcome.code != 0:
            self.skipTest(f"the rights of root cannot be given up here: {outcome.error}")
        self.assert_cannot_listen("127.0.0.1:1", 1, "Permission denied", prefix_of={1: powerless})

    # ---- Names ----

    def with_hosts(self, name: str = "hosts") -> tuple[Path, list[str]]:
        """A file of this name that a command takes for /etc/hosts, and what stands before that command."""
        hosts, switch = self.folder / name, self.folder / "nsswitch.conf"
        hosts.write_text("127.0.0.1 localhost\n")
        switch.write_text("hosts: files\n")
        files = (str(hosts), str(switch))
        own_mounts = ["unshare", "--map-root-user", "--mount", "bash", "-c", WITH_HOSTS, "bash", *files]
        outcome = self.execute([*own_mounts, "true"])
        if outcome.code != 0:
            self.skipTest(f"nothing can be mounted here: {outcome.error}")
        return hosts, own_mounts

    def test_names_that_are_known_later(self) -> None:
        hosts, own_mounts = self.with_hosts()
        ports = [address.rsplit(":", 1)[1] for address in workers.free_addresses(2)]
        names = [f"worker-{i}.test" for i in range(2)]
        addresses = [f"{name}:{port}" for name, port in zip(names, ports)]
        logs = [self.folder / f"log of {name}" for name in names]
        processes = self.begin(addresses, prefix_of={i: own_mounts for i in range(2)}, log_of=dict(enumerate(logs)))
        for name, log in zip(names, logs):
            self.wait_for_log(log, f"waiting for the DNS to know {name}: ")
        hosts.write_text(f"127.0.0.1 localhost {' '.join(names)}\n")
        for process in processes:
            outcome = self.finish(process)
            self.assertEqual(outcome.code, 0, outcome.told)

    def test_a_name_that_first_stands_for_nobody(self) -> None:
        hosts, own_mounts = self.with_hosts()
        hosts.write_text("127.0.0.1 localhost\n127.0.0.9 worker-0.test\n")  # as of a pod that was there before
        addresses = workers.free_addresses(2)
        names = [addresses[0].replace("127.0.0.1", "worker-0.test"), addresses[1]]
        flags = ("--insecure_cluster", "--max_train_steps=2", f"--start_timeout_secs={LOOKS_AGAIN - 5}")
        waiting = self.start_worker(self.model_dir, 1, workers.configs_of(names)[1], *flags, prefix=own_mounts)
        host = self.start_worker(self.model_dir, 0, workers.configs_of(addresses)[0], *flags)
        time.sleep(START_TIMEOUT)  # by then it has tried to connect
        self.assertEqual([process.poll() for process in (waiting, host)], [None, None])
        hosts.write_text("127.0.0.1 localhost worker-0.test\n")
        for process in (waiting, host):
            outcome = self.finish(process)
            self.assertEqual(outcome.code, 0, outcome.told)

    def test_own_names_that_stand_for_loopback(self) -> None:
        ports = [address.rsplit(":", 1)[1] for address in workers.free_addresses(2)]
        names = [f"worker-{i}.test" for i in range(2)]
        prefix_of = {}
        for i in range(2):
            hosts, prefix_of[i] = self.with_hosts(f"hosts{i}")
            # As Debian writes it for the name of the machine; that of the other one stands for where it is found.
            hosts.write_text(f"127.0.0.1 localhost {names[1 - i]}\n127.0.1.1 {names[i]}\n")
        processes = self.begin([f"{name}:{port}" for name, port in zip(names, ports)], prefix_of=prefix_of)
        for name, process in zip(names, processes):
            outcome = self.finish(process)
            self.assertEqual(outcome.code, 0, outcome.told)
            self.assertRegex(outcome.stderr, f"listens on all interfaces, at .*, since {name} stands for a loopback address")

    def test_a_name_that_is_never_known(self) -> None:
        _, own_mounts = self.with_hosts()
        for worker in (0, 1):
            with self.subTest(worker=worker):
                address = workers.free_addresses(1)[0].replace("127.0.0.1", "worker.test")
                prefix_of = {i: own_mounts for i in range(2)}
                self.assert_cannot_listen(address, worker, "Name or service not known", prefix_of=prefix_of)

    # ---- The time of day ----

    def begin_to_wait(self, clock_error: int, *flags: str) -> tuple[list[str], subprocess.Popen]:
        """Starts worker 1 of two, for which the clock is wrong by so many seconds when it has waited a little. Returns
        the configurations of both."""
        configs = workers.configs_of(workers.free_addresses(2))
        clock_is_set = self.folder / f"clock {clock_error}"
        settings = {"LD_PRELOAD": self.library, "FAULTS_CLOCK": clock_error, "FAULTS_SET": clock_is_set}
        prefix = workers.with_environment({name: str(value) for name, value in settings.items()})
        waiting = self.start_worker(self.model_dir, 1, configs[1], "--max_train_steps=2", *flags, prefix=prefix)
        time.sleep(START_TIMEOUT)
        self.assertIsNone(waiting.poll())
        clock_is_set.touch()
        return configs, waiting

    def test_a_clock_that_is_set_ends_no_wait(self) -> None:
        configs, waiting = self.begin_to_wait(400)
        time.sleep(START_TIMEOUT)
        self.assertIsNone(waiting.poll())
        host = self.start_worker(self.model_dir, 0, configs[0], "--max_train_steps=2")
        for process in (waiting, host):
            outcome = self.finish(process)
            self.assertEqual(outcome.code, 0, outcome.told)

    def test_a_clock_that_is_set_makes_no_wait_longer(self) -> None:
        _, waiting = self.begin_to_wait(-3600, f"--start_timeout_secs={2 * START_TIMEOUT}")
        outcome = self.finish(waiting)
        self.assert_refused(outcome, 1, f"worker 1 has waited {2 * START_TIMEOUT} s for worker 0 at ")


def listen(address: str, user: int | None, listens) -> None:
    """Listens at an address, as another user if one is given, until it is killed."""
    if user is not None:
        os.setuid(user)
    host, port = address.rsplit(":", 1)
    with socket.create_server((host, int(port))):
        listens.set()
        time.sleep(10 * harness.DEADLINE)


if __name__ == "__main__":
    harness.main()
