"""The shared objects that built programs load, and the Debian packages that they are from."""

import re
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

C_LIBRARY = "libc6"
# Loaded with dlopen: ldd does not show it.
LOADED = ("libcurl.so.4",)


@dataclass(frozen=True, order=True)
class Library:
    name: str  # "libz.so.1"
    path: Path  # the file itself, behind all links
    package: str  # "zlib1g"


def output(*command: object, env: dict[str, str] | None = None) -> str:
    """What a command says; CalledProcessError, with what it said on standard error, if it fails."""
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, env=env).stdout


def packages_of(paths: Iterable[Path]) -> dict[Path, str]:
    """The packages of files; dpkg may know one by its path from before /lib became a link to /usr/lib."""
    names = {name: path for path in paths for name in (str(path), str(path).removeprefix("/usr"))}
    # The exit status is 1 if any of the names is not known.
    found = subprocess.run(["dpkg-query", "--search", *names], capture_output=True, text=True).stdout
    packages = {}
    for line in found.splitlines():
        package, _, name = line.partition(": ")
        if name in names:
            packages[names[name]] = package.split(":")[0]
    missing = sorted(str(path) for path in names.values() if path not in packages)
    if missing:
        raise LookupError(f"no package has {missing[0]}")
    return packages


def _loaded_by(file: Path) -> dict[str, Path]:
    found = output("ldd", file)
    absent = re.search(r"^\s*(\S+) => not found", found, re.MULTILINE)
    if absent:
        raise LookupError(f"{file} needs {absent[1]}, which is not installed")
    paths = re.findall(r"^\s*(\S+) => (/\S+)", found, re.MULTILINE)
    paths += [(Path(path).name, path) for path in re.findall(r"^\s*(/\S+) \(", found, re.MULTILINE)]
    return {name: Path(path).resolve() for name, path in paths}


def libraries_of(files: Iterable[Path], loaded: Iterable[str] = ()) -> list[Library]:
    """All that the files load, those of the C library, too, and the libraries of the names `loaded` with theirs.

    LookupError if one is not installed, or is of no package.
    """
    paths: dict[str, Path] = {}
    for file in files:
        paths |= _loaded_by(file)
    for name in loaded:
        at = re.search(rf"^\s*{re.escape(name)} \(.*x86-64.*\) => (/\S+)", output("/sbin/ldconfig", "-p"), re.MULTILINE)
        if not at:
            raise LookupError(f"{name} is not installed")
        paths[name] = Path(at[1]).resolve()
        paths |= _loaded_by(paths[name])
    packages = packages_of(paths.values())
    return sorted(Library(name, path, packages[path]) for name, path in paths.items())
