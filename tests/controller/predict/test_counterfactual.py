from __future__ import annotations

from dataclasses import replace
from unittest.mock import patch

import pytest

from autoscaler.controller.predict.counterfactual import Counterfactual, counterfactual
from autoscaler.domain.errors import Conflict
from autoscaler.domain.job import JobRecord
from tests.controller.world import World
from tests.service.agents import training_report


@pytest.fixture
def ran(world: World) -> World:
    """A job that trained on one instance, then on two."""
    job = world.submit("job")
    for instances in (1, 2):
        world.set_target(job, instances)
        world.tick(6, seconds=60.0)
    return world


def job_of(world: World, examples: float = 1e6) -> JobRecord:
    report = training_report(progress_examples=examples)
    return replace(world.store.jobs.get("job"), report=report)


def bill_of(world: World, examples: float = 1e6) -> Counterfactual:
    return counterfactual(world.store, job_of(world, examples), world.clock.now())


def test_every_alternative_has_bands_or_a_problem(ran: World) -> None:
    bill = bill_of(ran)
    names = [each.name for each in bill.alternatives]
    assert names == [
        *("best fixed pool, no later", "cheapest fixed pool", "marginal"),
        *("marginal, on-demand only", "pollux", "throughput"),
    ]
    for each in bill.alternatives:
        assert (each.problem is None) == (each.usd is not None) == (each.seconds is not None)
        for band in (each.usd, each.seconds):
            if band is not None:
                assert 0 < band.low <= band.median <= band.high < float("inf")
    assert bill.moments > 0 and bill.lost == 0


def test_a_fixed_pool_costs_its_price_for_boot_and_training(ran: World) -> None:
    bill = bill_of(ran)
    cheapest = next(each for each in bill.alternatives if each.name == "cheapest fixed pool")
    assert cheapest.allocation is not None
    assert cheapest.usd is not None and cheapest.seconds is not None
    (offer,) = (
        offer for offer in ran.controller.status.offers if offer.id == cheapest.allocation.offer
    )
    price = float(offer.usd_per_hour) * cheapest.allocation.instances / 3600
    assert cheapest.usd.median == pytest.approx(price * cheapest.seconds.median)
    assert cheapest.seconds.median > offer.boot_seconds


def test_more_progress_costs_more_under_every_rule(ran: World) -> None:
    less, more = bill_of(ran, 1e6), bill_of(ran, 4e6)
    bands = [
        (small.usd.median, large.usd.median)
        for small, large in zip(less.alternatives, more.alternatives, strict=True)
        if small.usd is not None and large.usd is not None
    ]
    assert len(bands) >= 2
    assert all(small < large for small, large in bands)


def test_a_resumed_job_is_compared_for_its_own_progress(ran: World) -> None:
    whole = bill_of(ran, 3e6)
    first = job_of(ran, 2e6)
    resumed = replace(
        job_of(ran, 3e6),
        id="job.2",
        number=first.number + 1,
        spec=replace(first.spec, resumes="job"),
    )
    with patch.object(type(ran.store.jobs), "of_name", return_value=(first, resumed)):
        assert ran.store.jobs.progress_before(first) == 0.0
        assert ran.store.jobs.progress_before(resumed) == 2e6
        # The journal is that of the first run: the second one has none here.
        own = counterfactual(ran.store, replace(resumed, id="job"), ran.clock.now())
    assert (whole.examples, own.examples) == (3e6, 1e6)


def test_a_job_without_progress_or_journal_is_refused(ran: World) -> None:
    with pytest.raises(Conflict, match="no progress yet"):
        bill_of(ran, examples=0.0)
    with pytest.raises(Conflict, match="no progress with a kept decision"):
        counterfactual(ran.store, replace(job_of(ran), report=None), ran.clock.now())
    ran.store.journal.prune(ran.clock.now() + 1)
    with pytest.raises(Conflict, match="no progress with a kept decision"):
        bill_of(ran)
