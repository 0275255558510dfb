"""Folders as they are packed: files with fixed modes and owners, and archives of them that are the same every time."""

import gzip
import io
import lzma
import os
import shutil
import tarfile
from pathlib import Path

# The largest window in which xz finds again what it has seen: the programs have most of their code in common.
XZ_WINDOW = 64 << 20


def put(source: Path, target: Path) -> None:
    """Copies a file, or what a link leads to."""
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755 if os.access(source, os.X_OK) else 0o644)


def write(target: Path, content: str) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(content)
    target.chmod(0o644)


def settle(root: Path, epoch: int) -> None:
    """Gives all below a folder the modes and the time that they have on every machine."""
    for path in (root, *root.rglob("*")):
        if path.is_symlink():
            continue
        executable = path.is_dir() or path.stat().st_mode & 0o100
        path.chmod(0o755 if executable else 0o644)
        os.utime(path, (epoch, epoch))


def tar(root: Path, epoch: int, prefix: str = "", modes: dict[str, tuple[int, int]] | None = None) -> bytes:
    """An archive of all below a folder, under `prefix`, sorted, owned by root.

    `modes` has the mode and the owner of paths that have others.
    """
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.GNU_FORMAT) as archive:
        for path in sorted(root.rglob("*")):
            name = str(path.relative_to(root))
            info = archive.gettarinfo(path, prefix + name)
            executable = info.isdir() or info.mode & 0o100
            mode, owner = (modes or {}).get(name, (0o755 if executable else 0o644, 0))
            info.mode = 0o777 if info.issym() else mode
            info.uid = info.gid = owner
            info.uname = info.gname = ""
            info.mtime = epoch
            if info.islnk():  # files that are one on this disk are two in the archive
                info.type, info.linkname, info.size = tarfile.REGTYPE, "", path.stat().st_size
            if info.isreg():
                with path.open("rb") as file:
                    archive.addfile(info, file)
            else:
                archive.addfile(info)
    return buffer.getvalue()


def xz(data: bytes, preset: int) -> bytes:
    chain = [{"id": lzma.FILTER_LZMA2, "preset": preset, "dict_size": XZ_WINDOW}]
    return lzma.compress(data, format=lzma.FORMAT_XZ, filters=chain)


def gz(data: bytes, level: int) -> bytes:
    return gzip.compress(data, compresslevel=level, mtime=0)
