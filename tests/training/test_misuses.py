"""Scripts that break a rule of the session in the middle of training, as real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.training.fleet import Fleet, wait_until
from tests.training.traces import is_training

SCRIPT = "misuses.py"


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, checkpoint_interval_seconds=0.3)
    yield fleet
    fleet.stop()


@pytest.mark.parametrize(
    ("misuse", "status"), [("fork and train", "child 1"), ("fork and end", "child 0")]
)
def test_a_forked_process_neither_trains_nor_ends_the_job(
    fleet: Fleet, misuse: str, status: str
) -> None:
    first = fleet.start(SCRIPT, MISUSE=misuse)
    second = fleet.start(SCRIPT, MISUSE=misuse)
    wait_until(first.log.exists)
    wait_until(lambda: status in first.log.read_text(), description="the end of the child")
    wait_until(lambda: any(is_training(replica, 2) for replica in (first, second)))
    at = max(first.step, second.step)
    wait_until(lambda: min(first.step, second.step) > at + 50, description="going on")
    assert not first.of_kind("finished") and not first.of_kind("done")
    refused = "was forked from process" in first.log.read_text()
    assert refused == (misuse == "fork and train")


def test_a_loss_of_the_plain_model_is_refused_and_the_checkpoint_is_good(fleet: Fleet) -> None:
    replica = fleet.start(SCRIPT, MISUSE="plain model")
    assert replica.wait(60) == 1
    assert "the loss is not computed from job.model" in replica.log.read_text()
    again = fleet.start(SCRIPT, MISUSE="nothing")
    wait_until(lambda: again.step > 10, description="a start that goes on")
