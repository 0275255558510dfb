"""Our side of the parity tests."""

import os
import shutil
from pathlib import Path

import numpy as np

from official.resnet.interop.parity_case import Case
from tools.interop import harness
from tools.interop.parity import read_bundle

SIDE = "ours"


def run(test: harness.InteropTest, folder: Path, case: Case, steps: int | None = None) -> dict[str, np.ndarray]:
    """Trains to `steps`, those of the case if not given: from where an earlier call ended, or from the initial
    checkpoint. Returns the outputs; losses are of this call's steps."""
    model_dir = folder / SIDE
    if not model_dir.exists():
        shutil.copytree(folder / "initial", model_dir, copy_function=os.link)  # files are replaced, not changed
    test.run_binary(
        f"--dataset_name={case.dataset}",
        f"--resnet_size={case.size}",
        f"--resnet_version={case.version}",
        f"--learning_rate={case.learning_rate}",
        f"--steps={case.steps if steps is None else steps}",
        f"--inputs={folder / 'inputs'}",
        f"--model_dir={model_dir}",
    )
    return read_bundle(model_dir / "outputs")
