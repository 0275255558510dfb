"""Ratings to train on."""

import csv
from pathlib import Path

import numpy as np

NUM_USERS, NUM_ITEMS, RATINGS_PER_USER = 60, 1300, 40
EXAMPLES_PER_EPOCH = NUM_USERS * (RATINGS_PER_USER - 1) * 5


def write_ratings(path: Path) -> None:
    """Users and items have other numbers than from 0 on."""
    random = np.random.default_rng(1)
    with path.open("w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["user_id", "item_id", "rating", "timestamp"])
        for user in range(NUM_USERS):
            for item in random.choice(NUM_ITEMS, RATINGS_PER_USER, replace=False):
                out.writerow([3 * user + 1, 7 * item + 2, 4, random.integers(10**9)])
