"""Instances on the GPUs of one machine: one joins another, is killed, and a third joins.

    python benchmarks/gpu_instances.py [--device auto|cuda|cpu] [--across nccl|gloo]
        [--ranks 1] [--engine quorum|roster]

Each instance has `--ranks` ranks, one a GPU: over NCCL the script needs twice as many GPUs. Over
gloo both instances use the same ones, so one GPU is enough. Ranks must hold equal weights after
each step, no tensor may lie on another rank's GPU, the kill may cost one step, and no other
process may end. Prints a record in JSON; exits with status 1 where a check fails.
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
    """Return what each rank of an instance has written down."""
    paths = sorted(replica.trace.parent.glob(f"{replica.trace.name}*"))
    texts = [path.read_text().splitlines() for path in paths]
    return [[json.loads(line) for line in lines if line.endswith("}")] for lines in texts]


def steps_with(replica: ReplicaProcess, replicas: int) -> int:
    """Return how many steps an instance has committed as one of `replicas`."""
    ranks = lines_of(replica)
    lines = ranks[0] if ranks else []
    return sum(line["committed"] and line["replicas"] == replicas for line in lines)


def gpus_of(place: int, ranks: int, across: str) -> str:
    """Return the GPUs of the instance at `place`, as CUDA_VISIBLE_DEVICES has them."""
    first = 0 if across == "gloo" else place * ranks
    return ",".join(str(first + rank) for rank in range(ranks))


def story(fleet: Fleet, device: str, across: str, ranks: int) -> dict[str, Any]:
    """Let a second instance join, kill it, let a third one join; return what was found."""

    def start(place: int) -> ReplicaProcess:
        environment = {"DEVICE": device, "ACROSS": across}
        if device == "cuda":
            environment["CUDA_VISIBLE_DEVICES"] = gpus_of(place, ranks, across)
        return fleet.start(SCRIPT, ranks=ranks, **environment)

    first = start(0)
    wait_until(lambda: steps_with(first, 1) > STEPS, 120, "steps of the first instance")
    second = start(1)
    wait_until(lambda: steps_with(second, 2) > STEPS, 120, "steps of both")
    alone = steps_with(first, 1)
    second.kill()
    wait_until(lambda: steps_with(first, 1) > alone + STEPS, 120, "steps after the loss")
    third = start(1)
    wait_until(lambda: steps_with(third, 2) > STEPS, 120, "steps with the third instance")
    survived = [rank.poll() is None for replica in (first, third) for rank in replica.ranks]
    for replica in fleet.replicas:
        replica.kill()
    return found_in([lines for replica in fleet.replicas for lines in lines_of(replica)], survived)


def pauses(lines: list[dict[str, Any]], before: int, after: int) -> list[float]:
    """Return how long an instance stood still at each change from `before` to `after` instances.

    From its last committed step with `before` to its first with `after`, in seconds, less a usual
    step with `after`.

    Args:
        lines: of one rank, in the order of its steps.
        before, after: numbers of instances.
    """
    committed = [line for line in lines if line["committed"]]
    gaps = [
        (earlier["replicas"], later["replicas"], later["at"] - earlier["at"])
        for earlier, later in itertools.pairwise(committed)
    ]
    usual = [seconds for first, second, seconds in gaps if first == second == after]
    if not usual:
        return []
    step_seconds = statistics.median(usual)
    changes = [seconds for first, second, seconds in gaps if (first, second) == (before, after)]
    return [seconds - step_seconds for seconds in changes]


def found_in(
    traces: list[list[dict[str, Any]]], survived: list[bool], kills: int = 1
) -> dict[str, Any]:
    """Return the checks, from the traces of all ranks; the first is of the one that stays."""
    weights: dict[int, set[str]] = defaultdict(set)
    for lines in traces:
        for line in lines:
            if line["committed"]:
                weights[line["step"]].add(line["weights"])
    lost = sum(not line["committed"] for line in traces[0])
    times = [line["at"] for line in traces[0]]
    return {
        "checks": {
            "ranks hold equal weights": all(len(of_step) == 1 for of_step in weights.values()),
            "tensors lie on their own rank's device": not any(
                line["devices"] for lines in traces for line in lines
            ),
            "a kill costs one step at most": lost <= kills,
            "no other process ends": all(survived),
        },
        "ranks": len(traces),
        "steps": len(weights),
        "lost_steps": lost,
        "longest_pause_seconds": max(
            (later - earlier for earlier, later in itertools.pairwise(times)), default=0
        ),
    }


def in_fleet(engine: str, story: Callable[[Fleet], dict[str, Any]]) -> dict[str, Any]:
    """Return what a story finds with instances of its own under `engine`, which end with it."""
    fleets.SCRIPTS = Path(__file__).parent / "scripts"
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        is_roster = engine == Engine.ROSTER
        fleet = Fleet(directory, Roster(directory / "lighthouses") if is_roster else None)
        try:
            return story(fleet)
        finally:
            fleet.stop()


def print_and_exit(facts: dict[str, Any], found: dict[str, Any]) -> NoReturn:
    """Print the facts of a run and what was found as JSON; exit with 1 if a check failed."""
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
    """Run and print the record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("auto", "cuda", "cpu"), default="auto")
    parser.add_argument("--across", choices=("nccl", "gloo"), default="nccl")
    parser.add_argument("--ranks", type=int, default=1, help="of each instance")
    parser.add_argument("--engine", choices=[engine.value for engine in Engine], default="quorum")
    arguments = parser.parse_args()
    device, across, ranks = arguments.device, arguments.across, arguments.ranks
    gpus = torch.cuda.device_count()
    if device == "auto":
        device = "cuda" if gpus else "cpu"
    needed = ranks if across == "gloo" else 2 * ranks
    if device == "cuda" and gpus < needed:
        parser.error(f"this needs {needed} GPUs and PyTorch sees {gpus}: use --across gloo")
    found = in_fleet(arguments.engine, lambda fleet: story(fleet, device, across, ranks))
    is_gpu = device == "cuda"
    facts = {
        "device": torch.cuda.get_device_name() if is_gpu else "cpu",
        "across": across if is_gpu else "gloo",
        "engine": arguments.engine,
    }
    print_and_exit(facts, found)


if __name__ == "__main__":
    main()
