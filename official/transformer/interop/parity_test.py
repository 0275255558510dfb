"""From TensorFlow's checkpoint, on one fixed batch of ragged sentences without dropout, our Transformer is
TensorFlow's."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

from official.transformer.interop import ours, parity_case, reference_run
from official.transformer.interop.parity_case import Case
from tools.interop import harness
from tools.interop.parity import Comparison, read_bundle

# The first update of a new run has rate 0, and the ones after it hardly more: this begins at a late step.
TINY = Case("tiny", batch_size=8, longest=19, first_step=400000, steps=20)
BASE = Case("base", batch_size=4, longest=11, first_step=0, steps=0)

# TensorFlow's configurations: name, threads, oneDNN.
SIDES = [
    (reference_run.FIRST_SIDE, 1, True),
    ("two-threads-no-onednn", 2, False),
    ("two-threads", 2, True),
    ("no-onednn", 1, False),
]


class ParityTest(harness.InteropTest):
    def run_reference(self, case: Case, num_sides: int) -> None:
        parity_case.write_cases(self.folder, [case])
        self.sides = [self.folder / case.param_set / side for side, _, _ in SIDES[:num_sides]]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda side: reference_run.run_in_own_process(self.folder, *side), SIDES[:num_sides]))
        self.references = [read_bundle(side / "outputs") for side in self.sides]

    def check(self, comparison: Comparison) -> None:
        with self.subTest(comparison.name):
            print(comparison)
            self.assertEqual(comparison.failures, [])

    def check_evaluation(self, outputs: dict[str, np.ndarray], at_least: float) -> None:
        batch_size, length, vocab_size = self.references[0]["logits"].shape
        logits = outputs["logits"][: batch_size * length].reshape(batch_size, length, vocab_size)
        comparison = Comparison(f"evaluation with loss {outputs['evaluated/loss']:.4f}")
        for name, value in (("logits", logits), ("evaluated/loss", outputs["evaluated/loss"])):
            comparison.add(name, value, [r[name] for r in self.references], at_least)
        self.check(comparison)

    def test_tiny_trains(self) -> None:
        self.run_reference(TINY, num_sides=4)
        folder = self.folder / "tiny"
        first = ours.run(self, folder, TINY, steps=1)
        self.check_evaluation(first, at_least=5e-6)
        self.check_variables(read_bundle(folder / ours.SIDE))
        losses = np.append(first["losses"], ours.run(self, folder, TINY)["losses"])
        self.assertEqual(len(losses), TINY.steps)
        comparison = Comparison(f"losses {losses[0]:.4f} to {losses[-1]:.4f}")
        own = 0.0
        for step, loss in enumerate(losses):
            # Runs that have parted stay so, even where their losses meet.
            of_step = [r["losses"][step] for r in self.references]
            own = comparison.add(f"step {step}", loss, of_step, at_least=5e-6, own=own)
        self.check(comparison)

    def check_variables(self, variables: dict[str, np.ndarray]) -> None:
        """All that the checkpoint of the first step holds; a variable's first moment is a tenth of its gradient."""
        references = [read_bundle(side) for side in self.sides]
        self.assertEqual(set(variables), set(references[0]))
        comparison = Comparison("variables and moments after one step")
        for name, value in variables.items():
            comparison.add(name, value, [r[name] for r in references], at_least=1e-5)
        self.check(comparison)

    def test_base_predicts(self) -> None:
        self.run_reference(BASE, num_sides=2)
        self.check_evaluation(ours.run(self, self.folder / "base", BASE), at_least=1e-5)


if __name__ == "__main__":
    harness.main()
