"""The reference itself: transformer_graph gives what the official model gave under TensorFlow 1.10.1."""

import unittest

import numpy as np

from official.transformer.interop import transformer_graph
from official.transformer.interop.transformer_graph import NETWORKS, Network
from tools.interop import graph

# Of the official model: all weights by rule with scale 0.3, a warm-up of 4 steps.
SMALL = Network(hidden_size=8, num_heads=2, filter_size=16, vocab_size=11, num_layers=2, warmup_steps=4)
INPUTS = [[2, 3, 4, 1], [5, 6, 1, 0]]
TARGETS = [[7, 8, 1], [9, 1, 0]]
LOGITS = {
    (0, 0): [
        *(0.99288, -0.455834, -1.699939, -2.180995, -1.683072, -0.429671),
        *(1.016595, 2.006545, 2.09582, 1.244348, -0.165672),
    ],
    (0, 2): [
        *(1.089466, -0.336379, -1.611235, -2.162859, -1.743644, -0.541762),
        *(0.903299, 1.942898, 2.110392, 1.330598, -0.046459),
    ],
    (1, 1): [
        *(-0.278498, 0.523136, 1.089951, 1.167522, 0.721029, -0.049111),
        *(-0.797206, -1.187461, -1.044703, -0.43301, 0.373047),
    ],
}
LEARNING_RATES = [0, 0.088388346, 0.17677669, 0.26516503]
LOSSES = [1.5427353, 1.5427353, 1.5751812, 1.413456, 1.3497523]  # before each step, and after the last
EMBEDDING = "model/Transformer/embedding_shared_weights/embedding_and_softmax/weights"
BIAS = "model/Transformer/decoder_stack/layer_1/ffn/feed_foward_network/output_layer/bias"


class GraphTest(unittest.TestCase):
    def test_small_network(self) -> None:
        model = transformer_graph.build(SMALL)
        feed = {model.inputs: INPUTS, model.targets: TARGETS}
        with graph.session(model, threads=1) as sess:
            graph.initialize(model, sess, graph.sine_values(model, 0.3))
            logits = sess.run(model.logits, feed)
            for place, expected in LOGITS.items():
                np.testing.assert_allclose(logits[place], expected, atol=5e-6, err_msg=str(place))
            np.testing.assert_allclose([logits.sum(), np.abs(logits).sum()], [3.9007516, 74.59544], rtol=2e-6)

            steps = [sess.run([model.learning_rate, model.loss, model.train_op], feed)[:2] for _ in LEARNING_RATES]
            rates, losses = zip(*steps)
            np.testing.assert_allclose(rates, LEARNING_RATES, rtol=1e-6)
            np.testing.assert_allclose([*losses, sess.run(model.loss, feed)], LOSSES, rtol=2e-6)
            embedding, bias = sess.run([model.variables[EMBEDDING], model.variables[BIAS]])
            np.testing.assert_allclose(embedding[0, :4], [0.557797, 0.377921, 0.237634, 0.170943], atol=3e-6)
            np.testing.assert_allclose(embedding[2, :4], [-0.094691, 0.668977, 0.48657, 0.273885], atol=3e-6)
            np.testing.assert_allclose(bias[:4], [0.222355, -0.376904, -0.182947, -0.088197], atol=3e-6)

    def test_counts(self) -> None:
        for name, parameters in (("tiny", 1354496), ("base", 61362176)):
            with self.subTest(name):
                model = transformer_graph.build(NETWORKS[name])
                self.assertEqual(sum(int(np.prod(v.shape)) for v in model.variables.values()), parameters)
                self.assertEqual((len(model.variables), len(model.saved_variables)), (185, 558))


if __name__ == "__main__":
    unittest.main(verbosity=2)
