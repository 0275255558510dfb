"""From TensorFlow's checkpoint, on one fixed batch without dropout, our losses are TensorFlow's."""

import numpy as np

from official.mnist.interop import idx, reference_run
from tools.interop import harness

STEPS = 20


class ParityTest(harness.InteropTest):
    def test_losses_of_twenty_steps(self) -> None:
        data_dir, model_dir = self.folder / "data", self.folder / "model"
        model_dir.mkdir()
        idx.write_dataset(data_dir, "train", *idx.draw_examples(100, seed=1))
        idx.write_dataset(data_dir, "t10k", *idx.draw_examples(100, seed=2))
        reference_run.write_initial_checkpoint(model_dir, seed=1)

        runs = np.array(
            [
                reference_run.losses_in_own_process(model_dir, data_dir, STEPS, threads, onednn)
                for threads in (1, 2)
                for onednn in (True, False)
            ]
        )
        own_variation = (runs.max(axis=0) - runs.min(axis=0)) / runs[0]
        self.run_binary(
            f"--data_dir={data_dir}",
            f"--model_dir={model_dir}",
            "--shuffle=false",
            "--dropout_rate=0",
            "--batch_size=100",
            f"--train_epochs={STEPS}",
            f"--epochs_between_evals={STEPS}",
            "--log_every_n_steps=1",
        )
        ours = list(harness.metric(model_dir, "loss").values())
        self.assertEqual(len(ours), STEPS)
        error = np.abs(np.array(ours) / runs[0] - 1).max()
        print(f"largest relative difference {error:.1e}; TensorFlow's own {own_variation.max():.1e} (threads, oneDNN)")
        self.assert_relative(ours, list(runs[0]), list(np.maximum(5e-6, 4 * own_variation)))


if __name__ == "__main__":
    harness.main()
