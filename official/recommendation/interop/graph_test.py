"""The reference itself: neumf_graph gives what the official model gave under TensorFlow 1.10.1."""

import unittest

import numpy as np
import tensorflow.compat.v1 as tf

from official.recommendation.interop import neumf_graph
from official.recommendation.interop.neumf_graph import Network
from tools.interop import graph


class GraphTest(unittest.TestCase):
    def test_one_step(self) -> None:
        """All weights by rule with scale 0.3."""
        model = neumf_graph.build(Network(4, 6, num_factors=8, layers=(64, 32, 16, 8), loss="softmax"))
        feed = {model.users: [0, 1, 2, 3], model.items: [5, 4, 3, 2], model.labels: [1, 0, 1, 0]}
        with graph.session(model, threads=1) as sess:
            graph.initialize(model, sess, graph.sine_values(model, 0.3))
            scores = sess.run(model.scores, feed)
            np.testing.assert_allclose(scores, [0.263214, 0.426456, 0.337329, 0.351224], atol=1e-6)
            np.testing.assert_allclose(graph.train(model, sess, [feed]), [0.7684329], rtol=1e-6)
            for name, expected in (
                ("rating/bias", [-0.298997]),
                ("dense/kernel", [-0.160972, 0.03997, 0.222113]),
                ("embedding/embeddings", [0.272884, 0.289346, 0.168194]),
            ):
                value = sess.run(model.variables[name]).flatten()[: len(expected)]
                np.testing.assert_allclose(value, expected, atol=1e-6, err_msg=name)
            scores, loss = sess.run([model.scores, model.loss], feed)
            np.testing.assert_allclose(scores, [0.317019, 0.39507, 0.398535, 0.3268], atol=2e-6)
            np.testing.assert_allclose(loss, 0.7445456, rtol=1e-6)

    def test_losses(self) -> None:
        with tf.Session(graph=tf.Graph()) as sess:
            softmax = neumf_graph.mean_loss("softmax", tf.constant([0.5, -1.0]), tf.constant([1.0, 0.0]))
            self.assertAlmostEqual(sess.run(softmax), 0.55050254, places=6)
            # By hand, log(1 + exp(-0.5)), log(1 + exp(-1)) and -log(1e-7), where Keras clips.
            sigmoid = neumf_graph.mean_loss("sigmoid", tf.constant([0.5, -1.0, -30.0]), tf.constant([1.0, 0.0, 1.0]))
            self.assertAlmostEqual(sess.run(sigmoid), (0.474077 + 0.313262 + 16.118096) / 3, places=5)

    def test_metrics(self) -> None:
        """Upstream's own tests of the formula, and of MLPerf's rule."""
        scores = np.array([[1, 2, 0], [2, 1, 0], [0, 2, 1], [2, 3, 4]])
        for k, hr, ndcg in ((1, 0.25, 0.25), (2, 0.5, 0.40773244), (3, 1, 0.65773244)):
            self.check_metrics(scores, k, hr, ndcg)
        items = np.array([[1, 2, 2, 3], [1, 2, 3, 4], [1, 2, 3, 2], [4, 3, 2, 1]])
        scores = np.array([[1, 2, 2, 3], [3, 1, 0, 2], [0, 2, 3, 2], [3, 2, 4, 2]], np.float32)
        log = np.log(np.arange(6))
        self.check_metrics(scores, 4, 1, (1 + log[2] / log[3] + 2 * log[2] / log[5]) / 4)
        self.assertEqual(neumf_graph.ranking_metrics(scores, 3)["HR"], 0.5)
        masked = np.where(neumf_graph.repeated(items), -np.inf, scores)
        self.check_metrics(masked, 3, 1, (1 + log[2] / log[3] + 2 * log[2] / log[4]) / 4)

    def check_metrics(self, scores: np.ndarray, k: int, hr: float, ndcg: float) -> None:
        metrics = neumf_graph.ranking_metrics(scores, k)
        self.assertEqual(metrics["HR"], hr)
        self.assertAlmostEqual(metrics["NDCG"], ndcg, places=7)


if __name__ == "__main__":
    unittest.main(verbosity=2)
