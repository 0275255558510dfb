"""A case of the parity tests: a network, one fixed batch, some steps. Both sides write its outcome to a folder.

  FOLDER/inputs      bundle: images [B, H, W, 3] float32, labels [B] int32, prediction_images [b, h, w, 3] float32
  FOLDER/initial     checkpoint that both start from
  FOLDER/SIDE        last checkpoint, and the bundle outputs: losses [steps] before each update, and, with the initial
                     checkpoint, initial_probabilities [b, classes] of the prediction images. All float32. On our side
                     final_probabilities, with the last checkpoint, too.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Case:
    dataset: str  # "cifar10" or "imagenet"
    size: int
    version: int
    batch_size: int
    image_size: int  # of the batch: height and width
    prediction_image_size: int
    steps: int
    learning_rate: float
    seed: int = 1  # of weights and images

    @property
    def name(self) -> str:
        return f"{self.dataset}-{self.size}-v{self.version}"


def draw_inputs(case: Case) -> dict[str, np.ndarray]:
    """Images as blotches of colour on noise and any labels. Images to train on are in the range that the input
    pipelines give; those to predict have variance 1: the drawn moving averages fit them, and no class has all the
    probability."""
    rng = np.random.default_rng(case.seed)

    def images(count: int, size: int) -> np.ndarray:
        blotches = np.kron(rng.normal(size=(count, 8, 8, 3)), np.ones((1, size // 8, size // 8, 1)))
        return (0.7 * blotches + 0.7 * rng.normal(size=blotches.shape)).astype(np.float32)

    classes, scale = (10, 1) if case.dataset == "cifar10" else (1001, 60)
    return {
        "images": np.float32(scale) * images(case.batch_size, case.image_size),
        "labels": rng.integers(classes, size=case.batch_size).astype(np.int32),
        "prediction_images": images(1, case.prediction_image_size),
    }
