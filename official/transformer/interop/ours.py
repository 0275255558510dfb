"""Our side of the parity tests."""

import os
import shutil
from pathlib import Path

import numpy as np

from official.transformer.interop.parity_case import Case
from tools.interop import harness
from tools.interop.parity import read_bundle

SIDE = "ours"


def run(test: harness.InteropTest, folder: Path, case: Case, steps: int | None = None) -> dict[str, np.ndarray]:
    """Trains `steps` in all, those of the case if not given: from where an earlier call ended, or from the initial
    checkpoint. Returns the outputs; losses are of this call's steps."""
    model_dir = folder / SIDE
    if not model_dir.exists():
        shutil.copytree(folder / "initial", model_dir, copy_function=os.link)  # files are replaced, not changed
    test.run_binary(
        f"--param_set={case.param_set}",
        f"--steps={case.first_step + (case.steps if steps is None else steps)}",
        f"--inputs={folder / 'inputs'}",
        f"--model_dir={model_dir}",
    )
    return read_bundle(model_dir / "outputs")
