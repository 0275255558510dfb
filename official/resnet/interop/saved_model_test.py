"""TensorFlow loads our SavedModel of a residual network, and our checkpoint with its meta graph, and answers as our
predict does."""

import json
from pathlib import Path

import numpy as np
import tensorflow as tf

from tools.interop import harness

IMAGENET_MEANS = [123.68, 116.78, 103.94]


def write_png(path: Path, pixels: np.ndarray) -> None:
    path.write_bytes(tf.io.encode_png(pixels.astype(np.uint8)).numpy())


class SavedModelTest(harness.InteropTest):
    def check(self, flags: list[str], images: list[np.ndarray], features: np.ndarray, num_classes: int) -> None:
        """`features` is what the model takes, made by TensorFlow from the pixels `images`."""
        export_dir = self.folder / "export"
        flags = [*flags, f"--model_dir={self.folder / 'model'}"]
        training = ["--use_synthetic_data", "--batch_size=2", "--max_train_steps=1", "--save_meta_graph"]
        self.run_binary(*flags, *training, f"--export_dir={export_dir}")
        files = [self.folder / f"{i}.png" for i in range(len(images))]
        for file, pixels in zip(files, images):
            write_png(file, pixels)
        output = self.run_binary(*flags, "--predict", *map(str, files), f"--top_k={num_classes}", "--output=json")
        ours = np.zeros([len(images), num_classes])
        best = []
        for row, line in zip(ours, output.splitlines(), strict=True):
            classes = json.loads(line)["classes"]
            best.append(classes[0]["class"])
            row[[c["class"] for c in classes]] = [c["probability"] for c in classes]

        (exported,) = export_dir.iterdir()
        model = tf.saved_model.load(str(exported), tags=["serve"])
        for signature in ("predict", "serving_default"):
            with self.subTest(signature):
                serve = model.signatures[signature]
                (placeholder,) = [t for t in serve.inputs if t.dtype == tf.float32]
                self.assertEqual(placeholder.name, "input_tensor:0")
                self.assertEqual(placeholder.shape.as_list(), [None, *features.shape[1:]])
                answer = serve(input=tf.constant(features, tf.float32))
                self.assertEqual(set(answer), {"classes", "probabilities"})
                self.assertEqual(answer["classes"].dtype, tf.int64)
                np.testing.assert_array_equal(best, answer["classes"])
                np.testing.assert_allclose(ours, answer["probabilities"], rtol=0, atol=1e-5)
                np.testing.assert_allclose(ours, answer["probabilities"], rtol=1e-3)
                self.assertGreater(np.abs(ours[0] - ours[1]).max(), 0.01 * ours.max(), "the images make no difference")

        checkpoint = tf.train.latest_checkpoint(str(self.folder / "model"))
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            tf.compat.v1.train.import_meta_graph(checkpoint + ".meta").restore(session, checkpoint)
            imported = session.run("Softmax:0", {"input_tensor:0": features})
        np.testing.assert_allclose(imported, answer["probabilities"], rtol=1e-6, atol=0)

    def test_cifar10(self) -> None:
        random = np.random.default_rng(1)
        for version in (1, 2):
            with self.subTest(version=version):
                images = [np.kron(random.integers(0, 256, [4, 4, 3]), np.ones([8, 8, 1])) for _ in range(3)]
                features = np.stack([tf.image.per_image_standardization(tf.constant(i, tf.float32)) for i in images])
                flags = ["--dataset_name=cifar10", "--resnet_size=8", f"--resnet_version={version}"]
                self.folder = self.folder / str(version)
                self.folder.mkdir()
                self.check(flags, images, features, num_classes=10)

    def test_imagenet(self) -> None:
        random = np.random.default_rng(2)
        # Nearly of one colour: with a network that has learned nothing, stronger contrasts make one class certain.
        tiles = [random.normal(IMAGENET_MEANS, 3, [8, 8, 3]) for _ in range(2)]
        images = [np.kron(np.rint(colours), np.ones([32, 32, 1])) for colours in tiles]
        # Of an image with a short side of 256 evaluation takes the middle as it is.
        features = np.stack([image[16:240, 16:240] - IMAGENET_MEANS for image in images])
        self.check(["--resnet_size=18"], images, features, num_classes=1001)


if __name__ == "__main__":
    harness.main()
