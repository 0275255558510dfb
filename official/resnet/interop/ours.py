"""Our side of the parity tests."""

from pathlib import Path

import numpy as np

from official.resnet.interop.parity_case import Case
from tools.interop import harness
from tools.interop.parity import run_ours

SIDE = "ours"


def run(test: harness.InteropTest, folder: Path, case: Case, steps: int | None = None) -> dict[str, np.ndarray]:
    """Trains to `steps`, those of the case if not given. The losses that it returns are of this call's steps."""
    flags = [
        f"--dataset_name={case.dataset}",
        f"--resnet_size={case.size}",
        f"--resnet_version={case.version}",
        f"--learning_rate={case.learning_rate}",
        f"--steps={case.steps if steps is None else steps}",
    ]
    return run_ours(test, folder, SIDE, flags)
