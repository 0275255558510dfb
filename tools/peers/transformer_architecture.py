"""The official Transformer, as far as it does not depend on the framework."""

import argparse
import math
from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Architecture:
    hidden_size: int
    num_heads: int
    filter_size: int
    vocab_size: int = 33708
    num_layers: int = 6
    dropout: float = 0.1  # of every kind
    label_smoothing: float = 0.1
    beta1: float = 0.9
    beta2: float = 0.997
    epsilon: float = 1e-9

    def positions(self, length: int) -> list[list[float]]:
        """[length, hidden_size]: what is added to the embeddings."""
        timescales = self.hidden_size // 2
        inverse = [math.exp(-i * math.log(1e4) / (timescales - 1)) for i in range(timescales)]
        return [[f(p * i) for f in (math.sin, math.cos) for i in inverse] for p in range(length)]


def add_flags(p: argparse.ArgumentParser) -> None:
    p.add_argument("--param_set", choices=["tiny", "base", "big"], default="big", help="as of transformer_main")
    p.add_argument("--params_override", default="", help="name=value,...: sizes, by their names in transformer_main")
    p.add_argument("--sentence_length", type=int, default=64, help="ids; --batch_size counts sentences")


def architecture(args: argparse.Namespace) -> Architecture:
    sizes = {"tiny": (32, 4, 256), "base": (512, 8, 2048), "big": (1024, 16, 4096)}
    overrides = {}
    for item in filter(None, args.params_override.split(",")):
        name, value = item.split("=")
        overrides["num_layers" if name == "num_hidden_layers" else name] = int(value)
    return replace(Architecture(*sizes[args.param_set]), **overrides)
