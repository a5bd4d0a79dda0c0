"""Join and kill of instances on the GPUs of one machine, with checks of the weights.

    python benchmarks/gpu_instances.py [--device auto|cuda|cpu] [--across nccl|gloo]
        [--ranks 1] [--engine quorum|roster]

A second instance joins the first, is killed, and a third one joins. Each instance has `--ranks`
ranks, one a GPU: over NCCL the script needs twice as many GPUs. Over gloo both instances share
GPUs, so one GPU is enough. Ranks must hold equal weights after each step, no tensor may be on
another rank's GPU, the kill may cost one step, and no other process may end. Prints a record in
JSON; the exit status is 1 if a check fails.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NoReturn

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from autoscaler.domain.training import Engine
from tests.training import fleet as fleets
from tests.training.fleet import Fleet, ReplicaProcess, Roster, wait_until

STEPS = 50
SCRIPT = "instance.py"


def lines_of(replica: ReplicaProcess) -> list[list[dict[str, Any]]]:
    """Return the lines of the trace of each rank of an instance."""
    paths = sorted(replica.trace.parent.glob(f"{replica.trace.name}*"))
    texts = [path.read_text().splitlines() for path in paths]
    return [[json.loads(line) for line in lines if line.endswith("}")] for lines in texts]


def steps_with(replica: ReplicaProcess, replicas: int) -> int:
    """Return the number of steps that an instance committed as one of `replicas`."""
    ranks = lines_of(replica)
    lines = ranks[0] if ranks else []
    return sum(line["committed"] and line["replicas"] == replicas for line in lines)


def gpus_of(place: int, ranks: int, across: str) -> str:
    """Return the GPUs of the instance at `place`, in the format of CUDA_VISIBLE_DEVICES."""
    first = 0 if across == "gloo" else place * ranks
    return ",".join(str(first + rank) for rank in range(ranks))


def story(fleet: Fleet, device: str, across: str, ranks: int) -> dict[str, Any]:
    """Let a second instance join, kill it, let a third one join; return the checks."""

    def start(place: int) -> ReplicaProcess:
        """Start the instance at `place`."""
        environment = {"DEVICE": device, "ACROSS": across}
        if device == "cuda":
            environment["CUDA_VISIBLE_DEVICES"] = gpus_of(place, ranks, across)
        return fleet.start(SCRIPT, ranks=ranks, **environment)

    first = start(0)
    wait_until(lambda: steps_with(first, 1) > STEPS, "steps of the first instance", 120)
    second = start(1)
    wait_until(lambda: steps_with(second, 2) > STEPS, "steps of both", 120)
    alone = steps_with(first, 1)
    second.kill()
    wait_until(lambda: steps_with(first, 1) > alone + STEPS, "steps after the loss", 120)
    third = start(1)
    wait_until(lambda: steps_with(third, 2) > STEPS, "steps with the third instance", 120)
    survived = [rank.poll() is None for replica in (first, third) for rank in replica.ranks]
    for replica in fleet.replicas:
        replica.kill()
    return found_in([lines for replica in fleet.replicas for lines in lines_of(replica)], survived)


def pauses(lines: list[dict[str, Any]], before: int, after: int) -> list[float]:
    """Return the pause at each change from `before` to `after` instances, in seconds.

    A pause is the time from the last committed step with `before` to the first with `after`, less
    a usual step with `after`.

    Args:
        lines: trace of one rank, in the order of its steps.
        before: number of instances before the change.
        after: number of instances after the change.
    """
    committed = [line for line in lines if line["committed"]]
    gaps = [
        (earlier["replicas"], later["replicas"], later["at"] - earlier["at"])
        for earlier, later in itertools.pairwise(committed)
    ]
    usual_seconds = [seconds for first, second, seconds in gaps if first == second == after]
    if not usual_seconds:
        return []
    step_seconds = statistics.median(usual_seconds)
    changes = [seconds for first, second, seconds in gaps if (first, second) == (before, after)]
    return [seconds - step_seconds for seconds in changes]


def found_in(
    traces: list[list[dict[str, Any]]], survived: list[bool], kills: int = 1
) -> dict[str, Any]:
    """Return the checks of the traces of all ranks; the first trace is the survivor's."""
    hashes_by_step: dict[int, set[str]] = defaultdict(set)
    for lines in traces:
        for line in lines:
            if line["committed"]:
                hashes_by_step[line["step"]].add(line["weights"])
    lost_steps = sum(not line["committed"] for line in traces[0])
    times = [line["at"] for line in traces[0]]
    return {
        "checks": {
            "ranks hold equal weights": all(
                len(hashes) == 1 for hashes in hashes_by_step.values()
            ),
            "tensors lie on their own rank's device": not any(
                line["devices"] for lines in traces for line in lines
            ),
            "a kill costs one step at most": lost_steps <= kills,
            "no other process ends": all(survived),
        },
        "ranks": len(traces),
        "steps": len(hashes_by_step),
        "lost_steps": lost_steps,
        "longest_pause_seconds": max(
            (later - earlier for earlier, later in itertools.pairwise(times)), default=0
        ),
    }


def in_fleet(engine: str, story: Callable[[Fleet], dict[str, Any]]) -> dict[str, Any]:
    """Return the result of a story with a fleet of its own, which ends with the story."""
    fleets.SCRIPTS = Path(__file__).parent / "scripts"
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        is_roster = engine == Engine.ROSTER
        fleet = Fleet(directory, Roster(directory / "lighthouses") if is_roster else None)
        try:
            return story(fleet)
        finally:
            fleet.stop()


def print_and_exit(facts: dict[str, Any], found: dict[str, Any]) -> NoReturn:
    """Print facts and result of a run as JSON; exit with status 1 if a check failed."""
    record = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        **facts,
        "torch": torch.__version__,
        "result": "passed" if all(found["checks"].values()) else "failed",
        **found,
    }
    print(json.dumps(record, indent=2))
    raise SystemExit(0 if record["result"] == "passed" else 1)


def main() -> None:
    """Run, and print the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--across", choices=("nccl", "gloo"), default="nccl")
    parser.add_argument("--ranks", type=int, default=1, help="ranks of each instance")
    parser.add_argument("--engine", choices=[engine.value for engine in Engine], default="quorum")
    arguments = parser.parse_args()
    device, across, ranks = arguments.device, arguments.across, arguments.ranks
    gpus = torch.cuda.device_count()
    if device == "auto":
        device = "cuda" if gpus else "cpu"
    needed = ranks if across == "gloo" else 2 * ranks
    if device == "cuda" and gpus < needed:
        parser.error(f"this needs {needed} GPUs and PyTorch sees {gpus}: use --across gloo")
    result = in_fleet(arguments.engine, lambda fleet: story(fleet, device, across, ranks))
    is_gpu = device == "cuda"
    facts = {
        "device": torch.cuda.get_device_name() if is_gpu else "cpu",
        "across": across if is_gpu else "gloo",
        "engine": arguments.engine,
    }
    print_and_exit(facts, result)


if __name__ == "__main__":
    main()
