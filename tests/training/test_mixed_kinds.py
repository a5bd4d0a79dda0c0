"""Instances with devices of different kinds in one job: shares by measured speed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median

import pytest

from tests.training.fleet import Fleet, ReplicaProcess, wait_until
from tests.training.traces import EXAMPLES, assert_replicas_agree, is_training, taken

# Long enough that what a step takes besides, also on a busy machine, is a small part.
FAST_SECONDS, SLOW_SECONDS = 0.45, 0.90
LEAST_PART = 0.85  # of the kinds' summed speeds


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path)
    yield fleet
    fleet.stop()


def start(fleet: Fleet, kind: str, step_seconds: float) -> ReplicaProcess:
    """Start a replica that takes so long for 32 examples."""
    fleet.setup = replace(fleet.setup, device_kind=kind)
    return fleet.start(EPOCHS="100000", STEP_SECONDS=str(step_seconds))


def sizes(replica: ReplicaProcess, last: int) -> list[int]:
    return [len(line["indices"]) for line in replica.steps()[-last:]]


def test_a_faster_kind_takes_a_larger_share_so_that_all_end_a_step_together(
    fleet: Fleet,
) -> None:
    slow = start(fleet, "t4", SLOW_SECONDS)
    wait_until(lambda: slow.step > 3, description="the first kind")
    fast = start(fleet, "l4", FAST_SECONDS)
    wait_until(lambda: is_training(slow, 2), description="both kinds")
    at = len(slow.reports)
    wait_until(
        lambda: fast.steps() and median(sizes(fast, 5)) >= 19, description="shares by speed"
    )
    after = fast.steps()[-1]["step"]
    wait_until(lambda: fast.step > after + 25, description="steps with these shares")
    mixed = [report for report in slow.reports[at + 1 :] if report["replicas"] == 2]
    assert mixed
    assert not any(report["observations"] for report in mixed), "they would be of no one kind"
    for replica in fleet.replicas:
        replica.kill()
    shares = median(sizes(fast, 20)) / 32, median(sizes(slow, 20)) / 32
    assert shares[0] == pytest.approx(2 / 3, abs=2 / 32)
    # Not the time between steps, which has what a busy machine adds.
    step_seconds = max(shares[0] * FAST_SECONDS, shares[1] * SLOW_SECONDS)
    summed_speeds = 1 / FAST_SECONDS + 1 / SLOW_SECONDS
    assert 1 / step_seconds >= LEAST_PART * summed_speeds
    assert_replicas_agree(fleet)
    for pass_index, counts in taken(fleet).items():
        assert not counts - Counter(range(EXAMPLES)), pass_index
