"""Workers on hosts whose network is cut, slow, loses packets or translates addresses: they end and say who is lost, or
have the same bits.

Needs the right to make networks, outside of a sandbox, and nft; is skipped elsewhere.
"""

import signal
import time

from official.faults import harness, losses, workers
from official.faults.losses import ENDLESS, IMPATIENCE, PATIENCE, VICTIMS, WORKERS
from official.workers import networks

SAVES = "--save_checkpoints_steps=3"
SLOWNESS = 5  # seconds
SOME = 1 << 20  # bytes of a sum, which has 13 MB


class WorkerNetworkTest(losses.LossCase):
    why_not = ""  # a network can be made here

    def setUp(self) -> None:
        if self.why_not:
            self.skipTest(self.why_not)
        super().setUp()

    def make_network(self) -> None:
        self.network = self.enterContext(networks.Network(WORKERS))

    def begin_on_hosts(self, *flags: str, published: bool = False) -> None:
        """Starts the workers, each on a host of its own; if `published`, at addresses that the hosts do not have."""
        addresses = self.network.published_addresses() if published else self.network.addresses()
        on_hosts = dict(enumerate(map(networks.inside, self.network.hosts)))
        if published:
            for inside in on_hosts.values():  # [::] has no IPv4 there, unless a program asks for it
                networks.run(f"{' '.join(inside)} sh -c 'echo 1 >/proc/sys/net/ipv6/bindv6only'")
        self.begin_at(addresses, "--insecure_cluster", *flags, prefix_of=on_hosts)

    def test_a_worker_is_cut_off(self) -> None:
        for victim in VICTIMS:
            with self.subTest(victim=victim):
                self.make_network()
                self.begin_on_hosts(*ENDLESS, SAVES, IMPATIENCE)
                self.wait_for_a_save()
                self.wait_for_steps(4)
                self.network.cut(victim)
                self.wait_for_end(self.processes)
                outcomes = [self.finish(process) for process in self.processes]
                cut_off = outcomes.pop(victim)
                self.assert_name_the_lost(outcomes, victim)
                self.assertEqual(cut_off.code, 138, cut_off.told)
                # If it was the chief, it has saved no step but those that all have done.
                self.assert_as_alone(*ENDLESS)

    def test_killed_in_a_sum(self) -> None:
        for victim in VICTIMS:
            with self.subTest(victim=victim):
                self.make_network()
                self.begin_on_hosts(*ENDLESS, SAVES, PATIENCE)
                self.wait_for_a_save()
                self.wait_for_steps(4)
                for host in range(WORKERS):
                    self.network.slow_down(host, "20mbit")
                # The rest of it takes seconds now.
                self.wait_until(lambda: self.network.bytes_sent(victim) > SOME, "a sum")
                steps = workers.count_records(self.model_dir)
                self.kill(victim)
                self.assertEqual(workers.count_records(self.model_dir), steps, "the sum was over")
                self.assert_as_alone(*ENDLESS)

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
        self.make_network()
        self.begin_on_hosts(*flags, published=True)
        self.assert_ends_as_alone()

    # The one with small gradients: of ten packets one is sent again after 0.2 seconds or more.
    @harness.of("resnet")
    def test_packets_are_lost(self) -> None:
        self.make_network()
        self.network.lose(1, percent=10)
        self.begin_on_hosts(f"--max_train_steps={harness.STEPS}", PATIENCE)
        self.assert_ends_as_alone()
        self.assertGreater(self.network.count_lost(1), 20)

    def test_a_slow_link(self) -> None:
        # The link drops what it cannot carry. TCP doubles its time to try again with each loss, from 0.2 seconds on, so
        # that nothing may be acknowledged for longer than the default of --peer_timeout_secs.
        self.make_network()
        self.begin_on_hosts(*ENDLESS, PATIENCE)
        self.wait_for_steps(2)
        self.network.slow_down(1, "1mbit")
        steps = workers.count_records(self.model_dir)
        time.sleep(SLOWNESS)
        self.assertLess(workers.count_records(self.model_dir) - steps, 3, "the link was not slow")
        self.network.end_slowness(1)
        self.wait_for_steps(4)
        self.processes[0].send_signal(signal.SIGTERM)
        outcomes = [self.finish(process) for process in self.processes]
        self.assertEqual([o.code for o in outcomes], [143, 138, 138], "\n".join(o.told for o in outcomes))
        self.assert_as_alone(*ENDLESS)


if __name__ == "__main__":
    WorkerNetworkTest.why_not = networks.why_not("--map-root-user")
    if not WorkerNetworkTest.why_not:
        networks.enter_namespaces("--map-root-user")
    harness.main()
