"""Costs of changing a restartable job, before and after a restart was measured."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
import pytest

from autoscaler.controller.jobs.switching_costs import switching_costs
from autoscaler.domain.job import JobPhase, JobRecord, JobSpec
from autoscaler.domain.restart import RestartSpec
from autoscaler.domain.snapshot import SwitchingCosts
from autoscaler.economics.pricing.spot import goodput_with_reclaims
from autoscaler.store.repositories.measurements import (
    RESTART_DURATION,
    SAVE_INTERVAL_DURATION,
    Mean,
)
from tests.controller.cloud import offer


def costs(
    restart: RestartSpec | None, measured: Mapping[str, float] = MappingProxyType({})
) -> SwitchingCosts:
    spec = JobSpec("job", ("python", "train.py"), restart=restart)
    job = JobRecord("job", 1, spec, JobPhase.RUNNING, 0.0)
    durations: dict[tuple[str | None, str], Mean] = {
        (None, name): Mean(seconds, 3) for name, seconds in measured.items()
    }
    return switching_costs(job, durations, (offer(),), 100.0, {})


RESTART = RestartSpec("ckpt/*")
MEASURED = {RESTART_DURATION: 30.0, SAVE_INTERVAL_DURATION: 600.0}


def test_a_change_pauses_all_instances_for_a_restart() -> None:
    assert costs(RESTART).pause_seconds > 10 * costs(None).pause_seconds
    measured = costs(RESTART, MEASURED)
    assert measured.pause_seconds == measured.restore_seconds == pytest.approx(30.0, rel=0.1)
    assert measured.restarts and not costs(None, MEASURED).restarts


def test_new_instances_wait_half_an_interval_for_the_checkpoint() -> None:
    before, after = costs(RESTART), costs(RESTART, MEASURED)
    waits_seconds = after.start_seconds["small"] - before.start_seconds["small"]
    assert waits_seconds == pytest.approx(300.0, rel=0.1)


def test_a_lost_instance_costs_two_restarts_and_half_an_interval() -> None:
    measured = costs(RESTART, MEASURED)
    assert measured.reclaim_seconds == pytest.approx(2 * 30 + 300, rel=0.1)
    assert costs(None).reclaim_seconds == costs(None).pause_seconds


def test_the_price_of_losses_is_that_of_a_simulation() -> None:
    """Losses arrive at random; each costs two restarts, and the work since the checkpoint."""
    random = np.random.default_rng(1)
    restart_seconds, interval_seconds, refill_seconds, hazard = 30.0, 600.0, 120.0, 1 / 20_000
    seconds = useful = 0.0
    for _ in range(20_000):
        life = random.exponential(1 / hazard)
        repeated = min(random.uniform(0.0, interval_seconds), life)
        seconds += life + restart_seconds + refill_seconds + restart_seconds
        useful += life - repeated + 0.5 * refill_seconds
    measured = costs(RESTART, MEASURED)
    formula = goodput_with_reclaims(
        goodput=np.array(1.0),
        goodput_of_one_less=np.array(0.5),
        reclaims_per_second=np.array(hazard),
        refill_seconds=np.array(refill_seconds),
        pause_seconds=np.array(measured.reclaim_seconds),
    )
    assert float(formula) == pytest.approx(useful / seconds, abs=2e-3)
