"""Run of many seeds in several processes, or of one seed with chosen faults.

    python -m tests.dst --seeds 200                seeds 0 to 199
    python -m tests.dst --seeds 200 --first 1000   seeds 1000 to 1199
    python -m tests.dst --seed 7 --faults 0,3      one seed, with some of its faults

A seed that breaks an invariant is run again with ever fewer faults, and the command that replays
the smallest run is printed. The exit status is 1 then.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from tests.dst.scenario import scenario_of
from tests.dst.shrinking import invariant_of, kept_faults, numbers_of, shrunk

_CHUNK = 4


@dataclass(frozen=True)
class Outcome:
    """Result of one seed; `violation` is None if all invariants held."""

    seed: int
    violation: str | None
    faults: str = ""
    steps: tuple[str, ...] = ()

    def __str__(self) -> str:
        return (
            f"seed {self.seed}: {self.violation}\n  faults: {' '.join(self.steps) or 'none'}\n"
            f"  replay: python -m tests.dst --seed {self.seed} --faults {self.faults}"
        )


def run_seed(seed: int) -> Outcome:
    """Run one seed; shrink it if it breaks an invariant."""
    from tests.dst.world import run

    scenario = scenario_of(seed)
    violation, _ = run(scenario)
    if violation is None:
        return Outcome(seed, None)
    smaller, violation = shrunk(scenario, violation, lambda tried: run(tried)[0])
    return Outcome(
        seed,
        violation,
        numbers_of(scenario, smaller),
        tuple(str(fault) for fault in smaller.faults),
    )


def run_seeds(seeds: Sequence[int], processes: int) -> list[Outcome]:
    """Run seeds in processes; print each failure. Return the failures."""
    failures = []
    with ProcessPoolExecutor(processes) as pool:
        for outcome in pool.map(run_seed, seeds, chunksize=_CHUNK):
            if outcome.violation is not None:
                failures.append(outcome)
                print(outcome, flush=True)
    return failures


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    options = _options(arguments)
    if options.seed is not None:
        return _replay(options.seed, options.faults, options.trace)
    began_seconds = time.monotonic()
    seeds = range(options.first, options.first + options.seeds)
    failures = run_seeds(seeds, options.processes)
    took_seconds = time.monotonic() - began_seconds
    rate = len(seeds) / took_seconds
    print(f"{len(seeds)} seeds in {took_seconds:.0f} s, {rate:.1f} a second: {_summary(failures)}")
    return 1 if failures else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.dst", description=__doc__)
    parser.add_argument("--seeds", type=int, default=200, help="number of seeds")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, help="run this seed alone")
    parser.add_argument("--faults", help="numbers of the faults to keep, or none; all by default")
    parser.add_argument("--trace", action="store_true", help="print each event of the run")
    return parser.parse_args(arguments)


def _replay(seed: int, faults: str | None, traces: bool) -> int:
    from tests.dst import world

    world.set_verbose(traces)
    scenario = scenario_of(seed)
    if faults is not None:
        scenario = kept_faults(scenario, faults)
    print(scenario)
    violation, digest = world.run(scenario)
    print(f"seed {seed}: {violation or 'all invariants hold'}; trace {digest[:16]}")
    return 0 if violation is None else 1


def _summary(failures: Sequence[Outcome]) -> str:
    counts = Counter(invariant_of(failure.violation or "") for failure in failures)
    parts = (f"{count} x {name}" for name, count in counts.most_common())
    return ", ".join(parts) or "all invariants hold"


def _with_fixed_hashes() -> None:
    """Start again with a fixed hash seed: the order of sets is part of a run."""
    if os.environ.get("PYTHONHASHSEED") != "0":
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.dst", *sys.argv[1:]])


if __name__ == "__main__":
    _with_fixed_hashes()
    sys.exit(main())
