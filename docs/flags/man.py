"""Makes man pages, one for each program, from what the program prints for --helpfull.

Usage: python3 -m docs.flags.man PROGRAM... DIRECTORY
       python3 -m docs.flags.man --check PROGRAM...

PROGRAM... are binaries. NAME.1 is written to the directory for each; under `bazel run`, a relative one is below the
directory of the caller. With --check nothing is written: groff must format each page without a warning and show all
flags.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from docs.flags.make import DEADLINE, Flag, Help, help_of

# As it would be on a page of 80 columns.
GROFF = ("groff", "-man", "-ww", "-Tascii", "-rLL=80n", "-P-c", "-P-b", "-P-u")


def escaped(text: str) -> str:
    """Text for a line of its own, as troff shows it."""
    text = text.replace("\\", "\\(rs").replace("-", "\\-")
    return f"\\&{text}" if text.startswith((".", "'")) else text


def entry(flag: Flag) -> str:
    names = []
    for name in flag.names:
        flag_name, equals, value = name.partition("=")
        names.append(f"\\fB{escaped(flag_name)}\\fR" + (f"=\\fI{escaped(value)}\\fR" if equals else ""))
    lines = [".TP", ", ".join(names), escaped(flag.help)]
    if flag.values:
        lines += [".br", escaped(f"({flag.values}; default: {flag.default})")]
    for variant, default in flag.variants.items():
        lines += [".br", escaped(f"(default with {variant}: {default})")]
    return "\n".join(lines) + "\n"


def man_page(name: str, version: str, told: Help) -> str:
    """The source of NAME.1. `version` is what stands at the foot of the page: "mnist_main 0.1.0"."""
    purpose, _, more = told.description.partition(". ")
    parts = [
        f'.\\" Made from --helpfull of {name}.\n.TH {name.upper()} 1 "" "{escaped(version)}" "User Commands"\n',
        f".SH NAME\n{escaped(name)} \\- {escaped(purpose.rstrip('.'))}\n",
        f".SH SYNOPSIS\n{escaped(told.usage)}\n",
    ]
    if more:
        parts.append(f".SH DESCRIPTION\n{escaped(more)}\n")
    groups = {group: "".join(map(entry, flags)) for group, flags in told.groups.items()}
    environment = groups.pop("environment")
    parts += [".SH OPTIONS\n", *(f".SS {escaped(group)}\n{flags}" for group, flags in groups.items())]
    parts.append(f".SH ENVIRONMENT\n{environment}")
    if told.examples:
        shown = (f".TP\n\\fB{escaped(command)}\\fR\n{escaped(effect)}\n" for command, effect in told.examples)
        parts += [".SH EXAMPLES\n", *shown]
    return "".join(parts)


def pages(programs: list[Path]) -> dict[str, tuple[str, Help]]:
    """The pages by the names of the programs, and what they were made from."""
    found = {}
    for program in programs:
        done = subprocess.run([program.absolute(), "--version"], capture_output=True, timeout=DEADLINE, check=True, text=True)
        told = help_of(program)
        found[program.name] = (man_page(program.name, done.stdout.partition(",")[0], told), told)
    return found


def check(programs: list[Path]) -> int:
    if shutil.which(GROFF[0]) is None:
        print("groff is not installed; tools/test installs it")
        return 1
    wrong = 0
    for name, (text, told) in pages(programs).items():
        done = subprocess.run(GROFF, input=text, capture_output=True, timeout=DEADLINE, text=True)
        shown = " ".join(done.stdout.split())
        missing = [flag for flags in told.flags() for flag in flags.names if flag not in shown]
        titles = re.findall(r"^([A-Z]+)$", done.stdout, re.MULTILINE)
        if done.returncode != 0 or done.stderr or missing or "OPTIONS" not in titles or "NAME" not in titles:
            wrong = 1
            print(f"{name}.1: groff: {done.stderr or done.returncode}; flags that it does not show: {missing}; {titles}")
    return wrong


def main() -> int:
    if sys.argv[1:2] == ["--check"]:
        return check([Path(path) for path in sys.argv[2:]])
    *programs, directory = sys.argv[1:] or [""]
    if not directory or Path(directory).is_file():  # the last program
        print("name the directory for the man pages: bazel run //docs/flags:man -- DIRECTORY", file=sys.stderr)
        return 2
    folder = Path(os.environ.get("BUILD_WORKING_DIRECTORY", "")) / directory
    folder.mkdir(parents=True, exist_ok=True)
    for name, (text, _) in pages([Path(path) for path in programs]).items():
        (folder / f"{name}.1").write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
