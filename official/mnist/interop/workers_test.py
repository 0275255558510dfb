"""Two workers start from TensorFlow's checkpoint with TensorFlow's losses, and its Saver reads what they write."""

import numpy as np
import tensorflow.compat.v1 as tf

from official.mnist.interop import idx, mnist_graph, reference_run
from official.workers import launchers
from tools.interop import harness

STEPS = 5


class WorkersTest(harness.InteropTest):
    def test_from_and_to_tensorflow(self) -> None:
        data_dir, model_dir = self.folder / "data", self.folder / "model"
        model_dir.mkdir()
        idx.write_dataset(data_dir, "train", *idx.draw_examples(100, seed=1))
        idx.write_dataset(data_dir, "t10k", *idx.draw_examples(100, seed=2))
        reference_run.write_initial_checkpoint(model_dir, seed=1)
        images, labels = idx.read_dataset(data_dir, "train")
        theirs = reference_run.losses(model_dir, images, labels, STEPS, threads=2)

        flags = ("--shuffle=false", "--dropout_rate=0", "--batch_size=100", "--log_every_n_steps=1")
        epochs = (f"--train_epochs={STEPS}", f"--epochs_between_evals={STEPS}")
        command = [str(self.binary), f"--data_dir={data_dir}", f"--model_dir={model_dir}", *flags, *epochs]
        addresses = [f"127.0.0.1:{port}" for port in launchers.free_ports(2)]
        for ended in launchers.tf_config(command, addresses):
            self.assertEqual(ended.code, 0, ended.stderr)
            self.assertIn("written by TensorFlow", ended.stderr)
        ours = list(harness.metric(model_dir, "loss").values())
        self.assert_relative(ours, theirs, [5e-6] * STEPS)

        model = mnist_graph.build()
        with mnist_graph.session(model, threads=2) as sess:
            model.saver.restore(sess, tf.train.latest_checkpoint(str(model_dir)))
            step = sess.run(tf.train.get_global_step())
            test_images, test_labels = idx.read_dataset(data_dir, "t10k")
            accuracy = sess.run(model.accuracy, {model.images: test_images, model.labels: test_labels})
        self.assertEqual(step, STEPS)
        np.testing.assert_allclose(harness.metric(model_dir, "accuracy")[STEPS], accuracy, rtol=1e-6)


if __name__ == "__main__":
    harness.main()
