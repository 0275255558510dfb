"""checkpoint_tool and the library safetensors: each reads what the other writes, and both refuse the same files.

Usage: MODULE CHECKPOINT_TOOL [unittest argument...]
"""

import json
import random
import struct
import unittest
from pathlib import Path

import numpy as np
from official.programs.program_test_case import ProgramTestCase, programs_of_arguments
from safetensors import SafetensorError, safe_open
from safetensors.numpy import load_file, save_file

(tool,) = programs_of_arguments(1)

ROUNDS = 150  # of damaged files


def arrays() -> dict[str, np.ndarray]:
    generator = np.random.default_rng(1)
    made = {
        np.dtype(kind).name: generator.integers(0, 100, (2, 3)).astype(kind)
        for kind in (np.float64, np.float32, np.float16, np.int64, np.int32, np.uint8, np.bool_)
    }
    return made | {
        "scalar": np.array(7, np.int64),
        "empty": np.zeros((3, 0), np.float32),
        "dense/kernel": generator.standard_normal((20, 10)).astype(np.float32),
        'quote"back\\slash\n\u00e4\U0001f600': np.array([np.nan, np.inf, -0.0], np.float32),
    }


def damaged(header: str, data: bytes, rng: random.Random) -> bytes:
    """A file of one change: in a number, a character, the size of the header or the length of the data."""
    kind = rng.randrange(4)
    if kind == 0:
        digits = [i for i, c in enumerate(header) if c.isdigit()]
        i = rng.choice(digits)
        header = header[:i] + str(rng.randrange(10)) + header[i + 1 :]
    elif kind == 1:
        i = rng.randrange(len(header))
        header = header[:i] + rng.choice('{}[],:"0aF ') + header[i + 1 :]
    size = len(header.encode()) + (rng.choice((-9, -1, 1, 1 << 40)) if kind == 2 else 0)
    if kind == 3:
        data = data[:-1] if rng.random() < 0.5 else data + b"\0"
    return struct.pack("<Q", size % 2**64) + header.encode() + data


class SafetensorsTest(ProgramTestCase):
    def test_the_library_reads_what_we_write_and_writes_the_same(self) -> None:
        theirs, ours = self.folder / "theirs.safetensors", self.folder / "ours.safetensors"
        save_file(arrays(), theirs, metadata={"format": "tf"})
        prefix = self.folder / "model.ckpt-7"
        self.assert_succeeded(self.execute(tool, "convert", theirs, prefix))
        self.assert_succeeded(self.execute(tool, "convert", prefix, ours))
        self.assert_succeeded(self.execute(tool, "diff", prefix, theirs))
        loaded = load_file(ours)
        self.assertEqual(loaded.keys(), arrays().keys())
        for name, array in arrays().items():
            with self.subTest(name):
                self.assertEqual((loaded[name].dtype, loaded[name].shape), (array.dtype, array.shape))
                self.assertEqual(loaded[name].tobytes(), array.tobytes())
        with safe_open(ours, "numpy") as opened:
            self.assertEqual(opened.metadata(), {"format": "tf"})
        self.assertEqual(ours.read_bytes(), theirs.read_bytes())

    def test_both_refuse_the_same_files(self) -> None:
        entries = {
            "a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
            "b": {"dtype": "I64", "shape": [], "data_offsets": [24, 32]},
            "c": {"dtype": "BF16", "shape": [4], "data_offsets": [32, 40]},
        }
        header, rng = json.dumps(entries, separators=(",", ":")), random.Random(1)
        refused = 0
        for i in range(ROUNDS):
            path = self.write("damaged.safetensors", damaged(header, bytes(40), rng))
            accepted = self.library_opens(path)
            done = self.execute(tool, "ls", path)
            # A type that the library has and TensorFlow does not is unknown to us.
            told = f"round {i}: {path.read_bytes()!r}\n{done.stderr}"
            self.assertIn(done.returncode, (0, 65), told)
            if "unknown type" not in done.stderr:
                self.assertEqual(done.returncode == 0, accepted, told)
            refused += not accepted
        self.assertGreater(refused, ROUNDS // 2)
        self.assertLess(refused, ROUNDS)

    def library_opens(self, path: Path) -> bool:
        try:
            with safe_open(path, "numpy") as opened:
                opened.keys()
            return True
        except SafetensorError:
            return False


if __name__ == "__main__":
    unittest.main(verbosity=2)
