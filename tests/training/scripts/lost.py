"""branches.py over gradients that fail as NCCL's do. DIE_AT says where this instance is lost."""

from __future__ import annotations

import functools
import os
import runpy
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fake_nccl import FakeNccl

from autoscaler.training import opening, training_session
from autoscaler.training.members.job_ranks import JobRanks
from autoscaler.training.opening import Parts

PLACE = os.environ.get("DIE_AT", "")
FROM_STEP = int(os.environ.get("DIE_FROM", "30"))
opened: list[Parts] = []


def die_at(place: str) -> None:
    """Kill this process if it is at the chosen place, old enough and not alone."""
    if place != PLACE or not opened:
        return
    parts = opened[0]
    is_old = parts.state.counters.step >= FROM_STEP
    if is_old and parts.replica.agreement.replicas > 2:
        os.kill(os.getpid(), signal.SIGKILL)


def die_in_bucket() -> None:
    if opened and opened[0].reducer.sample is not None:
        die_at("bucket")


def before(call: Callable[..., Any], place: str) -> Callable[..., Any]:
    @functools.wraps(call)
    def dying(*arguments: Any) -> Any:
        die_at(place)
        return call(*arguments)

    return dying


def open_parts(*arguments: Any) -> Parts:
    opened.append(plain_open(*arguments))
    peers = opened[0].job_ranks._peers
    if peers is not None:
        peers.commit = before(peers.commit, "commit")  # type: ignore[method-assign]
    return opened[0]


if os.environ.get("GRADIENTS") == "nccl":
    make = functools.partial(FakeNccl, on_sum=die_in_bucket)
    opening.gradients_of = lambda *_: make  # type: ignore[assignment]
JobRanks._exchange_rows = before(JobRanks._exchange_rows, "rows")  # type: ignore[method-assign]
plain_open = opening.open_parts
training_session.open_parts = open_parts
runpy.run_path(str(Path(__file__).with_name("branches.py")))
