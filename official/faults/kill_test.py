"""A run that is killed at any moment, again and again, ends with the same bits as one that is not."""

from official.faults import harness
from official.faults.killed_runs import KilledRunsTest


class KillTest(KilledRunsTest):
    @harness.of_every_program
    def test_float32(self) -> None:
        self.check()

    def test_bfloat16(self) -> None:
        self.check("--dtype=bf16")

    def test_two_replicas(self) -> None:
        self.check("--num_cpu_devices=2")


if __name__ == "__main__":
    harness.main()
