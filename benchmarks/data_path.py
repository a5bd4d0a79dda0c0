"""Time and memory to find the examples of a step in the shuffled order.

    python benchmarks/data_path.py [--examples 1000000000] [--batch 512] [--repeats 200]

The permutation is timed in consecutive steps, beside NumPy's permutation of a whole pass (up to
ten million examples), which earlier versions held on every rank.
"""

from __future__ import annotations

import argparse
import statistics
import time
import tracemalloc

import numpy as np

from autoscaler.training.data.orders import Shuffled

_MOST_ARRAY_EXAMPLES = 10_000_000


def step_seconds(examples: int, batch: int, repeats: int) -> list[float]:
    """Return the seconds that each of `repeats` steps takes to find its examples."""
    order, seconds = Shuffled(examples, seed=0), []
    for step in range(repeats):
        start = (step * batch) % (examples - batch)
        began = time.perf_counter()
        order.slice(0, start, start + batch)
        seconds.append(time.perf_counter() - began)
    return seconds


def peak_bytes(examples: int, batch: int) -> int:
    """Return the peak memory of one step."""
    tracemalloc.start()
    Shuffled(examples, seed=1).slice(0, 0, batch)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return peak


def main() -> None:
    """Print the measurements."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--examples", type=int, default=10**9)
    parser.add_argument("--batch", type=int, default=512)
    parser.add_argument("--repeats", type=int, default=200)
    arguments = parser.parse_args()
    seconds = step_seconds(arguments.examples, arguments.batch, arguments.repeats)
    print(
        f"{arguments.examples:,} examples, steps of {arguments.batch}: "
        f"median {statistics.median(seconds) * 1e3:.2f} ms, most {max(seconds) * 1e3:.2f} ms, "
        f"{peak_bytes(arguments.examples, arguments.batch) / 1e3:.0f} kB"
    )
    array_examples = min(arguments.examples, _MOST_ARRAY_EXAMPLES)
    began = time.perf_counter()
    order = np.random.default_rng(0).permutation(array_examples)
    print(
        f"a whole pass of {array_examples:,} as an array: {time.perf_counter() - began:.2f} s, "
        f"{order.nbytes / 1e6:.0f} MB"
    )


if __name__ == "__main__":
    main()
