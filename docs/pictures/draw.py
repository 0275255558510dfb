"""Draws the manual's pictures as SVG files. Usage: python3 -m docs.pictures.draw [--check] FOLDER

FOLDER is docs/. With --check nothing is written: the pictures there must be those that would be drawn now.
"""

import re
import sys
from html import escape
from pathlib import Path

from tools.structure.build_files import evaluate

STYLE = """<style>
  text { font: 13px sans-serif; fill: #24292f }
  .small { font-size: 11px; fill: #57606a }
  .mono { font: 13px monospace }
  .axis { stroke: #8c959f; fill: none }
  .grid { stroke: #8c959f; stroke-opacity: 0.25 }
  .loss { stroke: #0969da; fill: none; stroke-width: 1.5 }
  .accuracy { stroke: #cf222e; fill: none; stroke-width: 1.5 }
  .dot { fill: #cf222e }
  .box { fill: #ddf4ff; stroke: #54aeff }
  .engine { fill: #fff8c5; stroke: #d4a72c }
  .cell { fill: none; stroke: #8c959f; stroke-opacity: 0.25 }
  .up { fill: #ffcecb; stroke: #cf222e }
  .outer { fill: none; stroke: #8c959f; stroke-dasharray: 4 3 }
  .terminal { fill: #24292f }
  .terminal-text { font: 13px monospace; fill: #f6f8fa }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } .small { fill: #9198a1 }
    .box { fill: #0c2d6b; stroke: #388bfd } .engine { fill: #3b2300; stroke: #9e6a03 }
    .up { fill: #67060c; stroke: #f85149 }
  }
</style>"""


def svg(width: int, height: int, title: str, body: list[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
    return "\n".join([head, f"<title>{escape(title)}</title>", STYLE, *body, "</svg>"]) + "\n"


def text(x: float, y: float, content: str, css: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:g}" y="{y:g}" class="{css}" text-anchor="{anchor}" xml:space="preserve">{escape(content)}</text>'


# ---- Learning curves ----


def panel(
    left: float, last: int, title: str, unit: str, points: list[tuple[float, float]], css: str, top: float
) -> list[str]:
    """A curve over epochs 0 to `last`, from 0 to `top`, in a panel of 300 x 170 whose left edge is at `left`."""
    width, height, y0 = 300, 170, 40
    at = [(left + width * x / last, y0 + height * (1 - min(y, top) / top)) for x, y in points]
    drawn = [text(left, 24, title)]
    for i in range(5):
        y = y0 + height * (1 - i / 4)
        drawn.append(f'<path class="grid" d="M{left:g} {y:g}h{width}"/>')
        drawn.append(text(left - 6, y + 4, f"{top * i / 4:g}{unit}", "small", "end"))
    for epoch in range(0, last + 1, last // 6):
        drawn.append(text(left + width * epoch / last, y0 + height + 16, str(epoch), "small", "middle"))
    drawn.append(text(left + width / 2, y0 + height + 32, "epoch", "small", "middle"))
    drawn.append(f'<path class="axis" d="M{left:g} {y0}v{height}h{width}"/>')
    drawn.append(f'<path class="{css}" d="M' + "L".join(f"{x:.1f} {y:.1f}" for x, y in at) + '"/>')
    if css == "accuracy":
        drawn += [f'<circle class="dot" cx="{x:.1f}" cy="{y:.1f}" r="3"/>' for x, y in at]
        drawn.append(text(at[-1][0], at[-1][1] - 8, f"{points[-1][1]:.1f} {unit}", "small", "end"))
    return drawn


def learning_curve(log: str) -> str:
    """Loss and accuracy of a run's log."""
    epochs = re.search(r"epoch \d+/(\d+)", log)[1]
    total_steps = re.findall(r"Saving dict for global step (\d+)", log)[-1]
    per_epoch = int(total_steps) / int(epochs)
    losses = [(int(step) / per_epoch, float(loss)) for loss, step in re.findall(r"loss = (\S+), step = (\d+)", log)]
    accuracies = [
        (int(step) / per_epoch, 100 * float(accuracy))
        for step, accuracy in re.findall(r"Saving dict for global step (\d+): accuracy = ([\d.]+)", log)
    ]
    curves = panel(50, int(epochs), "Training loss", "", losses, "loss", top=2.4)
    curves += panel(430, int(epochs), "Test accuracy", "%", accuracies, "accuracy", top=100)
    return svg(760, 256, f"ResNet-20 on CIFAR-10 in {epochs} epochs: training loss and test accuracy", curves)


# ---- The layers ----


def layers(named: list[tuple[str, str]]) -> str:
    """The layers with what they are, from the top, each in a row of its own; those of the engine in another colour."""
    body = []
    for i, (name, what) in enumerate(named):
        y = 20 + 30 * i
        css = "engine" if name.startswith("utils/compute") else "box"
        body.append(f'<rect class="{css}" x="20" y="{y}" width="780" height="26" rx="5"/>')
        body += [text(32, y + 18, name, "mono"), text(250, y + 18, what, "small")]
    return svg(820, 30 * len(named) + 36, "The layers of the code: each depends on its own and on those below it", body)


# ---- A terminal ----


def terminal(lines: list[str]) -> str:
    width = 8 * max(len(line) for line in lines) + 32
    height = 20 * len(lines) + 24
    body = [f'<rect class="terminal" width="{width}" height="{height}" rx="8"/>']
    body += [text(16, 28 + 20 * i, line, "terminal-text") for i, line in enumerate(lines)]
    return svg(width, height, "A terminal while mnist_main trains", body)


def main() -> int:
    check = "--check" in sys.argv
    docs = Path(sys.argv[-1]).absolute()
    pictures = {
        "cifar10_resnet20.svg": learning_curve((docs / "logs/cifar10_resnet20.log").read_text()),
        "layers.svg": layers(evaluate(docs.parent, "tools/structure/layers.bzl")["LAYERS"]),
        "live_line.svg": terminal((docs / "pictures/live_line.txt").read_text().splitlines()),
    }
    stale = 0
    for name, drawn in pictures.items():
        path = docs / "pictures" / name
        if not check:
            path.write_text(drawn)
        elif path.read_text() != drawn:
            stale = 1
            print(f"docs/pictures/{name} is not what draw.py draws; run: python3 -m docs.pictures.draw docs")
    return stale


if __name__ == "__main__":
    sys.exit(main())
