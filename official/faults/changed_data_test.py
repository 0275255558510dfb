"""A run that resumes on other training data than those of its checkpoint, and evaluations of what was trained."""

import math
import struct
from pathlib import Path

from official.faults import checkpoint_file, harness
from official.faults.programs import STEPS_PER_EPOCH
from utils.fuzzing import make_corpus

CHANGED = "the training data have changed since the checkpoint was written"
# A variable of each network, and its shape.
VARIABLES = {
    "mnist": ("conv2d/bias", (32,)),
    "resnet": ("resnet_model/dense/bias", (10,)),
    "ncf": ("embedding/embeddings", (40, 8)),
    "transformer": ("model/Transformer/encoder_stack/layer_normalization/layer_norm_bias", (16,)),
}


class ChangedDataTest(harness.FaultTest):
    @harness.of_every_program
    def test_fewer_examples_than_were_read(self) -> None:
        model_dir, first = self.folder / "model", STEPS_PER_EPOCH + 3
        self.write_data(self.data_dir, times=2)
        self.train(model_dir, first)
        self.write_data(self.data_dir)
        outcome = self.execute(self.command(model_dir))
        if self.program.name == "ncf":  # other users are another network
            self.assert_refused(outcome, 2, "was trained on ratings of 80 users", "has 40 users")
            return
        self.assertEqual(outcome.code, 0, outcome.told)
        self.assertIn(CHANGED, outcome.stderr)
        self.assertIn("that epoch counts as finished", outcome.stderr)
        # Two epochs are left.
        self.assertEqual(harness.latest_step(model_dir), first + 2 * STEPS_PER_EPOCH)
        self.assertEqual(outcome.stdout.count("Evaluation results"), 1, outcome.told)
        # From now on these are its data.
        again = self.execute(self.command(model_dir, "--train_epochs=4", "--epochs_between_evals=4"))
        self.assertEqual(again.code, 0, again.told)
        self.assertNotIn(CHANGED, again.stderr)

    @harness.of_every_program
    def test_more_examples(self) -> None:
        model_dir = self.folder / "model"
        self.train(model_dir, 3)
        same = self.execute(self.command(model_dir, "--max_train_steps=4"))
        self.assertNotIn(CHANGED, same.stderr)
        self.write_data(self.data_dir, times=2)
        outcome = self.execute(self.command(model_dir))
        if self.program.name == "ncf":
            self.assert_refused(outcome, 2, "was trained on ratings of 40 users", "has 80 users")
            return
        self.assertEqual(outcome.code, 0, outcome.told)
        self.assertIn(CHANGED, outcome.stderr)
        self.assertNotIn("counts as finished", outcome.stderr)

    def test_the_place_is_the_end_of_the_new_data(self) -> None:
        model_dir = self.folder / "model"
        self.write_data(self.data_dir, times=2)
        flags = ("--batch_size=8", "--epochs_between_evals=1", "--train_epochs=2")
        self.train(model_dir, 8, *flags)
        self.write_data(self.data_dir)  # 64 images
        outcome = self.execute(self.command(model_dir, *flags))
        self.assertEqual(outcome.code, 0, outcome.told)
        self.assertEqual(harness.latest_step(model_dir), 16)
        self.assertEqual(outcome.stdout.count("Evaluation results"), 1, outcome.told)

    @harness.of_every_program
    def test_eval_only(self) -> None:
        model_dir = self.folder / "model"
        outcome = self.run_steps(model_dir, 3, "--eval_only")
        self.assert_refused(outcome, 66, "there is no checkpoint in", model_dir)
        self.assertFalse(model_dir.exists())
        trained = self.train(model_dir, 3)
        files = sorted(path.name for path in model_dir.iterdir())
        evaluated = self.run_steps(model_dir, 3, "--eval_only")
        self.assertEqual(evaluated.code, 0, evaluated.told)
        self.assertEqual(evaluated.stdout, trained.stdout)
        self.assertEqual(sorted(path.name for path in model_dir.iterdir()), files)
        self.assert_refused_flags(model_dir, "--eval_only", "--clean")
        if self.program.name != "transformer":
            self.assert_refused_flags(model_dir, "--predict=1", "--eval_only")
            self.assert_refused_flags(model_dir, "--predict=1", f"--export_dir={self.folder}/export")

    def assert_refused_flags(self, model_dir: Path, *flags: str) -> None:
        outcome = self.execute(self.command(model_dir, *flags))
        self.assertEqual(outcome.code, 2, outcome.told)
        for flag in flags:
            self.assertIn(flag.split("=")[0], outcome.stderr)
        self.assertEqual(harness.latest_step(model_dir), 3)

    @harness.of_every_program
    def test_a_weight_that_is_no_number(self) -> None:
        model_dir = self.folder / "model"
        self.train(model_dir, 3)
        name, shape = VARIABLES[self.program.name]
        values = [0.0] * math.prod(shape)
        values[1] = math.nan
        checkpoint_file.replace_tensor(
            model_dir / "model.ckpt-3",
            name.encode(),
            make_corpus.FLOAT,
            make_corpus.shape(*shape),
            struct.pack(f"<{len(values)}f", *values),
        )
        words = (f"variable {name} (float32", "at step 3 is not finite: its element 1 is nan")
        for flags in ((), ("--eval_only",)):
            (model_dir / "eval" / "evaluated_step").unlink(missing_ok=True)
            outcome = self.run_steps(model_dir, 3, *flags)
            self.assert_refused(outcome, 65, "the loss of the evaluation is not finite", *words)
            self.assertEqual(outcome.stdout, "")
        # Nor is it predicted with.
        if self.program.name in ("mnist", "ncf"):
            what = "1" if self.program.name == "ncf" else self.data_dir / "t10k-images-idx3-ubyte"
            outcome = self.execute(self.command(model_dir, f"--predict={what}"))
            self.assert_refused(outcome, 65, "the prediction", *words)
            self.assertEqual(outcome.stdout, "")


if __name__ == "__main__":
    harness.main()
