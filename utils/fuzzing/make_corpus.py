"""Writes the first inputs of the fuzz targets: valid files, and those that once broke some reader of the format.

Usage: python3 utils/fuzzing/make_corpus.py, in the repository root. Inputs that the fuzzers found lie beside them, under
names of their own, and are not touched.
"""

import gzip
import struct
import zlib
from pathlib import Path

HUGE = [2**64 - 5, 2**64 - 4, 2**64 - 2, 2**63, 40 << 30]


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def masked_crc(data: bytes) -> int:
    crc = crc32c(data)
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(value: int) -> bytes:
    out = b""
    while value >= 0x80:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


# ---- TFRecord ----


def record(data: bytes, length: int | None = None) -> bytes:
    header = struct.pack("<Q", len(data) if length is None else length)
    return header + struct.pack("<I", masked_crc(header)) + data + struct.pack("<I", masked_crc(data))


def tf_records() -> dict[str, bytes]:
    two = record(b"") + record(b"hello")
    return {
        "two": two,
        "gzip": gzip.compress(two, mtime=0),
        "zlib": zlib.compress(two),
        "two_members": gzip.compress(record(b"a"), mtime=0) + gzip.compress(record(b"b"), mtime=0),
        "cut_header": two[:-20],
        "cut_data": two[:-6],
        "cut_trailer": two[:-2],
        "wrong_checksum": two[:-1] + b"\0",
        "wrong_length_checksum": two[:8] + b"\0" + two[9:],
        "long_bomb": gzip.compress(record(bytes(1 << 20)), mtime=0),
        **{f"length_{length:x}": record(b"x", length) for length in HUGE},
        "gzip_length": gzip.compress(record(b"x", 2**29), mtime=0),
    }


# ---- tf.Example ----


def feature(name: bytes, value: bytes) -> bytes:
    return field(1, field(1, name) + field(2, value))


def examples() -> dict[str, bytes]:
    image = feature(b"image/encoded", field(1, field(1, b"\xff\xd8\xff pixels")))
    label = feature(b"image/class/label", field(3, field(1, b"\x80\x07")))
    boxes = feature(b"image/object/bbox/xmin", field(2, field(1, struct.pack("<2f", 0.25, 1))))
    unpacked = feature(b"image/object/bbox/xmin", field(2, b"\x0d" + struct.pack("<f", 0.5)))
    whole = field(1, image + label + boxes)
    return {
        "whole": whole,
        "unpacked": field(1, unpacked + feature(b"image/class/label", field(3, b"\x08\x05"))),
        "twice": field(1, image + image) + field(1, label + label),
        "two_values": field(1, feature(b"image/class/label", field(3, field(1, b"\1\2")))),
        "no_kind": field(1, feature(b"image/encoded", b"") + feature(b"", field(1, b""))),
        "other_kinds": field(1, feature(b"image/encoded", field(3, b"")) + feature(b"image/class/label", field(2, b""))),
        "odd_floats": field(1, feature(b"image/object/bbox/xmin", field(2, field(1, b"abc")))),
        "unknown_fields": b"\x18\x01" + field(9, b"x") + b"\x21" + bytes(8) + b"\x2d" + bytes(4) + whole,
        "group": b"\x0b\x0c",
        "field_0": b"\0\0",
        "long_varint": b"\x08" + b"\x80" * 12,
        "cut": whole[:-3],
        "empty": b"",
        **{f"length_{length:x}": b"\x0a" + varint(length) + b"x" for length in HUGE},
    }


# ---- JPEG ----


def segment(marker: int, data: bytes) -> bytes:
    return bytes([0xFF, marker]) + struct.pack(">H", len(data) + 2) + data


# Every code is one bit long and means zero, so that an image of zero bits is grey.
JPEG_TABLES = segment(0xDB, b"\0" + b"\1" * 64) + segment(0xC4, b"\0\1" + bytes(16)) + segment(0xC4, b"\x10\1" + bytes(16))


