"""What the parity tests share: bundles of tensors, and TensorFlow's own variation as the measure of a difference."""

import os
import shutil
from pathlib import Path

import numpy as np
import tensorflow as tf

from tools.interop import harness


def write_bundle(prefix: Path, tensors: dict[str, np.ndarray]) -> None:
    names = list(tensors)
    tf.raw_ops.SaveV2(
        prefix=str(prefix), tensor_names=names, shape_and_slices=[""] * len(names), tensors=list(tensors.values())
    )


def read_bundle(prefix: Path) -> dict[str, np.ndarray]:
    """Of a folder its last checkpoint. Without the state of our own programs."""
    reader = tf.train.load_checkpoint(str(prefix))
    names = [name for name in reader.get_variable_to_shape_map() if not name.startswith("_run/")]
    return {name: reader.get_tensor(name) for name in names}


def run_ours(test: harness.InteropTest, folder: Path, side: str, flags: list[str]) -> dict[str, np.ndarray]:
    """Trains in folder/side on the case in `folder`: from where an earlier call ended, or from the initial checkpoint.
    Returns the outputs."""
    model_dir = folder / side
    if not model_dir.exists():
        shutil.copytree(folder / "initial", model_dir, copy_function=os.link)  # files are replaced, not changed
    test.run_binary(*flags, f"--inputs={folder / 'inputs'}", f"--model_dir={model_dir}")
    return read_bundle(model_dir / "outputs")


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Relative, in the Euclidean norm."""
    return float(np.linalg.norm(np.float64(a) - b) / max(np.linalg.norm(np.float64(b)), 1e-30))


class Comparison:
    """Holds our distance to the nearest of TensorFlow's configurations against four times the largest between two of
    them."""

    def __init__(self, name: str):
        self.name, self.failures = name, []
        self.error = self.own = 0.0  # the largest

    def add(
        self, what: str, actual: np.ndarray, references: list[np.ndarray], at_least: float, own: float = 0
    ) -> float:
        """Returns TensorFlow's own variation, not less than `own`."""
        own = max(own, *(distance(a, b) for a in references for b in references))
        error = min(distance(actual, reference) for reference in references)
        if not error <= max(at_least, 4 * own):
            self.failures.append(f"{what}: relative difference {error:.1e}, TensorFlow's own {own:.1e}")
        self.error, self.own = max(self.error, error), max(self.own, own)
        return own

    def __str__(self) -> str:
        text = f"{self.name}: largest relative difference {self.error:.1e}, TensorFlow's own {self.own:.1e}"
        if self.failures:
            text += f"; {len(self.failures)} too large:\n  " + "\n  ".join(self.failures[:10])
        return text
