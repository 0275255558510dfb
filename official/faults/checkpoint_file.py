"""Checkpoints in which single tensors are replaced, with checksums that are right."""

import struct
from pathlib import Path

from utils.fuzzing import make_corpus


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _block(table: bytes, handle: bytes) -> dict[bytes, bytes]:
    offset, at = _varint(handle, 0)
    size, _ = _varint(handle, at)
    (restarts,) = struct.unpack_from("<I", table, offset + size - 4)
    end = offset + size - 4 - 4 * restarts
    entries, key, at = {}, b"", offset
    while at < end:
        shared, at = _varint(table, at)
        unshared, at = _varint(table, at)
        value_size, at = _varint(table, at)
        key = key[:shared] + table[at : at + unshared]
        at += unshared
        entries[key] = table[at : at + value_size]
        at += value_size
    return entries


def read_index(path: Path) -> dict[bytes, bytes]:
    """The entries of an index, by key."""
    table = path.read_bytes()
    footer = table[-48:]
    _, at = _varint(footer, 0)
    _, at = _varint(footer, at)
    entries: dict[bytes, bytes] = {}
    for handle in _block(table, footer[at:]).values():
        entries |= _block(table, handle)
    return entries


def replace_tensor(prefix: Path, name: bytes, dtype: int, shape: bytes, data: bytes) -> None:
    """Gives a checkpoint another tensor of that name. Its bytes are added to the data file. Other links to the files keep
    what they had."""
    index, data_path = Path(f"{prefix}.index"), Path(f"{prefix}.data-00000-of-00001")
    entries = read_index(index)
    entries[name] = make_corpus.bundle_entry(dtype, shape, data_path.stat().st_size, data)
    all_data = data_path.read_bytes() + data
    data_path.unlink()
    data_path.write_bytes(all_data)
    block = b"".join(make_corpus.entry(0, key, value) for key, value in sorted(entries.items()))
    index.unlink()
    index.write_bytes(make_corpus.one_block(make_corpus.seal(make_corpus.contents(block))))
