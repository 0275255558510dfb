"""The table of kernels reads what cuobjdump prints and what a cubin says of launch bounds."""

import struct
import subprocess
import sys
import unittest
from pathlib import Path

GPU = Path("tools/gpu").absolute()
DEADLINE = 120
sys.path.insert(0, str(GPU))

import kernel_table  # noqa: E402

USAGE = """
Fatbin elf code:
================
arch = sm_90
code version = [1,8]
identifier = utils/compute/ops/b.cu.cc

Resource usage:
 Common:
  GLOBAL:0
 Function _ZN8official7compute6ScaleBIfEEvPKT_:
  REG:40 STACK:0 SHARED:1024 LOCAL:0 CONSTANT[0]:552 TEXTURE:0 SURFACE:0 SAMPLER:0
arch = sm_90
identifier = utils/compute/ops/a.cu.cc
 Function _ZN8official7compute6ScaleAEv:
  REG:255 STACK:16 SHARED:0 LOCAL:0 CONSTANT[0]:552 TEXTURE:0 SURFACE:0 SAMPLER:0
"""


def cubin(kernel: str, attributes: bytes) -> bytes:
    """A file with the two sections that are read."""
    names = b"\0.nv.info." + kernel.encode() + b"\0"
    header = struct.Struct("<IIQQQQIIQQ")
    sections = header.pack(1, 0, 0, 0, 64 + len(names), len(attributes), 0, 0, 0, 0)
    sections += header.pack(0, 0, 0, 0, 64, len(names), 0, 0, 0, 0)
    start = 64 + len(names) + len(attributes)
    elf = b"\x7fELF".ljust(40, b"\0") + struct.pack("<Q10xHHH", start, header.size, 2, 1)
    return elf.ljust(64, b"\0") + names + attributes + sections


class KernelTableTest(unittest.TestCase):
    def test_launch_bounds(self) -> None:
        other = struct.pack("<BBH", 3, 27, 255) + struct.pack("<BBHII", 4, 17, 8, 1, 2)
        bounds = struct.pack("<BBHIII", 4, 5, 12, 128, 2, 1)
        self.assertEqual(kernel_table.launch_bounds(cubin("Scale", other + bounds)), {"Scale": 256})
        self.assertEqual(kernel_table.launch_bounds(cubin("Scale", other)), {})

    def test_usage(self) -> None:
        bounds = {"_ZN8official7compute6ScaleAEv": 512}
        a, b = kernel_table.parse_usage(USAGE, bounds)
        self.assertEqual((a.source, a.name), ("utils/compute/ops/a.cu.cc", "ScaleA"))
        self.assertEqual((a.registers, a.max_threads), (255, 512))
        self.assertEqual((b.name, b.shared, b.stack, b.max_threads), ("ScaleB<float>", 1024, 0, None))
        self.assertEqual(list(b.problems()), [])
        stack, registers = a.problems()
        self.assertEqual(stack, "a stack of 16 bytes, 0 allowed")
        self.assertEqual(registers, "255 registers for 512 threads, more than 65536")

    def test_what_is_not_there(self) -> None:
        for flags, words in (
            (["missing.so"], "there is no missing.so"),
            ([__file__, "--cuobjdump=missing/cuobjdump"], "there is no missing/cuobjdump"),
        ):
            command = [sys.executable, GPU / "kernel_table.py", *flags]
            done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
            self.assertEqual(done.returncode, 1)
            self.assertIn(words, done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
