"""TensorFlow finds in our checkpoint of a Transformer what the official ones hold, and trains on from it as we do."""

import numpy as np
import tensorflow as tf

from official.transformer.interop import ours, reference_run, transformer_graph
from official.transformer.interop.parity_case import Case
from official.transformer.interop.transformer_graph import NETWORKS
from tools.interop import graph, harness, reference
from tools.interop.parity import read_bundle

STEPS = 3  # so many before the checkpoint, and so many after it
CASE = Case("tiny", batch_size=4, longest=9, first_step=400000, steps=STEPS)


def official_shapes(hidden: int, filter_size: int) -> dict[str, list[int]]:
    """Of the network's variables, by name, as the official checkpoints have them."""
    norm = {"layer_normalization/layer_norm_scale": [hidden], "layer_normalization/layer_norm_bias": [hidden]}
    kernels = {f"{kind}/kernel": [hidden, hidden] for kind in ("q", "k", "v", "output_transform")}
    feed_forward = {
        "filter_layer/kernel": [hidden, filter_size],
        "filter_layer/bias": [filter_size],
        "output_layer/kernel": [filter_size, hidden],
        "output_layer/bias": [hidden],
    }
    sublayers = {
        "self_attention/self_attention": kernels,
        "encdec_attention/attention": kernels,
        "ffn/feed_foward_network": feed_forward,
    }
    shapes = {"embedding_shared_weights/embedding_and_softmax/weights": [33708, hidden]}
    for stack in ("encoder_stack", "decoder_stack"):
        shapes |= {f"{stack}/{name}": shape for name, shape in norm.items()}
        for layer in range(6):
            for sublayer, weights in sublayers.items():
                if (stack, sublayer) == ("encoder_stack", "encdec_attention/attention"):
                    continue
                wrapper = sublayer.split("/")[0]
                shapes |= {f"{stack}/layer_{layer}/{wrapper}/{name}": shape for name, shape in norm.items()}
                shapes |= {f"{stack}/layer_{layer}/{sublayer}/{name}": shape for name, shape in weights.items()}
    return {f"model/Transformer/{name}": shape for name, shape in shapes.items()}


def official_entries(hidden: int, filter_size: int) -> dict[str, list[int]]:
    """All that a checkpoint holds."""
    shapes = official_shapes(hidden, filter_size)
    moments = {f"model/get_train_op/{name}/{slot}": s for name, s in shapes.items() for slot in ("Adam", "Adam_1")}
    powers = {f"model/get_train_op/beta{i}_power": [] for i in (1, 2)}
    return shapes | moments | powers | {"global_step": []}


class CheckpointTest(harness.InteropTest):
    def test_tensorflow_goes_on(self) -> None:
        folder = self.folder / "tiny"
        reference_run.run(folder, CASE, reference.FIRST_SIDE, threads=2)
        ours.run(self, folder, CASE)

        reader = tf.train.load_checkpoint(str(folder / ours.SIDE))
        shapes = reader.get_variable_to_shape_map()
        entries = {name: shape for name, shape in shapes.items() if not name.startswith("_run/")}
        self.assertEqual(len(entries), 558)
        self.assertEqual(entries, official_entries(hidden=32, filter_size=256))
        for name, dtype in reader.get_variable_to_dtype_map().items():
            if name in entries:
                self.assertEqual(dtype, tf.int64 if name == "global_step" else tf.float32, name)
        self.assertEqual(reader.get_tensor("global_step"), CASE.first_step + STEPS)

        model = transformer_graph.build(NETWORKS["tiny"])
        inputs = read_bundle(folder / "inputs")
        with graph.session(model, threads=2) as sess:
            model.saver.restore(sess, tf.train.latest_checkpoint(str(folder / ours.SIDE)))
            logits = sess.run(model.logits, reference_run.feed_of(model, inputs))
            losses = reference_run.train(sess, model, inputs, STEPS)
        after = ours.run(self, folder, CASE, steps=2 * STEPS)
        batch_size, length, _ = logits.shape
        ours_now = after["logits"][: batch_size * length].reshape(logits.shape)
        np.testing.assert_allclose(ours_now, logits, rtol=0, atol=2e-5)
        self.assert_relative(list(after["losses"]), list(losses), [1e-5] * STEPS)


if __name__ == "__main__":
    harness.main()
