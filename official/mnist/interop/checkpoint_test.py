"""TensorFlow reads our checkpoint, and trains on from it as we do."""

import numpy as np
import tensorflow.compat.v1 as tf

from official.mnist.interop import idx, mnist_graph, reference_run
from tools.interop import harness

STEPS = 5  # of one batch each: so many before the checkpoint, and so many after it


class CheckpointTest(harness.InteropTest):
    def setUp(self) -> None:
        super().setUp()
        self.data_dir, self.model_dir = self.folder / "data", self.folder / "model"
        idx.write_dataset(self.data_dir, "train", *idx.draw_examples(100, seed=1))
        idx.write_dataset(self.data_dir, "t10k", *idx.draw_examples(70, seed=2))
        self.train(STEPS)

    def train(self, steps: int) -> None:
        self.run_binary(
            f"--data_dir={self.data_dir}",
            f"--model_dir={self.model_dir}",
            "--shuffle=false",
            "--dropout_rate=0",
            "--batch_size=100",
            f"--train_epochs={steps}",
            f"--epochs_between_evals={STEPS}",
            "--log_every_n_steps=1",
        )

    def test_names_types_and_shapes(self) -> None:
        expected = {"global_step": (tf.int64, []), "beta1_power": (tf.float32, []), "beta2_power": (tf.float32, [])}
        for name, shape in mnist_graph.VARIABLES.items():
            for key in (name, f"{name}/Adam", f"{name}/Adam_1"):
                expected[key] = (tf.float32, list(shape))

        reader = tf.train.load_checkpoint(str(self.model_dir))
        shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
        actual = {key: (dtypes[key], shapes[key]) for key in shapes if not key.startswith("_run/")}
        self.assertEqual(actual, expected)
        self.assertEqual(reader.get_tensor("global_step"), STEPS)
        # The powers start at beta and are multiplied after each step.
        np.testing.assert_allclose(reader.get_tensor("beta1_power"), 0.9 ** (STEPS + 1), rtol=1e-6)
        np.testing.assert_allclose(reader.get_tensor("beta2_power"), 0.999 ** (STEPS + 1), rtol=1e-6)

    def test_evaluates_as_we_do(self) -> None:
        images, labels = idx.read_dataset(self.data_dir, "t10k")
        model = mnist_graph.build()
        with mnist_graph.session(model, threads=2) as sess:
            model.saver.restore(sess, tf.train.latest_checkpoint(str(self.model_dir)))
            accuracy = sess.run(model.accuracy, {model.images: images, model.labels: labels})
        self.assertAlmostEqual(harness.metric(self.model_dir, "accuracy")[STEPS], float(accuracy), places=6)

    def test_trains_on_as_we_do(self) -> None:
        images, labels = idx.read_dataset(self.data_dir, "train")
        theirs = reference_run.losses(self.model_dir, images, labels, STEPS, threads=2)
        self.train(2 * STEPS)
        ours = list(harness.metric(self.model_dir, "loss").values())[STEPS:]
        self.assert_relative(ours, theirs, [5e-6] * STEPS)


if __name__ == "__main__":
    harness.main()
