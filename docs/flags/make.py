"""Makes the pages of all flags, one for each program, from what the program prints for --helpfull.

Usage: python3 -m docs.flags.make [--check] PROGRAM...

PROGRAM... are the binaries of all programs. The pages are written to docs/flags; under `bazel run`
to that of the workspace. With --check nothing is written: the pages there must be those that would be written now.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import unified_diff
from pathlib import Path
from textwrap import TextWrapper

FOLDER = "docs/flags"
UPDATE = "bazel run //docs/flags:update"
DEADLINE = 120  # seconds for --helpfull, which takes a few milliseconds on an idle machine
WIDTH = 120
HOME = "/home-of-the-reader"  # default directories are below it, and shown below ~

# The page of the manual about each program.
MANUAL = {
    "checkpoint_tool": "checkpoints",
    "compute_bleu_main": "transformer",
    "data_check": "data",
    "download_cifar10_main": "data",
    "download_mnist_main": "data",
    "download_movielens_main": "data",
    "generate_ratings_main": "ncf",
    "imagenet_to_tfrecords_main": "resnet",
    "mnist_main": "mnist",
    "ncf_main": "ncf",
    "prepare_data_main": "transformer",
    "report_main": "runs",
    "resnet_main": "resnet",
    "serve_main": "serving",
    "transformer_main": "transformer",
    "translate_main": "transformer",
}

# Flags that change the defaults of others.
VARIANTS = {
    "resnet_main": ("--dataset_name=cifar10",),
    "transformer_main": ("--param_set=base", "--param_set=tiny"),
}


@dataclass
class Flag:
    names: list[str]  # the long name first, then the short one if there is one: ["--batch_size", "-bs"]
    help: str
    values: str = ""  # "an integer, at least 1"; empty for the general flags, which have no default either
    default: str = ""  # "'100'", or words: "unset"
    variants: dict[str, str] = field(default_factory=dict)  # defaults that differ: {"--param_set=tiny": "'1024'"}


@dataclass
class Help:
    """What --helpfull prints, each paragraph as one line."""

    description: str
    examples: list[tuple[str, str]]  # commands with their effects
    usage: str
    groups: dict[str, list[Flag]]

    def flags(self) -> Iterator[Flag]:
        for flags in self.groups.values():
            yield from flags


# ---- Reading --helpfull ----


def joined(lines: list[str]) -> str:
    return " ".join(" ".join(lines).split())


def entries(lines: list[str]) -> list[tuple[str, list[str]]]:
    """The lines that are indented by two blanks, each with the lines below it, which are indented by six."""
    found: list[tuple[str, list[str]]] = []
    for line in lines:
        if re.match(r" {6}\S", line) and found:
            found[-1][1].append(line.strip())
        elif re.match(r" {2}\S", line):
            found.append((line.strip(), []))
        else:
            raise ValueError(f"a line of --helpfull that this script does not know: {line!r}")
    return found


def flag_of(head: str, lines: list[str]) -> Flag:
    names = re.split(", (?=--)", head)[::-1]  # not at the commas of OFFICIAL_MAX_ISA=avx2, avx512 or ...
    for i, line in enumerate(lines):
        # Values and default have lines of their own.
        told = re.fullmatch(r"\(([^()]*?); default: (.*)\)", joined(lines[i:]))
        if line.startswith("(") and told is not None:
            return Flag(names, joined(lines[:i]), *told.groups())
    return Flag(names, joined(lines))


def helpfull(program: Path, *flags: str) -> Help:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("XDG_")} | {"HOME": HOME}
    done = subprocess.run(
        [program.absolute(), *flags, "--helpfull"], env=environment, stdout=subprocess.PIPE, timeout=DEADLINE,
        check=True, text=True,
    )  # fmt: skip
    description, *parts = [part.splitlines() for part in done.stdout.replace(HOME, "~").rstrip("\n").split("\n\n")]
    examples: list[tuple[str, str]] = []
    usage = ""
    groups = {}
    for title, *lines in parts:
        if title.startswith("Usage: "):
            usage = joined([title, *lines]).removeprefix("Usage: ")
        elif title == "Examples:":
            examples = [(command, joined(effect)) for command, effect in entries(lines)]
        else:
            groups[title.removesuffix(":")] = [flag_of(*entry) for entry in entries(lines)]
    return Help(joined(description).removeprefix(f"{program.name}: "), examples, usage, groups)


def help_of(program: Path) -> Help:
    """The program's help, with the defaults that depend on other flags."""
    found = helpfull(program)
    for variant in VARIANTS.get(program.name, ()):
        others = {flag.names[0]: flag.default for flag in helpfull(program, variant).flags()}
        for flag in found.flags():
            if others[flag.names[0]] != flag.default:
                flag.variants[variant] = others[flag.names[0]]
    return found


