"""Time from the start of `castor` to its end, for options that ask no controller, on this machine.

    python benchmarks/cli_start.py [--rounds 20] [--json]

The output has median and largest wall-clock seconds of a process, the median of its seconds on the
CPU, which other processes change less, and the same of a Python that imports nothing. The first
round, whose files may not be in the page cache, is left out.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
# `-P` and `-m`, so that the package of this tree runs, without the folder of the script.
COMMANDS = {
    "python -c pass": (sys.executable, "-P", "-c", "pass"),
    "castor --version": (sys.executable, "-P", "-m", "autoscaler.cli.app", "--version"),
    "castor --help": (sys.executable, "-P", "-m", "autoscaler.cli.app", "--help"),
    "castor submit --help": (sys.executable, "-P", "-m", "autoscaler.cli.app", "submit", "--help"),
}


def cpu_seconds() -> float:
    """Return the seconds on the CPU of all processes that have ended."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def seconds_of(command: tuple[str, ...]) -> tuple[float, float]:
    """Return the seconds of one process, by the clock and on the CPU."""
    began, began_cpu = time.perf_counter(), cpu_seconds()
    subprocess.run(command, cwd=ROOT, capture_output=True, check=True)
    return time.perf_counter() - began, cpu_seconds() - began_cpu


def main() -> None:
    """Print the seconds of each command."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = {}
    for name, command in COMMANDS.items():
        times = [seconds_of(command) for _ in range(options.rounds + 1)][1:]
        walls, cpus = zip(*times, strict=True)
        results[name] = {
            "median": statistics.median(walls),
            "largest": max(walls),
            "cpu": statistics.median(cpus),
        }
    if options.json:
        print(json.dumps(results))
        return
    for name, figures in results.items():
        print(
            f"{name:22} {figures['median']:6.3f} s  at most {figures['largest']:6.3f} s"
            f"  on the CPU {figures['cpu']:6.3f} s"
        )


if __name__ == "__main__":
    main()
