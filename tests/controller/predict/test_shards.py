"""Offers that can hold a model, and the choice of the devices that share one copy of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.controller.jobs.fitting import (
    MemoryNeeds,
    candidate_shards,
    memory_needs,
    memory_of,
    require_fit,
    unfit_offers,
    without_unfit,
)
from autoscaler.controller.predict.circumstances import Circumstances
from autoscaler.controller.predict.shards import choose_shard
from autoscaler.controller.predict.what_if import what_if
from autoscaler.domain.allocation import Allocation
from autoscaler.domain.errors import SpecError
from autoscaler.domain.goodput import BatchBounds
from autoscaler.domain.job import InstanceBounds, JobPhase, JobRecord, JobSpec, ParallelismSpec
from autoscaler.domain.model import ModelSpec
from autoscaler.domain.offer import Limit, LimitUnit, Offer
from autoscaler.domain.report import MemoryPeak
from autoscaler.domain.shards import ShardReason, Unfit
from autoscaler.policies.registry import create_policy
from autoscaler.service.jobs.plans import plan_view
from tests.economics.cases import offer

BIG = ModelSpec(7e9, activation_bytes=1e9)
SMALL = ModelSpec(1e8, activation_bytes=1e8)
A10G = offer("a10g", "1.50", devices=4, kind="a10g", network_bytes_per_second=5e9)
H100 = offer("h100", "98.32", devices=8, kind="h100", network_bytes_per_second=4e11)
UNKNOWN = offer("mystery", "1.00", devices=8, kind="abacus")


def spec_of(
    model: ModelSpec | None, parallelism: ParallelismSpec, most: int = 8, **changes: object
) -> JobSpec:
    plain = JobSpec(
        "gpt",
        ("python", "train.py"),
        instances=InstanceBounds(1, most),
        parallelism=parallelism,
        model=model,
        total_examples=1e6,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def market(*offers: Offer) -> Circumstances:
    return Circumstances(offers, ())


def test_each_offer_has_its_reason() -> None:
    spec = spec_of(BIG, ParallelismSpec(shard=4))
    odd = offer("odd", devices=6, kind="h100")
    unfit = {
        one.offer: one for one in unfit_offers(spec, (A10G, H100, UNKNOWN, odd), memory_of(spec))
    }
    assert {name: one.reason for name, one in unfit.items()} == {
        "a10g": Unfit.MEMORY,
        "odd": Unfit.COPIES,
    }
    assert str(unfit["a10g"]) == "a10g: a device needs 30.9 GB and has 24 GB"
    narrow = replace(spec_of(BIG, ParallelismSpec(shard=16)), instances=InstanceBounds(1, 3))
    (gang,) = unfit_offers(narrow, (A10G, H100), memory_of(narrow))
    assert (gang.offer, gang.reason, gang.needed, gang.available) == ("a10g", Unfit.GANG, 4, 3)


def test_an_unknown_memory_excludes_nothing() -> None:
    spec = spec_of(None, ParallelismSpec(shard=4))
    assert unfit_offers(spec, (A10G, H100, UNKNOWN), memory_of(spec)) == ()


def test_measured_peaks_correct_the_declaration() -> None:
    spec = spec_of(BIG, ParallelismSpec(shard=4))
    peaks = (MemoryPeak("h100", 1, 14 * 10**9), MemoryPeak("h100", 4, 17 * 10**9))
    assert unfit_offers(spec, (A10G,), memory_of(spec, peaks)) == ()


def test_a_model_that_fits_nowhere_is_refused_with_what_would_fit() -> None:
    spec = spec_of(BIG, ParallelismSpec(), most=1)
    with pytest.raises(SpecError) as refused:
        require_fit(spec, (A10G,), (A10G, H100), ())
    assert refused.value.field == "model"
    text = str(refused.value)
    assert "a10g: a device needs 114 GB and has 24 GB" in text
    assert "Would fit: shard: 8 on 2 x a10g, at $3.00/h" in text
    huge = spec_of(ModelSpec(1e15), ParallelismSpec())
    with pytest.raises(SpecError, match="No offer here would hold it"):
        require_fit(huge, (A10G,), (A10G, H100), ())


def test_a_gang_larger_than_its_quota_is_refused() -> None:
    spec = spec_of(BIG, ParallelismSpec(shard=16))
    quota = Limit("G instances", LimitUnit.DEVICES, 12.0)
    with pytest.raises(SpecError, match=r"4 x a10g need 16 of 'G instances', which has 12"):
        require_fit(spec, (A10G,), (A10G, H100), (quota,))
    require_fit(spec, (A10G,), (A10G,), (replace(quota, maximum=16.0),))


def test_auto_is_the_smallest_shard_of_each_kind_and_the_next() -> None:
    spec = spec_of(BIG, ParallelismSpec(auto_shard=True))
    assert candidate_shards(spec, (H100,)) == (2, 4)
    assert candidate_shards(spec, (A10G,)) == (8, 16)
    assert candidate_shards(spec, (A10G, H100)) == (2, 4, 8, 16)
    with pytest.raises(SpecError, match=r"model\.parameters"):
        candidate_shards(spec_of(None, ParallelismSpec(auto_shard=True)), (H100,))


def test_a_large_model_is_spread_over_cheap_devices() -> None:
    spec = spec_of(BIG, ParallelismSpec(shards=(4, 8)))
    choice = choose_shard(spec, lambda decided: None, market(A10G, H100), 0.0)
    small, large = choice.forecasts
    assert (choice.shard, choice.reason) == (8, ShardReason.LEAST_COST)
    assert small.allocation is not None
    assert small.allocation.offer == "h100"
    assert [one.offer for one in small.unfit] == ["a10g"]
    assert large.allocation is not None
    assert large.allocation.offer == "a10g"
    assert large.allocation.instances % 2 == 0
    assert small.cost_usd is not None
    assert large.cost_usd is not None
    assert large.cost_usd < small.cost_usd
    assert str(choice).startswith("shard 8, least cost: $")


def test_a_small_model_is_not_spread() -> None:
    spec = spec_of(SMALL, ParallelismSpec(shards=(4, 8)))
    assert choose_shard(spec, lambda decided: None, market(A10G), 0.0).shard == 4


def test_the_only_shard_that_fits_is_chosen_and_none_is_refused() -> None:
    spec = spec_of(BIG, ParallelismSpec(shards=(1, 8)))
    choice = choose_shard(spec, lambda decided: None, market(A10G), 0.0)
    assert (choice.shard, choice.reason) == (8, ShardReason.ONLY_ONE_FITS)
    with pytest.raises(SpecError, match="Would fit: shard: 8"):
        choose_shard(
            spec_of(BIG, ParallelismSpec(shards=(1, 2))), lambda decided: None, market(A10G), 0.0
        )


def test_a_job_of_unknown_length_is_judged_by_its_cost_of_progress() -> None:
    spec = spec_of(BIG, ParallelismSpec(shards=(4, 8)), total_examples=None)
    choice = choose_shard(spec, lambda decided: None, market(A10G, H100), 0.0)
    assert choice.shard == 8
    assert all(forecast.seconds is None for forecast in choice.forecasts)


def test_a_plan_shows_the_comparison_and_what_can_not_hold_the_job() -> None:
    spec = spec_of(BIG, ParallelismSpec(shards=(4, 8)))
    tight = offer("t4", "0.50", devices=8, kind="t4")
    found = what_if(
        spec, lambda decided: None, market(A10G, H100, tight), create_policy("marginal"), 0.0
    )
    view = plan_view(spec, found)
    assert view.shards is not None
    assert view.shards.shard == 8
    assert [one.offer for one in view.unfit] == ["t4"]
    assert view.chosen is not None
    assert view.chosen.first.instances % 2 == 0
    assert "can't be held by t4" in view.decision


def record(spec: JobSpec) -> JobRecord:
    return JobRecord("gpt", 1, spec, JobPhase.PENDING, 0.0)


def test_plans_leave_out_what_can_not_hold_the_job_but_not_what_is_held() -> None:
    spec = spec_of(BIG, ParallelismSpec(shard=4))
    offers = (A10G, H100, UNKNOWN)
    needs = memory_needs(record(spec), offers, None)
    assert [one.offer for one in needs.unfit] == ["a10g"]
    bounds = without_unfit(spec.instances, offers, needs.unfit, None)
    assert bounds.offers == ("h100", "mystery")
    held = Allocation("a10g", 1, 4)
    assert without_unfit(spec.instances, offers, needs.unfit, held).offers == (
        "a10g",
        "h100",
        "mystery",
    )
    assert without_unfit(spec.instances, offers, (), None) == spec.instances


def test_plans_split_what_a_device_can_not_take_at_once() -> None:
    spec = spec_of(BIG, ParallelismSpec(shard=8))
    needs = memory_needs(record(spec), (A10G, H100), None)
    batch = needs.within(BatchBounds(64, 64, 64, adaptive=False))
    assert batch.on("a10g").device_maximum == 6
    assert batch.on("h100").device_maximum == 57
    assert batch.on("core").device_maximum == 64


def test_a_job_without_declaration_or_peaks_is_left_as_it_is() -> None:
    spec = spec_of(None, ParallelismSpec())
    assert memory_needs(record(spec), (A10G, H100), None) == MemoryNeeds()
