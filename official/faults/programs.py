"""The training programs, each with a data set so small that STEPS steps take about a second.

Every data set has STEPS_PER_EPOCH steps in an epoch, of which the last has a partial batch in mnist_main and
transformer_main.
"""

import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from utils.fuzzing import make_corpus

STEPS_PER_EPOCH = 7
# In three epochs, with one evaluation, at the end.
STEPS = 20
FLAGS = ("--train_epochs=3", "--epochs_between_evals=3", "--log_every_n_steps=1")


@dataclass(frozen=True)
class Program:
    name: str  # of the binary, without _main
    # Writes a data set of `times` times as many examples to a folder; another one for another `seed`.
    write_data: Callable[[Path, int, int], None]
    # Reads the data set in a folder, with the network and the batch size.
    data_flags: Callable[[Path], tuple[str, ...]]

    @property
    def binary(self) -> str:
        return f"{self.name}_main"


def write_mnist(folder: Path, times: int = 1, seed: int = 1) -> None:
    """Images that can be learned, as IDX files: row 2l of digit l is bright, the rest is noise."""
    rng = random.Random(seed)
    for name, count in (("train", 64 * times), ("t10k", 20 * times)):
        labels = bytes(rng.randrange(10) for _ in range(count))
        images = bytearray(rng.randrange(60) for _ in range(count * 784))
        for i, label in enumerate(labels):
            row = i * 784 + 56 * label
            images[row : row + 28] = b"\xff" * 28
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 2051, count, 28, 28) + images)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, count) + labels)


def write_cifar10(folder: Path, times: int = 1, seed: int = 1) -> None:
    """Random labels and pixels, 70 to train on in five files and 20 to evaluate."""
    rng = random.Random(seed)
    parts = folder / "cifar-10-batches-bin"
    parts.mkdir(exist_ok=True)
    for name, count in [*((f"data_batch_{i}", 14) for i in range(1, 6)), ("test_batch", 20)]:
        records = (bytes([rng.randrange(10)]) + rng.randbytes(3072) for _ in range(count * times))
        (parts / f"{name}.bin").write_bytes(b"".join(records))


def write_ratings(folder: Path, times: int = 1, seed: int = 1) -> None:
    """40 users with 30 ratings each. There are 1200 items, since an evaluation needs 999 that a user has not rated."""
    rng = random.Random(seed)
    lines = ["user_id,item_id,rating,timestamp\n"]
    for _ in range(times):
        items = rng.sample(range(1, 1201), 1200)
        first_user = 1 + len(lines) // 30
        lines += (f"{first_user + i // 30},{item},4,{978300000 + i}\n" for i, item in enumerate(items))
    (folder / "ratings.csv").write_text("".join(lines))


def write_translations(folder: Path, times: int = 1, seed: int = 1) -> None:
    """Random sentence pairs, 208 to train on and 32 to evaluate, of 3 to 7 ids, which all go into one bucket."""
    rng = random.Random(seed)

    def sentence() -> bytes:
        ids = [rng.randrange(2, 64) for _ in range(rng.randint(2, 6))] + [1]
        return make_corpus.field(3, make_corpus.field(1, bytes(ids)))

    def pair() -> bytes:
        return make_corpus.field(
            1, make_corpus.feature(b"inputs", sentence()) + make_corpus.feature(b"targets", sentence())
        )

    for name, count in (("train", 208), ("dev", 32)):
        for shard in (1, 2):
            records = b"".join(make_corpus.record(pair()) for _ in range(count * times // 2))
            (folder / f"wmt32k-{name}-{shard:05d}-of-00002").write_bytes(records)


PROGRAMS = {
    program.name: program
    for program in (
        Program("mnist", write_mnist, lambda data: (f"--data_dir={data}", "--batch_size=10")),
        Program(
            "resnet",
            write_cifar10,
            # Two runs whose algorithms are chosen by their times need not have the same bits.
            lambda data: (
                f"--data_dir={data}",
                "--dataset_name=cifar10",
                "--resnet_size=8",
                "--batch_size=10",
                "--winograd=off",
            ),
        ),
        Program(
            "ncf",
            write_ratings,
            # 40 * 29 * (1 + 4 negatives) = 5800 examples.
            lambda data: (f"--ratings_file={data}/ratings.csv", "--batch_size=800"),
        ),
        Program(
            "transformer",
            write_translations,
            # 33 pairs of up to 8 ids.
            lambda data: (
                f"--data_dir={data}",
                "--param_set=tiny",
                "--params_override=vocab_size=64,hidden_size=16,filter_size=32,num_hidden_layers=1",
                "--batch_size=264",
            ),
        ),
    )
}
