from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.goodput import BatchBounds
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.offer import Limit, LimitUnit
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.economics.allocation.candidates import Candidates, candidates
from autoscaler.economics.supply.supply import supply_of
from tests.economics import naive
from tests.economics.cases import LARGE, SMALL, devices, job, model, offer, snapshot
from tests.economics.strategies import sizes_of, snapshots


def candidates_of(job: JobSnapshot, moment: Snapshot) -> Candidates:
    return candidates(job, supply_of(moment))


def names(every: Candidates) -> list[str]:
    return [
        f"{every.sizes.instances[i]}x{every.offer_of(i).id}/{every.sizes.devices_used[i]}"
        for i in range(len(every))
    ]


def allocations(every: Candidates) -> list[Allocation]:
    return [every.allocation(index) for index in range(len(every))]


def test_one_instance_may_use_fewer_devices_and_several_use_all() -> None:
    job_snapshot = job(instances=InstanceBounds(1, 2))
    every = candidates_of(job_snapshot, snapshot(job_snapshot))
    assert names(every) == [
        *("1xlocal-large/1", "1xlocal-large/2", "2xlocal-large/2"),
        *("1xlocal-small/1", "2xlocal-small/1"),
    ]
    assert every.allowed.all()
    assert every.held is None


def test_a_gang_is_never_smaller_than_its_minimum() -> None:
    gang = job(instances=InstanceBounds(2, 3, offers=("local-large",)))
    assert names(candidates_of(gang, snapshot(gang))) == ["2xlocal-large/2", "3xlocal-large/2"]


@given(snapshots())
def test_goodput_price_and_uses_are_those_of_plain_loops(moment: Snapshot) -> None:
    limits = (Limit("money", LimitUnit.USD_PER_HOUR, 100.0), devices(100))
    (job_snapshot,) = moment.jobs
    job_candidates = candidates_of(job_snapshot, replace(moment, limits=limits))
    assert set(allocations(job_candidates)) == {
        allocation
        for allocation in sizes_of(moment.offers, job_snapshot.instances)
        if naive.goodput(job_snapshot, moment, allocation) > 0
    }
    for index, allocation in enumerate(allocations(job_candidates)):
        its_offer = naive.offer_of(moment, allocation)
        assert job_candidates.goodput[0, index] == pytest.approx(
            naive.goodput(job_snapshot, moment, allocation)
        )
        assert job_candidates.usd_per_second[index] == pytest.approx(
            naive.price(job_snapshot, moment, allocation)
        )
        assert job_candidates.uses[:, index] == pytest.approx(
            [
                allocation.instances * float(its_offer.usd_per_hour),
                allocation.instances * its_offer.devices,
            ]
        )
        assert (index == job_candidates.held) == (allocation == job_snapshot.held)


def test_bounds_name_offers_by_id_or_type_and_may_refuse_spot() -> None:
    spot = offer("small-spot", "0.03", reclaims_per_hour=1.0, instance_type="local-small")
    moment = snapshot(offers=(SMALL, LARGE, spot))
    by_type = job(instances=InstanceBounds(1, 1, offers=("local-small",)))
    assert names(candidates_of(by_type, moment)) == ["1xlocal-small/1", "1xsmall-spot/1"]
    lasting = job(instances=InstanceBounds(1, 1, offers=("local-small",), spot=False))
    assert names(candidates_of(lasting, moment)) == ["1xlocal-small/1"]


def test_of_an_unavailable_offer_there_is_what_is_held() -> None:
    job_snapshot = job(held=Allocation("local-small", 2, 1), instances=InstanceBounds(1, 4))
    moment = snapshot(job_snapshot, offers=(SMALL,), unavailable=frozenset({"local-small"}))
    assert names(candidates_of(job_snapshot, moment)) == ["1xlocal-small/1", "2xlocal-small/1"]
    other = job()
    assert names(candidates_of(other, moment)) == []


def test_what_no_limit_bears_is_no_candidate() -> None:
    job_snapshot = job()
    every = candidates_of(job_snapshot, snapshot(job_snapshot, limits=[devices(3)]))
    assert names(every)[-1] == "3xlocal-small/1"
    assert "2xlocal-large/2" not in names(every)


def test_what_is_held_beyond_the_bounds_is_valued_and_not_allowed() -> None:
    job_snapshot = job(held=Allocation("local-small", 4, 1), instances=InstanceBounds(1, 2))
    every = candidates_of(job_snapshot, snapshot(job_snapshot))
    assert every.held is not None
    assert every.allocation(every.held) == job_snapshot.held
    assert not every.allowed[every.held]
    assert every.allowed.sum() == len(every) - 1


def test_an_offer_without_a_model_of_its_device_is_left_out() -> None:
    card = offer("card", "1.00", kind="card")
    job_snapshot = job()
    assert "1xcard/1" not in names(
        candidates_of(job_snapshot, snapshot(job_snapshot, offers=(SMALL, card)))
    )
    both = job(models={"core": model(), "card": model(kind="card")})
    assert "1xcard/1" in names(candidates_of(both, snapshot(both, offers=(SMALL, card))))


def test_more_devices_than_examples_are_left_out() -> None:
    job_snapshot = job(batch=BatchBounds(3, 3, 3, adaptive=False))
    every = candidates_of(job_snapshot, snapshot(job_snapshot))
    assert names(every)[-1] == "3xlocal-small/1"


def test_nothing_to_choose_from_is_no_error() -> None:
    job_snapshot = job(models={})
    every = candidates_of(job_snapshot, snapshot(job_snapshot))
    assert len(every) == 0
    assert every.held is None
    assert every.rate.shape == (0,)


def test_models_must_agree_in_their_draws() -> None:
    job_snapshot = job(models={"core": model(draws=2), "card": model(kind="card", draws=3)})
    with pytest.raises(ValueError, match="differ in their number of draws"):
        candidates_of(job_snapshot, snapshot(job_snapshot))


def test_a_measured_start_takes_the_place_of_the_offers_word() -> None:
    spot = offer("spot", "0.10", boot_seconds=10.0, reclaims_per_hour=36.0)
    job_snapshot = job(instances=InstanceBounds(1, 1))
    said = candidates_of(job_snapshot, snapshot(job_snapshot, offers=(spot,)))
    job_snapshot = replace(
        job_snapshot, switching=replace(job_snapshot.switching, start_seconds={"spot": 20.0})
    )
    measured = candidates_of(job_snapshot, snapshot(job_snapshot, offers=(spot,)))
    assert said.usd_per_second * 3600 == pytest.approx([0.10 * 1.1])
    assert measured.usd_per_second * 3600 == pytest.approx([0.10 * 1.2])
    # 100 examples a second, but 20 + 3 of every 123 seconds are spent on a restart.
    assert measured.rate == pytest.approx([100 / 1.23])


def test_a_job_s_own_bounds_of_one_offer_leave_the_others_as_they_are() -> None:
    bounds = InstanceBounds(1, 4, maxima=(("local-large", 2),))
    job_candidates = candidates(job(instances=bounds), supply_of(snapshot(offers=(SMALL, LARGE))))
    most = {offer.id: 0 for offer in (SMALL, LARGE)}
    for index in range(len(job_candidates)):
        allocation = job_candidates.allocation(index)
        most[allocation.offer] = max(most[allocation.offer], allocation.instances)
    assert most == {"local-small": 4, "local-large": 2}
