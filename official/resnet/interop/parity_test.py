"""From TensorFlow's checkpoint, on one fixed batch, our training of ResNets is TensorFlow's."""

import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

from official.resnet.interop import ours, parity_case, reference_run
from official.resnet.interop.parity_case import Case
from tools.interop import harness
from tools.interop.parity import Comparison, read_bundle

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

# TensorFlow's configurations: name, threads, oneDNN. Building a graph costs more than running it: the deep networks get
# the two that differ most.
SIDES = [
    (reference_run.FIRST_SIDE, 1, True),
    ("two-threads-no-onednn", 2, False),
    ("two-threads", 2, True),
    ("no-onednn", 1, False),
]

# Where a ReLU's input is 0 but for rounding, its sign is chance, and with it a gradient's third digit. Of this many
# batches there must be one where that does not happen.
ATTEMPTS = 4


class ParityTest(harness.InteropTest):
    def run_cases(self, cases: list[Case], num_sides: int) -> Path:
        folder = self.folder / f"seed{cases[0].seed}"
        folder.mkdir()
        parity_case.write_cases(folder, cases)
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(lambda side: reference_run.run_in_own_process(folder, *side), SIDES[:num_sides]))
        for case in cases:
            ours.run(self, folder / case.name, case)
        return folder

    def compare_outputs(self, folder: Path, case: Case, num_sides: int) -> list[Comparison]:
        outputs = read_bundle(folder / ours.SIDE / "outputs")
        references = [read_bundle(folder / side / "outputs") for side, _, _ in SIDES[:num_sides]]
        predictions = Comparison(f"{case.name}, predictions")
        key = "initial_probabilities"
        predictions.add(key, outputs[key], [r[key] for r in references], at_least=5e-6)
        losses = Comparison(f"{case.name}, losses {outputs['losses'][0]:.4f} to {outputs['losses'][-1]:.4f}")
        self.assertEqual(len(outputs["losses"]), case.steps)
        own = 0.0
        for step, loss in enumerate(outputs["losses"]):
            # Runs that have parted stay so, even where their losses meet.
            own = losses.add(f"step {step}", loss, [r["losses"][step] for r in references], at_least=5e-6, own=own)
        return [predictions, losses]

    def compare_variables(self, folder: Path, case: Case, num_sides: int) -> Comparison:
        variables = read_bundle(folder / ours.SIDE)
        references = [read_bundle(folder / side) for side, _, _ in SIDES[:num_sides]]
        self.assertEqual(set(variables), set(references[0]))
        comparison = Comparison(f"{case.name}, variables")
        for name, value in variables.items():
            comparison.add(name, value, [r[name] for r in references], at_least=1e-5)
        return comparison

    def test_losses_of_twenty_steps(self) -> None:
        folder = self.run_cases(CIFAR10, num_sides=4)
        for case in CIFAR10:
            for comparison in self.compare_outputs(folder / case.name, case, num_sides=4):
                with self.subTest(comparison.name):
                    print(comparison)
                    self.assertEqual(comparison.failures, [])

    def test_gradients_and_moving_averages(self) -> None:
        """All that the checkpoint of the first step holds; a variable's momentum is its gradient then."""
        cases = IMAGENET
        for seed in range(1, ATTEMPTS + 1):
            cases = [replace(case, seed=seed) for case in cases]
            folder = self.run_cases(cases, num_sides=2)
            failed = {}
            for case in cases:
                comparisons = self.compare_outputs(folder / case.name, case, num_sides=2)
                comparisons.append(self.compare_variables(folder / case.name, case, num_sides=2))
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
