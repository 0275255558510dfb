"""Several processes that train together: how they are told of each other, and the network between them."""

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass


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

    def call(*command: str) -> None:
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except FileNotFoundError:
            sys.exit(f"tools/bench: --mbit needs the program {command[0]}; Debian: apt-get install iproute2")
        except subprocess.CalledProcessError as error:
            why = f"{' '.join(command)}: {error.stderr.strip()}"
            sys.exit(f"tools/bench: --mbit needs root, and a kernel with network namespaces, veth and tbf: {why}")

    def ip(*words: str) -> None:
        call("ip", *words)

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
                call("tc", "-n", space, "qdisc", "add", "dev", device, *limit)
        yield Network(names)
    finally:
        for name in (switch, *names):
            with contextlib.suppress(FileNotFoundError):
                subprocess.run(["ip", "netns", "delete", name], stderr=subprocess.DEVNULL)
