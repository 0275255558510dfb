"""A network for tests: hosts at a bridge, in namespaces of their own, whose links can be cut, slow or lose packets."""

import contextlib
import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys

# ip, tc, nft and chroot are in sbin.
PATH = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
ENTERED = "OFFICIAL_EMULATION"  # in the environment of a program that has namespaces of its own
NUMBERS = itertools.count(1)  # of the hosts of all networks


def enter_namespaces(*as_user: str) -> None:
    """Starts this program again with a network and mounts of its own, in which it is root. `as_user` are the options of
    unshare for a user who is not root."""
    os.environ["PATH"] = PATH
    if os.environ.get(ENTERED) == "entered":
        run("mount -t tmpfs tmpfs /run")
        run("mkdir /run/netns")
        run("ip link add br0 type bridge")
        run("ip link set br0 up")
        return
    os.environ[ENTERED] = "entered"
    os.execvp("unshare", unshare(as_user) + [sys.executable, *sys.orig_argv[1:]])


def why_not(*as_user: str) -> str:
    """Why enter_namespaces, or changing links, would fail; empty if nothing is in the way."""
    os.environ["PATH"] = PATH
    for program, package in (("unshare", "util-linux"), ("ip", "iproute2"), ("tc", "iproute2"), ("nft", "nftables")):
        if shutil.which(program) is None:
            return f"{program} is missing: apt-get install {package}"
    probe = "mount -t tmpfs tmpfs /run && ip link add br0 type bridge && nft add table netdev links"
    done = subprocess.run(unshare(as_user) + ["sh", "-c", probe], check=False, capture_output=True, text=True)
    return f"no network can be made here: {done.stderr.strip()}" if done.returncode != 0 else ""


def unshare(as_user: tuple[str, ...]) -> list[str]:
    user = [] if os.geteuid() == 0 else as_user
    return ["unshare", *user, "--mount", "--net", "--propagation", "private"]


def run(command: str) -> str:
    """Returns what a command prints."""
    done = subprocess.run(shlex.split(command), check=False, capture_output=True, text=True)
    if done.returncode != 0:
        needs = "this needs root, or a user with entries in /etc/subuid and /etc/subgid"
        raise RuntimeError(f"{command}: {done.stderr}; {needs}")
    return done.stdout


def inside(host: str) -> list[str]:
    """What stands before a command that runs on a host."""
    return ["nsenter", f"--net=/run/netns/{host}"]


def add_host(host: str, port: str, address: str) -> None:
    """Makes a host with an address, at a port of the bridge."""
    run(f"ip netns add {host}")
    run(f"ip link add {port} master br0 type veth peer name eth0 netns {host}")
    run(f"ip link set {port} up")
    for command in (f"addr add {address}/16 dev eth0", "link set eth0 up", "link set lo up"):
        run(f"ip -n {host} {command}")


class Network(contextlib.AbstractContextManager):
    """Some hosts, which are gone at the end."""

    def __init__(self, count: int) -> None:
        self.numbers = [next(NUMBERS) for _ in range(count)]
        self.hosts = [f"host{number}" for number in self.numbers]
        # The ends of each link: a command prefix and a device.
        self.links = [(("", f"port{number}"), (" ".join(inside(f"host{number}")), "eth0")) for number in self.numbers]
        for host, number in zip(self.hosts, self.numbers):
            add_host(host, f"port{number}", f"10.1.{number // 250}.{number % 250 + 1}")

    def __exit__(self, *_) -> None:
        for host in self.hosts:
            subprocess.run(["ip", "netns", "delete", host], check=False, capture_output=True)

    def addresses(self, port: int = 2222) -> list[str]:
        return [f"10.1.{number // 250}.{number % 250 + 1}:{port}" for number in self.numbers]

    def published_addresses(self, port: int = 2222) -> list[str]:
        """Lets the hosts reach each other by addresses that none of them has, as if each was behind NAT."""
        published = [f"203.0.113.{1 + i}" for i in range(len(self.hosts))]  # RFC 5737
        for host, address, own in zip(self.hosts, published, self.addresses()):
            own = own.split(":")[0]
            for other in self.hosts:
                if other != host:
                    run(f"ip -n {other} route add {address} via {own}")
            nft = f"{' '.join(inside(host))} nft add"
            run(f"{nft} table ip published")
            run(f"{nft} chain ip published in '{{ type nat hook prerouting priority -100 ; }}'")
            run(f"{nft} rule ip published in ip daddr {address} dnat to {own}")
        return [f"{address}:{port}" for address in published]

    def cut(self, host: int) -> None:
        """Nothing that is sent over the link of a host arrives any more."""
        self._drop(host, "drop")

    def lose(self, host: int, percent: int) -> None:
        """Loses so many of 100 packets on the link of a host, in each direction."""
        self._drop(host, f"numgen random mod 100 < {percent} counter drop")

    def count_lost(self, host: int) -> int:
        """How many packets lose() has lost on the link of a host."""
        chains = [run(f"{prefix} nft list chain netdev links {device}") for prefix, device in self.links[host]]
        return sum(int(re.search(r"counter packets (\d+)", chain)[1]) for chain in chains)

    def mend(self, host: int) -> None:
        """Ends what cut() or lose() has begun."""
        for prefix, device in self.links[host]:
            for command in ("flush", "delete"):
                run(f"{prefix} nft {command} chain netdev links {device}")

    def _drop(self, host: int, rule: str) -> None:
        for prefix, device in self.links[host]:
            nft = f"{prefix} nft add"
            run(f"{nft} table netdev links")
            run(f"{nft} chain netdev links {device} '{{ type filter hook ingress device {device} priority 0 ; }}'")
            run(f"{nft} rule netdev links {device} {rule}")

    def slow_down(self, host: int, rate: str) -> None:
        """Lets a link carry no more than a rate, such as "1mbit", in each direction."""
        for prefix, device in self.links[host]:
            run(f"{prefix} tc qdisc add dev {device} root tbf rate {rate} burst 10kb latency 100ms")

    def bytes_sent(self, host: int) -> int:
        """How much a host has sent over its link since slow_down()."""
        prefix, device = self.links[host][1]
        return int(re.search(r"Sent (\d+) bytes", run(f"{prefix} tc -s qdisc show dev {device} root"))[1])

    def end_slowness(self, host: int) -> None:
        for prefix, device in self.links[host]:
            run(f"{prefix} tc qdisc delete dev {device} root")
