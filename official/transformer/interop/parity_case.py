"""A case of the parity tests: a network, one fixed batch, some steps. Both sides write its outcome to a folder.

  FOLDER/inputs      bundle of int32: inputs [B, S] and targets [B, T] padded with 0, input_lengths [B], target_lengths
                     [B]
  FOLDER/initial     checkpoint that both start from
  FOLDER/SIDE        the checkpoint of the first step, if there were steps, and the bundle outputs, all float32: with
                     the initial checkpoint logits [B, T, vocab_size] and evaluated/loss []; losses [steps] before each
                     update. On our side the rows of logits are not split into sentences, padding follows them, and
                     there are checkpoints of later steps.
"""

from dataclasses import dataclass

import numpy as np

from official.transformer.interop.transformer_graph import NETWORKS


@dataclass(frozen=True)
class Case:
    param_set: str
    batch_size: int  # sentences
    longest: int  # ids of a sentence
    first_step: int  # of the initial checkpoint
    steps: int
    seed: int = 1  # of weights and sentences

    @property
    def name(self) -> str:
        return self.param_set


def draw_inputs(case: Case) -> dict[str, np.ndarray]:
    """Sentences of any ids and lengths, each with EOS at its end; of inputs and targets one is as long as there may be,
    and one is EOS alone."""
    rng = np.random.default_rng(case.seed)
    tensors = {}
    for name in ("input", "target"):
        lengths = rng.integers(2, case.longest, case.batch_size).astype(np.int32)
        lengths[rng.choice(case.batch_size, 2, replace=False)] = case.longest, 1
        ids = rng.integers(2, NETWORKS[case.param_set].vocab_size, [case.batch_size, case.longest]).astype(np.int32)
        places = np.arange(case.longest)
        ids[places == lengths[:, np.newaxis] - 1] = 1
        ids[places >= lengths[:, np.newaxis]] = 0
        tensors |= {f"{name}s": ids, f"{name}_lengths": lengths}
    return tensors
