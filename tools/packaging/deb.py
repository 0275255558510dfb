"""The programs as a Debian package, which has its libraries from other packages."""

import hashlib
import os
import subprocess
import tempfile
import time
from email.utils import formatdate
from pathlib import Path

from docs.flags import man
from tools.packaging import trees
from tools.packaging.bundle import add_documents, add_program
from tools.packaging.libraries import output
from tools.packaging.licenses import HEADER_PACKAGES, add_copyrights

SUMMARY = "train image, translation and recommendation models"
DESCRIPTION = """\
 Command-line programs that train the four models of TensorFlow's 2018
 official models, without Python: mnist_main, resnet_main, transformer_main
 and ncf_main, with tools for their data and checkpoints.
 .
 Flags, checkpoints, event files and numbers are TensorFlow's. A run that was
 interrupted continues to the same result, bit for bit.
"""
COPYRIGHT = """\
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: official-models

Files: *
Copyright: {year} the authors of official-models
License: Apache-2.0
 On Debian systems, the text of the Apache License 2.0 is in
 /usr/share/common-licenses/Apache-2.0.
Comment:
 The programs are compiled with headers of other packages. Those of which they
 need no library have their copyright files in the folder licenses beside this
 file.
"""
CONTROL_OF_SOURCE = "Source: official-models\n\nPackage: official-models\nArchitecture: amd64\n"
PROGRAMS = "usr/lib/official-models"
DOCUMENTS = "usr/share/doc/official-models"
MAN_PAGES = "usr/share/man/man1"


def maintainer() -> str:
    """Who makes the package, by the environment that Debian's tools read, too."""
    name = os.environ.get("DEBFULLNAME") or "official-models"
    return f"{name} <{os.environ.get('DEBEMAIL') or 'official-models@localhost'}>"


def dependencies(programs: list[Path]) -> str:
    """What dpkg-shlibdeps says, which knows from which version of a package on it has the functions that are used."""
    with tempfile.TemporaryDirectory() as folder:
        trees.write(Path(folder) / "debian/control", CONTROL_OF_SOURCE)
        command = ["dpkg-shlibdeps", "-O", *[f"-e{program.absolute()}" for program in programs]]
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    if done.returncode != 0:
        raise LookupError(done.stderr.strip())
    # libcurl is loaded with dlopen.
    return ", ".join(sorted({*done.stdout.strip().removeprefix("shlibs:Depends=").split(", "), "libcurl4"}))


def make_deb(root: Path, programs: list[Path], version: str, epoch: int, xz_preset: int, target: Path) -> None:
    """Writes the package of built programs; `root` is the folder of the sources."""
    with tempfile.TemporaryDirectory() as temporary:
        tree = Path(temporary) / "tree"
        for program in programs:
            add_program(program, tree / PROGRAMS / program.name)
        started = [program for program in programs if program.suffix != ".so"]
        for program in started:  # a program finds shared objects beside itself, not beside its link
            link = tree / "usr/bin" / program.name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(f"../lib/official-models/{program.name}")
        add_man_pages(started, tree / MAN_PAGES)
        add_documents(root, tree / DOCUMENTS)
        (tree / DOCUMENTS / "LICENSE").unlink()  # every Debian system has it
        trees.write(tree / DOCUMENTS / "copyright", COPYRIGHT.format(year=time.gmtime(epoch).tm_year))
        add_copyrights(HEADER_PACKAGES, tree / DOCUMENTS / "licenses")
        (tree / DOCUMENTS / "changelog.gz").write_bytes(trees.gz(changelog(version, epoch).encode(), 9))
        files = [path for path in sorted(tree.rglob("*")) if path.is_file() and not path.is_symlink()]
        kilobytes = sum(path.stat().st_size // 1024 + 1 for path in files)
        sums = [f"{hashlib.md5(path.read_bytes()).hexdigest()}  {path.relative_to(tree)}\n" for path in files]
        trees.write(tree / "DEBIAN/md5sums", "".join(sums))
        trees.write(
            tree / "DEBIAN/control",
            f"Package: official-models\nVersion: {version}\nArchitecture: amd64\nMaintainer: {maintainer()}\n"
            f"Installed-Size: {kilobytes}\nDepends: {dependencies(programs)}\nRecommends: ca-certificates\n"
            f"Section: science\nPriority: optional\nDescription: {SUMMARY}\n{DESCRIPTION}",
        )
        trees.settle(tree, epoch)
        command = ("dpkg-deb", "--root-owner-group", "-Zxz", f"-z{xz_preset}", "--build", tree, target)
        output(*command, env=os.environ | {"SOURCE_DATE_EPOCH": str(epoch)})


def add_man_pages(programs: list[Path], folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, (text, _) in man.pages(programs).items():
        (folder / f"{name}.1.gz").write_bytes(trees.gz(text.encode(), 9))


def changelog(version: str, epoch: int) -> str:
    return f"official-models ({version}) unstable; urgency=medium\n\n  * Built.\n\n -- {maintainer()}  {formatdate(epoch)}\n"
