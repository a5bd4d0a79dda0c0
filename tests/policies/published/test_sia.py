from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pytest

from autoscaler.domain.goodput import BatchBounds, ThroughputParameters
from autoscaler.domain.snapshot import (
    JobSnapshot,
    ServiceReceived,
    SwitchingCosts,
    ThroughputModel,
)
from autoscaler.policies.published.sia import SiaParameters, SiaPolicy
from tests.conformance.pool_policy import (
    KIND,
    SolvedPoolConformance,
    machine,
    machines,
    placement_of,
    placements,
    pool_job,
    pool_snapshot,
    sizes,
)
from tests.economics.cases import ALL, NOW, model

SIA = SiaPolicy()
PERFECT = ThroughputParameters(0.0, 0.01, 0.0, 0.0, 0.0, 0.0, 1.0)
# A sync of 0.5 s beside the 0.64 s that one device takes for 64 examples.
POOR = ThroughputParameters(0.0, 0.01, 0.5, 0.5, 0.5, 0.5, 1.0)
RAN = ServiceReceived(started_seconds=NOW - 7000.0)
MIXED = (machine(0, 4), machine(1, 4), machine(2, 4, "fast"), machine(3, 4, "old"))


class TestSia(SolvedPoolConformance):
    is_rigid = False

    @pytest.fixture
    def policy(self) -> SiaPolicy:
        return SIA


def times_as_fast(ratio: float, theta: ThroughputParameters = PERFECT) -> ThroughputParameters:
    seconds = theta.beta_compute_seconds_per_example / ratio
    return replace(theta, beta_compute_seconds_per_example=seconds)


def known(
    theta: ThroughputParameters, kind: str = KIND, measured: Iterable[tuple[int, int]] = ALL
) -> ThroughputModel:
    return model(theta, kind, measured)


def ran(name: str, *models: ThroughputModel, **changes: object) -> JobSnapshot:
    """A job that was submitted two hours ago and has run."""
    plain = pool_job(
        name,
        models={each.device_kind: each for each in models or (known(PERFECT),)},
        submitted_seconds=NOW - 7200.0,
        service=RAN,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def test_a_fast_kind_is_for_those_for_whom_it_is_faster() -> None:
    models = {
        "gains": (known(PERFECT), known(times_as_fast(8.0), "fast")),
        "does not": (known(PERFECT), known(times_as_fast(1.1), "fast")),
    }
    one = BatchBounds(1, 1, 1, adaptive=False)
    jobs = [ran(name, *own, batch=one) for name, own in models.items()]
    offers = (machine(0, 1), machine(1, 1, "fast"))
    found = placements(SIA.plan(pool_snapshot(*jobs, offers=offers)))
    assert found == {"gains": placement_of(node_001=1), "does not": placement_of(node_000=1)}


def test_scaling_on_one_kind_is_carried_to_another_until_it_is_measured() -> None:
    poor, alone = known(POOR), known(times_as_fast(1.2), "fast", [(1, 1)])
    offers = (machine(0, 4), machine(1, 4, "fast"))
    job = ran("a", poor, alone)
    assert placements(SIA.plan(pool_snapshot(job, offers=offers))) == {
        "a": placement_of(node_001=1)
    }
    scales = ran("a", poor, known(times_as_fast(1.2), "fast"))
    assert placements(SIA.plan(pool_snapshot(scales, offers=offers))) == {
        "a": placement_of(node_001=4)
    }


def test_a_job_starts_on_one_device_and_doubles() -> None:
    new = pool_job("a", models={KIND: known(PERFECT)})
    assert sizes(SIA.plan(pool_snapshot(new))) == {"a": 1}
    assert sizes(SIA.plan(pool_snapshot(replace(new, placement=placement_of(node_000=1))))) == {
        "a": 1
    }
    for measured, devices in (([(1, 1)], 2), ([(1, 2)], 4), ([(1, 4)], 8)):
        job = ran("a", known(PERFECT, measured=measured))
        assert sizes(SIA.plan(pool_snapshot(job))) == {"a": devices}


@pytest.mark.parametrize(("restarts", "pause", "devices"), [(0, 30.0, 4), (150, 30.0, 2)])
def test_a_job_that_has_restarted_often_stays(restarts: int, pause: float, devices: int) -> None:
    job = ran(
        "a",
        placement=placement_of(node_000=2),
        service=replace(RAN, restarts=restarts),
        switching=SwitchingCosts(pause_seconds=pause, restore_seconds=0.0),
    )
    assert sizes(SIA.plan(pool_snapshot(job, offers=machines(1)))) == {"a": devices}
    quick = replace(job, switching=SwitchingCosts(pause_seconds=0.1, restore_seconds=0.0))
    assert sizes(SIA.plan(pool_snapshot(quick, offers=machines(1)))) == {"a": 4}


@pytest.mark.parametrize(("penalty", "given"), [(1.1, 0), (3.0, 1)])
def test_how_dear_it_is_to_leave_somebody_out_is_a_parameter(penalty: float, given: int) -> None:
    """4 devices instead of 1 halve what the wide job costs: five times what lambda adds to 1."""
    wide = ran("wide", placement=placement_of(node_000=4))
    young = [pool_job(name, models={}, submitted_seconds=NOW) for name in "abc"]
    moment = pool_snapshot(wide, *young, offers=machines(1))
    found = sizes(SiaPolicy(SiaParameters(idle_penalty=penalty)).plan(moment))
    assert {found[name] for name in "abc"} == {given}
    assert sum(found.values()) == 4


def test_reasons_are_over_the_least_configuration() -> None:
    job = ran("a", known(PERFECT), known(times_as_fast(2.0), "fast"))
    offers = (machine(0, 4), machine(1, 4, "fast"))
    (decision,) = SIA.plan(pool_snapshot(job, offers=offers)).decisions
    assert decision.reason == (
        "start a with 4 on node-001: 8 times the goodput of its least configuration"
    )


def test_a_job_is_not_put_on_a_kind_of_which_it_has_no_model() -> None:
    jobs = [ran(f"job-{number}", known(PERFECT, "old")) for number in range(3)]
    found = placements(SIA.plan(pool_snapshot(*jobs, offers=MIXED)))
    assert all(one is None or dict(one.shares).keys() == {"node-003"} for one in found.values())


def test_parameters_that_make_no_sense_are_refused() -> None:
    for name, value in (("power", 0.0), ("power", 1.5), ("idle_penalty", 0.0), ("growth", 0)):
        with pytest.raises(ValueError, match=name):
            SiaParameters(**{name: value})  # type: ignore[arg-type]
