"""Draws which layers' libraries depend on which, as a matrix: python3 -m tools.structure.draw FILE.svg [ROOT]

ROOT is the source tree to draw, by default this one; its layers are those that its docs/manual/development.md lists.
Each row is a layer, from the top, and each column one, too; a number counts the dependencies of the row's libraries on
those of the column. What points down the list is right of the diagonal; what is left of it, in red, points up.
"""

import re
import sys
from collections import Counter
from pathlib import Path

from docs.pictures.draw import svg, text
from tools.structure import build_files

THIS = Path(__file__).resolve().parents[2]
LIBRARIES = ("cc_library", "cuda_library", "cuda_shared_object")
CELL, LEFT, TOP = 26, 262, 40


def listed_layers(manual: str) -> list[str]:
    """The names in the manual's list of the layers, from the top."""
    section = manual[manual.index("## The layers") :]
    section = section[: section.index("\n## ", 1)]
    return re.findall(r"^    (\S+) {2,}\S.*$", section, re.MULTILINE)


def dependencies(root: Path, layers: list[str]) -> Counter[tuple[int, int]]:
    """How many dependencies of libraries lead from one layer to another."""
    targets = build_files.read_targets(root)

    def layer_of(package: str) -> int:
        fitting = [i for i, name in enumerate(layers) if package == name or package.startswith(f"{name}/")]
        return max(fitting, key=lambda i: len(layers[i]), default=-1)

    return Counter(
        (layer_of(target.package), layer_of(targets[label].package))
        for target in targets.values()
        if target.rule in LIBRARIES and not target.testonly
        for label in target.dependencies
        if label in targets
    )


def matrix(layers: list[str], counts: Counter[tuple[int, int]]) -> str:
    body = []
    for i, name in enumerate(layers):
        y = TOP + CELL * i
        body.append(text(12, y + 18, f"{i + 1:2}  {name}", "mono"))
        body.append(text(LEFT + CELL * i + CELL / 2, TOP - 8, str(i + 1), "small", "middle"))
        for j in range(len(layers)):
            css = "engine" if i == j else "cell"
            count = counts[i, j]
            if count and i != j:
                css = "box" if i < j else "up"
            body.append(f'<rect class="{css}" x="{LEFT + CELL * j}" y="{y}" width="{CELL}" height="{CELL}"/>')
            if count:
                body.append(text(LEFT + CELL * j + CELL / 2, y + 17, str(count), "small", "middle"))
    up = sum(count for (i, j), count in counts.items() if i > j >= 0)
    body.append(text(LEFT, TOP + CELL * len(layers) + 20, f"dependencies that point up: {up}", "small"))
    side = CELL * len(layers)
    return svg(LEFT + side + 20, TOP + side + 36, "Dependencies between the layers, of a row on a column", body)


def draw(root: Path) -> str:
    layers = listed_layers((root / "docs/manual/development.md").read_text())
    return matrix(layers, dependencies(root, layers))


def main(words: list[str]) -> int:
    if len(words) not in (1, 2) or words[0].startswith("-"):
        print("usage: python3 -m tools.structure.draw FILE.svg [ROOT]", file=sys.stderr)
        return 2
    Path(words[0]).write_text(draw(Path(words[1]) if len(words) > 1 else THIS))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
