"""A worker is killed while the chief saves: the others end and name it, and the checkpoint is whole or absent."""

import signal
import time

from official.faults import harness, losses, workers
from official.faults.losses import ENDLESS, PATIENCE


class WorkerLossInSaveTest(losses.LossCase):
    def begin_with_fault(self, fault: dict[str, str]) -> None:
        """Starts a run with a fault at the chief."""
        self.begin(*ENDLESS, PATIENCE, "--save_checkpoints_steps=1", prefix_of={0: workers.with_environment(fault)})

    def begin_and_hold_the_chief(self) -> None:
        """Holds the chief up in its saves of steps 2 and 3, so that the others wait between steps 3 and 4, until there
        is a file `goes_on`."""
        self.goes_on = self.folder / "goes on"
        fault = self.with_fault(self.folder, "slow", 1, call="fsync", path="ckpt-2.data", until=self.goes_on)
        self.begin_with_fault(fault)
        self.wait_for_steps(3)
        time.sleep(0.2)  # by then they wait

    def test_the_chief_is_killed_while_the_others_are_between_steps(self) -> None:
        self.begin_and_hold_the_chief()
        self.kill(0)
        self.assertEqual(harness.latest_step(self.model_dir), 1)
        self.assert_goes_on()

    def test_another_one_is_killed_between_steps(self) -> None:
        self.begin_and_hold_the_chief()
        self.processes[2].kill()
        self.wait_for_end([self.processes[1]])
        self.goes_on.touch()
        self.wait_for_others(2)  # the chief finishes what it writes
        self.assertIn(harness.latest_step(self.model_dir), (2, 3))  # all have done these steps
        self.assert_goes_on()

    def test_the_chief_is_killed_at_a_call(self) -> None:
        calls = (
            ("write", "ckpt-2.data", 1),
            ("rename", "ckpt-2.data", 1),
            ("fsync", "ckpt-2.index", 1),
            ("rename", "/checkpoint", 3),  # after those of steps 0 and 1
        )
        for number, (call, path, at) in enumerate(calls):
            with self.subTest(f"{call} {path}"):
                self.model_dir = self.folder / f"model {number}"
                self.begin_with_fault(self.with_fault(self.folder, "kill", at, call=call, path=path))
                self.assertEqual(self.processes[0].wait(harness.DEADLINE), -signal.SIGKILL)
                self.wait_for_others(0)
                self.assertEqual(harness.latest_step(self.model_dir), 1)
                self.assert_goes_on()


if __name__ == "__main__":
    harness.main()
