"""From TensorFlow's checkpoint, on a few fixed batches in turn, our NeuMF learns and ranks as TensorFlow's does."""

from pathlib import Path

from official.recommendation.interop import reference_run
from official.recommendation.interop.parity_case import Case
from tools.interop import harness, parity, reference
from tools.interop.parity import Comparison, compare_checkpoints, compare_losses, read_bundle

CASES = [
    Case(num_factors, layers, loss, steps=20)
    for num_factors, layers in ((8, (64, 32, 16, 8)), (32, (128, 64, 32)))
    for loss in ("softmax", "sigmoid")
]
SIDE = "ours"


class NeuMfParityTest(parity.ParityTest):
    def train_ours(self, case: Case) -> None:
        flags = [
            f"--num_users={case.num_users}",
            f"--num_items={case.num_items}",
            f"--num_factors={case.num_factors}",
            f"--layers={','.join(map(str, case.layers))}",
            f"--loss={case.loss}",
            f"--batch_size={case.batch_size}",
            f"--steps={case.steps}",
        ]
        parity.run_ours(self, self.folder / case.name, SIDE, flags)

    def test_twenty_steps_and_an_evaluation(self) -> None:
        sides = reference.run_sides(reference_run, self.folder, CASES, num_sides=4)
        for case in CASES:
            self.train_ours(case)
            self.compare(case, self.folder / case.name, sides)

    def compare(self, case: Case, folder: Path, sides: list[str]) -> None:
        outputs = read_bundle(folder / SIDE / "outputs")
        references = [read_bundle(folder / side / "outputs") for side in sides]
        losses = outputs.pop("losses")
        self.assertEqual(len(losses), case.steps)
        self.check(compare_losses(case.name, losses, [r["losses"] for r in references]))

        folders = [folder / side for side in sides]
        self.check(compare_checkpoints(case.name, folder / SIDE, folders, at_least=1e-5))

        self.assertLess(outputs["evaluated/HR"], outputs["without_repeats/HR"])
        comparison = Comparison(f"{case.name}, evaluation")
        outputs["scores"] = outputs["scores"].flatten()
        for name, value in outputs.items():
            if not name.endswith("/global_step"):
                comparison.add(name, value, [r[name] for r in references], at_least=5e-6)
        self.check(comparison)


if __name__ == "__main__":
    harness.main()
