"""The targets of the BUILD files, with what they are made of and depend on.

BUILD files and what they load are nearly Python: they are executed here, with rules that only note their arguments.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

RULES_OF_TESTS = ("cc_test", "sh_test", "py_test", "fuzz_target", "interop_test")


@dataclass(frozen=True)
class Target:
    label: str  # "//utils/files:files"
    rule: str  # "cc_library"
    sources: tuple[str, ...]  # paths from the root of the project, headers included
    dependencies: tuple[str, ...]  # labels, deps and data
    visibility: tuple[str, ...]
    testonly: bool
    packages: tuple[str, ...] = ()  # of a package_group: "//utils/...", and without some: "-//utils/files/..."

    @property
    def package(self) -> str:
        return self.label[2:].split(":")[0]

    @property
    def is_test(self) -> bool:
        return self.rule in RULES_OF_TESTS


@dataclass
class _Package:
    """One BUILD file while it is executed."""

    root: Path
    name: str
    visibility: list[str] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)

    def label(self, text: str) -> str:
        if text.startswith(("@", "//")):
            return text if ":" in text else f"{text}:{text.rsplit('/', 1)[1]}"
        return f"//{self.name}:{text.lstrip(':')}"

    def add(self, rule: str, **attributes: Any) -> None:
        if "name" not in attributes:
            return
        listed = [*attributes.get("srcs", []), *attributes.get("hdrs", []), *attributes.get("textual_hdrs", [])]
        files = [name for name in listed if (self.root / self.name / name).is_file()]
        others = [name for name in listed if name not in files]
        needs = [*attributes.get("deps", []), *attributes.get("data", []), *others]
        self.targets.append(
            Target(
                label=self.label(attributes["name"]),
                rule=rule,
                sources=tuple(str(Path(self.name) / name) for name in files),
                dependencies=tuple(self.label(need) for need in needs),
                visibility=tuple(attributes.get("visibility", self.visibility)),
                testonly=bool(attributes.get("testonly")),
                packages=tuple(attributes.get("packages", ())),
            )
        )


class _Select(list):
    """select(): all of its branches."""

    def __init__(self, branches: dict[str, list[str]]) -> None:
        super().__init__(item for branch in branches.values() for item in branch)


class _Native:
    """native.RULE in a .bzl file, and the rules of a BUILD file."""

    def __init__(self, package: _Package) -> None:
        self._package = package

    def __getattr__(self, rule: str) -> Callable[..., None]:
        # A function that returns labels (cuda_libraries) names none of the project's.
        return lambda *_, **attributes: self._package.add(rule, **attributes) or []

    def glob(self, patterns: list[str], **_: Any) -> list[str]:
        folder = self._package.root / self._package.name
        return sorted(str(path.relative_to(folder)) for pattern in patterns for path in folder.glob(pattern))

    def package_name(self) -> str:
        return self._package.name

    def package(self, default_visibility: list[str] | None = None, **_: Any) -> None:
        self._package.visibility = default_visibility or []


class _Names(dict):
    """The names that a BUILD or .bzl file may use."""

    def __init__(self, package: _Package) -> None:
        super().__init__()
        self._native = _Native(package)
        self._package = package
        self["load"] = self._load
        self["native"] = self._native
        self["select"] = _Select
        self["Label"] = str

    def __missing__(self, name: str) -> Any:
        if hasattr(__builtins__, name) or (isinstance(__builtins__, dict) and name in __builtins__):
            raise KeyError(name)
        return getattr(self._native, name)

    def _load(self, file: str, *symbols: str, **renamed: str) -> None:
        names = {**{symbol: symbol for symbol in symbols}, **renamed}
        path = self._package.root / file.lstrip("/").replace(":", "/")
        loaded: dict[str, Any] = {}
        # Rules and macros of third_party hide a toolchain; the targets that they make are as the caller names them.
        if path.is_file() and not file.startswith(("@", "//third_party")):
            loaded = _Names(self._package)
            _execute(path, loaded)
        for name, symbol in names.items():
            self[name] = loaded[symbol] if symbol in loaded else getattr(self._native, symbol)


def _execute(path: Path, names: _Names) -> None:
    exec(compile(path.read_text(), path, "exec"), names)


def evaluate(root: Path, path: str) -> dict[str, Any]:
    """The names that a .bzl file defines."""
    names = _Names(_Package(root, str(Path(path).parent)))
    _execute(root / path, names)
    return names


def packages(root: Path) -> Iterator[str]:
    for folder in ("official", "utils", "tools", "third_party"):
        for path in sorted((root / folder).rglob("BUILD")):
            yield str(path.parent.relative_to(root))


def read_targets(root: Path) -> dict[str, Target]:
    """All targets of the project, by label."""
    found = {}
    for name in packages(root):
        package = _Package(root, name)
        _execute(root / name / "BUILD", _Names(package))
        found.update({target.label: target for target in package.targets})
    return found


def closure(targets: dict[str, Target], label: str) -> list[Target]:
    """A target and all that it depends on within the project."""
    seen: dict[str, Target] = {}
    waiting = [label]
    while waiting:
        next_label = waiting.pop()
        if next_label in seen or next_label not in targets:
            continue
        seen[next_label] = targets[next_label]
        waiting.extend(targets[next_label].dependencies)
    return list(seen.values())