# ---- Writing Markdown ----


def filled(text: str, first_indent: str = "", indent: str = "", width: int = WIDTH) -> str:
    return TextWrapper(width, first_indent, indent, break_long_words=False, break_on_hyphens=False).fill(text)


def prose(text: str) -> str:
    """Plain text as Markdown: names of flags, files and the like are code."""

    def word(match: re.Match[str]) -> str:
        before, core, after = match.groups()
        is_name = re.match(r"--?[A-Za-z]|~/|#$", core) or re.search(r"[_*/=]|[A-Za-z]\.[A-Za-z]", core)
        return f"{before}`{core}`{after}" if is_name else match[0]

    return re.sub(r"(?<!\S)(\(?)(\S+?)((?:'s)?[.,;:)]*)(?!\S)", word, text)


def values(text: str) -> str:
    """With "`a`, `b` or `c`" for <a|b|c>."""

    def choices(match: re.Match[str]) -> str:
        *others, last = [f"`{choice.strip()}`" for choice in match[1].split("|")]
        return f"{', '.join(others)} or {last}" if others else last

    return re.sub(r"(?:^one of )?<(.*)>", choices, text)


def default(text: str) -> str:
    return f"`{text[1:-1]}`" if text.startswith("'") else prose(text)


def entry(flag: Flag) -> str:
    head = "- " + ", ".join(f"**`{name}`**" for name in flag.names)
    if flag.values:
        head += f": {values(flag.values)}; default: {default(flag.default)}"
        others = [f"{default(other)} with `{variant}`" for variant, other in flag.variants.items()]
        head += f" ({', '.join(others)})" if others else ""
    # A backslash ends the line in what is shown, too.
    return filled(head, "", "  ", WIDTH - 1) + "\\\n" + filled(prose(flag.help), "  ", "  ") + "\n"


def page(name: str, told: Help) -> str:
    examples = "\n".join(f"    # {effect}\n    {command}\n" for command, effect in told.examples)
    parts = [
        f"# Flags of {name}\n",
        f"<!-- Made from --helpfull. To write it again: {UPDATE} -->\n",
        filled(f"{prose(told.description)} [How to use it](../manual/{MANUAL[name]}.md).") + "\n",
        f"    {told.usage}\n",
    ]
    if examples:
        parts += ["Examples:\n", examples]
    for group, flags in told.groups.items():
        parts += [f"## {group}\n", "".join(map(entry, flags))]
    return "\n".join(parts)


def index(helps: dict[str, Help]) -> str:
    sentences = {name: re.split(r"[.:](?: |$)", told.description)[0] for name, told in helps.items()}
    rows = [f"| [{name}]({name}.md) | {prose(sentence)} |\n" for name, sentence in sentences.items()]
    parts = [
        "# The flags of all programs\n",
        f"<!-- Made from --helpfull. To write it again: {UPDATE} -->\n",
        filled(
            "Each page holds what the program prints for `--helpfull`. Defaults below `~/.cache` and `~/.local/share` "
            "follow `XDG_CACHE_HOME` and `XDG_DATA_HOME`: "
            "[where files are kept](../manual/runs.md#where-files-are-kept)."
        ) + "\n",
        "| program | what it does |\n| --- | --- |\n" + "".join(rows),
    ]  # fmt: skip
    return "\n".join(parts)


def main() -> int:
    check = "--check" in sys.argv
    programs = sorted((Path(path) for path in sys.argv[1:] if path != "--check"), key=lambda path: path.name)
    helps = {program.name: help_of(program) for program in programs}
    pages = {"README.md": index(helps)} | {f"{name}.md": page(name, told) for name, told in helps.items()}
    folder = Path(os.environ.get("BUILD_WORKSPACE_DIRECTORY", "")) / FOLDER
    stale = 0
    for name in sorted(pages.keys() | {path.name for path in folder.glob("*.md")}):
        if not check and name in pages:
            (folder / name).write_text(pages[name])
            continue
        there = (folder / name).read_text() if (folder / name).exists() else ""
        if name not in pages:
            stale = 1
            print(f"{FOLDER}/{name} is of no program: remove it")
        elif there != pages[name]:
            stale = 1
            lines = (text.splitlines(keepends=True) for text in (there, pages[name]))
            sys.stdout.writelines(unified_diff(*lines, f"{FOLDER}/{name}", "--helpfull"))
    if stale and check:
        print(f"{FOLDER} is not what the programs print for --helpfull; run: {UPDATE}")
    return stale


if __name__ == "__main__":
    sys.exit(main())
