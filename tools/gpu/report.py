"""Makes summary.json and a table in Markdown of what run.sh left in a folder: report.py FOLDER >report.md."""

import argparse
import json
import sys
from pathlib import Path
from statistics import median

from goals import GOALS, Goal

DID_NOTHING = 77
JPEGS, SYNTHETIC = ("ResNet-50 b256 bf16, JPEG files", "95 % of synthetic"), "resnet50_bf16"
FIRST_STEP = ("start to first step", "< 3 s")


class Steps:
    """What became of each step that was to run."""

    def __init__(self, folder: Path):
        self.all: dict[str, dict[str, object]] = {}
        lines = (folder / "summary.tsv").read_text(errors="replace").splitlines()
        for line in lines:
            name, status, seconds, last = line.split("\t", 3)
            self.all[name] = {"step": name, "exit_status": int(status), "seconds": int(seconds), "last_line": last}

    def why_not(self, *names: str) -> str:
        """The reason for which there is no result of steps, of which any would do."""
        for name in names:
            if step := self.all.get(name):
                words = "not run" if step["exit_status"] == DID_NOTHING else f"failed ({step['exit_status']})"
                return f"{words}: {step['last_line']}"
        return "not run: not asked for"


def load(path: Path) -> object | None:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return None


def number(value: float) -> str:
    if value >= 1e6:
        return f"{value / 1e6:.2f} M"
    return f"{value:,.0f}"


def bench_row(folder: Path, name: str, goal: Goal, steps: Steps) -> tuple[list[str], float | None]:
    """The row of a goal, and when the first step of ours was done, in seconds."""
    command = f"`tools/bench {' '.join(goal.bench()[:-1])}`"
    speeds: dict[str, float] = {}
    first_step = None
    for step in f"ours_{name}", f"peers_{name}":
        for of_workload in (load(folder / f"{step}.json") or {}).values():
            for title, runs in of_workload.items():
                if runs:
                    speeds[title] = goal.per_example * median(run["examples_per_sec"] for run in runs)
                if runs and "_main" in title and runs[0]["first_step_ms"]:
                    first_step = min(run["first_step_ms"] for run in runs) / 1000
    ours = next((speed for title, speed in speeds.items() if "_main" in title), None)
    peers = {title: speed for title, speed in speeds.items() if "_main" not in title}
    if ours is None:
        return [goal.work, goal.aim, steps.why_not(f"ours_{name}", f"peers_{name}"), "", "", command], None
    row = [goal.work, goal.aim, f"{number(ours)} {goal.unit}"]
    if not peers:
        return [*row, steps.why_not(f"peers_{name}"), "", command], first_step
    best = max(peers, key=lambda title: peers[title])
    ratios = [f"{ours / peers[best]:.2f}x"]
    for mode in "eager", "compiled":
        of_mode = [speed for title, speed in peers.items() if f"PyTorch {mode}" in title]
        if of_mode and peers[best] not in of_mode:
            ratios.append(f"{ours / max(of_mode):.2f}x {mode}")
    return [*row, f"{best}: {number(peers[best])}", ", ".join(ratios), command], first_step


def our_speed(folder: Path, name: str) -> float | None:
    """Examples a second at a goal, of the run with the peers if there is one."""
    for step in f"peers_{name}", f"ours_{name}":
        for of_workload in (load(folder / f"{step}.json") or {}).values():
            for title, runs in of_workload.items():
                if "_main" in title and runs:
                    return median(run["examples_per_sec"] for run in runs)
    return None


def jpeg_row(folder: Path, steps: Steps) -> list[str]:
    measured, synthetic = load(folder / "jpeg.json"), our_speed(folder, SYNTHETIC)
    if not measured:
        return [*JPEGS, steps.why_not("jpeg"), "", "", ""]
    rate = measured["examples_per_sec"]
    ratio = f"{100 * rate / synthetic:.0f} % of synthetic" if synthetic else ""
    size = f"files of {measured['bytes_per_image'] / 1000:.0f} kB"
    return [*JPEGS, f"{number(rate)} images/s, {size}", "", ratio, "`tools/gpu/jpeg_input.py`"]


def table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in lines)


def machine_line(machine: dict | None, steps: Steps) -> str:
    if not machine:
        return f"Machine: {steps.why_not('machine')}."
    gpus = [gpu["deviceName"] for gpu in machine["gpus"]] or ["no GPU"]
    libraries = ", ".join(f"{name} {machine[name]}" for name in ("driver_cuda", "cudnn", "cublaslt", "nccl", "pytorch"))
    return f"{', '.join(gpus)}; {machine['processor']}, {machine['cores']} cores; {libraries}."


def check_rows(folder: Path, steps: Steps) -> list[list[str]]:
    rows = []
    for name, step in steps.all.items():
        if name.startswith(("ours_", "peers_", "jpeg")):
            continue
        result = {0: "passed", DID_NOTHING: "not run"}.get(step["exit_status"], f"failed ({step['exit_status']})")
        last = str(step["last_line"])[:100]
        parity = load(folder / f"{name}.json") if name.startswith("parity_") else None
        if parity:
            last = f"largest difference {parity['worst']:.1e} of the CPU's loss, {parity['allowed']:g} allowed"
        rows.append([name, result, f"{step['seconds']} s", last])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    if not (folder / "summary.tsv").is_file():
        sys.exit(f"report.py: there is no {folder / 'summary.tsv'}")
    steps = Steps(folder)
    (folder / "summary.json").write_text(json.dumps(list(steps.all.values()), indent=1))
    print(machine_line(load(folder / "machine.json"), steps) + "\n")

    rows, first_steps = [], []
    for name, goal in GOALS.items():
        row, first_step = bench_row(folder, name, goal, steps)
        rows.append(row)
        if first_step is not None:
            first_steps.append((first_step, goal.work))
    rows.append(jpeg_row(folder, steps))
    if first_steps:
        slowest = max(first_steps)
        rows.append([*FIRST_STEP, f"{min(first_steps)[0]:.2f} to {slowest[0]:.2f} s ({slowest[1]})", "", "", ""])
    else:
        rows.append([*FIRST_STEP, rows[0][2], "", "", ""])
    print(table(["work", "goal", "ours", "best peer", "ours is", "command"], rows) + "\n")
    print(table(["step", "result", "time", ""], check_rows(folder, steps)))


if __name__ == "__main__":
    main()
