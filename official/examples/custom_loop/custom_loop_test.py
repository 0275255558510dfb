"""The example trains, and alike however many devices and workers divide its batches. Usage: MODULE CUSTOM_LOOP_MAIN"""

import re
import sys
import unittest
from pathlib import Path

from official.workers import launchers

NUMBER = r"(\d+\.\d+(?:e-?\d+)?)"
LINE = re.compile(rf"epoch (\d+) loss {NUMBER} test_loss {NUMBER} test_accuracy {NUMBER}\n")
EPOCHS = 5
# A float32 has 24 bits, and the printed loss is a sum of 33 losses of batches, divided: a few roundings.
ROUNDING = 4 * 2**-24


class CustomLoopTest(unittest.TestCase):
    program: str
    one: list[tuple[float, ...]]

    @classmethod
    def setUpClass(cls) -> None:
        cls.one = cls.numbers(cls.output(1))

    @classmethod
    def output(cls, devices: int) -> str:
        ended = launchers.execute([cls.program, str(devices)])
        if ended.code != 0:
            raise AssertionError(ended.stderr)
        return ended.stdout

    @classmethod
    def numbers(cls, output: str) -> list[tuple[float, ...]]:
        """For each epoch its number, the loss, the test loss and the test accuracy."""
        return [tuple(map(float, line)) for line in LINE.findall(output)]

    def outputs_of_workers(self, workers: int, devices: int) -> set[str]:
        addresses = [f"127.0.0.1:{port}" for port in launchers.free_ports(workers)]
        processes = launchers.tf_config([self.program, str(devices)], addresses)
        self.assertEqual({process.code for process in processes}, {0}, processes)
        return {process.stdout for process in processes}

    def test_one_device_learns(self) -> None:
        self.assertEqual([epoch for epoch, *_ in self.one], list(range(1, EPOCHS + 1)))
        losses = [loss for _, loss, *_ in self.one]
        self.assertEqual(losses, sorted(losses, reverse=True))
        self.assertLess(losses[-1], 0.4 * losses[0])
        self.assertGreater(self.one[-1][-1], 0.95)

    def assert_same(self, devices: int, rounding: float) -> None:
        """The losses of training are sums of the devices' own, so that they may round where nothing else does."""
        numbers = self.numbers(self.output(devices))
        self.assertEqual(len(numbers), EPOCHS)
        for (_, loss, test_loss, accuracy), (_, loss_of_one, test_loss_of_one, accuracy_of_one) in zip(numbers, self.one):
            self.assertAlmostEqual(loss, loss_of_one, delta=ROUNDING * loss_of_one)
            self.assertAlmostEqual(test_loss, test_loss_of_one, delta=rounding * test_loss_of_one)
            self.assertEqual(accuracy, accuracy_of_one)

    def test_two_and_four_devices_train_the_same_bits(self) -> None:
        self.assert_same(2, rounding=0)
        self.assert_same(4, rounding=0)

    def test_three_devices_differ_by_rounding(self) -> None:
        self.assert_same(3, rounding=ROUNDING)

    def test_workers_see_what_one_process_does(self) -> None:
        self.assertEqual(self.outputs_of_workers(2, devices=1), {self.output(2)})
        self.assertEqual(self.outputs_of_workers(2, devices=2), {self.output(4)})

    def test_usage(self) -> None:
        ended = launchers.execute([self.program, "none"])
        self.assertEqual((ended.code, ended.stderr), (2, "usage: custom_loop_main [DEVICES]\n"))


def main() -> None:
    CustomLoopTest.program = str(Path(sys.argv.pop(1)).resolve())
    unittest.main(module="__main__", verbosity=2)


if __name__ == "__main__":
    main()
