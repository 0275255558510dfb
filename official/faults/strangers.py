"""What strangers send to the port of a worker: from nothing at all to what a worker of another run would send."""

import contextlib
import re
import socket
import ssl
import struct
from collections.abc import Iterator
from pathlib import Path

PROTOCOL = b"official workers 4"


def connect(address: str, timeout: float = 60) -> socket.socket:
    host, port = address.rsplit(":", 1)
    return socket.create_connection((host, int(port)), timeout)


def send(address: str, data: bytes, wait: float = 0.2) -> None:
    """Sends to a worker, which may close the connection at any time, and gives it time to answer."""
    with contextlib.suppress(OSError), connect(address) as stranger:
        stranger.sendall(data)
        stranger.settimeout(wait)
        while stranger.recv(1 << 16):
            pass


def scan(address: str) -> None:
    connect(address).close()


def flood(address: str, data: bytes, total: int) -> int:
    """Sends data over and over, on as many connections as it takes, and returns how many those were."""
    sent = connections = 0
    while sent < total:
        connections += 1
        with contextlib.suppress(OSError), connect(address) as stranger:
            while sent < total:
                sent += stranger.send(data)
    return connections


class Slow:
    """Connections that stay open. Every second one sends a byte at each call of drip()."""

    def __init__(self, addresses: list[str], count: int) -> None:
        self.sockets = [connect(addresses[i % len(addresses)]) for i in range(count)]
        self.sent = 0

    def drip(self) -> None:
        for stranger in self.sockets[::2]:
            with contextlib.suppress(OSError):
                stranger.send(PREFACE[self.sent : self.sent + 1])
        self.sent += 1

    def count_open(self) -> int:
        """How many the workers have not closed."""
        count = 0
        for stranger in self.sockets:
            stranger.setblocking(False)
            try:
                while stranger.recv(1 << 16):
                    pass
            except BlockingIOError:
                count += 1
            except OSError:
                pass
        return count

    def close(self) -> None:
        for stranger in self.sockets:
            stranger.close()


def shake_hands(address: str, cert: Path | None = None, key: Path | None = None) -> None:
    """Makes a handshake of TLS, with a certificate or without, and sends a call to who accepts that."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    if cert:
        context.load_cert_chain(cert, key)
    with contextlib.suppress(OSError), connect(address) as stranger:
        with context.wrap_socket(stranger) as encrypted:
            encrypted.sendall(call(FRAMES, b"hello"))
            encrypted.settimeout(0.2)
            while encrypted.recv(1 << 16):
                pass


# ---- HTTP/2, as far as a call needs it ----

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
JOIN, FRAMES = b"/official.Workers/Join", b"/official.Workers/Frames"


def http2_frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


def literal(name: bytes, value: bytes) -> bytes:
    return b"\0" + bytes([len(name)]) + name + bytes([len(value)]) + value


def unknown_frames(total: int) -> bytes:
    """A connection with so many bytes in frames of a kind that HTTP/2 does not know: who reads it has to skip them,
    and no window limits them."""
    return PREFACE + http2_frame(4, 0, 0, b"") + http2_frame(0x42, 0, 0, bytes(16384)) * (total // 16384)


def call(method: bytes, *messages: bytes) -> bytes:
    """A connection that calls a method of gRPC with these messages."""
    headers = b"\x83\x86"  # POST, http
    headers += literal(b":path", method) + literal(b":authority", b"worker")
    headers += literal(b"te", b"trailers") + literal(b"content-type", b"application/grpc")
    data = b""
    for message in messages:
        message = b"\0" + struct.pack(">I", len(message)) + message
        data += b"".join(http2_frame(0, 0, 1, message[i : i + 16384]) for i in range(0, len(message), 16384))
    return PREFACE + http2_frame(4, 0, 0, b"") + http2_frame(1, 4, 1, headers) + data


# ---- What workers say ----


def strings(*parts: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(part)) + part for part in parts)


def join(worker: int = 1) -> bytes:
    """A worker that joins, but does not know the secret."""
    return call(JOIN, strings(PROTOCOL, bytes(32)), strings(str(worker).encode(), bytes(32), b"2", b"127.0.0.1:1"))


def recorded_hellos(trace: str) -> Iterator[bytes]:
    """The first messages of streams of frames, in what strace -xx says of the worker that has sent them."""
    numbers = rb"\x01\0\0\0."
    # "frames", five numbers of one digit, an address and a proof of 32 bytes.
    pattern = re.compile(rb"\x06\0\0\0frames(?:" + numbers + rb"){5}.\0\0\0[0-9.:]+\x20\0\0\0.{32}", re.DOTALL)
    for text in re.findall(r'"((?:\\x[0-9a-f]{2})+)"', trace):
        yield from pattern.findall(bytes.fromhex(text.replace("\\x", "")))
