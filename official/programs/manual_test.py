"""Runs the commands of README.md and of the manual, as far as --dump_config goes. Usage: MODULE PROGRAM...

The indented blocks of the pages that name a program run in bash, where a program is a script that gives the real one
all arguments and --dump_config: it checks all flags, alone and together, and reads flag files, but begins nothing. Other
commands of the blocks do nothing. So do commands in the text: `mnist_main --flag ...`. The pages are those of the source
tree, which are too many to be listed as data.
"""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from official.programs.program_test_case import programs_of_arguments

ROOT = Path(__file__).resolve().parents[2]
PAGES = ["README.md", "docs/performance.md", "docs/distribution_api.md"]
DEADLINE = 120  # seconds for one block, which takes less than one on an idle machine
PROGRAMS = {path.name: path for path in programs_of_arguments(len(sys.argv) - 1)}
NAME = re.compile(rf"(?<![\w/.:,=-])(?:tools/run |\./|bazel-bin/official/[\w/]+/)?({'|'.join(PROGRAMS)})(?=\s|$)", re.MULTILINE)

# Commands that the pages give as examples of what is refused, with what they say is told.
REFUSED = {
    "mnist_main --batchsize=3": "did you mean --batch_size?",
    "resnet_main --dtype=fp16 --resnet_version=1": "flag --dtype=fp16",
}
# The flags that a training in a directory must keep: those of its network and of its data.
OF_A_DIRECTORY = (
    "data_format dataset dataset_name layers model num_factors param_set params_override ratings_file "
    "resnet_size resnet_version use_synthetic_data"
).split()
# Commands that cannot run as they stand, and why.
EXCEPTIONS = {
    "podman run": "the container has the program",
    "perf record": "perf starts the program",
    "sbatch ": "Slurm starts the program",
    "| source": "for another shell",
    "--seed=N": "N stands for a number",
    "threads=N": "N stands for a number",
}

# A program, whose real path is in its environment: it leaves a file with the arguments, the exit status and what was
# said, and one with what it printed.
SCRIPT = """#!/bin/bash
name=${0##*/}
[[ $name != run ]] || { name=$1; shift; }
arguments=()
for argument; do [[ $argument == ... ]] || arguments+=("$argument"); done
real=REAL_$name
printed=$LOG/$BASHPID.printed
told=$("${!real}" "${arguments[@]}" --dump_config </dev/null 2>&1 >"$printed")
status=$?
echo "$(<"$printed")"  # there is no cat here
{ echo "$status"; echo "$name ${arguments[*]}"; echo "$told"; } >"$LOG/$BASHPID"
exit "$status"
"""


@dataclass(frozen=True)
class Commands:
    """Of one block of a page, or of one place in its text."""

    where: str
    text: str

    def num_programs(self) -> int:
        """Those that the text starts, without those in comments."""
        code = re.sub(r"(^|\s)#.*", "", self.text)
        loops = re.findall(r"for \w+ in ([^;\n]+); do\n(.*?)\ndone", code, re.DOTALL)
        again = [(len(words.split()) - 1) * len(NAME.findall(body)) for words, body in loops]
        return len(NAME.findall(code)) + sum(again)


@dataclass(frozen=True)
class Ran:
    """A program that commands have started."""

    status: int
    command: str
    told: str
    flags: dict[str, str]  # with their values

    def trains(self) -> bool:
        """Whether it would train in --model_dir and leave what is there."""
        others = ("--clean", "--dry_run", "--print_schedule", "--find_lr")
        return (
            self.flags.get("eval_only") == "false"
            and not self.flags.get("predict")
            and not any(other in self.command.split() for other in others)
        )

    def of_directory(self) -> dict[str, str]:
        return {name: self.flags[name] for name in OF_A_DIRECTORY if name in self.flags}


def pages() -> list[Path]:
    return [ROOT / page for page in PAGES] + sorted((ROOT / "docs/manual").glob("*.md"))


def blocks(page: Path) -> Iterator[Commands]:
    """The indented blocks that name a program."""
    lines = [*page.read_text().splitlines(), ""]
    block: list[str] = []
    for number, line in enumerate(lines, 1):
        if line.startswith("    "):
            block.append(line[4:])
            continue
        found = Commands(f"{page.name}:{number - len(block)}", "\n".join(block))
        block = []
        if found.num_programs() > 0:
            yield found


