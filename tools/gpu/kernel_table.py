"""Prints registers, shared memory, stack and the most threads of each CUDA kernel in libofficial_cuda.so, as Markdown.

Needs cuobjdump, of the CUDA toolkit or of the Python package nvidia-cuda-cuobjdump. With --check it prints what is
wrong instead: a kernel that has a stack (spilled registers or an array of its own in memory), but is not known for it,
or more registers than a block of so many threads has. The exit status is 1 if something is.
"""

import argparse
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

REGISTERS_OF_A_BLOCK = 65536
# Kernels, by the beginning of their names, that may have a stack of so many bytes.
STACKS = {
    "RunProgram<": 48,  # values of 64 bits
    "ResidualGradRows<RowThreads<32, 1>, Half>": 8,
    "attention_cuda::Attend<": 8,
    "attention_cuda::AttendGradMma<": 16,  # of compute capability 8
    "attention_cuda::QueryGradients<": 8,
}

# A cubin's section ".nv.info.KERNEL" is a list of attributes: format, number, then two bytes, which in the format of
# sized values are the size of what follows.
SIZED_VALUE = 4
MAX_THREADS = 5  # three numbers
SECTION_HEADER = struct.Struct("<IIQQQQIIQQ")


@dataclass(frozen=True)
class Kernel:
    source: str
    architecture: str
    name: str  # demangled, without parameters
    registers: int
    stack: int
    shared: int
    max_threads: int | None  # its launch bounds

    def problems(self) -> Iterator[str]:
        allowed = max((size for name, size in STACKS.items() if self.name.startswith(name)), default=0)
        if self.stack > allowed:
            yield f"a stack of {self.stack} bytes, {allowed} allowed"
        # Each thread gets a multiple of eight registers.
        if self.max_threads and -(-self.registers // 8) * 8 * self.max_threads > REGISTERS_OF_A_BLOCK:
            yield f"{self.registers} registers for {self.max_threads} threads, more than {REGISTERS_OF_A_BLOCK}"


def launch_bounds(cubin: bytes) -> dict[str, int]:
    """Of the kernels that have them: the most threads of a block, by mangled name."""
    start, size, count, names_index = struct.unpack_from("<Q10xHHH", cubin, 40)
    sections = [SECTION_HEADER.unpack_from(cubin, start + i * size) for i in range(count)]
    names = sections[names_index][4]
    bounds = {}
    for section in sections:
        name = cubin[names + section[0] : cubin.index(b"\0", names + section[0])].decode()
        if not name.startswith(".nv.info."):
            continue
        at, end = section[4], section[4] + section[5]
        while at < end:
            form, attribute, value = struct.unpack_from("<BBH", cubin, at)
            at += 4
            if form == SIZED_VALUE:
                if attribute == MAX_THREADS:
                    x, y, z = struct.unpack_from("<III", cubin, at)
                    bounds[name.removeprefix(".nv.info.")] = x * y * z
                at += value
    return bounds


def demangled(names: list[str]) -> list[str]:
    """Without parameters and the namespaces that all have."""
    done = subprocess.run(["c++filt"], input="\n".join(names), stdout=subprocess.PIPE, text=True, check=True)
    found = []
    for name in done.stdout.splitlines():
        name = name.replace("(anonymous namespace)::", "").replace("official::compute::", "").removeprefix("void ")
        found.append(re.sub(r"\(.*", "", re.sub(r"\((?:int|bool|long|unsigned)\)", "", name)))
    return found


def parse_usage(text: str, bounds: dict[str, int]) -> list[Kernel]:
    """What cuobjdump --dump-resource-usage prints."""
    rows, source, architecture, function = [], "", "", ""
    for line in text.splitlines():
        if found := re.match(r"arch = (\w+)", line):
            architecture = found[1]
        elif found := re.match(r"identifier = (\S+)", line):
            source = found[1]
        elif found := re.match(r"\s*Function (\S+):", line):
            function = found[1]
        elif found := re.match(r"\s*REG:(\d+) STACK:(\d+) SHARED:(\d+)", line):
            rows.append((source, architecture, function, *map(int, found.groups())))
    names = demangled([row[2] for row in rows])
    kernels = [
        Kernel(source, architecture, name, registers, stack, shared, bounds.get(function))
        for (source, architecture, function, registers, stack, shared), name in zip(rows, names, strict=True)
    ]
    return sorted(kernels, key=lambda kernel: (kernel.source, kernel.name, kernel.architecture))


def cuobjdump_of(given: str | None) -> str:
    choices = [given] if given else [os.environ.get("CUDA_HOME", "/usr/local/cuda") + "/bin/cuobjdump", "cuobjdump"]
    for choice in choices:
        if found := shutil.which(choice):
            return found
    sys.exit(f"kernel_table.py: there is no {' and no '.join(choices)}; pip install nvidia-cuda-cuobjdump brings one")


def kernels_of(cuobjdump: str, library: Path) -> list[Kernel]:
    usage = subprocess.run([cuobjdump, "--dump-resource-usage", library], stdout=subprocess.PIPE, text=True, check=True)
    bounds: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        command = [cuobjdump, "--extract-elf", "all", library.absolute()]
        subprocess.run(command, stdout=subprocess.DEVNULL, cwd=folder, check=True)
        for cubin in Path(folder).iterdir():
            bounds |= launch_bounds(cubin.read_bytes())
    return parse_usage(usage.stdout, bounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", type=Path, help="libofficial_cuda.so")
    parser.add_argument("--cuobjdump", help="default: that of $CUDA_HOME, else of $PATH")
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args()
    if not args.library.is_file():
        sys.exit(f"kernel_table.py: there is no {args.library}")
    kernels = kernels_of(cuobjdump_of(args.cuobjdump), args.library)
    if not args.check:
        print("| source | kernel | | registers | shared | stack | threads |")
        print("| --- | --- | --- | --- | --- | --- | --- |")
        for k in kernels:
            cells = [k.source, f"`{k.name}`", k.architecture, k.registers, k.shared, k.stack, k.max_threads or ""]
            print(f"| {' | '.join(map(str, cells))} |")
        return
    problems = [f"{k.source}: {k.name} ({k.architecture}): {problem}" for k in kernels for problem in k.problems()]
    print("\n".join([*problems, f"{len(kernels)} kernels, {len(problems)} problems"]))
    sys.exit(bool(problems))


if __name__ == "__main__":
    main()
