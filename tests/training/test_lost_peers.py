"""An instance that is lost costs the others one step, wherever it was and however sums fail."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from autoscaler.domain.job import BatchSpec
from autoscaler.domain.training import Engine
from tests.training.fleet import Fleet, ReplicaProcess, roster_of, wait_until
from tests.training.test_equal_replicas import hashes
from tests.training.traces import is_training

SCRIPT = "lost.py"
# Loose, for machines under load; a loss that only a timeout of 30 s or more notices exceeds it.
LONGEST_GAP_SECONDS = 20.0


@pytest.fixture(params=list(Engine))
def fleet(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Fleet]:
    """A job whose sums time out only after a minute: something else must notice the loss."""
    roster = roster_of(request.param, tmp_path)
    sampled = BatchSpec(initial=32, maximum=64, adaptive=True)
    fleet = Fleet(tmp_path, roster, batch=sampled, collective_timeout_seconds=60.0)
    yield fleet
    fleet.stop()


@pytest.mark.parametrize(
    ("place", "ranks"), [("rows", 1), ("bucket", 1), ("commit", 1), ("bucket", 2)]
)
def test_a_peer_lost_under_nccl_costs_one_step_and_no_process(
    fleet: Fleet, place: str, ranks: int
) -> None:
    settings = {"EPOCHS": "100000", "GRADIENTS": "nccl"}
    survivors = [fleet.start(SCRIPT, ranks=ranks, **settings) for _ in range(2)]
    victim = fleet.start(SCRIPT, ranks=ranks, **settings, DIE_AT=place)
    wait_until(lambda: victim.process.poll() is not None, description="the loss")
    # Traces show each step at once; messages are up to a second behind.
    lost_at = max(_last_step(replica) for replica in fleet.replicas)
    wait_until(
        lambda: all(_last_step(replica) > lost_at + 50 for replica in survivors),
        seconds=40,
        description="going on",
    )
    wait_until(lambda: any(is_training(replica, 2) for replica in survivors), description="two")
    assert all(replica.process.poll() is None for replica in survivors)
    traces = [[line for line in replica.steps() if line["ended"]] for replica in survivors]
    for replica in fleet.replicas:
        replica.kill()
    of_steps = hashes(fleet.replicas)
    assert all(len(of_step) == 1 for of_step in of_steps.values()), "replicas have drifted"
    for ended in traces:
        assert _longest_gap_seconds(ended) < LONGEST_GAP_SECONDS
        lost = [line["step"] for line in ended if not line["committed"]]
        assert len(lost) <= 1, f"a survivor has lost steps {lost}"


def _last_step(replica: ReplicaProcess) -> int:
    lines = replica.steps()
    return int(lines[-1]["step"]) if lines else 0


def _longest_gap_seconds(ended: list[dict[str, Any]]) -> float:
    """Return the longest time between two committed steps, in seconds."""
    times = [line["at"] for line in ended if line["committed"]]
    return max(later - earlier for earlier, later in pairwise(times))
