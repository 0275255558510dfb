"""Workers on hosts whose network is cut, slow, loses packets or translates addresses: they end and say who is lost, or
have the same bits.

Needs the right to make networks, outside of a sandbox, and nft; is skipped elsewhere.
"""

import time

from official.faults import harness, losses, workers
from official.faults.losses import ENDLESS, HANG, PATIENCE, PEER_TIMEOUT, SOON, VICTIMS, WORKERS
from official.workers import networks

SAVES = "--save_checkpoints_steps=3"
SLOWNESS = 5  # seconds


class WorkerNetworkTest(losses.LossCase):
    why_not = ""  # a network can be made here

    def setUp(self) -> None:
        if self.why_not:
            self.skipTest(self.why_not)
        super().setUp()

    def begin_on_hosts(self, *flags: str, published: bool = False) -> None:
        """Starts the workers, each on a host of its own; if `published`, at addresses that the hosts do not have."""
        self.network = self.enterContext(networks.Network(WORKERS))
        addresses = self.network.published_addresses() if published else self.network.addresses()
        on_hosts = dict(enumerate(map(networks.inside, self.network.hosts)))
        if published:
            for inside in on_hosts.values():  # [::] has no IPv4 there, unless a program asks for it
                networks.run(f"{' '.join(inside)} sh -c 'echo 1 >/proc/sys/net/ipv6/bindv6only'")
        self.begin_at(addresses, "--insecure_cluster", *flags, prefix_of=on_hosts)

    def test_a_worker_is_cut_off(self) -> None:
        def lose(victim: int) -> float:
            self.begin_on_hosts(*ENDLESS, SAVES, PATIENCE)
            self.wait_for_steps(4)
            self.network.cut(victim)
            took = self.seconds_until_end(self.processes)
            outcomes = [self.finish(process) for process in self.processes]
            cut_off = outcomes.pop(victim)
            self.assert_name_the_lost(outcomes, victim)
            self.assertEqual(cut_off.code, 138, cut_off.told)
            # If it was the chief, it has saved no step but those that all have done.
            self.assert_as_alone(*ENDLESS)
            return took

        for victim in VICTIMS:
            with self.subTest(victim=victim):
                self.assert_in_time(PEER_TIMEOUT + 2, lose, victim)

    def test_killed_in_a_sum(self) -> None:
        def lose(victim: int) -> float:
            self.begin_on_hosts(*ENDLESS, SAVES, f"--peer_timeout_secs={2 * HANG}")
            self.wait_for_steps(4)
            for host in range(WORKERS):
                self.network.slow_down(host, "20mbit")
            time.sleep(1)  # of the seconds that the sum of 13 MB takes now
            steps = workers.count_records(self.model_dir)
            took = self.kill(victim)
            self.assertEqual(workers.count_records(self.model_dir), steps, "the sum was over")
            self.assert_as_alone(*ENDLESS)
            return took

        for victim in VICTIMS:
            with self.subTest(victim=victim):
                self.assert_in_time(SOON, lose, victim)

    def assert_ends_as_alone(self) -> None:
        for process in self.processes:
            outcome = self.finish(process)
            self.assertEqual(outcome.code, 0, outcome.told)
        alone = self.folder / "alone"
        self.train_alone(alone)
        self.assert_same_checkpoint(self.model_dir, alone)
        self.assert_same_metrics(self.model_dir, alone)

    def test_addresses_that_the_machines_do_not_have(self) -> None:
        flags = ("--listen_on_all_interfaces", f"--max_train_steps={harness.STEPS}")
        self.begin_on_hosts(*flags, published=True)
        self.assert_ends_as_alone()

    # The one with small gradients: of ten packets one is sent again after 0.2 seconds or more.
    @harness.of("resnet")
    def test_packets_are_lost(self) -> None:
        self.begin_on_hosts(f"--max_train_steps={harness.STEPS}", "--peer_timeout_secs=60")
        self.network.lose(1, percent=10)
        self.assert_ends_as_alone()
        self.assertGreater(self.network.count_lost(1), 20)

    def test_a_slow_link(self) -> None:
        # The link drops what it cannot carry. TCP doubles its time to try again with each loss, from 0.2 seconds on, so
        # that nothing may be acknowledged for longer than the default of --peer_timeout_secs.
        self.begin_on_hosts(f"--max_train_steps={harness.STEPS}", "--peer_timeout_secs=60")
        self.wait_for_steps(2)
        self.network.slow_down(1, "1mbit")
        time.sleep(SLOWNESS)
        self.assertLess(workers.count_records(self.model_dir), harness.STEPS // 2, "the link was not slow")
        self.network.end_slowness(1)
        self.assert_ends_as_alone()


if __name__ == "__main__":
    WorkerNetworkTest.why_not = networks.why_not("--map-root-user")
    if not WorkerNetworkTest.why_not:
        networks.enter_namespaces("--map-root-user")
    harness.main()
