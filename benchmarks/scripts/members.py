"""Training that writes down when it was ready, and each round and step it takes part in.

A step computes next to nothing and waits STEP_SECONDS, as for a device beside the cores: what is
measured is what membership costs, not who gets the cores. The state is 12 MB: a million parameters
under Adam.
"""

from __future__ import annotations

import json
import os
import time
from typing import Any, TextIO

import torch
from workload import Noise, layers

from autoscaler.training.session import TrainingSession, session

STEP_SECONDS = float(os.environ["STEP_SECONDS"])


def write(trace: TextIO, kind: str, **values: Any) -> None:
    """One line, with the time."""
    trace.write(json.dumps({"kind": kind, "at": time.time(), **values}) + "\n")
    trace.flush()


def observe_rounds(job: TrainingSession, trace: TextIO) -> None:
    """Have each exchange at the start of a round written down with what it took."""
    replica = job._parts.replica
    begin_round = replica.begin_round

    def timed() -> Any:
        began = time.perf_counter()
        agreement = begin_round()
        write(
            trace,
            "round",
            seconds=time.perf_counter() - began,
            step=job._parts.state.counters.step,
            replicas=agreement.replicas,
        )
        return agreement

    replica.begin_round = timed  # type: ignore[method-assign]


def main() -> None:
    """Train until somebody ends it."""
    torch.manual_seed(0)
    model = layers()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    with open(os.environ["TRACE"], "a") as trace:
        write(trace, "ready")
        with session(model, optimizer, Noise(), batch_size=32) as job:
            observe_rounds(job, trace)
            state = job._parts.state
            for batch in job.batches(epochs=10**9):
                before = state.counters.step
                time.sleep(STEP_SECONDS)
                job.step(job.model(batch).square().mean())
                write(trace, "step", step=before, committed=state.counters.step > before)


if __name__ == "__main__":
    main()
