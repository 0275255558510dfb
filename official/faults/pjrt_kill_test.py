"""A run on the device of a PJRT plugin that is killed in the middle ends with the same bits as one that is not."""

import argparse
import sys
from pathlib import Path

from official.faults import harness
from official.faults.killed_runs import KilledRunsTest
from third_party.pjrt.plugin_of_tests import plugin_of_tests


class PjrtKillTest(KilledRunsTest):
    # Each run compiles its programs.
    steps = 30
    steps_per_save = 5
    kills = 2
    restarts = 1
    steps_before_kill = range(6, 12)
    plugin: Path

    def check_one_device(self) -> None:
        self.check("--distribution_strategy=tpu", f"--pjrt_plugin={self.plugin}")

    def test_one_device(self) -> None:
        self.check_one_device()

    @harness.of("ncf")
    def test_embeddings(self) -> None:
        self.check_one_device()

    @harness.of("resnet")
    def test_batch_normalization(self) -> None:
        self.check_one_device()

    @harness.of("transformer")
    def test_dropout(self) -> None:
        self.check_one_device()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--plugin", type=Path, required=True)
    options, sys.argv[1:] = parser.parse_known_args()
    PjrtKillTest.plugin = plugin_of_tests(options.plugin)
    harness.main()