def jpeg(height: int, width: int, sampling: bytes, frame: int = 0xC0, scans: list[bytes] | None = None) -> bytes:
    """A grey image with one component for each byte of `sampling`; scans: component, first and last coefficient."""
    components = b"".join(bytes([i + 1, factors, 0]) for i, factors in enumerate(sampling))
    header = segment(frame, struct.pack(">BHHB", 8, height, width, len(sampling)) + components)
    everything = bytes(range(1, len(sampling) + 1)) + b"\0\x3f"
    body = b""
    for *ids, first, last in scans or [everything]:
        ids = b"".join(bytes([i, 0]) for i in ids)
        body += segment(0xDA, bytes([len(ids) // 2]) + ids + bytes([first, last, 0]))
        body += bytes(height * width * len(sampling) // 256 + 8)
    return b"\xff\xd8" + JPEG_TABLES + header + body + b"\xff\xd9"


def jpeg_files() -> dict[str, bytes]:
    adobe = segment(0xEE, b"Adobe\0\x64\0\0\0\0\2")
    colour = jpeg(20, 37, b"\x22\x11\x11")
    inks = jpeg(9, 20, b"\x11\x11\x11\x11")
    progressive = [b"\1\2\3\0\0", b"\1\1\5", b"\2\1\x3f", b"\3\1\x3f", b"\1\6\x3f"]
    return {
        "grey": jpeg(8, 8, b"\x11"),
        "colour": colour,
        "not_subsampled": jpeg(33, 17, b"\x11\x11\x11"),
        "odd_sampling": jpeg(20, 20, b"\x41\x12\x21"),
        "inks": inks,
        "adobe_inks": inks[:2] + adobe + inks[2:],
        "progressive": jpeg(20, 37, b"\x22\x11\x11", 0xC2, progressive),
        "many_scans": jpeg(8, 8, b"\x11", 0xC2, [b"\1\0\0"] + [b"\1\1\x3f"] * 200),
        "arithmetic": jpeg(8, 8, b"\x11", 0xC9),
        "restarts": colour[:2] + segment(0xDD, b"\0\1") + colour[2:],
        "cut": colour[:-12],
        "cut_header": colour[:150],
        "no_end": colour[:-2],
        "no_tables": b"\xff\xd8" + colour[2 + len(JPEG_TABLES) :],
        "no_pixels": jpeg(0, 16, b"\x11"),
        "claims_65500": jpeg(1, 1, b"\x11\x11\x11").replace(struct.pack(">HH", 1, 1), struct.pack(">HH", 65500, 65500)),
        "claims_200": jpeg(1, 1, b"\x11\x11\x11").replace(struct.pack(">HH", 1, 1), struct.pack(">HH", 200, 200)),
        "signature": b"\xff\xd8\xff",
        "empty": b"",
    }


# ---- IDX and gzip ----


def idx(dims: list[int], data: bytes) -> bytes:
    return struct.pack(f">I{len(dims)}I", 0x800 + len(dims), *dims) + data


def idx_files() -> dict[str, bytes]:
    images = idx([2, 3, 3], bytes(range(18)))
    most = 2**32 - 1
    plain = {
        "images": images,
        "labels": idx([4], b"\1\2\3\4"),
        "empty": b"",
        "no_examples": idx([0, 28, 28], b""),
        "cut": images[:-1],
        "left_over": images + b"x",
        "cut_header": images[:9],
        "floats": b"\0\0\x0d\1" + struct.pack(">If", 1, 1.0),
        "overflow": idx([most, most, most], b"x"),
        "overflow_by_zero": idx([most, most, most, 0], b""),
        "rank_255": idx([1] * 255, b"x"),
        "rank_0": struct.pack(">I", 0x800) + b"x",
        "large": idx([60000, 28, 28], b"x"),
    }
    packed = {f"{name}_gz": gzip.compress(data, mtime=0) for name, data in plain.items() if len(data) < 300}
    bomb = gzip.compress(idx([1, 1024, 1024], bytes(1 << 20)), mtime=0)
    return {**plain, **packed, "bomb_gz": bomb, "liar_gz": bomb[:-4] + struct.pack("<I", 16)}


def gzip_files() -> dict[str, bytes]:
    text = gzip.compress(b"hello hello hello", mtime=0)
    named = b"\x1f\x8b\x08\x1f" + bytes(6) + struct.pack("<H", 3) + b"xyz" + b"name\0comment\0" + b"\0\0" + text[10:]
    files = {
        "text": text,
        "members": text + text,
        "named": named,
        "empty": gzip.compress(b"", mtime=0),
        "cut": text[:-9],
        "wrong_checksum": text[:-8] + bytes(8),
        "garbage_after": text + b"garbage",
        "zeros": gzip.compress(bytes(1 << 18), mtime=0),
        "long_extra": b"\x1f\x8b\x08\x04" + bytes(6) + b"\xff\xff" + b"x",
    }
    # The first byte chooses how much is read at a time.
    return {name: bytes([8]) + data for name, data in files.items()}


# ---- PNG ----


def chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(width: int, height: int, depth: int, color: int, rows: bytes, extra: bytes = b"", interlace: int = 0) -> bytes:
    header = struct.pack(">IIBBBBB", width, height, depth, color, 0, 0, interlace)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + extra
        + chunk(b"IDAT", zlib.compress(rows, 9))
        + chunk(b"IEND", b"")
    )


def png_files() -> dict[str, bytes]:
    grey = png(2, 2, 8, 0, b"\0\1\2\0\3\4")
    palette = chunk(b"PLTE", b"\1\2\3\4\5\6")
    most = 2**31 - 1
    return {
        "grey": grey,
        "rgba": png(1, 1, 8, 6, b"\0\1\2\3\4"),
        "palette": png(2, 1, 1, 3, b"\0\x40", palette + chunk(b"tRNS", b"\x80")),
        "palette_missing": png(2, 1, 1, 3, b"\0\x40"),
        "sixteen_bits": png(1, 1, 16, 2, b"\0" + bytes(range(6))),
        "interlaced": png(2, 2, 8, 0, b"\0\1\0\2\0\3\4", interlace=1),
        "filtered": png(2, 2, 8, 0, b"\4\1\2\3\3\4"),
        "cut": grey[:-20],
        "signature": grey[:8],
        "wrong_crc": grey[:29] + b"\0\0\0\0" + grey[33:],
        "no_pixels": png(0, 0, 8, 0, b""),
        "claims_8192": png(8192, 8192, 8, 6, b"\0"),
        "claims_16": png(8192, 8192, 16, 6, b"\0"),
        "claims_most": png(most, most, 16, 6, b"\0"),
        "claims_narrow": png(1, most, 1, 0, b"\0"),
        "text_bomb": png(1, 1, 8, 0, b"\0\1", chunk(b"zTXt", b"k\0\0" + zlib.compress(bytes(1 << 20), 9))),
    }


# ---- Checkpoints ----


def entry(shared: int, suffix: bytes, value: bytes) -> bytes:
    return varint(shared) + varint(len(suffix)) + varint(len(value)) + suffix + value


def contents(entries: bytes, restarts: int = 1) -> bytes:
    return entries + bytes(4) * restarts + struct.pack("<I", restarts)


def seal(block: bytes, kind: int = 0) -> bytes:
    block += bytes([kind])
    return block + struct.pack("<I", masked_crc(block))


def handle(offset: int, size: int) -> bytes:
    return varint(offset) + varint(size)


def footer(index: bytes) -> bytes:
    return (handle(0, 0) + index).ljust(40, b"\0") + bytes.fromhex("57fb808b247547db")


def table(blocks: bytes, index_entries: bytes) -> bytes:
    index = seal(contents(index_entries))
    return blocks + index + footer(handle(len(blocks), len(index) - 5))


def one_block(block: bytes) -> bytes:
    return table(block, entry(0, b"z", handle(0, len(block) - 5)))


def tables() -> dict[str, bytes]:
    block = contents(entry(0, b"", b"header") + entry(0, b"dense/bias", b"b") + entry(6, b"kernel", b"k"))
    files = {
        "table": one_block(seal(block)),
        "block": block,
        "handles": contents(entry(0, b"z", handle(0, 9))),
        "compressed": one_block(seal(block, kind=1)),
        "restarts": contents(b"")[:-4] + b"\xff" * 4,
        "overlap": table(seal(block), entry(0, b"a", handle(0, len(block))) + entry(0, b"b", handle(0, len(block)))),
        "keys_without_end": contents(
            entry(0, b"k" * 4000, b"") + b"".join(entry(3999, bytes([ord("k") + i]), b"") for i in range(1, 100))
        ),
        "footer_only": footer(handle(0, 0)),
    }
    for size in HUGE:
        # LevelDB's own reader crashes on these.
        files[f"footer_size_{size:x}"] = seal(block) + footer(handle(0, size))
        files[f"footer_offset_{size:x}"] = seal(block) + footer(handle(size, 8))
        files[f"block_size_{size:x}"] = table(seal(block), entry(0, b"z", handle(0, size)))
        files[f"entry_size_{size:x}"] = contents(varint(0) + varint(1) + varint(size) + b"k")
    return files


def field(number: int, value: int | bytes) -> bytes:
    if isinstance(value, bytes):
        return varint(number << 3 | 2) + varint(len(value)) + value
    return varint(number << 3) + varint(value % 2**64)


def shape(*dims: int) -> bytes:
    return b"".join(field(2, field(1, dim)) for dim in dims)


def bundle_entry(dtype: int, dims: bytes, offset: int, data: bytes, size: int | None = None, shard: int = 0) -> bytes:
    size = len(data) if size is None else size
    return (
        field(1, dtype)
        + field(2, dims)
        + field(3, shard)
        + field(4, offset)
        + field(5, size)
        + b"\x35"
        + struct.pack("<I", masked_crc(data))
    )


def slice_entry(dims: bytes, *extents: list[tuple[int, int]]) -> bytes:
    slices = b"".join(field(7, b"".join(field(1, field(1, s) + field(2, n)) for s, n in slice)) for slice in extents)
    return field(1, 1) + field(2, dims) + slices


HEADER = field(1, 1) + field(3, field(1, 1))
FLOAT, STRING, INT64, BOOL, VARIANT = 1, 7, 9, 10, 21


def bundles() -> dict[str, bytes]:
    floats = struct.pack("<4f", 1, 2, 3, 4)
    # Lengths, their checksum (over 4 bytes each), texts; the tensor's checksum takes the lengths as 4 bytes too.
    lengths_crc = struct.pack("<I", masked_crc(struct.pack("<II", 1, 2)))
    strings = b"\1\2" + lengths_crc + b"abb"
    row_0, row_1 = (bytes.fromhex(f"00 77 0001 0102 {key} 80 82") for key in ("80 81", "81 81"))
    sliced = {
        b"w": slice_entry(shape(2, 2), [(0, 1), (0, 2)], [(1, 1), (0, 2)]),
        row_0: bundle_entry(FLOAT, shape(1, 2), 0, floats[:8]),
        row_1: bundle_entry(FLOAT, shape(1, 2), 8, floats[8:]),
    }
    cases = {
        "float": ({b"w": bundle_entry(FLOAT, shape(2, 2), 0, floats)}, floats),
        "scalar": ({b"global_step": bundle_entry(INT64, b"", 0, bytes(8))}, bytes(8)),
        "two": (
            {b"a": bundle_entry(FLOAT, shape(2), 0, floats[:8]), b"b": bundle_entry(FLOAT, shape(2), 8, floats[8:])},
            floats,
        ),
        "strings": ({b"s": bundle_entry(STRING, shape(2), 0, strings)}, strings),
        "strings_long": ({b"s": bundle_entry(STRING, shape(1 << 40), 0, strings)}, strings),
        "bool": ({b"b": bundle_entry(BOOL, shape(2), 0, b"\1\2")}, b"\1\2"),
        "variant": ({b"v": bundle_entry(VARIANT, shape(2), 0, b"xx")}, b"xx"),
        "sliced": (sliced, floats),
        "slice_missing": ({b"w": sliced[b"w"]}, floats),
        "slices_overlap": ({**sliced, b"w": slice_entry(shape(2, 2), [(0, 1), (0, 2)], [(0, 1), (0, 2)])}, floats),
        "slice_beyond": ({**sliced, b"w": slice_entry(shape(2, 2), [(2**62, 2**62), (0, 2)])}, floats),
        "slice_of_itself": ({b"w": slice_entry(shape(2), [(0, -1)])}, floats),
        "absurd_shape": ({b"w": bundle_entry(FLOAT, shape(1 << 31, 1 << 31, 4), 0, floats)}, floats),
        "overflow": ({b"w": bundle_entry(FLOAT, shape(1 << 62, 16), 0, b"")}, b""),
        "overflow_by_zero": ({b"w": bundle_entry(FLOAT, shape(1 << 62, 1 << 62, 0), 0, b"")}, b""),
        "negative_shape": ({b"w": bundle_entry(FLOAT, shape(-2, -2), 0, floats)}, floats),
        "negative_offset": ({b"w": bundle_entry(FLOAT, shape(4), -16, floats)}, floats),
        "beyond_end": ({b"w": bundle_entry(FLOAT, shape(4), 2**63 - 1, floats)}, floats),
        "shared_bytes": ({name: bundle_entry(FLOAT, shape(4), 0, floats) for name in (b"a", b"b")}, floats),
        "other_shard": ({b"w": bundle_entry(FLOAT, shape(4), 0, floats, shard=2**31 - 1)}, floats),
        "rank_100": ({b"w": bundle_entry(FLOAT, shape(*[1] * 50), 0, floats[:4])}, floats),
        "string_dtype_absurd_shape": ({b"w": bundle_entry(STRING, shape(1 << 29, 1 << 29), 0, b"")}, b""),
    }
    files = {}
    for name, (entries, data) in cases.items():
        entries = {b"": HEADER, **entries}
        ordered = sorted(entries.items())
        block = b"".join(entry(0, key, value) for key, value in ordered)
        index = one_block(seal(contents(block)))
        files[f"{name}_index"] = struct.pack("<H", len(index)) + index + data
        # The second form of the input, in which the target computes the checksums.
        listed = b"".join(bytes([len(key), len(value)]) + key + value for key, value in ordered)
        files[name] = listed + b"\xff\xff" + data
    return files


def safetensors_files() -> dict[str, bytes]:
    def tensor(dtype: str, dims: str, begin: int, end: int) -> str:
        return f'{{"dtype":"{dtype}","shape":[{dims}],"data_offsets":[{begin},{end}]}}'

    headers = {
        "float": (f'{{"w":{tensor("F32", "2,2", 0, 16)}}}', 16),
        "two": (f'{{"b":{tensor("I64", "", 0, 8)},"a":{tensor("BF16", "3,0", 8, 8)}}}   ', 8),
        "metadata": (f'{{"__metadata__":{{"format":"tf","string:s":"\\u00e4"}},"b":{tensor("BOOL", "2", 0, 2)}}}', 2),
        "gap": (f'{{"a":{tensor("U8", "1", 0, 1)},"b":{tensor("U8", "1", 2, 3)}}}', 3),
        "overlap": (f'{{"a":{tensor("U8", "2", 0, 2)},"b":{tensor("U8", "1", 1, 2)}}}', 2),
        "overflow": (f'{{"a":{tensor("F32", "4611686018427387904", 0, 0)}}}', 0),
        "overflow_by_zero": (f'{{"a":{tensor("F32", "4294967296,4294967296,0", 0, 0)}}}', 0),
        "huge_number": (f'{{"a":{tensor("F32", "18446744073709551615", 0, 0)}}}', 0),
        "twice": (f'{{"a":{tensor("U8", "", 0, 1)},"a":{tensor("U8", "", 0, 1)}}}', 1),
        "deep": ('{"a":' + "[" * 1000, 0),
        "number": ('{"a":1e999}', 0),
        "empty": ("{}", 0),
        "cut": ('{"a":{"dtype":"F3', 0),
    }
    files = {
        name: struct.pack("<Q", len(text)) + text.encode() + bytes(size) for name, (text, size) in headers.items()
    }
    return files | {f"header_{size:x}": struct.pack("<Q", size) + b"{}" for size in HUGE}


def state_files() -> dict[str, bytes]:
    texts = {
        "ours": 'model_checkpoint_path: "model.ckpt-1"\nall_model_checkpoint_paths: "model.ckpt-1"\n',
        "times": 'model_checkpoint_path: "model.ckpt-1"\nall_model_checkpoint_timestamps: 1.5e9\nnew_field: 3\n',
        "escapes": 'model_checkpoint_path: "model\\056ckpt-\\x31"\n',
        "elsewhere": 'model_checkpoint_path: "../model.ckpt-1"\nall_model_checkpoint_paths: "../model.ckpt-1"\n',
        "precious": 'model_checkpoint_path: "precious"\nall_model_checkpoint_paths: "precious"\n',
        "dots": 'all_model_checkpoint_paths: "./x/../model.ckpt-1" model_checkpoint_path: "./model.ckpt-1"\n',
        "absolute": 'model_checkpoint_path: "/proc/self/mem"\nall_model_checkpoint_paths: "/"\n',
        "empty": "",
        "zeros": "\0" * 80,
        "cut": 'model_checkpoint_path: "model.ckpt-',
        "nested": "a {" * 100,
        "large_step": 'model_checkpoint_path: "model.ckpt-99999999999999999999"\n',
        "long": f'model_checkpoint_path: "{"x" * 300}"\n',
    }
    return {name: text.encode("latin-1") for name, text in texts.items()}


def command_lines() -> dict[str, bytes]:
    texts = {
        "usual": "--batch_size=64\n--model_dir\n/tmp/x\n-te 3\n--noshuffle\n--hooks=profilerhook, loggingtensorhook",
        "file": "# comment\n// comment\n\n--batch_size=64\n--clean=false\n",
        "odd": "--\n-\n---\n--=\n=\n--no\n-no=\n--nonoclean\n--batch_size\n--batch_size=",
        "numbers": "--batch_size=99999999999999999999\n--batch_size=0x10\n--stop_threshold=nan\n--seed=-1",
        "lists": "--hooks=,,\n--hooks= , a\n--undefok=x,y\n--x=1\n--noy",
        "bytes": "--model_dir=\x00\x01\x7f\xff\n--data_dir=\x1b[31m",
        "requests": "--help\n--helpfull\n--version\n-h\n-?",
        "long": "--model_dir=" + "x" * 2000,
    }
    return {name: text.encode("latin-1") for name, text in texts.items()}


def vocabularies() -> dict[str, bytes]:
    characters = "".join(f"'{c}'\n" for c in "abc \\_u;0123456789")
    reserved = b"'<pad>'\n'<EOS>'\n"
    after_reserved = {
        "characters": f"{characters}\0a bc_\\ é\n".encode(),
        "reserved": b"'the_'\r\n'\\52;_'\n\0\2\0\3\0\1\0\xff\xff",
        "split_escapes": b"'\\'\n'5'\n'_'\n'u'\n';'\n\0\2\0\3\0\3\0\6\0\2\0\5\0\4\0\2\0\2\0",
        "quotes": b"'''\n'\"'\n\"_\"\n\0''\"\"",
        "umlauts": "'ä'\n'ää_'\n'ö_'\n'_'\n\0ä ö".encode(),
        "cut_character": b"'\xc3'\n\0\2\0",
        "duplicate": b"'a'\n'b'\n'a'\n",
        "no_quotes": b"a\nb\n",
        "empty_subtoken": b"''\n",
        "no_subtokens": b"",
        "long": b"'" + b"ab" * 300 + b"_'\n'a'\n'b'\n'_'\n\0" + b"ab" * 299 + b"a",
    }
    files = {name: reserved + text for name, text in after_reserved.items()}
    return files | {"empty": b"", "without_reserved": b"'a'\n'b'\n", "half_reserved": b"'<pad>'\n'a'\n"}


def ratings_files() -> dict[str, bytes]:
    texts = {
        "csv": "userId,movieId,rating,timestamp\n1,2,3.5,1112486027\n138493,131262,4,1260759144\n",
        "dat": "1::1193::5::978300760\n6040::3952::1::956704746\n",
        "crlf": "1,2,3,4\r\n5,6,7,8\r\n",
        "cut": "1,2,3,4\n5,6,7,",
        "no_line_end": "1,2,3,4",
        "header_twice": "user,item,rating,timestamp\n" * 2,
        "tabs": "1\t2\t3\t4\n",
        "semicolons": "user id;item id;rating;time\n1;2;3.5;4\n",
        "blanks": "1 2 3 4\n1\t2\t3\t4\n",
        "other_separator": "1|2|3|4\n",
        "ids": "0,2,3,4\n-1,2,3,4\n2147483648,2,3,4\n",
        "ratings": "1,2,1e400,4\n1,2,nan,4\n1,2,0x10,4\n",
        "numbers": "0000000001,2,3,4\n1,2,3.,4\r\n1,2,.5,4\n1,2,1234567890.25,-4\n"
        "1,2147483647,3,999999999999999999\n00000000001,2,1e3,9223372036854775807\n",
        "bytes": "1,2,\0,4\n\xff\xfe,2,3,4\n",
        "long": "1," * 600,
        "empty": "",
    }
    return {name: text.encode("latin-1") for name, text in texts.items()}


def item_names() -> dict[str, bytes]:
    return {
        "u_item": "1|Toy Story (1995)|01-Jan-1995||x|0\n543|Mis\xe9rables, Les (1995)|x||y|0\n".encode("latin-1"),
        "movies_dat": b"1::Toy Story (1995)::Comedy\r\n2::Jumanji (1995)::Drama\r\n",
        "movies_csv": 'movieId,title,genres\n11,"American President, The (1995)",x\n12,"a ""b",y\n13,"open\n'.encode(),
        "marked": "\ufeff1\tÄ\x07\n2\tÖ\n".encode(),
        "cut_character": b"1|\xc3",
        "no_number": b"1|a\ntwo|b\n",
        "no_separator": b"1\n",
        "header_only": b"id,name\n",
        "empty": b"",
    }


# ---- Clusters ----


def tf_configs() -> dict[str, bytes]:
    workers = '{"worker": ["127.0.0.1:1", "[::1]:2"]}'
    task = '{"type": "worker", "index": 1}'
    texts = {
        "workers": f'{{"cluster": {workers}, "task": {task}}}',
        "chief": '{"cluster": {"chief": ["a:1"], "ps": {"0": "b:1"}}, "task": {"type": "ps", "index": "0"}}',
        "evaluator": f'{{"cluster": {workers}, "task": {{"type": "evaluator", "index": 0}}, "environment": "cloud"}}',
        "alone": '{"cluster": null, "task": {"type": "worker", "index": 0}, "job": {}}',
        "sparse": '{"sparseCluster": {"worker": {"3": "a:1"}}}',
        "keys_twice": '{"cluster": {"worker": ["a:1"], "worker": ["b:1"]}}',
        "index_large": f'{{"cluster": {workers}, "task": {{"type": "worker", "index": 9223372036854775808}}}}',
        "addresses": '{"cluster": {"worker": ["grpc://a:1", "a", "a:0", "::1:1", "localhost:1"]}}',
        "deep": "[" * 10000,
        "deep_objects": '{"task":' * 100,
        "list": "[1]",
        "empty": "",
        "cut": '{"cluster": {"worker": ["a:1"',
        "bytes": '{"cluster": "\xff\0"}',
    }
    return {name: text.encode("latin-1") for name, text in texts.items()}


def launcher_environments() -> dict[str, bytes]:
    step = "SLURM_JOB_ID=7\nSLURM_STEP_ID=0\nSLURM_PROCID=0\n"
    slurm = step + "SLURM_NODEID=0\nSLURM_STEP_NUM_TASKS=3\nSLURM_STEP_NODELIST=n[08-09]"
    torchrun = (
        "RANK=1\nWORLD_SIZE=4\nMASTER_ADDR=h\nMASTER_PORT=29500\nGROUP_WORLD_SIZE=2\n"
        "TORCHELASTIC_USE_AGENT_STORE=True"
    )
    texts = {
        "tf_config": 'TF_CONFIG={"cluster": {"worker": ["a:1", "b:1"]}, "task": {"type": "worker", "index": 1}}',
        "torchrun": torchrun,
        "train_job": "PET_NNODES=3\nPET_NODE_RANK=2\nPET_MASTER_ADDR=job-0.job\nPET_MASTER_PORT=29400",
        "mpirun": "PMIX_RANK=2\nOMPI_COMM_WORLD_SIZE=3",
        "slurm": slurm,
        "slurm_ports": slurm + "\nSLURM_STEP_RESV_PORTS=12000-12001",
        "slurm_torchrun": slurm + "\n" + torchrun,
        "slurm_pmix": slurm + "\nPMIX_RANK=0\nPMIX_NAMESPACE=slurm.pmix.7.0",
        "slurm_many": step + "SLURM_NTASKS=8192\nSLURM_STEP_NODELIST=n[0-8191]",
        "slurm_product": step + "SLURM_NTASKS=2\nSLURM_STEP_NODELIST=" + "n[0-9]" * 20,
        "slurm_huge": slurm.replace("JOB_ID=7", "JOB_ID=4294967295").replace("STEP_ID=0", "STEP_ID=4294967296"),
        "workers": "workers=job-[0-2].job:2222,[::1]:1\nJOB_COMPLETION_INDEX=1",
        "world": "RANK=0\nWORLD_SIZE=2147483648\nMASTER_ADDR=h\nMASTER_PORT=1",
        "empty": "",
    }
    return {name: text.encode() for name, text in texts.items()}


def worker_messages() -> dict[str, bytes]:
    """What one worker sends to another; the first byte says how it is read."""

    def strings(*texts: bytes) -> bytes:
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)

    def stream(*messages: bytes) -> bytes:
        return b"\2" + b"".join(bytes([len(message)]) + message for message in messages)

    def head(size: int) -> bytes:
        return b"F" + struct.pack("<Q", size)

    return {
        "strings": b"\0" + strings(b"official workers 1", b"nonce", b""),
        "strings_cut": b"\0" + strings(b"abc")[:-1],
        "strings_huge": b"\0" + struct.pack("<I", 2**32 - 1) + b"abc",
        "hello": b"\1" + strings(b"frames", b"1", b"0", b"0", b"0", b"1", b"127.0.0.1:1", bytes(32)),
        "hello_numbers": b"\1" + strings(b"frames", b"-1", b"-1", b"99999999999", b"0", b"7", b"", bytes(32)),
        "frames": stream(head(3), b"Pab", b"Pc", head(0), b"E"),
        "failure": stream(b"Xa disk is full"),
        "piece_too_long": stream(head(1), b"Pab"),
        "piece_alone": stream(b"Pab"),
        "head_twice": stream(head(3), head(3)),
        "empty_piece": stream(head(3), b"P"),
        "empty_message": stream(b""),
        **{f"frame_{size:x}": stream(head(size), b"Pab") for size in HUGE},
    }


# ---- Requests of serve_main ----


def predict_requests() -> dict[str, bytes]:
    return {
        "rows": b'{"signature_name": "classify", "instances": [[[0.5, 1e-3]], {"image": [[-1, 2]]}, {"b64": "AP9h"}]}',
        "columns": b'{"inputs": {"image": [[[0.5, 1]]]}}',
        "two_inputs": b'{"instances": [{"user": 7, "text": "\\u00e4[["}, {"user": -1, "text": {"b64": ""}}]}',
        "two_columns": b'{"inputs": {"user": [1, 2], "text": ["a", "b"]}}',
        "one_column_short": b'{"inputs": {"user": [1, 2], "text": ["a"]}}',
        "deep": b"[" * 5000,
        "huge": b'{"instances": [[[1e39, 1e400]]]}',
        "not_finite": b'{"instances": [[[NaN, -Infinity]]]}',
        "wide": b'{"instances": [{"user": 18446744073709551615, "text": ""}]}',
        "not_utf8": b'{"instances": [{"user": 1, "text": "\xff"}]}',
        "path": b"/v1/models/mnist/versions/12:predict?x",
    }


def main() -> None:
    for target, files in {
        "utils/data/records/corpus/tf_record_fuzz": tf_records(),
        "utils/data/records/corpus/example_fuzz": examples(),
        "utils/data/corpus/idx_fuzz": idx_files(),
        "utils/data/corpus/gzip_fuzz": gzip_files(),
        "utils/data/corpus/jpeg_fuzz": jpeg_files(),
        "utils/data/corpus/png_fuzz": png_files(),
        "utils/train/checkpoint/corpus/table_reader_fuzz": tables(),
        "utils/train/checkpoint/corpus/bundle_fuzz": bundles(),
        "utils/train/checkpoint/corpus/safetensors_fuzz": safetensors_files(),
        "utils/train/checkpoint/corpus/checkpoint_dir_fuzz": state_files(),
        "utils/flags/corpus/command_line_fuzz": command_lines(),
        "utils/distribute/cluster/corpus/tf_config_fuzz": tf_configs(),
        "utils/distribute/cluster/corpus/launcher_env_fuzz": launcher_environments(),
        "utils/distribute/grpc/corpus/wire_fuzz": worker_messages(),
        "official/transformer/text/corpus/vocabulary_fuzz": vocabularies(),
        "official/recommendation/data/corpus/ratings_file_fuzz": ratings_files(),
        "official/recommendation/data/corpus/item_names_fuzz": item_names(),
        "official/serve/corpus/rest_api_fuzz": predict_requests(),
    }.items():
        folder = Path(target)
        folder.mkdir(parents=True, exist_ok=True)
        for name, data in files.items():
            (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
