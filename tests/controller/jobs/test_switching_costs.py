"""Expected costs of changes before one was measured."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.controller.jobs.switching_costs import switching_costs
from autoscaler.domain.goodput import ThroughputParameters
from autoscaler.domain.job import JobPhase, JobRecord, JobSpec
from autoscaler.domain.report import TrainingReport
from autoscaler.domain.snapshot import SwitchingCosts
from autoscaler.goodput.fit import fit
from autoscaler.goodput.prior import prior_for
from autoscaler.store.repositories.measurements import Mean, pause_name
from tests.controller.budgets.test_leave_limits import REPORT
from tests.controller.cloud import offer

# Adapters of 4 MB are trained on a frozen model: a joiner needs it whole.
ADAPTERS = replace(REPORT, parameter_bytes=4 * 10**6, state_bytes=14 * 10**9)


def costs(report: TrainingReport | None, joins: int = 0) -> SwitchingCosts:
    spec = JobSpec("job", ("python", "train.py"))
    job = JobRecord("job", 1, spec, JobPhase.RUNNING, 0.0, report=report)
    measured = {(None, pause_name("join")): Mean(2.5, joins)} if joins else {}
    return switching_costs(job, measured, (offer(),), 100.0, {})


def across_seconds(size_bytes: int) -> float:
    """Return the expected time of a sum over two instances."""
    point = fit([], prior_for("core", size_bytes, 1e9)).point
    assert isinstance(point, ThroughputParameters)
    return point.alpha_across_seconds


def test_a_join_is_expected_to_take_as_long_as_the_state_needs() -> None:
    on_the_way_seconds = 14e9 / (0.5 * offer().network_bytes_per_second)
    assert costs(ADAPTERS).pause_seconds == pytest.approx(1.0 + on_the_way_seconds, rel=0.1)
    assert costs(ADAPTERS, joins=1).pause_seconds == 2.5, "what was measured counts"
    assert costs(REPORT).pause_seconds == costs(None).pause_seconds == 1.0


def test_a_checkpoint_is_expected_to_hold_the_state_and_not_a_multiple_of_the_gradients() -> None:
    assert costs(ADAPTERS).checkpoint_bytes == 14e9
    assert costs(REPORT).checkpoint_bytes == 3 * REPORT.parameter_bytes


def test_synchronising_adapters_is_expected_to_be_fast() -> None:
    seconds = {size: across_seconds(size) for size in (ADAPTERS.parameter_bytes, 14 * 10**9)}
    assert seconds[4 * 10**6] < 0.05 < 10 < seconds[14 * 10**9]
