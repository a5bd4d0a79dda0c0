"""Fleets price changes of their jobs as single jobs do."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import numpy as np
import pytest

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.goodput import ShardedParameters
from autoscaler.domain.job import InstanceBounds, ParallelismSpec
from autoscaler.domain.snapshot import JobSnapshot, SwitchingCosts, ThroughputModel
from autoscaler.economics.allocation.candidates import candidates
from autoscaler.economics.choice.switching import SwitchContext
from autoscaler.economics.fleets.fleet import fleets
from autoscaler.economics.pricing.objectives import MOST_TIMES_DEAREST
from autoscaler.economics.supply.supply import supply_of
from tests.economics.cases import LARGE, SMALL, job, offer, snapshot

SENT = {"upload_usd_per_gb": Decimal("0.12"), "download_usd_per_gb": Decimal("0.09")}
OFFERS = (
    SMALL,
    LARGE,
    offer("far", "0.05", network="b", **SENT),
    offer("far-spot", "0.02", reclaims_per_hour=0.4, network="b", **SENT),
    offer("farther", "0.04", devices=2, network="c", **SENT),
)


def jobs() -> list[JobSnapshot]:
    held = [None, *(Allocation(held_offer.id, 2, held_offer.devices) for held_offer in OFFERS)]
    return [
        job(
            f"job-{index}",
            held=allocation,
            instances=InstanceBounds(2, 4),
            remaining_examples=1e7,
            spent_usd=0.5 * (index % 2) if allocation is None else 0.5,
            held_reclaims_per_hour=0.1
            if allocation is not None and allocation.offer == "far-spot"
            else None,
            switching=SwitchingCosts(
                *(0.5, 3.0),
                checkpoint_seconds=float(index % 2),
                checkpoint_interval_seconds=interval_seconds,
                checkpoint_bytes=gigabytes * 1e9,
                carry_seconds=10.0 * gigabytes,
            ),
        )
        for interval_seconds in (None, 600.0)
        for gigabytes in (0.0, 2.0)
        for index, allocation in enumerate(held)
    ]


def test_networks_cost_a_fleet_s_job_what_they_cost_one_alone() -> None:
    fleet_jobs = [
        replace(job_snapshot, id=f"job-{index}") for index, job_snapshot in enumerate(jobs())
    ]
    moment = snapshot(*fleet_jobs, offers=OFFERS)
    supply = supply_of(moment)
    room = supply.maximum
    compared = 0
    for fleet in fleets(fleet_jobs, supply, room, MOST_TIMES_DEAREST):
        taken = fleet.switches(None)
        for row, job_snapshot in enumerate(fleet.jobs):
            job_candidates = candidates(job_snapshot, supply)
            alone = SwitchContext(
                job_candidates, job_snapshot.switching, room, job_snapshot.spent_usd > 0
            ).from_held(None)
            for column in np.flatnonzero(fleet.lists.exists[row]).tolist():
                index = job_candidates.sizes.index(
                    int(fleet.lists.offer[row, column]),
                    int(fleet.lists.instances[row, column]),
                    int(fleet.lists.devices_used[row, column]),
                )
                assert fleet.lists.usd_per_second[row, column] == pytest.approx(
                    job_candidates.usd_per_second[index]
                )
                for name in ("boot_usd", "carried_usd", "pause_seconds", "trains_during_boot"):
                    assert getattr(taken, name)[row, column] == pytest.approx(
                        getattr(alone, name)[index]
                    ), (job_snapshot.held, job_candidates.allocation(index or 0), name)
                compared += bool(alone.carried_usd[index] > 0)
    assert compared > 20


def test_gangs_have_the_price_and_the_speed_in_a_fleet_that_they_have_alone() -> None:
    theta = ShardedParameters(0.0, 0.01, 0.01, 0.05, 0.5, 0.02, 0.02, 0.02, 0.02, 1.0, shard=4)
    known = ThroughputModel("core", theta, (theta,) * 2, frozenset({(2, 4)}))
    spot = offer("spot", "0.05", devices=2, reclaims_per_hour=0.5)
    fleet_jobs = [
        job(
            f"job-{index}",
            models=known,
            instances=InstanceBounds(minimum, 16),
            held=Allocation("spot", 4, 2) if index else None,
            parallelism=ParallelismSpec(shard=4),
            switching=SwitchingCosts(1.0, 3.0, checkpoint_seconds=2.0),
        )
        for index, minimum in enumerate((1, 6))
    ]
    supply = supply_of(snapshot(*fleet_jobs, offers=(SMALL, LARGE, spot)))
    compared = 0
    for fleet in fleets(fleet_jobs, supply, supply.maximum, MOST_TIMES_DEAREST):
        for row, job_snapshot in enumerate(fleet.jobs):
            alone = candidates(job_snapshot, supply)
            for column in np.flatnonzero(fleet.lists.exists[row]).tolist():
                size = (
                    int(fleet.lists.offer[row, column]),
                    int(fleet.lists.instances[row, column]),
                    int(fleet.lists.devices_used[row, column]),
                )
                index = alone.sizes.index(*size)
                assert index is not None
                assert size[1] * size[2] % 4 == 0
                assert fleet.lists.usd_per_second[row, column] == pytest.approx(
                    alone.usd_per_second[index]
                )
                assert fleet.lists.mean_seconds[row, column] == pytest.approx(
                    float((1.0 / alone.goodput[:, index]).mean()), rel=0.02
                )
                compared += 1
    assert compared > 10
