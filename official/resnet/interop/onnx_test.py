"""ONNX Runtime loads our ONNX model of a residual network, and answers as our predict does."""

import json

import numpy as np

from official.programs.program_test_case import png
from tools.interop import harness, onnx_session

IMAGENET_MEANS = np.array([123.68, 116.78, 103.94])


def standardized(image: np.ndarray) -> np.ndarray:
    """TensorFlow's per_image_standardization."""
    return (image - image.mean()) / max(image.std(), image.size**-0.5)


class OnnxTest(harness.InteropTest):
    def check(self, flags: list[str], images: list[np.ndarray], features: np.ndarray, num_classes: int) -> None:
        """`features` is what the model takes for the pixels `images`."""
        export_dir = self.folder / "export"
        flags = [*flags, f"--model_dir={self.folder / 'model'}"]
        training = ["--use_synthetic_data", "--batch_size=2", "--max_train_steps=1"]
        self.run_binary(*flags, *training, f"--export_dir={export_dir}", "--export_format=onnx")
        files = [self.folder / f"{i}.png" for i in range(len(images))]
        for file, pixels in zip(files, images):
            file.write_bytes(png(len(pixels), pixels.astype(np.uint8).tobytes()))
        output = self.run_binary(*flags, "--predict", *map(str, files), f"--top_k={num_classes}", "--output=json")
        ours = np.zeros([len(images), num_classes])
        best = []
        for row, line in zip(ours, output.splitlines(), strict=True):
            classes = json.loads(line)["classes"]
            best.append(classes[0]["class"])
            row[[c["class"] for c in classes]] = [c["probability"] for c in classes]

        session = onnx_session.of_export(export_dir)
        inputs, outputs = onnx_session.signature(session)
        self.assertEqual(inputs, {"input": ["tensor(float)", "batch", *features.shape[1:]]})
        self.assertEqual(outputs["probabilities"], ["tensor(float)", "batch", num_classes])
        for size in (1, len(images)):
            feed = {"input": features[:size].astype(np.float32)}
            classes, probabilities = session.run(["classes", "probabilities"], feed)
            np.testing.assert_array_equal(best[:size], classes)
            np.testing.assert_allclose(ours[:size], probabilities, rtol=0, atol=1e-5)
            np.testing.assert_allclose(ours[:size], probabilities, rtol=1e-3)
        self.assertGreater(np.abs(ours[0] - ours[1]).max(), 0.01 * ours.max(), "the images make no difference")

    def test_cifar10(self) -> None:
        random = np.random.default_rng(1)
        for version in (1, 2):
            for data_format in ("channels_first", "channels_last"):
                with self.subTest(version=version, data_format=data_format):
                    images = [np.kron(random.integers(0, 256, [4, 4, 3]), np.ones([8, 8, 1])) for _ in range(3)]
                    flags = ["--dataset_name=cifar10", "--resnet_size=8", f"--resnet_version={version}"]
                    self.folder = self.folder / f"{version}_{data_format}"
                    self.folder.mkdir()
                    features = np.stack([standardized(image) for image in images])
                    self.check([*flags, f"--data_format={data_format}"], images, features, num_classes=10)

    def test_imagenet(self) -> None:
        random = np.random.default_rng(2)
        for size, version in ((18, 2), (50, 1)):
            with self.subTest(size=size, version=version):
                # Nearly of one colour: with a network that has learned nothing, stronger contrasts make one class
                # certain.
                tiles = [random.normal(IMAGENET_MEANS, 3, [8, 8, 3]) for _ in range(2)]
                images = [np.kron(np.rint(colours), np.ones([32, 32, 1])) for colours in tiles]
                # Of an image with a short side of 256 evaluation takes the middle as it is.
                features = np.stack([image[16:240, 16:240] - IMAGENET_MEANS for image in images])
                self.folder = self.folder / str(size)
                self.folder.mkdir()
                flags = [f"--resnet_size={size}", f"--resnet_version={version}"]
                self.check(flags, images, features, num_classes=1001)


if __name__ == "__main__":
    harness.main()
