"""The example learns, alike on one device, on two and on two workers. Usage: MODULE KERAS_MAIN"""

import re
import sys
import unittest
from pathlib import Path

from official.workers import launchers


class KerasTest(unittest.TestCase):
    program: str

    def output(self, *arguments: str) -> launchers.Ended:
        ended = launchers.execute([self.program, *arguments])
        self.assertEqual(ended.code, 0, ended.stderr)
        return ended

    def test_it_learns(self) -> None:
        ended = self.output()
        losses = [float(loss) for loss in re.findall(r"^epoch \d loss (\S+)$", ended.stdout, re.MULTILINE)]
        self.assertEqual(len(losses), 5, ended.stdout)
        self.assertEqual(losses, sorted(losses, reverse=True))
        self.assertGreater(losses[0], 1e-4)
        self.assertLess(float(re.search(r"evaluated loss (\S+)", ended.stdout)[1]), 1e-12)
        self.assertAlmostEqual(float(re.search(r"predicted (\S+)", ended.stdout)[1]), 1, places=6)
        self.assertRegex(ended.stderr, r"Epoch 5/5 - loss: ")

    def test_devices_and_workers_see_the_same(self) -> None:
        two = self.output("--num_cpu_devices=2").stdout
        self.assertEqual(two, self.output().stdout)
        addresses = [f"127.0.0.1:{port}" for port in launchers.free_ports(2)]
        for worker in launchers.tf_config([self.program], addresses):
            self.assertEqual((worker.code, worker.stdout), (0, two), worker.stderr)

    def test_wrong_flag(self) -> None:
        ended = launchers.execute([self.program, "--num_cpu_devices=0"])
        self.assertEqual(ended.code, 2)
        self.assertIn("flag --num_cpu_devices=0: needs an integer, at least 1", ended.stderr)


def main() -> None:
    KerasTest.program = str(Path(sys.argv.pop(1)).resolve())
    unittest.main(module="__main__", verbosity=2)


if __name__ == "__main__":
    main()
