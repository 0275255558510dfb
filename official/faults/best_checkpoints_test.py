"""A run with --keep_best that is killed at any change of best/ leaves a complete best checkpoint there, and the next
run has what a run without the kill has."""

import hashlib
from pathlib import Path

from official.faults import harness

# The loss becomes less with each evaluation: each takes the place of the one before.
FLAGS = ("--epochs_between_evals=1", "--keep_best=loss:min:1", "--keep_checkpoint_max=0")
MOST_CALLS = 50


class BestCheckpointsTest(harness.FaultTest):
    def test_killed_at_every_change(self) -> None:
        begun = self.folder / "begun"
        self.assertEqual(self.execute(self.command(begun, *FLAGS, "--train_epochs=1")).code, 0)
        whole = self.copy(begun, "whole")
        command = [*FLAGS, "--train_epochs=2"]
        self.assertEqual(self.execute(self.command(whole, *command)).code, 0)
        kept = self.hashes(whole / "best")
        self.assertEqual(kept, self.of_step(whole, harness.latest_step(whole)), "the last loss is not the least")
        for path, least in (("/best", 10), ("/eval/results.txt", 3)):
            killed, code = 0, 137
            while code == 137 and killed < MOST_CALLS:
                model_dir = self.copy(begun, f"{path.count('/')} model {killed}")
                env = self.with_fault(model_dir, "kill", killed + 1, path=path)
                outcome = self.execute(self.command(model_dir, *command), env=env)
                code = outcome.code
                self.assertIn(code, (0, 137), outcome.told)
                killed += code == 137
                with self.subTest(f"killed at call {killed} of {path}"):
                    best = model_dir / "best"
                    latest = self.of_step(whole, harness.latest_step(best))
                    self.assertEqual(len(latest), 2)
                    self.assertLessEqual(latest.items(), self.hashes(best).items(), outcome.told)
                    outcome = self.execute(self.command(model_dir, *command))
                    self.assertEqual(outcome.code, 0, outcome.told)
                    self.assertEqual(self.hashes(best), kept, outcome.told)
                    self.assertEqual(harness.latest_step(best), harness.latest_step(whole))
                    results = "eval/results.txt"
                    self.assertEqual((model_dir / results).read_text(), (whole / results).read_text())
                    self.assert_no_temporaries(model_dir)
            self.assertGreater(killed, least, "the library does not see the calls")
            self.assertLess(killed, MOST_CALLS)

    def hashes(self, model_dir: Path) -> dict[str, str]:
        return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in model_dir.glob("model.ckpt-*")}

    def of_step(self, model_dir: Path, step: int) -> dict[str, str]:
        return {name: digest for name, digest in self.hashes(model_dir).items() if f"-{step}." in name}


if __name__ == "__main__":
    harness.main()
