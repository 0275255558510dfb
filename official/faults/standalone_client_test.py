"""A client that has servers run the tasks of its cluster (--remote_cluster, --serve)."""

import json
import os
import signal
import socket
import subprocess
from pathlib import Path

from official.faults import certificates, harness, workers

AT_ONCE = ("--eval_start_delay_secs=0", "--eval_throttle_secs=0")
ONE_DEVICE = (f"--max_train_steps={harness.STEPS}", *AT_ONCE)
TO_THE_END = (*ONE_DEVICE, "--num_cpu_devices=2")
# There is always another step to do, and a line of the log now and then, since nobody reads them yet.
ENDLESS = ("--train_epochs=1000000", "--epochs_between_evals=1000000", "--log_every_n_steps=200", *AT_ONCE)


def children_of(process: subprocess.Popen) -> list[int]:
    return [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]


def listens(address: str) -> bool:
    """Whether somebody listens at an address."""
    host, port = address.split(":")
    with socket.socket() as client:
        return client.connect_ex((host, int(port))) == 0


class StandaloneClientTest(workers.WorkersCase):
    def setUp(self) -> None:
        super().setUp()
        self.model_dir = self.folder / "model"
        self.secret = self.secret_file("secret", b"0123456789abcdef")

    def secret_file(self, name: str, secret: bytes) -> str:
        file = self.folder / name
        file.write_bytes(secret)
        file.chmod(0o600)
        return f"--run_secret_file={file}"

    def serve(self, address: str, *flags: str, **popen) -> subprocess.Popen:
        command = [str(self.binaries[self.program.name]), f"--serve={address}", *(flags or (self.secret,))]
        return self.start(command, env={**os.environ, "OMP_NUM_THREADS": "1"}, **popen)

    def serve_cluster(self, *jobs: str, flags: tuple[str, ...] = ()) -> tuple[dict[str, list[str]], list]:
        """Starts a server for each of these jobs, and returns the cluster and the servers."""
        cluster: dict[str, list[str]] = {}
        addresses = workers.free_addresses(len(jobs))
        for job, address in zip(jobs, addresses):
            cluster.setdefault(job, []).append(address)
        return cluster, [self.serve(address, *flags) for address in addresses]

    def client_command(self, cluster: dict, *flags: str, model_dir: Path | None = None, secret: str | None = None):
        command = self.command(model_dir or self.model_dir, *workers.BATCH["mnist"], *flags)
        return [*command, f"--remote_cluster={json.dumps(cluster)}", secret or self.secret]

    def run_client(self, *args, **kwargs) -> harness.Outcome:
        return self.execute(self.client_command(*args, **kwargs))

    def run_by_tf_config(self, jobs: tuple[str, ...], model_dir: Path, *flags: str) -> None:
        """A run whose tasks are started one by one, with TF_CONFIG."""
        cluster: dict[str, list[str]] = {}
        tasks = []
        for job, address in zip(jobs, workers.free_addresses(len(jobs))):
            tasks.append({"type": job, "index": len(cluster.setdefault(job, []))})
            cluster[job].append(address)
        configs = [json.dumps({"cluster": cluster, "task": task}) for task in tasks]
        command = self.command(model_dir, *workers.BATCH["mnist"], *flags)
        processes = [self.start(command, env={**os.environ, "TF_CONFIG": config}) for config in configs]
        for outcome in [self.finish(process) for process in processes]:
            self.assertEqual(outcome.code, 0, outcome.told)

    def assert_free(self, servers: list) -> None:
        """No server runs a task any more, and all are there."""
        self.wait_until(lambda: not any(children_of(server) for server in servers), "the tasks end")
        self.assertEqual([server.poll() for server in servers], [None] * len(servers))

    # ---- Runs ----

    def test_a_client_has_the_results_of_tasks_that_are_started_one_by_one(self) -> None:
        jobs = ("chief", "worker", "evaluator")
        one_by_one, second = self.folder / "one_by_one", self.folder / "second"
        self.run_by_tf_config(jobs, one_by_one, *TO_THE_END)
        cluster, servers = self.serve_cluster(*jobs)
        for model_dir in (self.model_dir, second):  # the servers run one job after another
            outcome = self.run_client(cluster, *TO_THE_END, "--output=json", model_dir=model_dir)
            self.assertEqual(outcome.code, 0, outcome.told)
            self.assert_same_checkpoint(model_dir, one_by_one)
            events = [json.loads(line)["event"] for line in outcome.stdout.splitlines()]
            self.assertIn("evaluation", events, outcome.told)  # the evaluator's
            self.assertIn("end", events, outcome.told)  # the chief's
            for name in ("chief 0", "worker 0", "evaluator 0"):
                self.assertIn(f"\n{name}: ", outcome.stderr)
            self.assert_free(servers)

    def test_parameter_servers(self) -> None:
        jobs = ("chief", "ps")
        one_by_one = self.folder / "one_by_one"
        self.run_by_tf_config(jobs, one_by_one, *ONE_DEVICE)
        cluster, servers = self.serve_cluster(*jobs)
        outcome = self.run_client(cluster, *ONE_DEVICE)
        self.assertEqual(outcome.code, 0, outcome.told)
        self.assert_same_checkpoint(self.model_dir, one_by_one)
        self.assert_free(servers)

    def test_certificates_in_place_of_a_secret(self) -> None:
        certs = self.folder / "certs"
        certificates.make(certs, "127.0.0.1")
        flags = certificates.flags(certs)
        cluster, servers = self.serve_cluster("worker", "worker", flags=flags)
        command = self.client_command(cluster, *TO_THE_END, *flags)[:-1]
        outcome = self.execute(command)
        self.assertEqual(outcome.code, 0, outcome.told)
        self.assertEqual(harness.latest_step(self.model_dir), harness.STEPS)
        certificates.make(self.folder / "other", "127.0.0.1")
        others = certificates.flags(self.folder / "other")
        stranger = self.execute([*self.client_command(cluster, *TO_THE_END)[:-1], *others])
        self.assert_refused(stranger, 2, "the server of worker 0 at ", "is not accepted by ")
        self.assert_free(servers)

    def test_json_lines_name_their_task(self) -> None:
        cluster, _ = self.serve_cluster("worker")
        outcome = self.run_client(cluster, *TO_THE_END, "--log_format=json")
        self.assertEqual(outcome.code, 0, outcome.told)
        records = [json.loads(line) for line in outcome.stderr.splitlines()]
        self.assertIn(("worker 0", "end"), [(record.get("of_task"), record.get("event")) for record in records])

    # ---- Ends ----

    def begin_endless(self) -> tuple[dict, list, subprocess.Popen]:
        """A run of a chief, a worker and an evaluator that has begun to train."""
        cluster, servers = self.serve_cluster("chief", "worker", "evaluator")
        client = self.start(self.client_command(cluster, *ENDLESS))
        self.wait_for_records(self.model_dir, 1)
        self.wait_until(lambda: all(children_of(server) for server in servers), "all tasks run")
        return cluster, servers, client

    def assert_runs_again(self, cluster: dict) -> None:
        """The servers take another job."""
        outcome = self.run_client(cluster, *TO_THE_END, model_dir=self.folder / "again")
        self.assertEqual(outcome.code, 0, outcome.told)

    def test_a_signal_stops_all_tasks_in_order(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
            with self.subTest(number=number):
                self.model_dir = self.folder / f"model{int(number)}"
                _, servers, client = self.begin_endless()
                client.send_signal(number)
                outcome = self.finish(client)
                self.assertEqual(outcome.code, 128 + number, outcome.told)
                self.assertIn(f"all tasks were stopped by signal {int(number)}", outcome.error)
                self.assertNotIn("was ended by signal", outcome.stderr)  # which is told of a task that is lost
                self.assertGreater(harness.latest_step(self.model_dir), 0)
                self.assert_free(servers)

    def test_a_signal_saves_and_goes_on(self) -> None:
        for sender in ("client", "server"):
            with self.subTest(sender=sender):
                self.model_dir = self.folder / sender
                _, servers, client = self.begin_endless()
                before = harness.latest_step(self.model_dir)
                (client if sender == "client" else servers[0]).send_signal(signal.SIGUSR2)
                self.wait_until(lambda: harness.latest_step(self.model_dir) > before, "a checkpoint is saved")
                self.assertIsNone(client.poll())
                client.send_signal(signal.SIGTERM)
                self.finish(client)
                self.assert_free(servers)

    def test_the_client_is_killed(self) -> None:
        cluster, servers, client = self.begin_endless()
        client.kill()
        self.finish(client)
        self.assert_free(servers)
        self.assertGreater(harness.latest_step(self.model_dir), 0)  # the tasks have saved
        self.assert_runs_again(cluster)

    def test_a_server_is_killed(self) -> None:
        cluster, servers, client = self.begin_endless()
        (task,) = children_of(servers[1])
        servers[1].kill()
        outcome = self.finish(client)
        address = cluster["worker"][0]
        self.assert_refused(outcome, 138, f"the server of worker 0 at {address} was lost (", "start all again")
        self.wait_until(lambda: not Path(f"/proc/{task}").exists(), "its task ends")
        self.assert_free([servers[0], servers[2]])

    def test_a_task_is_killed(self) -> None:
        cluster, servers, client = self.begin_endless()
        os.kill(children_of(servers[1])[0], signal.SIGKILL)
        outcome = self.finish(client)
        self.assert_refused(outcome, 138, f"worker 0 at {cluster['worker'][0]} was ended by signal 9 (Killed)")
        self.assert_free(servers)

    def test_a_run_whose_others_go_on_ends_without_a_worker_that_is_killed(self) -> None:
        for jobs, flags in (
            (("chief", "worker", "ps"), ()),
            (("chief", "worker"), ("--on_peer_loss=restart", "--min_workers=1", "--num_replicas=2")),
        ):
            with self.subTest(jobs=jobs):
                self.model_dir = self.folder / f"model{len(jobs)}"
                self.check_a_run_ends_without_its_worker(jobs, flags)

    def check_a_run_ends_without_its_worker(self, jobs: tuple[str, ...], further_flags: tuple[str, ...]) -> None:
        cluster, servers = self.serve_cluster(*jobs)
        # Enough steps that the worker is killed before all are done.
        flags = ("--train_epochs=100", "--epochs_between_evals=100", "--max_train_steps=150", "--log_every_n_steps=5")
        client = self.start(self.client_command(cluster, *flags, *further_flags, *AT_ONCE))
        self.wait_until(lambda: all(children_of(server) for server in servers), "all tasks run")
        self.wait_for_records(self.model_dir, 1)
        os.kill(children_of(servers[1])[0], signal.SIGKILL)
        outcome = self.finish(client)
        self.assertEqual(outcome.code, 0, outcome.told)
        address = cluster["worker"][0]
        self.assertIn(f"worker 0 at {address} was ended by signal 9 (Killed); the others train on", outcome.stderr)
        self.assert_free(servers)

    def test_a_server_that_is_stopped_stops_its_task(self) -> None:
        cluster, servers, client = self.begin_endless()
        servers[0].send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(servers[0]).code, 143)
        outcome = self.finish(client)
        self.assert_refused(outcome, 138, f"chief 0 at {cluster['chief'][0]} was ended by signal 15 (Terminated)")
        self.assertGreater(harness.latest_step(self.model_dir), 0)
        self.assert_free(servers[1:])

    def test_the_status_is_that_of_the_task_that_failed(self) -> None:
        cluster, servers = self.serve_cluster("worker", "worker")
        damaged = self.folder / "damaged"
        damaged.mkdir()
        for file in self.data_dir.iterdir():
            (damaged / file.name).write_bytes(b"damaged")
        outcome = self.run_client(cluster, *TO_THE_END, f"--data_dir={damaged}")
        self.assert_refused(outcome, 65, "worker ", "ended with status 65")
        self.assert_free(servers)

    # ---- Refusals ----

    def test_a_wrong_secret_is_refused(self) -> None:
        cluster, servers = self.serve_cluster("worker")
        other = self.secret_file("other", b"another secret of a stranger")
        outcome = self.run_client(cluster, *TO_THE_END, secret=other)
        place = f"the server of worker 0 at {cluster['worker'][0]}"
        self.assert_refused(outcome, 2, f"{place} has another secret", "the same --run_secret_file")
        self.assertEqual(outcome.stdout, "")
        self.assert_free(servers)
        self.assert_runs_again(cluster)

    def test_flags_of_the_server_are_not_changed_by_a_client(self) -> None:
        cluster, servers = self.serve_cluster("worker", "worker", flags=(self.secret, f"--model_dir={self.model_dir}"))
        outcome = self.run_client(cluster, *TO_THE_END, model_dir=self.folder / "elsewhere")
        self.assert_refused(
            outcome,
            2,
            f"the server of worker 0 at {cluster['worker'][0]} refuses its task: flag --model_dir=",
            f"the server was started with --model_dir={self.model_dir}, which no client changes; leave it out",
        )
        self.assertFalse((self.folder / "elsewhere").exists())
        self.assert_free(servers)
        command = [word for word in self.client_command(cluster, *TO_THE_END) if "--model_dir" not in word]
        outcome = self.execute(command)
        self.assertEqual(outcome.code, 0, outcome.told)
        self.assertEqual(harness.latest_step(self.model_dir), harness.STEPS)

    def test_a_server_runs_one_task_at_a_time(self) -> None:
        cluster, servers, client = self.begin_endless()
        second = self.run_client({"worker": cluster["worker"]}, *TO_THE_END, model_dir=self.folder / "second")
        self.assert_refused(second, 73, "the server of worker 0 at ", "runs a task of another client")
        client.send_signal(signal.SIGTERM)
        self.assertEqual(self.finish(client).code, 143)
        self.assert_free(servers)

    def test_no_task_starts_before_all_servers_are_there(self) -> None:
        cluster, servers = self.serve_cluster("chief", "worker")
        for (address,) in cluster.values():
            self.wait_until(lambda address=address: listens(address), f"a server at {address}")
        (absent,) = workers.free_addresses(1)
        cluster["worker"].append(absent)
        outcome = self.run_client(cluster, *TO_THE_END, "--start_timeout_secs=3")
        self.assert_refused(outcome, 1, f"after 3 s there is no answer from the server of worker 1 at {absent}")
        self.assertFalse(self.model_dir.exists())
        self.assert_free(servers)

    def test_addresses_that_strangers_reach_need_a_secret(self) -> None:
        for address in ("127.0.0.1:4000", "0.0.0.0:4000", "[::]:4000", "192.0.2.1:4000"):
            outcome = self.finish(self.serve(address, "--batch_size=8"))
            self.assert_refused(outcome, 2, f"--serve={address}: who reaches {address}, as other users", "in your name")
        command = self.client_command({"worker": ["192.0.2.1:4000"]}, *TO_THE_END)[:-1]
        self.assert_refused(self.execute(command), 2, "the server of worker 0 listens at 192.0.2.1:4000")

    def test_addresses_where_no_server_can_listen(self) -> None:
        outcome = self.finish(self.serve("localhost"))
        self.assert_refused(outcome, 2, "flag --serve=localhost: ")
        with socket.create_server(("127.0.0.1", 0)) as other:
            address = f"127.0.0.1:{other.getsockname()[1]}"
            outcome = self.finish(self.serve(address))
        self.assert_refused(outcome, 73, f"--serve={address}: Address already in use")

    def test_what_a_server_cannot_have_beside_it(self) -> None:
        outcome = self.finish(self.serve("127.0.0.1:4000", self.secret, "--workers=a:1,b:1"))
        self.assert_refused(outcome, 2, "--workers=a:1,b:1: the clients of --serve say what the cluster is")
        outcome = self.finish(self.serve("127.0.0.1:4000", self.secret, "--predict=one.png", "seven.png"))
        self.assert_refused(outcome, 2, "the word 'seven.png' is no task, and --serve takes them from clients")

    def test_what_a_client_cannot_have_beside_it(self) -> None:
        cluster = {"worker": ["127.0.0.1:1"]}
        config = workers.configs_of(["127.0.0.1:1", "127.0.0.1:2"])[0]
        outcome = self.execute(self.client_command(cluster), env={"TF_CONFIG": config})
        self.assert_refused(outcome, 2, "TF_CONFIG describes a cluster, and --remote_cluster another one")
        outcome = self.execute(self.client_command(cluster, "--serve=127.0.0.1:1"))
        self.assert_refused(outcome, 2, "--serve waits for a client, and --remote_cluster is one")

    def test_clusters_that_make_no_sense(self) -> None:
        for cluster, words in (
            ({"ps": ["127.0.0.1:1"]}, "cluster has 1 ps, but nobody who trains"),
            ({"chief": ["127.0.0.1:1", "127.0.0.1:2"]}, "cluster.chief has 2 tasks; write one"),
            ({"worker": ["127.0.0.1:1", "127.0.0.1:1"]}, "127.0.0.1:1"),
            ({"worker": ["127.0.0.1"]}, "cluster.worker[0]"),
            ({"workers": ["127.0.0.1:1"]}, 'did you mean "worker"?'),
            ({"worker": []}, "cluster.worker"),
            ({"evaluator": ["127.0.0.1:1"]}, "but nobody who trains"),
            (["127.0.0.1:1"], "cluster is "),
        ):
            with self.subTest(cluster=cluster):
                self.assert_refused(self.run_client(cluster), 2, "flag --remote_cluster=", words)

    # ---- TF_CONFIG of a server ----

    def test_a_server_at_its_address_in_tf_config(self) -> None:
        cluster = {"worker": workers.free_addresses(2)}
        for index in (0, 1):
            config = json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})
            command = [str(self.binaries["mnist"]), "--serve=tf_config", self.secret]
            self.start(command, env={**os.environ, "TF_CONFIG": config})
        outcome = self.run_client(cluster, *TO_THE_END)
        self.assertEqual(outcome.code, 0, outcome.told)

    def test_a_tf_config_without_an_address(self) -> None:
        address = {"worker": ["127.0.0.1:1"]}
        task = {"type": "worker", "index": 0}
        for config, words in (
            (None, "TF_CONFIG is not set"),
            ({"task": task}, '"cluster" is not found in TF_CONFIG'),
            ({"cluster": address}, "TF_CONFIG: task is missing"),
            ({"cluster": address, "task": {"index": 0}}, "TF_CONFIG: task.type is missing"),
            ({"cluster": {"ps": ["127.0.0.1:1"]}, "task": {"type": "ps", "index": 0}}, "but nobody who trains"),
            ({"cluster": address, "task": {"type": "evaluator", "index": 0}}, "no address for its task, evaluator 0"),
        ):
            with self.subTest(config=config):
                env = {name: value for name, value in os.environ.items() if name != "TF_CONFIG"}
                if config is not None:
                    env["TF_CONFIG"] = json.dumps(config)
                command = [str(self.binaries["mnist"]), "--serve=tf_config"]
                self.assert_refused(self.finish(self.start(command, env=env)), 2, words)


if __name__ == "__main__":
    harness.main()
