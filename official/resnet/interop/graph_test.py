"""The reference itself: resnet_graph gives what the official model gave under TensorFlow 1.10.1."""

import unittest

import numpy as np

from official.resnet.interop import resnet_graph
from official.resnet.interop.resnet_graph import Network
from tools.interop import graph

# Of the official model: size 8, all weights by rule with scale 0.1, one step at rate 0.1. Element [0, 0, 0, :4] of
# the first kernel, and the first four of vectors.
CIFAR10 = {
    1: {
        "logits": [
            [0.456104, 0.777299, 0.732918, 0.343834, -0.20696, -0.660418, -0.803271, -0.568333, -0.066099, 0.467222],
            [-0.242477, -0.025138, 0.204025, 0.337231, 0.311832, 0.139774, -0.098022, -0.289717, -0.345153, -0.238259],
        ],
        "losses": [2.3744001, 0.07423735, 2.4486375],
        "inference": [
            *(0.179143, 0.055514, -0.094224, -0.199647, -0.211173),
            *(-0.123381, 0.022439, 0.157705, 0.218801, 0.176991),
        ],
        "dense/bias": [-0.095032, -0.112871, -0.081573, 0.033941],
        "batch_normalization/gamma": [1.037225, 1.114973, 1.135116, 1.034035],
        "batch_normalization/moving_mean": [0.001768, 0.06557, 0.098533, 0.085155],
        "batch_normalization/moving_variance": [0.920409, 0.897307, 0.921093, 0.980581],
        "conv2d/kernel": [-0.402088, 0.273611, 0.029782, 0.726395],
    },
    2: {
        "logits": [
            [0.191777, 0.382521, 0.39336, 0.219196, -0.05806, -0.308009, -0.413097, -0.323899, -0.082366, 0.197905],
            [-0.166441, -0.036063, 0.111276, 0.20628, 0.204268, 0.106185, -0.041838, -0.170184, -0.21849, -0.164036],
        ],
        "losses": [2.305151, 0.06297493, 2.368126],
        "inference": [
            *(0.046307, -0.020396, -0.077506, -0.098164, -0.072654),
            *(-0.012973, 0.052809, 0.093754, 0.090605, 0.044843),
        ],
        "dense/bias": [-0.094584, -0.110803, -0.079491, 0.034682],
        "batch_normalization/gamma": [1.033794, 1.119191, 1.087041, 1.044929],
        "batch_normalization/moving_mean": [0.001768, 0.06557, 0.098533, 0.085155],
        "batch_normalization/moving_variance": [0.920409, 0.897307, 0.921093, 0.980581],
        "conv2d/kernel": [-0.165583, 0.128077, -0.512388, 0.428338],
    },
}

# The first six logits of an image of 224 x 224 by (size, version), and the scale of the weights.
IMAGENET = {
    (18, 1): (0.05, [-0.044634, -0.051292, -0.033827, -0.000452, 0.033135, 0.051138]),
    (18, 2): (0.05, [-0.042878, -0.050099, -0.033759, -0.001541, 0.031402, 0.049576]),
    (50, 1): (0.02, [-0.016685, -0.01917, -0.01264, -0.000164, 0.012388, 0.019114]),
    (50, 2): (0.02, [-0.016871, -0.019658, -0.013199, -0.000532, 0.012384, 0.019477]),
}

# Trainable parameters, trainable variables, all variables of the model.
COUNTS = {
    ("imagenet", 18, 1): (11694249, 65, 107),
    ("imagenet", 18, 2): (11692329, 57, 91),
    ("imagenet", 34, 1): (21802409, 113, 187),
    ("imagenet", 34, 2): (21800489, 105, 171),
    ("imagenet", 50, 1): (25559081, 161, 267),
    ("imagenet", 50, 2): (25551401, 153, 251),
    ("cifar10", 8, 1): (78330, 32, 52),
    ("cifar10", 8, 2): (78106, 26, 40),
    ("cifar10", 20, 1): (272762, 68, 112),
    ("cifar10", 20, 2): (272538, 62, 100),
}


class GraphTest(unittest.TestCase):
    def test_cifar10(self) -> None:
        images = np.cos(0.01 * np.arange(2 * 32 * 32 * 3)).reshape(2, 32, 32, 3)
        for version, expected in CIFAR10.items():
            with self.subTest(version=version):
                model = resnet_graph.build(Network("cifar10", 8, version))
                feed = {model.images: images, model.labels: [3, 7], model.training: True}
                with graph.session(model, threads=1) as sess:
                    graph.initialize(model, sess, graph.sine_values(model, 0.1))
                    inference = sess.run(model.logits, {**feed, model.training: False})
                    losses = [model.cross_entropy, model.l2_loss, model.loss]
                    *losses, logits, _ = sess.run([*losses, model.logits, model.train_op], feed)
                    np.testing.assert_allclose(logits, expected["logits"], atol=3e-6)
                    np.testing.assert_allclose(losses, expected["losses"], rtol=2e-6)
                    np.testing.assert_allclose(inference[0], expected["inference"], atol=3e-6)
                    for name, values in expected.items():
                        if "/" in name:
                            value = sess.run(model.variables[f"resnet_model/{name}"])
                            np.testing.assert_allclose(value.flatten()[:4], values, atol=1e-5, err_msg=name)

    def test_imagenet(self) -> None:
        images = (100 * np.cos(0.001 * np.arange(224 * 224 * 3))).reshape(1, 224, 224, 3)
        for (size, version), (scale, expected) in IMAGENET.items():
            with self.subTest(size=size, version=version):
                model = resnet_graph.build(Network("imagenet", size, version))
                with graph.session(model, threads=2) as sess:
                    graph.initialize(model, sess, graph.sine_values(model, scale))
                    logits = sess.run(model.logits, {model.images: images})
                np.testing.assert_allclose(logits[0, :6], expected, atol=2e-6)

    def test_counts(self) -> None:
        for key, expected in COUNTS.items():
            with self.subTest(key):
                model = resnet_graph.build(Network(*key))
                parameters = sum(int(np.prod(model.variables[name].shape)) for name in model.trainable)
                self.assertEqual((parameters, len(model.trainable), len(model.variables)), expected)


if __name__ == "__main__":
    unittest.main(verbosity=2)
