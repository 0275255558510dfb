"""TensorFlow reads our checkpoint of a ResNet, predicts as we do, and trains on from it as we do."""

import numpy as np
import tensorflow as tf

from official.resnet.interop import ours, reference_run
from official.resnet.interop.parity_case import Case
from tools.interop import graph, harness, reference
from tools.interop.parity import read_bundle

STEPS = 3  # so many before the checkpoint, and so many after it


class CheckpointTest(harness.InteropTest):
    def test_tensorflow_goes_on(self) -> None:
        for case in (
            Case("cifar10", 8, 1, 8, 32, 32, STEPS, learning_rate=0.001),
            Case("imagenet", 18, 2, 2, 64, 64, STEPS, learning_rate=0.001),
        ):
            with self.subTest(case.name):
                folder = self.folder / case.name
                reference_run.run(folder, case, reference.FIRST_SIDE, threads=2)
                trained = ours.run(self, folder, case)

                model = reference_run.build(case)
                expected = {v.op.name: (v.dtype.base_dtype, v.shape.as_list()) for v in model.saved_variables}
                reader = tf.train.load_checkpoint(str(folder / ours.SIDE))
                shapes, dtypes = reader.get_variable_to_shape_map(), reader.get_variable_to_dtype_map()
                actual = {name: (dtypes[name], shapes[name]) for name in shapes if not name.startswith("_run/")}
                self.assertEqual(actual, expected)
                self.assertEqual(reader.get_tensor("global_step"), STEPS)

                inputs = read_bundle(folder / "inputs")
                with graph.session(model, threads=2) as sess:
                    model.saver.restore(sess, tf.train.latest_checkpoint(str(folder / ours.SIDE)))
                    probabilities = sess.run(model.probabilities, {model.images: inputs["prediction_images"]})
                    losses = reference_run.train(sess, model, inputs, case)
                np.testing.assert_allclose(trained["final_probabilities"], probabilities, rtol=2e-5)
                ours_after = ours.run(self, folder, case, steps=2 * STEPS)["losses"]
                self.assert_relative(list(ours_after), list(losses), [1e-5] * STEPS)


if __name__ == "__main__":
    harness.main()
