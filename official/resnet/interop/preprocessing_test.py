"""Holds our decoding, cropping and resizing of images against TensorFlow's. With OFFICIAL_PHOTOS_DIR set the images are
the JPEG files there, beside those that are drawn here."""

import os
import shutil
import unittest
from pathlib import Path

import numpy as np
import tensorflow as tf

from tools.interop import harness

SIZE = 224
MEANS = np.array([123.68, 116.78, 103.94], np.float32)


def draw(height: int, width: int, channels: int, seed: int) -> np.ndarray:
    """Draws a picture with edges, slopes and noise."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:height, 0:width]
    waves = [127 + 90 * np.sin((x * (c + 1) + y * 2) / 23) * np.cos(y / 31 - c) for c in range(channels)]
    picture = np.stack(waves, -1) + rng.normal(0, 12, (height, width, channels))
    picture[(y - height / 2) ** 2 + (x - width / 3) ** 2 < (height / 5) ** 2] = rng.integers(0, 256, channels)
    return np.clip(picture, 0, 255).astype(np.uint8)


def drawn_images() -> dict[str, bytes]:
    def encode(picture: np.ndarray, **options) -> bytes:
        return tf.io.encode_jpeg(picture, **options).numpy()

    return {
        "subsampled": encode(draw(333, 500, 3, 1), quality=90),
        "not_subsampled": encode(draw(500, 375, 3, 2), quality=95, chroma_downsampling=False),
        "grey": encode(draw(371, 500, 1, 3), quality=80),
        "progressive": encode(draw(240, 321, 3, 4), quality=70, progressive=True),
        "optimized": encode(draw(261, 257, 3, 5), quality=99, optimize_size=True),
        "large": encode(draw(1201, 1599, 3, 6), quality=85),
        "tall": encode(draw(900, 61, 3, 7)),
        "small": encode(draw(7, 9, 3, 8)),
        "pixel": encode(draw(1, 1, 3, 9)),
    }


def images() -> dict[str, bytes]:
    found = drawn_images()
    if folder := os.environ.get("OFFICIAL_PHOTOS_DIR"):
        photos = sorted(path for path in Path(folder).iterdir() if path.suffix.lower() in (".jpg", ".jpeg"))
        assert photos, f"there are no JPEG files in {folder}"
        found |= {path.stem: path.read_bytes() for path in photos}
    return found


def decode(image: bytes) -> np.ndarray:
    return tf.io.decode_jpeg(image, channels=3, dct_method="INTEGER_FAST").numpy()


def resize(image: np.ndarray, height: int, width: int) -> np.ndarray:
    resized = tf.compat.v1.image.resize_bilinear(image[None], [height, width], align_corners=False)
    return resized.numpy()[0]


def evaluate(image: bytes) -> np.ndarray:
    decoded = decode(image)
    scale = np.float32(256) / np.float32(min(decoded.shape[:2]))
    height, width = (int(np.float32(side) * scale) for side in decoded.shape[:2])
    top, left = (height - SIZE) // 2, (width - SIZE) // 2
    return resize(decoded, height, width)[top : top + SIZE, left : left + SIZE] - MEANS


class PreprocessingTest(harness.InteropTest):
    def show(self, image: bytes, count: int) -> dict[str, list[str]]:
        """Runs ours on an image; its files then lie in self.folder / "out". Returns what is printed, by name."""
        shutil.rmtree(self.folder / "out", ignore_errors=True)
        (self.folder / "out").mkdir()
        (self.folder / "image.jpg").write_bytes(image)
        lines = self.run_binary("image", str(self.folder / "image.jpg"), str(self.folder / "out"), str(count))
        return {name: rest for name, *rest in (line.split() for line in lines.splitlines())}

    def ours(self, name: str, dtype: type, *shape: int) -> np.ndarray:
        return np.fromfile(self.folder / "out" / name, dtype).reshape(*shape)

    def assert_close(self, ours: np.ndarray, theirs: np.ndarray) -> None:
        self.assertLessEqual(np.abs(ours - theirs).max(), 1e-3)

    def test_pixels_equal_tensorflows(self) -> None:
        for name, image in images().items():
            with self.subTest(name):
                said = self.show(image, count=6)
                theirs = decode(image)
                self.assertEqual(said["decoded"], ["ok", str(theirs.shape[0]), str(theirs.shape[1])])
                np.testing.assert_array_equal(self.ours("decoded", np.uint8, *theirs.shape), theirs)
                self.assert_close(self.ours("eval", np.float32, SIZE, SIZE, 3), evaluate(image))

                for i in range(6):
                    top, left, height, width, mirror = map(int, said[f"train_{i}"][1:])
                    window = [top, left, height, width]
                    crop = tf.io.decode_and_crop_jpeg(image, window, channels=3, dct_method="INTEGER_FAST").numpy()
                    np.testing.assert_array_equal(self.ours(f"crop_{i}", np.uint8, height, width, 3), crop)
                    resized = resize(crop[:, ::-1] if mirror else crop, SIZE, SIZE) - MEANS
                    self.assert_close(self.ours(f"train_{i}", np.float32, SIZE, SIZE, 3), resized)

    def test_cut_images_fail_where_tensorflows_do(self) -> None:
        for name, image in drawn_images().items():
            for size in {len(image) // 3, len(image) * 9 // 10, len(image) - 2}:
                with self.subTest(f"{name}, {size} of {len(image)} bytes"):
                    self.check_failures(image[:size])

    def check_failures(self, image: bytes) -> None:
        said = self.show(image, count=4)
        with self.assertRaises(tf.errors.InvalidArgumentError):
            decode(image)
        self.assertEqual(said["decoded"][0], "failed")
        self.assertEqual(said["eval"][0], "failed")
        for i in range(4):
            if said.get(f"train_{i}", ["failed"])[0] == "failed":
                continue
            window = list(map(int, said[f"train_{i}"][1:5]))
            crop = tf.io.decode_and_crop_jpeg(image, window, channels=3, dct_method="INTEGER_FAST").numpy()
            np.testing.assert_array_equal(self.ours(f"crop_{i}", np.uint8, *window[2:], 3), crop)

    def test_windows_are_distributed_as_tensorflows(self) -> None:
        count, height, width = 4000, 375, 500
        lines = self.run_binary("boxes", str(height), str(width), str(count)).splitlines()
        ours = np.array([line.split() for line in lines], np.float64)

        @tf.function
        def sample(i: tf.Tensor) -> tf.Tensor:
            begin, size, _ = tf.image.stateless_sample_distorted_bounding_box(
                [height, width, 3],
                tf.zeros([1, 0, 4]),
                seed=tf.stack([i, 3]),
                min_object_covered=0.1,
                aspect_ratio_range=[0.75, 1.33],
                area_range=[0.05, 1.0],
                max_attempts=100,
                use_image_if_no_bounding_boxes=True,
            )
            return tf.concat([begin[:2], size[:2]], 0)

        theirs = tf.map_fn(sample, tf.range(count)).numpy().astype(np.float64)
        for name, of in {
            "area": lambda w: w[:, 2] * w[:, 3],
            "aspect": lambda w: w[:, 3] / w[:, 2],
            "top": lambda w: w[:, 0] / (height - w[:, 2] + 1),
            "left": lambda w: w[:, 1] / (width - w[:, 3] + 1),
        }.items():
            with self.subTest(name):
                self.assertLess(largest_gap(of(ours), of(theirs)), 2.23 * (2 / count) ** 0.5)


def largest_gap(a: np.ndarray, b: np.ndarray) -> float:
    """The statistic of Kolmogorov and Smirnov. Above 2.23 sqrt(2 / n), for n values each, two samples of one distribution
    come once in ten thousand times; these are always the same."""
    values = np.concatenate([a, b])
    shares = [np.searchsorted(np.sort(sample), values, side="right") / len(sample) for sample in (a, b)]
    return float(np.abs(shares[0] - shares[1]).max())


if __name__ == "__main__":
    harness.main()
