"""Cost of moving checkpoints, compared with the interval that the controller sets for saves."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from autoscaler.controller.plan.checkpoint_intervals import checkpoint_intervals
from autoscaler.domain.allocation import Allocation
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.offer import Offer, Purchase
from autoscaler.domain.snapshot import JobSnapshot, Snapshot, SwitchingCosts
from autoscaler.economics.allocation.candidates import candidates
from autoscaler.economics.supply.supply import supply_of
from tests.controller.plan.test_checkpoint_intervals import WRITTEN, record
from tests.economics.cases import job, offer, snapshot

GIGABYTE_USD = Decimal("0.12")
SPOT = offer("spot", "0.36", reclaims_per_hour=0.5, upload_usd_per_gb=GIGABYTE_USD)
RESERVED = replace(
    offer("reserved", upload_usd_per_gb=GIGABYTE_USD),
    usd_per_hour=Decimal(0),
    purchase=Purchase.RESERVED,
)


def on(
    one_offer: Offer,
    instances: int,
    minimum: int = 1,
    gigabytes: float = 0.01,
    pause_seconds: float = 1.0,
) -> tuple[JobSnapshot, Snapshot]:
    job_snapshot = job(
        "resnet",
        held=Allocation(one_offer.id, instances, 1),
        held_reclaims_per_hour=one_offer.reclaims_per_hour,
        instances=InstanceBounds(minimum, 8),
        switching=SwitchingCosts(
            1.0, 3.0, checkpoint_seconds=pause_seconds, checkpoint_bytes=gigabytes * 1e9
        ),
    )
    return job_snapshot, snapshot(job_snapshot, offers=(one_offer,))


def usd_per_second(job_snapshot: JobSnapshot, moment: Snapshot) -> float:
    """Return the price of moving checkpoints of the held allocation, $ per second."""

    def price(snapped: JobSnapshot) -> float:
        every = candidates(snapped, supply_of(moment))
        assert every.held is not None
        return float(every.usd_per_second[every.held])

    return price(job_snapshot) - price(replace(job_snapshot, switching=SwitchingCosts(1.0, 3.0)))


@pytest.mark.parametrize(
    ("one_offer", "instances", "minimum"), [(SPOT, 1, 1), (SPOT, 4, 4), (SPOT, 4, 1)]
)
def test_it_pays_for_as_many_saves_as_it_is_told_to_make(
    one_offer: Offer, instances: int, minimum: int
) -> None:
    job_snapshot, moment = on(one_offer, instances, minimum)
    interval_seconds = checkpoint_intervals([record(WRITTEN)], moment)["resnet"]
    assert 30 < interval_seconds < 3600
    saves_usd = 0.01 * 0.12 / interval_seconds
    assert usd_per_second(job_snapshot, moment) == pytest.approx(saves_usd, rel=0.1)


@pytest.mark.parametrize("pause_seconds", [0.0, 1.0])
def test_where_instances_are_paid_for_and_saves_are_not_it_saves_once_an_hour(
    pause_seconds: float,
) -> None:
    job_snapshot, moment = on(RESERVED, 1, gigabytes=10, pause_seconds=pause_seconds)
    assert usd_per_second(job_snapshot, moment) == pytest.approx(1.2 / 3600)
    intervals = checkpoint_intervals([record(WRITTEN)], moment)
    assert intervals == ({"resnet": 3600.0} if pause_seconds else {})


@pytest.mark.parametrize(("minimum", "fetched"), [(1, 0), (4, 4)])
def test_each_reclaim_after_which_it_starts_again_fetches_the_checkpoint(
    minimum: int, fetched: int
) -> None:
    """Hold four instances with two reclaims an hour: the others go on, or all restart."""
    far = replace(SPOT, upload_usd_per_gb=Decimal(0), download_usd_per_gb=Decimal("0.09"))
    job_snapshot, moment = on(far, 4, minimum, gigabytes=10)
    assert usd_per_second(job_snapshot, moment) == pytest.approx(2 / 3600 * fetched * 0.9)
