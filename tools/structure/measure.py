"""Prints figures of the structure of the code. Usage: python3 -m tools.structure.measure

//tools/structure:measure_test compares docs/structure.md with them; what must stay at 0 is also held by :layers_test.
The stack is that of bazel-bin's mnist_main, if it is built and gdb is installed.
"""

import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tools.structure import layers_test

ROOT = layers_test.ROOT
TESTS = re.compile(r"_test(_\w+)?\.(cc|py|sh)$|_fuzz\.cc$|/interop/|small_run|parity_run|parameter_server_job")


def sources(*endings: str) -> Iterator[Path]:
    for folder in ("official", "utils"):
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in endings:
                yield path


def mentions(pattern: str) -> list[str]:
    """The files, without tests, in which code has the pattern."""
    found = [path for path in sources(".cc", ".h") if re.search(pattern, path.read_text())]
    return [str(path.relative_to(ROOT)) for path in found if not TESTS.search(str(path))]


def named_ops() -> int:
    """The calls that name an op by a string; utils/export has the names of TensorFlow's ops, which are text."""
    calls = re.compile(r'\b(Apply|ApplyNode|AddNode|Is)\(\s*"')
    files = (path for path in sources(".cc", ".h") if "utils/export" not in str(path) and not TESTS.search(str(path)))
    return sum(len(calls.findall(path.read_text())) for path in files)


def fragments() -> tuple[int, int]:
    """Comments in headers that begin like half a sentence, and all of them."""
    first = re.compile(r"(?:^|\n)(?! *//)[^\n]*\n *// (\w+)")
    words = [word for path in sources(".h") for word in first.findall("\n" + path.read_text())]
    return sum(word in ("Of", "What", "Whether", "Which", "Those") for word in words), len(words)


def frames_to_kernel() -> int | None:
    """The functions on the stack from main to a kernel, both counted, in a training step of mnist_main.

    std::function's caller of a lambda, which has a frame of its own where the lambda is not inlined, counts as the lambda.
    """
    program = ROOT / "bazel-bin/official/mnist/mnist_main"
    if not program.exists() or not shutil.which("gdb"):
        return None
    with tempfile.TemporaryDirectory() as model_dir:
        flags = ["--use_synthetic_data", "--max_train_steps=1", f"--model_dir={model_dir}"]
        # CheckNumerics, the kernel that looks at the loss, calls FindNonFinite; so do others, on other threads.
        commands = [
            "break official::train::StepRunner::Run",
            "run",
            "break official::compute::FindNonFinite thread 1",
            "continue",
            "backtrace",
            "kill",
        ]
        gdb = ["gdb", "-q", "-batch", *(word for command in commands for word in ("-ex", command)), "--args"]
        done = subprocess.run([*gdb, str(program), *flags], capture_output=True, text=True, timeout=300)
    frames = re.findall(r"^#(\d+) .*? in (.*)", done.stdout, re.MULTILINE)
    names = [name for _, name in frames]
    callers = sum("{lambda" in inner and outer.startswith("std::_Function_handler") for inner, outer in zip(names, names[1:]))
    return len(names) - callers - 1 if names and names[-1].startswith("main") else None


def figures() -> dict[str, str]:
    """By what is counted, in the words of docs/structure.md; without the stack, for which a program must run."""
    families = [*ROOT.glob("utils/compute/ops/*/BUILD"), *ROOT.glob("official/*/op/BUILD")]
    l2_loss = ROOT / "utils/compute/ops/l2_loss"
    lists = len(re.findall(r'"l2_loss"', (l2_loss.parent / "families.bzl").read_text()))
    counted = {
        "library dependencies that point up in the list of the layers": len(layers_test.upward()),
        "calls that name an op by a string, so that a wrong name is found at run time": named_ops(),
        "packages in a cycle": sum(len(cycle) for cycle in layers_test.cycles(layers_test.package_edges())),
        "files of a training option: `grad_accum_steps`": len(mentions(r"\bgrad_accum_steps\b")),
        "files of a shared flag: `keep_checkpoint_max`": len(mentions(r"\bkeep_checkpoint_max\b")),
        "files of an op with kernels, its test and `BUILD` file included; others that list it": (
            f"{len(list(l2_loss.iterdir()))} + {lists}"
        ),
        "lines of the `BUILD` files of the op families": sum(len(path.read_text().splitlines()) for path in families),
    }
    return {what: str(figure) for what, figure in counted.items()}


def main() -> None:
    odd, comments = fragments()
    frames = frames_to_kernel()
    printed = figures() | {
        "functions on the stack from `main` to a kernel": "?" if frames is None else str(frames),
        "comments in headers that begin like half a sentence, of 1000": str(round(1000 * odd / comments)),
    }
    for what, figure in printed.items():
        print(f"{figure:>6}  {what}")


if __name__ == "__main__":
    main()
