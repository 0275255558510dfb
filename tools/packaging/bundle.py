"""The programs with the libraries that they need, as a folder that works wherever it lies."""

from pathlib import Path

from tools.packaging import trees
from tools.packaging.licenses import HEADER_PACKAGES, add_common_licenses, add_copyrights
from tools.packaging.libraries import C_LIBRARY, LOADED, Library, libraries_of, output

# And what they link to, but for sources.
DOCUMENTS = (
    "README.md",
    "LICENSE",
    "docs/*.md",
    "docs/flags/*.md",
    "docs/logs/*.log",
    "docs/manual/*.md",
    "docs/pictures/*.svg",
    "official/step_graphs/conv_plans_*.txt",
)
NOTE = """The libraries in lib/ are those of Debian's packages whose names the folders here have; each holds the
copyright file of its package. The programs are linked with them and with the headers of the packages; of those whose
names end in -dev they have nothing but headers. What the copyright files call /usr/share/common-licenses is
common-licenses here.
"""


def add_program(source: Path, target: Path) -> None:
    """Copies a built program or shared object without the symbols that only a debugger reads."""
    target.parent.mkdir(parents=True, exist_ok=True)
    output("strip", "--strip-unneeded", "-o", target, source)
    target.chmod(0o755)


def add_documents(root: Path, folder: Path) -> None:
    for pattern in DOCUMENTS:
        for path in sorted(root.glob(pattern)):
            trees.put(path, folder / path.relative_to(root))


def add_licenses(libraries: list[Library], folder: Path) -> None:
    add_copyrights([*(library.package for library in libraries), *HEADER_PACKAGES], folder)
    add_common_licenses(folder, folder / "common-licenses")
    trees.write(folder / "README", NOTE)


def make_bundle(root: Path, programs: list[Path], folder: Path) -> None:
    """Makes bin/, lib/ and share/ in `folder` of built programs; `root` is the folder of the sources.

    The C library stays that of the machine: the loader, whose path is in each program, must be of the same version.
    """
    libraries = [library for library in libraries_of(programs, LOADED) if library.package != C_LIBRARY]
    for library in libraries:
        trees.put(library.path, folder / "lib" / library.name)
        (folder / "lib" / library.name).chmod(0o644)
    for program in programs:
        target = folder / "bin" / program.name
        add_program(program, target)
        # An RPATH, not a RUNPATH: it also holds for the libraries of libraries, and for those that are loaded later.
        output("patchelf", "--force-rpath", "--set-rpath", "$ORIGIN/../lib", target)
    add_documents(root, folder / "share/doc/official-models")
    add_licenses(libraries, folder / "share/licenses")
