"""Our side of the parity tests."""

from pathlib import Path

import numpy as np

from official.transformer.interop.parity_case import Case
from tools.interop import harness
from tools.interop.parity import run_ours

SIDE = "ours"


def run(test: harness.InteropTest, folder: Path, case: Case, steps: int | None = None) -> dict[str, np.ndarray]:
    """Trains `steps` in all, those of the case if not given. The losses that it returns are of this call's steps."""
    flags = [
        f"--param_set={case.param_set}",
        f"--steps={case.first_step + (case.steps if steps is None else steps)}",
    ]
    return run_ours(test, folder, SIDE, flags)