def commands_in_text(page: Path) -> Iterator[Commands]:
    text = re.sub(r"^    .*$", "", page.read_text(), flags=re.MULTILINE)
    for code in re.finditer(r"`([^`]+)`", text):
        command = " ".join(code[1].replace("\\|", "|").split())
        name = NAME.match(command)
        if name is not None and " --" in command:
            yield Commands(f"{page.name}:{text.count(chr(10), 0, code.start()) + 1}", command)


class ManualTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        cls.addClassCleanup(folder.cleanup)
        cls.folder = Path(folder.name)
        cls.bin = cls.folder / "bin"
        cls.bin.mkdir()
        for name in PROGRAMS:
            cls.write_script(cls.bin / name)

    @staticmethod
    def write_script(path: Path) -> None:
        path.parent.mkdir(exist_ok=True)
        path.write_text(SCRIPT)
        path.chmod(0o755)

    def run_commands(self, commands: Commands) -> list[Ran]:
        """What each program that they start did."""
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            work = Path(folder) / "work"
            log = Path(folder) / "log"
            work.mkdir()
            log.mkdir()
            # The names by which the pages call a program, and the flag files that they name.
            self.write_script(work / "tools" / "run")
            for name, program in PROGRAMS.items():
                (work / name).symlink_to(self.bin / name)
                built = work / "bazel-bin" / str(program)[str(program).rindex("/official/") + 1 :]
                built.parent.mkdir(parents=True, exist_ok=True)
                built.symlink_to(self.bin / name)
            (work / "official").symlink_to(ROOT / "official")
            environment = {f"REAL_{name}": str(path) for name, path in PROGRAMS.items()}
            environment |= {"PATH": str(self.bin), "HOME": str(work), "LOG": str(log)}
            done = subprocess.run(
                ["/bin/bash", "-c", f"command_not_found_handle() {{ :; }}\nkill() {{ :; }}\n{commands.text}\nwait"],
                cwd=work, env=environment, capture_output=True, text=True, timeout=DEADLINE,
            )  # fmt: skip
            ran = []
            for path in log.iterdir():
                if path.suffix:
                    continue
                status, command, told = path.read_text().split("\n", 2)
                printed = path.with_suffix(".printed").read_text()
                flags = dict(re.findall(r"^--(\w+)=(.*)$", printed, re.MULTILINE))
                ran.append(Ran(int(status), command, told.strip(), flags))
        told = [(program.status, program.command, program.told) for program in ran]
        self.assertEqual(len(ran), commands.num_programs(), f"{commands.text}\n{told}\n{done.stderr}")
        return ran

    def check(self, all_commands: list[Commands]) -> None:
        for commands in all_commands:
            if any(part in commands.text for part in EXCEPTIONS):
                continue
            with self.subTest(commands.where):
                ran = self.run_commands(commands)
                for program in ran:
                    if program.command in REFUSED:
                        self.assertEqual(program.status, 2, program.command)
                        self.assertIn(REFUSED[program.command], program.told)
                    else:
                        self.assertEqual((program.status, program.told), (0, ""), program.command)
                self.assert_fit_their_directories([program for program in ran if program.trains()])

    def assert_fit_their_directories(self, trainings: list[Ran]) -> None:
        """No training of a block is refused since an earlier one has left another network in the directory."""
        found: dict[tuple[str, str], Ran] = {}
        for training in trainings:
            name = training.command.split()[0]
            first = found.setdefault((name, training.flags["model_dir"]), training)
            self.assertEqual(training.of_directory(), first.of_directory(), f"{training.command}\n{first.command}")

    def test_blocks(self) -> None:
        found = [block for page in pages() for block in blocks(page)]
        self.assertGreater(sum(block.num_programs() for block in found), 80)
        self.check(found)

    def test_commands_in_the_text(self) -> None:
        found = [command for page in pages() for command in commands_in_text(page)]
        self.assertGreater(len(found), 15)
        for refused in REFUSED:
            self.assertTrue(any(command.text == refused for command in found), refused)
        self.check(found)

    def test_each_exception_is_needed(self) -> None:
        texts = [commands.text for page in pages() for commands in [*blocks(page), *commands_in_text(page)]]
        for part in EXCEPTIONS:
            self.assertTrue(any(part in text for text in texts), part)


if __name__ == "__main__":
    unittest.main(verbosity=2)
