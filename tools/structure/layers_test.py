"""Holds the BUILD files to the layers of layers.bzl, and the manual and its picture to what they are.

Usage: MODULE. Reads the BUILD files of the source tree, which are too many to be listed as data.
"""

import contextlib
import io
import re
import unittest
from collections.abc import Iterator
from pathlib import Path

from tools.structure import build_files, draw

ROOT = Path(__file__).resolve().parents[2]
MANUAL = "docs/manual/development.md"
PICTURE = "docs/pictures/dependencies.svg"
LAYERS: list[tuple[str, str]] = build_files.evaluate(ROOT, "tools/structure/layers.bzl")["LAYERS"]
TARGETS = build_files.read_targets(ROOT)


def layer_of(package: str) -> int:
    fitting = [i for i, (name, _) in enumerate(LAYERS) if package == name or package.startswith(f"{name}/")]
    if not fitting:
        raise AssertionError(f"{package} is in no layer of tools/structure/layers.bzl")
    return max(fitting, key=lambda i: len(LAYERS[i][0]))


def libraries() -> Iterator[build_files.Target]:
    """What programs are made of: tests, and what only they use, may depend on any layer."""
    return (target for target in TARGETS.values() if target.rule in draw.LIBRARIES and not target.testonly)


def in_group(listed: tuple[str, ...], package: str) -> bool:
    """Whether a package is among those of a package_group."""

    def fits(pattern: str) -> bool:
        return f"{package}/".startswith(pattern.removeprefix("//").removesuffix("..."))

    return any(fits(item) for item in listed if item[0] != "-") and not any(fits(item[1:]) for item in listed if item[0] == "-")


def admits(visibility: str, package: str) -> bool:
    """Whether a target with this entry in its visibility can be used in the package."""
    if visibility == "//visibility:public":
        return True
    if visibility in TARGETS:
        return in_group(TARGETS[visibility].packages, package)
    users, _, kind = visibility[2:].partition(":")
    return package == users or (kind == "__subpackages__" and package.startswith(f"{users}/"))


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components with more than one node, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(node: str) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        for other in edges.get(node, ()):
            if other not in index:
                visit(other)
            if other in stack:
                low[node] = min(low[node], low[other])
        if low[node] == index[node]:
            component = [stack.pop()]
            while component[-1] != node:
                component.append(stack.pop())
            if len(component) > 1:
                found.append(sorted(component))

    for node in edges:
        if node not in index:
            visit(node)
    return found


def upward() -> list[str]:
    """The dependencies of libraries on a layer above their own."""
    return [
        f"{target.label} -> {label}"
        for target in libraries()
        for label in target.dependencies
        if label in TARGETS and layer_of(TARGETS[label].package) < layer_of(target.package)
    ]


def package_edges() -> dict[str, set[str]]:
    """For each package those that its libraries depend on."""
    edges: dict[str, set[str]] = {}
    for target in libraries():
        others = {TARGETS[label].package for label in target.dependencies if label in TARGETS}
        edges.setdefault(target.package, set()).update(others - {target.package})
    return edges


class LayersTest(unittest.TestCase):
    def test_every_package_has_a_layer(self) -> None:
        for package in {target.package for target in TARGETS.values()}:
            layer_of(package)
        used = {layer_of(target.package) for target in TARGETS.values()}
        self.assertEqual([name for i, (name, _) in enumerate(LAYERS) if i not in used], [])

    def test_no_dependency_points_up(self) -> None:
        self.assertEqual(upward(), [])

    def test_visibility_closes_every_way_up(self) -> None:
        """No layer can come to depend on one above it: the build refuses it."""
        packages = {target.package for target in TARGETS.values()}
        open_pairs = {}
        for target in libraries():
            layer = layer_of(target.package)
            for package in packages:
                if layer_of(package) <= layer or not any(admits(entry, package) for entry in target.visibility):
                    continue
                open_pairs[LAYERS[layer_of(package)][0], LAYERS[layer][0]] = f"{package} can use {target.label}"
        self.assertEqual(open_pairs, {})

    def test_no_cycle_of_packages(self) -> None:
        self.assertEqual(cycles(package_edges()), [])
        # The test can fail.
        self.assertEqual(cycles({"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}}), [["a", "b", "c"]])

    def test_the_manual_lists_the_layers(self) -> None:
        text = (ROOT / MANUAL).read_text()
        listed = re.findall(r"^    (\S+) {2,}(.+)$", text[text.index("## The layers") : text.index("## Tests")], re.MULTILINE)
        self.assertEqual(listed, LAYERS, f"{MANUAL} and tools/structure/layers.bzl differ")

    def test_the_picture_shows_the_dependencies(self) -> None:
        drawn = (ROOT / PICTURE).read_text()
        self.assertTrue(drawn == draw.draw(ROOT), f"{PICTURE} is old; run: python3 -m tools.structure.draw {PICTURE}")

    def test_a_flag_is_not_the_name_of_a_picture(self) -> None:
        for words in [], ["--help"], ["a.svg", ".", "b"]:
            told = io.StringIO()
            with contextlib.redirect_stderr(told):
                self.assertEqual(draw.main(words), 2)
            self.assertTrue(told.getvalue().startswith("usage: "))
            self.assertFalse(any(Path(word).is_file() for word in words))


if __name__ == "__main__":
    unittest.main(verbosity=2)
