"""Neural collaborative filtering, as far as it does not depend on the framework."""

import argparse
from dataclasses import dataclass


@dataclass(frozen=True)
class Architecture:
    num_users: int
    num_items: int
    num_factors: int  # of matrix factorization
    layers: list[int]  # of the perceptron: its two embeddings together, then its layers


def add_flags(p: argparse.ArgumentParser) -> None:
    p.add_argument("--dataset", choices=["ml-1m", "ml-20m"], default="ml-1m", help="as many users and items as it has")
    p.add_argument("--num_factors", type=int, default=8)
    p.add_argument("--layers", type=lambda text: [int(size) for size in text.split(",")], default=[64, 32, 16, 8])


def architecture(args: argparse.Namespace) -> Architecture:
    users, items = {"ml-1m": (6040, 3706), "ml-20m": (138493, 26744)}[args.dataset]
    return Architecture(users, items, args.num_factors, args.layers)
