"""TensorFlow imports the meta graph beside our checkpoint, restores it, and answers as our predict does."""

import json

import numpy as np
import tensorflow as tf
from google.protobuf import text_format

from official.mnist.interop import idx
from tools.interop import harness


class MetaGraphTest(harness.InteropTest):
    def setUp(self) -> None:
        super().setUp()
        self.data_dir, self.model_dir = self.folder / "data", self.folder / "model"
        idx.write_dataset(self.data_dir, "train", *idx.draw_examples(300, seed=1))
        idx.write_dataset(self.data_dir, "t10k", *idx.draw_examples(70, seed=2))
        self.flags = [f"--data_dir={self.data_dir}", f"--model_dir={self.model_dir}"]

    def predict(self) -> np.ndarray:
        images = self.data_dir / "t10k-images-idx3-ubyte"
        output = self.run_binary(*self.flags, f"--predict={images}", "--output=json")
        return np.array([json.loads(line)["probabilities"] for line in output.splitlines()])

    def predict_with_tensorflow(self) -> np.ndarray:
        """The names of the tensors are those of the meta graph's signature."""
        images, _ = idx.read_dataset(self.data_dir, "t10k")
        checkpoint = tf.train.latest_checkpoint(str(self.model_dir))
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            saver = tf.compat.v1.train.import_meta_graph(checkpoint + ".meta")
            saver.restore(session, checkpoint)
            meta_graph = tf.compat.v1.MetaGraphDef.FromString(open(checkpoint + ".meta", "rb").read())
            signature = meta_graph.signature_def["classify"]
            feed = {signature.inputs["image"].name: np.reshape(images, [-1, 28, 28])}
            return session.run(signature.outputs["probabilities"].name, feed)

    def test_answers_as_our_predict_does(self) -> None:
        self.run_binary(*self.flags, "--train_epochs=3", "--save_meta_graph")
        np.testing.assert_allclose(self.predict_with_tensorflow(), self.predict(), rtol=0, atol=1e-5)

    def test_restores_moving_averages(self) -> None:
        self.run_binary(*self.flags, "--train_epochs=3", "--save_meta_graph", "--ema_decay=0.9")
        np.testing.assert_allclose(self.predict_with_tensorflow(), self.predict(), rtol=0, atol=1e-5)

    def test_saves_again(self) -> None:
        self.run_binary(*self.flags, "--train_epochs=1", "--save_meta_graph")
        checkpoint = tf.train.latest_checkpoint(str(self.model_dir))
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            saver = tf.compat.v1.train.import_meta_graph(checkpoint + ".meta")
            saver.restore(session, checkpoint)
            saved = saver.save(session, str(self.folder / "again"), write_meta_graph=False)
        ours, again = tf.train.load_checkpoint(checkpoint), tf.train.load_checkpoint(saved)
        self.assertIn("dense/kernel", again.get_variable_to_shape_map())
        for name in again.get_variable_to_shape_map():
            np.testing.assert_array_equal(again.get_tensor(name), ours.get_tensor(name))

    def test_every_checkpoint_has_one(self) -> None:
        each = ["--save_checkpoints_steps=1", "--batch_size=100", "--save_meta_graph"]
        self.run_binary(*self.flags, *each, "--train_epochs=1", "--keep_checkpoint_max=2", "--keep_best=loss:min:1")
        for folder, steps in ((self.model_dir, [2, 3]), (self.model_dir / "best", [3])):
            for suffix in (".meta", ".index"):
                names = sorted(path.name for path in folder.glob("*" + suffix))
                self.assertEqual(names, [f"model.ckpt-{step}{suffix}" for step in steps])

    def test_graph_is_text(self) -> None:
        self.run_binary(*self.flags, "--train_epochs=1", "--save_meta_graph")
        graph = tf.compat.v1.GraphDef()
        text_format.Parse((self.model_dir / "graph.pbtxt").read_text(), graph)
        checkpoint = tf.train.latest_checkpoint(str(self.model_dir))
        meta_graph = tf.compat.v1.MetaGraphDef.FromString(open(checkpoint + ".meta", "rb").read())
        self.assertEqual(graph, meta_graph.graph_def)
        with tf.Graph().as_default():
            tf.import_graph_def(graph)

    def test_only_on_request(self) -> None:
        self.run_binary(*self.flags, "--train_epochs=1")
        self.assertEqual([*self.model_dir.glob("*.meta"), *self.model_dir.glob("*.pbtxt")], [])


if __name__ == "__main__":
    harness.main()
