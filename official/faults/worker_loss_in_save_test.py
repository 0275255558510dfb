"""A worker is killed while the chief saves: the others end and name it, and the checkpoint is whole or absent."""

import signal
import time

from official.faults import harness, losses, workers
from official.faults.losses import ENDLESS, PATIENCE, SOON

HELD = 3  # seconds that a save takes longer


class WorkerLossInSaveTest(losses.LossCase):
    def begin_with_fault(self, fault: dict[str, str]) -> None:
        """Starts a run in a new directory, with a fault at the chief."""
        self.model_dir = self.folder / f"model {time.monotonic()}"
        self.begin(*ENDLESS, PATIENCE, "--save_checkpoints_steps=1", prefix_of={0: workers.with_environment(fault)})

    def begin_and_hold_the_chief(self) -> None:
        """Holds the chief up in its saves of steps 2 and 3, so that the others wait between steps 3 and 4."""
        self.begin_with_fault(self.with_fault(self.folder, "slow", 1, call="fsync", path="ckpt-2.data", seconds=HELD))
        self.wait_for_steps(3)
        time.sleep(0.2)

    def test_the_chief_is_killed_while_the_others_are_between_steps(self) -> None:
        def lose() -> float:
            self.begin_and_hold_the_chief()
            return self.kill(0)

        self.assert_in_time(SOON, lose)
        self.assertEqual(harness.latest_step(self.model_dir), 1)
        self.assert_goes_on()

    def test_another_one_is_killed_between_steps(self) -> None:
        def lose() -> float:
            self.begin_and_hold_the_chief()
            self.processes[2].kill()
            took = self.seconds_until_end([self.processes[1]])
            self.wait_for_others(2)  # the chief finishes what it writes
            return took

        self.assert_in_time(SOON, lose)
        self.assertIn(harness.latest_step(self.model_dir), (2, 3))  # all have done these steps
        self.assert_goes_on()

    def test_the_chief_is_killed_at_a_call(self) -> None:
        def lose(fault: dict[str, str]) -> float:
            self.begin_with_fault(fault)
            self.assertEqual(self.processes[0].wait(harness.DEADLINE), -signal.SIGKILL)
            return self.wait_for_others(0)

        for call, path, at in (
            ("write", "ckpt-2.data", 1),
            ("rename", "ckpt-2.data", 1),
            ("fsync", "ckpt-2.index", 1),
            ("rename", "/checkpoint", 3),  # after those of steps 0 and 1
        ):
            with self.subTest(f"{call} {path}"):
                self.assert_in_time(SOON, lose, self.with_fault(self.folder, "kill", at, call=call, path=path))
                self.assertEqual(harness.latest_step(self.model_dir), 1)
                self.assert_goes_on()


if __name__ == "__main__":
    harness.main()
