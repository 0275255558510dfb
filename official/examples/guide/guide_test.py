"""The guide's loop has the losses that its formulas have, on any devices and workers. Usage: MODULE GUIDE_MAIN"""

import math
import re
import sys
import unittest
from pathlib import Path

from official.workers import launchers

HEAD = re.compile(r"strategy (\w+) replicas (\d+) batch_size (\d+) learning_rate (\S+)\n")
LOSS = re.compile(r"loss (\S+)\n")
NUM_EXAMPLES = 100
MORE_STEPS = 10


def losses_from(first: float, batch_size: int, learning_rate: float) -> list[float]:
    """Of one dense layer without an initial bias and with the input 1, whose label is 1. The first loss tells the initial
    kernel: -log(sigmoid(kernel))."""
    logit = -math.log(math.expm1(first))
    sizes = [min(batch_size, NUM_EXAMPLES - begin) for begin in range(0, NUM_EXAMPLES, batch_size)]
    losses = []
    for size in sizes + sizes[:MORE_STEPS]:
        part = size / batch_size  # a last batch that is smaller is divided by the size of whole ones, too
        losses.append(part * math.log1p(math.exp(-logit)))
        gradient = part * (1 / (1 + math.exp(-logit)) - 1)
        logit -= 2 * learning_rate * gradient  # of the kernel and of the bias
    return losses


class GuideTest(unittest.TestCase):
    program: str

    def output(self, *flags: str) -> str:
        ended = launchers.execute([self.program, *flags])
        self.assertEqual(ended.code, 0, ended.stderr)
        return ended.stdout

    def check(self, output: str, head: tuple[str, ...]) -> None:
        self.assertEqual(HEAD.match(output).groups(), head)
        losses = list(map(float, LOSS.findall(output)))
        expected = losses_from(losses[0], int(head[2]), float(head[3]))
        self.assertEqual(len(losses), len(expected))
        for ours, theirs in zip(losses, expected):
            self.assertAlmostEqual(ours, theirs, delta=2e-6)
        self.assertLess(losses[len(losses) // 2], losses[0])

    def test_the_default_strategy(self) -> None:
        self.check(self.output(), ("default", "1", "5", "0.1"))

    def test_mirrored(self) -> None:
        two = self.output("--num_cpu_devices=2")
        self.check(two, ("mirrored", "2", "10", "0.15"))
        self.assertEqual(self.output("--num_cpu_devices=2", "--all_reduce_alg=hierarchical_copy"), two)

    def test_one_copy_of_the_variables(self) -> None:
        three = self.output("--num_cpu_devices=3", "--distribution_strategy=central_storage")
        self.check(three, ("central_storage", "3", "15", "0.15"))
        mirrored = self.output("--num_cpu_devices=3")
        self.assertEqual(LOSS.findall(mirrored), LOSS.findall(three))

    def test_two_workers(self) -> None:
        addresses = [f"127.0.0.1:{port}" for port in launchers.free_ports(2)]
        workers = launchers.tf_config([self.program, "--num_cpu_devices=1"], addresses)
        self.assertEqual({worker.code for worker in workers}, {0}, workers)
        outputs = {worker.stdout for worker in workers}
        self.assertEqual(len(outputs), 1)
        self.check(*outputs, ("multi_worker_mirrored", "2", "10", "0.15"))
        self.assertEqual(LOSS.findall(*outputs), LOSS.findall(self.output("--num_cpu_devices=2")))

    def test_no_such_algorithm(self) -> None:
        ended = launchers.execute([self.program, "--num_cpu_devices=2", "--all_reduce_alg=nccl"])
        self.assertEqual(ended.code, 2, ended.stderr)
        self.assertIn("nccl", ended.stderr.splitlines()[-1])


def main() -> None:
    GuideTest.program = str(Path(sys.argv.pop(1)).resolve())
    unittest.main(module="__main__", verbosity=2)


if __name__ == "__main__":
    main()
