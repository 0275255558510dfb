"""Packs built programs. Usage: python3 -m tools.packaging.package OUTPUT_DIR KIND[,KIND...] LEVEL FILE...

KIND is archive, deb or image. LEVEL is that of the compressors, 0 to 9. FILE... are built programs and shared objects.
The time in the packages is SOURCE_DATE_EPOCH, or else that of the last commit: from the same programs, and the same
versions of Debian's packages, the same bytes are made. tools/package builds the programs and calls this.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.packaging import trees
from tools.packaging.bundle import make_bundle
from tools.packaging.deb import make_deb
from tools.packaging.image import make_image

ROOT = Path(__file__).resolve().parents[2]
KINDS = ("archive", "deb", "image")
MAX_EPOCH = (1 << 33) - 1  # the header of a file in a tar archive has no room for more


class BadEpochError(Exception):
    pass


def version() -> str:
    return re.search(r'kVersion\[\] = "(.*)"', (ROOT / "utils/misc/version.h").read_text())[1]


def epoch() -> int:
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        if not re.fullmatch("[0-9]{1,10}", given) or int(given) > MAX_EPOCH:
            raise BadEpochError(f"SOURCE_DATE_EPOCH={given}: expected seconds since 1970, from 0 to {MAX_EPOCH}")
        return int(given)
    return int(subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, check=True, capture_output=True, text=True).stdout)


def make(output_dir: Path, kinds: list[str], level: int, programs: list[Path]) -> list[Path]:
    """Makes the packages; returns their paths. A package appears under its name only when it is complete."""
    name, time = f"official-models-{version()}", epoch()
    output_dir.mkdir(parents=True, exist_ok=True)
    made = []
    with tempfile.TemporaryDirectory() as temporary:
        bundle = Path(temporary) / "bundle"
        if {"archive", "image"} & set(kinds):
            make_bundle(ROOT, programs, bundle)
        if "archive" in kinds:
            made.append(output_dir / f"{name}-linux-x86_64.tar.xz")
            packed = Path(temporary) / "archive"
            packed.write_bytes(trees.xz(trees.tar(bundle, time, prefix=f"{name}-linux-x86_64/"), level))
            put_whole(packed, made[-1])
        if "deb" in kinds:
            made.append(output_dir / f"official-models_{version()}_amd64.deb")
            packed = Path(temporary) / "deb"
            make_deb(ROOT, programs, version(), time, level, packed)
            put_whole(packed, made[-1])
        if "image" in kinds:
            made.append(output_dir / f"{name}-linux-x86_64.oci.tar")
            packed = Path(temporary) / "image"
            make_image(bundle, version(), time, max(level, 1), packed)
            put_whole(packed, made[-1])
    return made


def put_whole(packed: Path, target: Path) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=target.name + ".incomplete-") as folder:
        incomplete = Path(folder) / target.name
        trees.put(packed, incomplete)
        os.replace(incomplete, target)


def main() -> int:
    output_dir, kinds, level, *programs = sys.argv[1:]
    try:
        made = make(Path(output_dir), kinds.split(","), int(level), [Path(program) for program in programs])
    except BadEpochError as error:
        print(f"tools/package: {error}", file=sys.stderr)
        return 2
    except LookupError as error:
        print(f"tools/package: {error}", file=sys.stderr)
        return 66
    except subprocess.CalledProcessError as error:
        command = " ".join(str(word) for word in error.cmd)
        hint = "; or set SOURCE_DATE_EPOCH to the time of the packages" if error.cmd[0] == "git" else ""
        print(f"tools/package: {command}: {error.stderr.strip() or error}{hint}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"tools/package: {error.filename or output_dir}: {error.strerror}", file=sys.stderr)
        return 66 if isinstance(error, FileNotFoundError) else 74
    for path in made:
        print(f"{path}: {path.stat().st_size >> 10} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
