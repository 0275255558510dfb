"""MNIST's file format, and small data sets in it for tests."""

import gzip
import struct
from pathlib import Path

import numpy as np


def write_dataset(folder: Path, name: str, images: np.ndarray, labels: np.ndarray) -> None:
    """Writes images [N, 28, 28] uint8 and labels [N] uint8 as data set `name`: "train" or "t10k"."""
    folder.mkdir(parents=True, exist_ok=True)
    header = struct.pack(">IIII", 2051, *images.shape)
    (folder / f"{name}-images-idx3-ubyte").write_bytes(header + images.astype(np.uint8).tobytes())
    header = struct.pack(">II", 2049, len(labels))
    (folder / f"{name}-labels-idx1-ubyte").write_bytes(header + labels.astype(np.uint8).tobytes())


def read_dataset(folder: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Returns images [N, 784] float32 in 0..1 and labels [N] int32, from plain or .gz files."""

    def read(file: str) -> bytes:
        path = folder / file
        return path.read_bytes() if path.exists() else gzip.decompress(Path(f"{path}.gz").read_bytes())

    images = np.frombuffer(read(f"{name}-images-idx3-ubyte"), np.uint8, offset=16).reshape(-1, 784)
    labels = np.frombuffer(read(f"{name}-labels-idx1-ubyte"), np.uint8, offset=8)
    return images.astype(np.float32) / np.float32(255), labels.astype(np.int32)


def draw_examples(count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Draws images [count, 28, 28] and labels [count], uint8, that can be learned: a bright bar whose angle is the class."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 10, count)
    angle = labels * np.pi / 10 + rng.normal(0, 0.05, count)
    y, x = np.mgrid[-13.5:14.5, -13.5:14.5]
    distance = np.abs(np.cos(angle)[:, None, None] * y - np.sin(angle)[:, None, None] * x)
    images = 255 * np.exp(-((distance / 3) ** 2)) * (np.hypot(x, y) < 12) + rng.uniform(0, 40, (count, 28, 28))
    return np.clip(images, 0, 255).astype(np.uint8), labels.astype(np.uint8)
