"""Pauses when a second process joins a training on one GPU, and when it is killed.

    python benchmarks/gpu_join_kill.py [--device cuda|cpu] [--model 124M] [--rounds 3]
        [--engine quorum|roster]

Two replicas share one GPU. NCCL refuses two processes on one GPU, so gradients are reduced by gloo
through the host's memory (`across="gloo"`). One replica trains a GPT in bfloat16. In each round a
second one joins live, receives weights and optimizer state, trains and is killed with SIGKILL. The
survivor continues.

A pause is the time from the survivor's last committed step before the change to the first after
it, less a usual step after it. Checks: weights are equal at each step, by a hash of all bits; a
kill costs one step at most; the survivor's process does not end. Prints a record in JSON; the exit
status is 1 if a check fails. Times of steps with both replicas are those of gloo on one host, not
of NCCL.
"""

from __future__ import annotations

import argparse
import itertools
import platform
import shlex
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))

from gpu_instances import (
    SCRIPT,
    found_in,
    in_fleet,
    lines_of,
    pauses,
    print_and_exit,
    steps_with,
)

from autoscaler.domain.training import Engine
from tests.training.fleet import Fleet, ReplicaProcess, wait_until

MODELS = ("tiny", "124M")
# Timeout of a wait; a replica of 124 million parameters starts in about a minute at most.
PATIENCE_SECONDS = 180.0


def start(fleet: Fleet, arguments: argparse.Namespace) -> ReplicaProcess:
    """Start a replica on the shared device."""
    return fleet.start(
        SCRIPT,
        DEVICE=arguments.device,
        ACROSS="gloo",
        MODEL=arguments.model,
        BATCH=str(arguments.batch),
        CUDA_VISIBLE_DEVICES="0" if arguments.device == "cuda" else "",
    )


def await_steps(replica: ReplicaProcess, replicas: int, count: int) -> None:
    """Wait until a replica has committed more than `count` further steps as one of `replicas`.

    Raises:
        SystemExit: the replica's process has ended.
    """
    before = steps_with(replica, replicas)

    def has_steps() -> bool:
        if replica.process.poll() is not None:
            raise SystemExit(f"a replica has ended:\n{replica.log.read_text()[-4000:]}")
        return steps_with(replica, replicas) > before + count

    wait_until(has_steps, f"{count} steps of {replicas} replicas", PATIENCE_SECONDS)


def story(fleet: Fleet, arguments: argparse.Namespace) -> dict[str, Any]:
    """Let a replica join and kill it, `rounds` times; return checks and times."""
    joins = list[float]()
    survivor = start(fleet, arguments)
    await_steps(survivor, 1, arguments.steps)
    for _ in range(arguments.rounds):
        began = time.time()
        joiner = start(fleet, arguments)
        await_steps(joiner, 2, arguments.steps)
        joins.append(lines_of(joiner)[0][0]["at"] - began)
        joiner.kill()
        await_steps(survivor, 1, arguments.steps)
    survived = [survivor.process.poll() is None]
    survivor.kill()
    traces = [lines for replica in fleet.replicas for lines in lines_of(replica)]
    return {
        **found_in(traces, survived, kills=arguments.rounds),
        "join_pause_seconds": pauses(traces[0], 1, 2),
        "loss_pause_seconds": pauses(traces[0], 2, 1),
        "joiner_start_to_first_step_seconds": joins,
        "step_seconds": {
            "one replica": usual_step(traces[0], 1),
            "two replicas": usual_step(traces[0], 2),
        },
    }


def usual_step(lines: list[dict[str, Any]], replicas: int) -> float:
    """Return the median time between two steps with so many replicas, in seconds."""
    times = [
        later["at"] - earlier["at"]
        for earlier, later in itertools.pairwise(lines)
        if earlier["replicas"] == later["replicas"] == replicas
    ]
    return statistics.median(times)


def parsed() -> argparse.Namespace:
    """Return the command-line arguments."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--model", choices=MODELS, default="124M")
    parser.add_argument("--batch", type=int, default=8, help="sequences in a step of all replicas")
    parser.add_argument("--steps", type=int, default=10, help="least steps before each change")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of a join and a kill")
    parser.add_argument("--engine", choices=[engine.value for engine in Engine], default="quorum")
    arguments = parser.parse_args()
    if min(arguments.steps, arguments.rounds) < 1 or arguments.batch < 2:
        parser.error("--steps and --rounds: at least 1; --batch: at least 2, one for each replica")
    if arguments.device == "cuda" and not torch.cuda.is_available():
        parser.error("PyTorch sees no GPU here: use --device cpu --model tiny")
    return arguments


def main() -> None:
    """Run, and print the record."""
    arguments = parsed()
    result = in_fleet(arguments.engine, lambda fleet: story(fleet, arguments))
    is_gpu = arguments.device == "cuda"
    facts = {
        "command": shlex.join(["python", "benchmarks/gpu_join_kill.py", *sys.argv[1:]]),
        "device": torch.cuda.get_device_name() if is_gpu else platform.machine(),
        "across": "gloo",
        "engine": arguments.engine,
        "model": arguments.model,
        "batch": arguments.batch,
    }
    print_and_exit(facts, result)


if __name__ == "__main__":
    main()
