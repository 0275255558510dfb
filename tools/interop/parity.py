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
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    return float(np.linalg.norm(a - b) / max(np.linalg.norm(b), 1e-30))


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


def compare_losses(name: str, losses: np.ndarray, references: list[np.ndarray]) -> Comparison:
    """Of all steps."""
    comparison = Comparison(f"{name}, losses {losses[0]:.4f} to {losses[-1]:.4f}")
    own = 0.0
    for step, loss in enumerate(losses):
        # Runs that have parted stay so, even where their losses meet.
        own = comparison.add(f"step {step}", loss, [r[step] for r in references], at_least=5e-6, own=own)
    return comparison


def compare_checkpoints(
    name: str, ours: Path, references: list[Path], at_least: float, kind: str = "variables", part: str = ""
) -> Comparison:
    """What the last checkpoints of these folders hold: all, or the variables with `part` in their names."""
    checkpoints = [read_bundle(folder) for folder in (ours, *references)]
    variables, *bundles = [{key: of[key] for key in of if part in key} for of in checkpoints]
    comparison = Comparison(f"{name}, {kind}")
    for other in variables.keys() ^ bundles[0].keys():
        comparison.failures.append(f"{other}: only in one of the checkpoints")
    for variable in variables.keys() & bundles[0].keys():
        comparison.add(variable, variables[variable], [bundle[variable] for bundle in bundles], at_least)
    return comparison


class ParityTest(harness.InteropTest):
    def check(self, *comparisons: Comparison) -> None:
        for comparison in comparisons:
            with self.subTest(comparison.name):
                print(comparison)
                self.assertEqual(comparison.failures, [])
