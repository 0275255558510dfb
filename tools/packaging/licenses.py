"""The copyright files of Debian's packages, and the licences whose texts Debian keeps apart from them."""

import re
from collections.abc import Iterable
from pathlib import Path

from tools.packaging import trees

# Their headers are compiled into the programs, which load no library of theirs.
HEADER_PACKAGES = ("libboost-dev", "nlohmann-json3-dev")
COMMON_LICENSES = Path("/usr/share/common-licenses")


def add_copyrights(packages: Iterable[str], folder: Path) -> None:
    """Copies the copyright file of each package to folder/PACKAGE/copyright."""
    for package in sorted(set(packages)):
        trees.put(Path("/usr/share/doc") / package / "copyright", folder / package / "copyright")


def add_common_licenses(copyrights: Path, folder: Path) -> None:
    """Copies to `folder` the licences to which the copyright files below `copyrights` refer by a path."""
    for path in copyrights.rglob("copyright"):
        text = path.read_text(errors="replace")
        for name in set(re.findall(rf"{COMMON_LICENSES}/([\w.+-]*\w)", text, re.ASCII)):
            if (COMMON_LICENSES / name).is_file():  # Debian's own files have paths of none, too
                trees.put(COMMON_LICENSES / name, folder / name)
