"""Step time under the training library against bare PyTorch, at steps of 10, 50 and 150 ms.

    python benchmarks/training_overhead.py [--seconds 8] [--rounds 3] [--check] [--json]

Alone: one process against a plain loop. Two: two single-core replicas in a quorum against bare
DistributedDataParallel with two ranks, on the same two cores, same total batch. The variants run
in turn, several rounds, and the median of the rounds is compared: machines are noisy.

With --check only the check for gradients that are not finite is measured. One process steps under
the library in blocks with and without it, in the order ABBA. The ratio of a step with it to one
without is taken of each four blocks.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.training import fleet as fleets
from tests.training.fleet import Fleet

SCRIPT = Path(__file__).parent / "scripts" / "steps.py"
BATCH = 32
# How often the layers are repeated: makes the plain loop's step about so many ms here.
LENGTHS = {10: 2, 50: 11, 150: 33}


def last_line(text: str) -> dict[str, Any]:
    """Return what a script printed last."""
    line: dict[str, Any] = json.loads(text.strip().splitlines()[-1])
    return line


def bare(mode: str, batch: int, repeats: int, seconds: float, cores: list[int]) -> float:
    """Return the mean step of a bare loop, in seconds."""
    line = alone(mode, batch, repeats, seconds, cores)
    return float(line["step_seconds"])


def alone(
    mode: str, batch: int, repeats: int, seconds: float, cores: list[int], **variables: str
) -> dict[str, Any]:
    """Return what the script prints in a mode that needs no lighthouse."""
    environment = {
        **os.environ,
        **{
            "MODE": mode,
            "BATCH": str(batch),
            "REPEATS": str(repeats),
            "SECONDS": str(seconds),
            "OMP_NUM_THREADS": "1",
        },
        "CORES": ",".join(str(core) for core in cores),
        **variables,
    }
    command = [sys.executable, str(SCRIPT)]
    if mode == "ddp":
        torchrun = str(Path(sys.executable).with_name("torchrun"))
        command = [torchrun, "--standalone", "--nproc-per-node=2", str(SCRIPT)]
    else:
        command = ["taskset", "-c", str(cores[0]), *command]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return last_line(done.stdout)


def elastic(replicas: int, batch: int, repeats: int, seconds: float, cores: list[int]) -> float:
    """Mean step of so many replicas under the library, in seconds."""
    fleets.SCRIPTS = SCRIPT.parent
    with tempfile.TemporaryDirectory() as directory:
        fleet = Fleet(Path(directory))
        try:
            started = [
                fleet.start(
                    SCRIPT.name,
                    MODE="castor",
                    BATCH=str(batch),
                    REPEATS=str(repeats),
                    SECONDS=str(seconds),
                    REPLICAS=str(replicas),
                    CASTOR_DEVICES=str(cores[index]),
                )
                for index in range(replicas)
            ]
            while all(replica.process.poll() is None for replica in started):
                time.sleep(0.2)
            lines = [replica.log.read_text() for replica in started]
            if not any("step_seconds" in text for text in lines):
                raise RuntimeError("no replica measured its step:\n" + "\n".join(lines))
            line = last_line(next(text for text in lines if "step_seconds" in text))
            return float(line["step_seconds"])
        finally:
            fleet.stop()


def measure(seconds: float, rounds: int) -> list[dict[str, float]]:
    """One row a length and number of replicas."""
    cores = sorted(os.sched_getaffinity(0))
    rows = []
    for length_ms, repeats in LENGTHS.items():
        for replicas, mode in ((1, "plain"), (2, "ddp")):
            if len(cores) < replicas:
                continue
            # Two ranks share the batch: double it, so that each one's step is as long.
            total = BATCH * replicas
            plain, ours = [], []
            for _ in range(rounds):
                plain.append(bare(mode, total, repeats, seconds, cores))
                ours.append(elastic(replicas, total, repeats, seconds, cores))
            bare_ms = 1e3 * statistics.median(plain)
            ours_ms = 1e3 * statistics.median(ours)
            ratios = [mine / theirs for mine, theirs in zip(ours, plain, strict=True)]
            rows.append(
                {
                    "length_ms": length_ms,
                    "replicas": replicas,
                    "bare_ms": bare_ms,
                    "castor_ms": ours_ms,
                    "overhead_ms": ours_ms - bare_ms,
                    "overhead_percent": 100 * (statistics.median(ratios) - 1),
                }
            )
    return rows


def check_ratios(blocks: Sequence[Mapping[str, float]]) -> list[float]:
    """Return the time of a step with the check to one without, of each four blocks.

    The first four blocks are left out: the library and PyTorch warm up in them.
    """
    ratios = []
    for start in range(4, len(blocks) - 3, 4):
        four = blocks[start : start + 4]
        means = [
            statistics.fmean(block["step_seconds"] for block in four if block["is_checked"] == on)
            for on in (True, False)
        ]
        ratios.append(means[0] / means[1])
    return ratios


def measure_check(seconds: float, rounds: int, block_steps: int) -> list[dict[str, float]]:
    """Return a row for each length of step: the ratio of steps with the check to those without."""
    cores = sorted(os.sched_getaffinity(0))
    rows = []
    for length_ms, repeats in LENGTHS.items():
        ratios: list[float] = []
        for _ in range(rounds):
            line = alone("check", BATCH, repeats, seconds, cores, BLOCK_STEPS=str(block_steps))
            ratios += check_ratios(line["blocks"])
        quarter = statistics.quantiles(ratios, n=4) if len(ratios) > 1 else ratios * 3
        rows.append(
            {
                "length_ms": length_ms,
                "ratio": statistics.median(ratios),
                "ratio_25": quarter[0],
                "ratio_75": quarter[2],
                "fours": len(ratios),
            }
        )
    return rows


def print_check(rows: Sequence[Mapping[str, float]]) -> None:
    """Print the table of `measure_check`."""
    print("| step | with the check / without | middle half | fours of blocks |")
    print("|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['length_ms']} ms | {row['ratio']:.3f} "
            f"| {row['ratio_25']:.3f} to {row['ratio_75']:.3f} | {row['fours']} |"
        )


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=8.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="measure the gradient check alone")
    parser.add_argument("--block-steps", type=int, default=20, help="with --check: of each block")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.check:
        rows = measure_check(arguments.seconds, arguments.rounds, arguments.block_steps)
        print(json.dumps(rows, indent=2)) if arguments.json else print_check(rows)
        return
    rows = measure(arguments.seconds, arguments.rounds)
    if arguments.json:
        print(json.dumps(rows, indent=2))
        return
    print("| step | replicas | bare, ms | Castor, ms | overhead, ms | overhead |")
    print("|---|---|---|---|---|---|")
    for row in rows:
        print(
            f"| {row['length_ms']} ms | {row['replicas']} | {row['bare_ms']:.2f} "
            f"| {row['castor_ms']:.2f} | {row['overhead_ms']:+.2f} "
            f"| {row['overhead_percent']:+.1f} % |"
        )


if __name__ == "__main__":
    main()
