"""A case of the parity tests: a network, a few fixed batches in turn, some steps, and an evaluation after them. Both
sides write its outcome to a folder.

  FOLDER/inputs      bundle: users, items [N] int32 and labels [N] float32, the batches one after another; eval_users
                     [U] int32, candidates [U, C] int32, the held-out item first, and repeated [U, C] bool
  FOLDER/initial     checkpoint that both start from
  FOLDER/SIDE        last checkpoint, and the bundle outputs, all float32: losses [steps] before each update; scores
                     [U * C] of the candidates; evaluated/HR, NDCG and loss, and the same under without_repeats/, as
                     they are with --ml_perf
"""

from dataclasses import dataclass

import numpy as np

from official.recommendation.interop import neumf_graph
from official.recommendation.interop.neumf_graph import Network

BATCHES = 4
EVAL_USERS, CANDIDATES = 100, 40


@dataclass(frozen=True)
class Case:
    num_factors: int
    layers: tuple[int, ...]
    loss: str
    steps: int
    num_users: int = 400
    num_items: int = 300
    batch_size: int = 256
    seed: int = 1  # of weights and examples

    @property
    def name(self) -> str:
        return f"{self.num_factors}-factors-{self.loss}"

    @property
    def network(self) -> Network:
        return Network(self.num_users, self.num_items, self.num_factors, self.layers, self.loss)


def draw_inputs(case: Case) -> dict[str, np.ndarray]:
    """Some users and items are in a batch many times, some in none for several steps, as in real ones. Each batch has
    the pair of user 0 and item 0 with either label. Of the candidates some are repeated, the held-out one too."""
    rng = np.random.default_rng(case.seed)

    def ids(count: int, shape: tuple[int, ...]) -> np.ndarray:
        return (count * rng.uniform(size=shape) ** 2).astype(np.int32)

    shape = (BATCHES, case.batch_size)
    users, items = ids(case.num_users, shape), ids(case.num_items, shape)
    labels = (rng.uniform(size=shape) < 0.2).astype(np.float32)
    users[:, :3] = items[:, :3] = 0
    labels[:, :3] = 1, 1, 0
    candidates = ids(case.num_items, (EVAL_USERS, CANDIDATES))
    candidates[::4, 7] = candidates[::4, 0]
    return {
        "users": users.flatten(),
        "items": items.flatten(),
        "labels": labels.flatten(),
        "eval_users": rng.permutation(case.num_users)[:EVAL_USERS].astype(np.int32),
        "candidates": candidates,
        "repeated": neumf_graph.repeated(candidates),
    }
