"""Step time under the training library against bare PyTorch, at steps of 10, 50 and 150 ms.

    python benchmarks/training_overhead.py [--seconds 8] [--rounds 3] [--json]

Alone: one process against a plain loop. Two: two single-core replicas in a quorum against bare
DistributedDataParallel with two ranks, on the same two cores, same total batch. The variants run
in turn, several rounds, and the median of the rounds is compared: machines are noisy.
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
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.training import fleet as fleets
from tests.training.fleet import Fleet

SCRIPT = Path(__file__).parent / "scripts" / "steps.py"
BATCH = 32
# How often the layers are repeated: makes the plain loop's step about so many ms here.
LENGTHS = {10: 2, 50: 11, 150: 33}


def last_line(text: str) -> float:
    """The mean step that a script printed."""
    return float(json.loads(text.strip().splitlines()[-1])["step_seconds"])


def bare(mode: str, batch: int, repeats: int, seconds: float, cores: list[int]) -> float:
    """Mean step of a bare loop, in seconds."""
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
            return last_line(next(text for text in lines if "step_seconds" in text))
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


def main() -> None:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=8.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
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
