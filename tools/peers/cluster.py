"""Several processes that train together: how they are told of each other, and the network between them."""

import contextlib
import itertools
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


def tf_config(addresses: list[str], worker: int) -> dict[str, str]:
    """The environment of a worker of TensorFlow's, or of ours."""
    task = {"type": "worker", "index": worker}
    return {"TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": task})}


def torchrun(addresses: list[str], worker: int) -> dict[str, str]:
    """What torchrun tells a worker of PyTorch's."""
    host, _, port = addresses[0].rpartition(":")
    own_host = addresses[worker].rpartition(":")[0]
    return {
        "RANK": str(worker),
        "WORLD_SIZE": str(len(addresses)),
        "MASTER_ADDR": host,
        "MASTER_PORT": port,
        "GLOO_SOCKET_IFNAME": "lo" if own_host == "127.0.0.1" else "eth0",
    }


@dataclass
class Network:
    """Where the workers run: `spaces` are the network namespaces of as many of them; without, all are on this host."""

    spaces: list[str]

    def addresses(self, num_workers: int) -> list[str]:
        if self.spaces:
            return [f"10.77.0.{w + 1}:2222" for w in range(num_workers)]
        with contextlib.ExitStack() as stack:  # all at once, so that no port comes twice
            sockets = [stack.enter_context(socket.socket()) for _ in range(num_workers)]
            for s in sockets:
                s.bind(("127.0.0.1", 0))
            return [f"127.0.0.1:{s.getsockname()[1]}" for s in sockets]

    def prefix(self, worker: int) -> list[str]:
        """What stands in front of the command of a worker."""
        return ["ip", "netns", "exec", self.spaces[worker]] if self.spaces else []


@contextlib.contextmanager
def network(num_workers: int, mbit: int | None) -> Iterator[Network]:
    """This host's, or one of hosts with links of so many Mbit/s in each direction to one switch; for root only."""
    if mbit is None:
        yield Network([])
        return
    names = [f"bench-{os.getpid()}-{w}" for w in range(num_workers)]
    switch = f"bench-{os.getpid()}-switch"

    def ip(*words: str) -> None:
        done = subprocess.run(["ip", *words], capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"tools/bench: --mbit needs root and network namespaces: ip {' '.join(words)}: {done.stderr.strip()}")

    # A bucket holds some of the largest packets that TCP makes, or they would be divided in software.
    limit = ["root", "tbf", "rate", f"{mbit}mbit", "burst", "256kb", "latency", "50ms"]
    try:
        for name in (switch, *names):
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        ip("-n", switch, "link", "add", "br0", "type", "bridge")
        ip("-n", switch, "link", "set", "br0", "up")
        for w, name in enumerate(names):
            ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"port{w}", "netns", switch)
            ip("-n", name, "address", "add", f"10.77.0.{w + 1}/24", "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", switch, "link", "set", f"port{w}", "master", "br0", "up")
            for space, device in ((name, "eth0"), (switch, f"port{w}")):
                subprocess.run(["tc", "-n", space, "qdisc", "add", "dev", device, *limit], check=True)
        yield Network(names)
    finally:
        for name in (switch, *names):
            subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)


def bytes_sent() -> int:
    """Of all network devices that this process sees, since they are there."""
    lines = Path("/proc/self/net/dev").read_text().splitlines()[2:]
    return sum(int(line.split(":")[1].split()[8]) for line in lines)


# From worker to worker through gRPC, at 1 Gbit/s and through a network of 100 Gbit/s.
LATENCY_MS = 0.2
FAST_LATENCY_MS = 0.02
# What a message costs its sender, however short it is.
MESSAGE_MS = 0.01


def ring_ms(megabytes: float, workers: int, mbit: float, latency_ms: float) -> float:
    """A sum of so many megabytes, by a ring: each worker sends 2 (W - 1) / W of it in 2 (W - 1) rounds."""
    return 2 * (workers - 1) * (latency_ms + megabytes / workers * 8e3 / mbit)


def ordered_ms(megabytes: float, workers: int, mbit: float, latency_ms: float) -> float:
    """The same by owners of segments, if the workers have equal shares: all send to all, twice."""
    return 2 * (latency_ms + (workers - 1) * max(MESSAGE_MS, megabytes / workers * 8e3 / mbit))


def main() -> None:
    """Prints how long a sum takes, by the time of a message and the time of its bytes, for up to 1,000 workers."""
    sizes = {"ResNet-32": 1.9, "mnist": 13.1, "Transformer base": 245.0}
    print("ms, ring / ordered".ljust(24) + "".join(f"{name:>24}" for name in sizes))
    for (mbit, latency_ms), workers in itertools.product(
        [(1e3, LATENCY_MS), (1e5, FAST_LATENCY_MS)], [2, 4, 16, 64, 256, 1000]
    ):
        row = f"{workers:>5} x {mbit / 1e3:g} Gbit/s".ljust(24)
        for megabytes in sizes.values():
            ring, ordered = (f(megabytes, workers, mbit, latency_ms) for f in (ring_ms, ordered_ms))
            row += f"{f'{ring:.3g} / {ordered:.3g}':>24}"
        print(row)


if __name__ == "__main__":
    main()
