"""The reference itself: mnist_graph gives what the official model gave under TensorFlow 1.10.1."""

import unittest

import numpy as np

from official.mnist.interop import mnist_graph


class GraphTest(unittest.TestCase):
    def test_logits_of_the_official_model(self) -> None:
        model = mnist_graph.build()
        images = (0.5 + 0.5 * np.cos(0.05 * np.arange(2 * 784))).reshape(2, 784)
        with mnist_graph.session(model, threads=1) as sess:
            mnist_graph.initialize(model, sess, mnist_graph.sine_values(scale=0.02))
            logits = sess.run(model.logits, {model.images: images})
        expected = [-0.003401, 0.008249, 0.01602, 0.016256, 0.008847]
        expected += [-0.002723, -0.013013, -0.017182, -0.01327, -0.003118]
        np.testing.assert_allclose(logits[0], expected, atol=1e-6)


if __name__ == "__main__":
    unittest.main(verbosity=2)
