"""From TensorFlow's checkpoint, on one fixed batch of ragged sentences without dropout, our Transformer is
TensorFlow's."""

import numpy as np

from official.transformer.interop import ours, reference_run
from official.transformer.interop.parity_case import Case
from tools.interop import harness, parity, reference
from tools.interop.parity import Comparison, compare_checkpoints, compare_losses, read_bundle

# The first update of a new run has rate 0, and the ones after it hardly more: this begins at a late step.
TINY = Case("tiny", batch_size=8, longest=19, first_step=400000, steps=20)
BASE = Case("base", batch_size=4, longest=11, first_step=0, steps=0)


class TransformerParityTest(parity.ParityTest):
    def run_reference(self, case: Case, num_sides: int) -> None:
        sides = reference.run_sides(reference_run, self.folder, [case], num_sides)
        self.sides = [self.folder / case.name / side for side in sides]
        self.references = [read_bundle(side / "outputs") for side in self.sides]

    def check_evaluation(self, outputs: dict[str, np.ndarray], at_least: float) -> None:
        batch_size, length, vocab_size = self.references[0]["logits"].shape
        logits = outputs["logits"][: batch_size * length].reshape(batch_size, length, vocab_size)
        comparison = Comparison(f"evaluation with loss {outputs['evaluated/loss']:.4f}")
        for name, value in (("logits", logits), ("evaluated/loss", outputs["evaluated/loss"])):
            comparison.add(name, value, [r[name] for r in self.references], at_least)
        self.check(comparison)

    def test_tiny_trains(self) -> None:
        self.run_reference(TINY, num_sides=4)
        folder = self.folder / TINY.name
        first = ours.run(self, folder, TINY, steps=1)
        self.check_evaluation(first, at_least=5e-6)
        # Of the first step: a variable's first moment is a tenth of its gradient.
        self.check(compare_checkpoints("after one step", folder / ours.SIDE, self.sides, at_least=1e-5))
        losses = np.append(first["losses"], ours.run(self, folder, TINY)["losses"])
        self.assertEqual(len(losses), TINY.steps)
        self.check(compare_losses(TINY.name, losses, [r["losses"] for r in self.references]))

    def test_base_predicts(self) -> None:
        self.run_reference(BASE, num_sides=2)
        self.check_evaluation(ours.run(self, self.folder / BASE.name, BASE), at_least=1e-5)


if __name__ == "__main__":
    harness.main()
