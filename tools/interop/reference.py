"""TensorFlow's side of the parity tests, a command of each model: threads and oneDNN are fixed for a process's life.

  python -m official.MODEL.interop.reference_run FOLDER SIDE THREADS

runs every case of FOLDER/cases.json, in FOLDER/<name of the case>. The side FIRST_SIDE writes what we start from.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from types import ModuleType
from typing import Any

FIRST_SIDE = "tensorflow"

# TensorFlow's configurations: name, threads, oneDNN. The first two differ most.
SIDES = [
    (FIRST_SIDE, 1, True),
    ("two-threads-no-onednn", 2, False),
    ("two-threads", 2, True),
    ("no-onednn", 1, False),
]


def run_sides(reference_run: ModuleType, folder: Path, cases: list[Any], num_sides: int) -> list[str]:
    """Runs the first `num_sides` of SIDES, and returns their names. A case is a dataclass with a name."""
    (folder / "cases.json").write_text(json.dumps([asdict(case) for case in cases]))
    command = [sys.executable, "-m", reference_run.__name__, str(folder)]

    def run(side: str, threads: int, onednn: bool) -> str:
        environment = {**os.environ, "TF_ENABLE_ONEDNN_OPTS": str(int(onednn))}
        subprocess.run([*command, side, str(threads)], env=environment, check=True)
        return side

    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda side: run(*side), SIDES[:num_sides]))


def main(case_type: type, run: Callable[[Path, Any, str, int], None]) -> None:
    """What the command does. `run` takes the case's folder, the case, the side and its threads."""
    folder, side, threads = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    for fields in json.loads((folder / "cases.json").read_text()):
        case = case_type(**fields)
        run(folder / case.name, case, side, threads)
