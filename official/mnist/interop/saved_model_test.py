"""TensorFlow loads our SavedModel, and answers as our predict does."""

import json

import numpy as np
import tensorflow as tf

from official.mnist.interop import idx
from tools.interop import harness


class SavedModelTest(harness.InteropTest):
    def test_answers_as_our_predict_does(self) -> None:
        data_dir, model_dir, export_dir = self.folder / "data", self.folder / "model", self.folder / "export"
        idx.write_dataset(data_dir, "train", *idx.draw_examples(300, seed=1))
        idx.write_dataset(data_dir, "t10k", *idx.draw_examples(70, seed=2))
        flags = [f"--data_dir={data_dir}", f"--model_dir={model_dir}"]
        self.run_binary(*flags, "--train_epochs=3", f"--export_dir={export_dir}")
        output = self.run_binary(*flags, f"--predict={data_dir}/t10k-images-idx3-ubyte", "--output=json")
        ours = [json.loads(line) for line in output.splitlines()]

        (exported,) = export_dir.iterdir()
        self.assertRegex(exported.name, r"^\d{10}$")  # seconds since 1970
        model = tf.saved_model.load(str(exported), tags=["serve"])
        images, _ = idx.read_dataset(data_dir, "t10k")
        for signature in ("classify", "serving_default"):
            with self.subTest(signature):
                serve = model.signatures[signature]
                answer = serve(image=tf.reshape(tf.constant(images), [-1, 28, 28]))
                self.assertEqual(set(answer), {"classes", "probabilities"})
                self.assertEqual(answer["classes"].dtype, tf.int64)
                np.testing.assert_array_equal([row["class"] for row in ours], answer["classes"])
                np.testing.assert_allclose([row["probabilities"] for row in ours], answer["probabilities"], atol=1e-5)


if __name__ == "__main__":
    harness.main()
