"""Trains NeuMF on the same ratings with ncf_main and in PyTorch, by several seeds, and compares how often each finds
what users chose last: HR@10 among 999 items that they did not rate.

  $(tools/python_env pytorch)/bin/python tools/peers/ncf_accuracy.py

Fails if the means differ by more than two standard errors, or if ours is below 1.3 times what the most popular items
would have.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import mean, variance

import numpy as np
import pytorch_ncf
import torch
from bench import build
from ncf_architecture import Architecture

NUM_NEG = 4  # for each rating, drawn afresh in every epoch
TOP_K = 10


class Ratings:
    """After the official split: the last rating of each user is held out."""

    def __init__(self, file: Path):
        table = np.loadtxt(file, np.int64, delimiter=",", skiprows=1, usecols=(0, 1, 3))
        users, items = (np.unique(ids, return_inverse=True)[1] for ids in (table[:, 0], table[:, 1]))
        order = np.lexsort((table[:, 2], users))
        users, items = users[order], items[order]
        last = np.append(users[1:] != users[:-1], True)
        self.held_out = items[last]
        self.users, self.items = users[~last], items[~last]
        self.rated = np.zeros((users.max() + 1, items.max() + 1), bool)
        self.rated[self.users, self.items] = True

    def epoch(self, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Users, items, labels: the ratings and negatives for them, in any order."""
        users = np.tile(self.users, 1 + NUM_NEG)
        items = rng.integers(self.rated.shape[1], size=len(users))
        items[: len(self.items)] = self.items
        labels = np.arange(len(users)) < len(self.items)
        while len(again := np.flatnonzero(~labels & self.rated[users, items])):
            items[again] = rng.integers(self.rated.shape[1], size=len(again))
        order = rng.permutation(len(users))
        return users[order], items[order], labels[order].astype(np.float32)

    def candidates(self, rng: np.random.Generator) -> np.ndarray:
        """[users, 1000]: the held-out item, and others that the user did not rate."""
        unrated = ~self.rated
        unrated[np.arange(len(unrated)), self.held_out] = False
        negatives = [rng.choice(np.flatnonzero(row), 999, replace=False) for row in unrated]
        return np.column_stack([self.held_out, negatives])


def hit_rate(scores: np.ndarray) -> float:
    """Of [users, candidates], the held-out one first; it comes after its equals."""
    return float(np.mean((scores[:, 1:] >= scores[:, :1]).sum(axis=1) < TOP_K))


def train_ours(args: argparse.Namespace, ratings_file: Path, seed: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        command = [args.binary, f"--ratings_file={ratings_file}", f"--model_dir={folder}/model", f"--seed={seed}"]
        command += [f"--batch_size={args.batch_size}", f"--train_epochs={args.train_epochs}", f"--num_neg={NUM_NEG}"]
        command += [f"--epochs_between_evals={args.train_epochs}", "--intra_op_parallelism_threads=1", "--num_gpus=0"]
        done = subprocess.run([*command, "--output=json"], check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    evaluation, _ = map(json.loads, done.stdout.splitlines())
    return evaluation["HR"]


def train_pytorch(args: argparse.Namespace, ratings: Ratings, seed: int) -> float:
    rng = np.random.default_rng(seed)
    torch.manual_seed(seed)
    model = pytorch_ncf.NeuMF(Architecture(*ratings.rated.shape, 8, [64, 32, 16, 8]), sparse=False)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001, fused=True)
    for _ in range(args.train_epochs):
        for users, items, labels in zip(*(torch.tensor(x).split(args.batch_size) for x in ratings.epoch(rng))):
            optimizer.zero_grad()
            pytorch_ncf.loss(model(users, items), labels).backward()
            optimizer.step()
    candidates = torch.tensor(ratings.candidates(rng))
    users = torch.arange(len(candidates))[:, None].expand_as(candidates)
    with torch.no_grad():
        scores = [model(u.flatten(), c.flatten()) for u, c in zip(users.split(64), candidates.split(64))]
    return hit_rate(torch.cat(scores).view_as(candidates).numpy())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3, help="how many, at least 2")
    parser.add_argument("--train_epochs", type=int, default=4)
    parser.add_argument("--batch_size", type=int, default=2048)
    parser.add_argument("--ratings_file", type=Path, help="a ratings.csv; default: made now, as large as MovieLens 1M")
    parser.add_argument("--binary", type=Path, help="ncf_main; default: built now")
    args = parser.parse_args()
    args.binary = (args.binary or build("official/recommendation", "ncf_main")).absolute()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)

    with tempfile.TemporaryDirectory() as folder:
        ratings_file = args.ratings_file or Path(folder) / "ratings.csv"
        if not args.ratings_file:
            generate = build("official/recommendation/data", "generate_ratings_main")
            subprocess.run([generate, "ml-1m", ratings_file], check=True)
        ratings = Ratings(ratings_file)
        rates: dict[str, list[float]] = {"ncf_main": [], "PyTorch": []}
        for seed in range(1, args.seeds + 1):
            rates["ncf_main"].append(train_ours(args, ratings_file, seed))
            rates["PyTorch"].append(train_pytorch(args, ratings, seed))
            print(f"seed {seed}: " + ", ".join(f"{name} {rate[-1]:.4f}" for name, rate in rates.items()), flush=True)

    popularity = np.bincount(ratings.items, minlength=ratings.rated.shape[1])
    baseline = hit_rate(popularity[ratings.candidates(np.random.default_rng(0))])
    ours, theirs = (mean(rate) for rate in rates.values())
    error = sum(variance(rate) / args.seeds for rate in rates.values()) ** 0.5
    print(f"HR@{TOP_K} after {args.train_epochs} epochs: ncf_main {ours:.4f}, PyTorch {theirs:.4f}")
    print(f"difference {ours - theirs:+.4f}, standard error {error:.4f}")
    print(f"the most popular items have {baseline:.4f}; ncf_main {ours / baseline:.2f} times that")
    if abs(ours - theirs) > 2 * error or ours < 1.3 * baseline:
        sys.exit("ncf_accuracy.py: the two differ, or are hardly better than popularity")


if __name__ == "__main__":
    main()
