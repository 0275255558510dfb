"""How long a sum over workers takes, by the time of a message and the time of its bytes. Prints that for up to 1,000
workers."""

import itertools

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
