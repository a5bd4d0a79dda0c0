"""Training that writes down when it was ready, and each round and step it takes part in.

A step computes next to nothing and waits STEP_SECONDS, as for a device beside the cores: what is
measured is what membership costs, not who gets the cores. The state is 12 MB: a million parameters
under Adam. FROZEN_BYTES are added to it, of a parameter that is not trained.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from typing import Any, TextIO

import torch
from torch import nn
from workload import Noise, layers

from autoscaler.training import TrainingSession, session
from autoscaler.training.members.state_transfer import FetchRun, StateTransfer

STEP_SECONDS = float(os.environ["STEP_SECONDS"])
FROZEN_BYTES = int(os.environ.get("FROZEN_BYTES", "0"))


def write(trace: TextIO, kind: str, **values: Any) -> None:
    """One line, with the time."""
    trace.write(json.dumps({"kind": kind, "at": time.time(), **values}) + "\n")
    trace.flush()


def made() -> nn.Module:
    """Return the layers, and beside them what is never trained."""
    model: nn.Module = layers()
    if FROZEN_BYTES == 0:
        return model
    frozen = torch.zeros(FROZEN_BYTES // 4)
    model.register_parameter("frozen", nn.Parameter(frozen, requires_grad=False))
    return model


def observe_transfers(trace: TextIO) -> None:
    """Have each transfer of a state to this replica written down with what it took."""
    begin = StateTransfer.begin

    def timed(
        transfer: StateTransfer, key: str, addresses: Sequence[str], in_place: bool
    ) -> FetchRun:
        began = time.perf_counter()
        run = begin(transfer, key, addresses, in_place)
        end = run.end

        def end_and_write() -> None:
            end()
            write(trace, "transfer", seconds=time.perf_counter() - began)

        run.end = end_and_write  # type: ignore[method-assign]
        return run

    StateTransfer.begin = timed  # type: ignore[assignment, method-assign]


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
    model = made()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    with open(os.environ["TRACE"], "a") as trace:
        write(trace, "ready")
        observe_transfers(trace)
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
