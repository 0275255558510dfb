"""From TensorFlow's checkpoint, on one fixed batch, our training of ResNets is TensorFlow's."""

import shutil
from dataclasses import replace
from pathlib import Path

from official.resnet.interop import ours, reference_run
from official.resnet.interop.parity_case import Case
from tools.interop import harness, parity, reference
from tools.interop.parity import Comparison, compare_checkpoints, compare_losses, read_bundle

# On one batch TensorFlow's own losses drift apart within a few steps at the rates of a new run: these are late ones.
CIFAR10 = [
    Case("cifar10", size, version, 8, 32, 32, steps=20, learning_rate=learning_rate)
    for size, learning_rate in ((8, 0.002), (20, 0.0002))
    for version in (1, 2)
]
# Images as small as leave every layer several positions to normalize over.
IMAGENET = [
    Case("imagenet", size, version, 2, 64, 224, steps=1, learning_rate=0.1) for size in (18, 50) for version in (1, 2)
]

# Where a ReLU's input is 0 but for rounding, its sign is chance, and with it a gradient's third digit. Of this many
# batches there must be one where that does not happen.
ATTEMPTS = 4


class ResnetParityTest(parity.ParityTest):
    def run_cases(self, cases: list[Case], num_sides: int) -> Path:
        folder = self.folder / f"seed{cases[0].seed}"
        folder.mkdir()
        self.sides = reference.run_sides(reference_run, folder, cases, num_sides)
        for case in cases:
            ours.run(self, folder / case.name, case)
        return folder

    def compare_outputs(self, folder: Path, case: Case) -> list[Comparison]:
        outputs = read_bundle(folder / ours.SIDE / "outputs")
        references = [read_bundle(folder / side / "outputs") for side in self.sides]
        predictions = Comparison(f"{case.name}, predictions")
        key = "initial_probabilities"
        predictions.add(key, outputs[key], [r[key] for r in references], at_least=5e-6)
        self.assertEqual(len(outputs["losses"]), case.steps)
        return [predictions, compare_losses(case.name, outputs["losses"], [r["losses"] for r in references])]

    def test_losses_of_twenty_steps(self) -> None:
        folder = self.run_cases(CIFAR10, num_sides=4)
        for case in CIFAR10:
            self.check(*self.compare_outputs(folder / case.name, case))

    def test_gradients_and_moving_averages(self) -> None:
        """All that the checkpoint of the first step holds; a variable's momentum is its gradient then."""
        cases = IMAGENET
        for seed in range(1, ATTEMPTS + 1):
            cases = [replace(case, seed=seed) for case in cases]
            # Building a graph costs more than running it: the deep networks get the two sides that differ most.
            folder = self.run_cases(cases, num_sides=2)
            failed = {}
            for case in cases:
                comparisons = self.compare_outputs(folder / case.name, case)
                sides = [folder / case.name / side for side in (ours.SIDE, *self.sides)]
                comparisons.append(compare_checkpoints(case.name, sides[0], sides[1:], at_least=1e-5))
                # A rate of 0.003 in the place of TensorFlow's 0.003000021 makes 7e-6.
                averages = compare_checkpoints(
                    case.name, sides[0], sides[1:], at_least=2e-6, kind="moving averages", part="/moving_"
                )
                comparisons.append(averages)
                print(*comparisons, sep="\n")
                if any(comparison.failures for comparison in comparisons):
                    failed[case] = comparisons
            shutil.rmtree(folder)
            cases = list(failed)
            if not cases:
                return
        self.fail("\n".join(str(c) for comparisons in failed.values() for c in comparisons if c.failures))


if __name__ == "__main__":
    harness.main()
