from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.controller.offers.market import ProviderState
from autoscaler.domain.errors import SpecError, Unavailable
from autoscaler.domain.job import GpuKind, InstanceBounds, ParallelismSpec
from autoscaler.wire.messages import Change
from tests.service.agents import SPEC
from tests.service.conftest import Api


def test_offers_have_the_age_and_the_source_of_their_prices(api: Api) -> None:
    api.world.tick()
    api.world.cloud.answers = False
    api.world.clock.advance(100.0)
    small, _ = api.client.offers().offers
    assert (small.offer.id, small.price_source, small.is_stale) == ("small", "file", False)
    assert small.price_age_seconds == 100.0
    api.world.clock.advance(90 * 86400.0)
    assert api.client.offers().offers[0].is_stale


NAMED = replace(SPEC, instances=InstanceBounds(offers=("small",)))


def test_a_submission_waits_for_the_first_offers(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    status = api.world.controller.status
    listed, status.offers = status.offers, ()
    monkeypatch.setattr(
        api.world.clock, "sleep", lambda seconds: setattr(status, "offers", listed)
    )
    job = api.client.submit(NAMED)
    assert api.world.store.jobs.get(job.id).spec.instances == NAMED.instances


def test_without_offers_a_submission_that_names_some_is_refused(api: Api) -> None:
    api.world.controller.status.offers = ()
    with pytest.raises(Unavailable, match=r"known yet \(the controller has just started\)"):
        api.client.submit(NAMED)
    refused_seconds = api.world.clock.now()
    failed = ProviderState(("file: the cloud does not answer",))
    api.world.controller.status.providers = {"file": failed}
    with pytest.raises(Unavailable, match="does not answer"):
        api.client.submit(NAMED)
    assert api.world.clock.now() == refused_seconds
    assert not api.world.store.jobs.all()


def test_a_job_whose_gpus_nobody_offers_is_refused_by_name(api: Api) -> None:
    api.world.tick()
    for bounds, field, cause in (
        (
            InstanceBounds(gpus=(GpuKind("h100", 8),)),
            "instances.gpu",
            "has h100:8: there are core",
        ),
        (InstanceBounds(gpus=()), "instances.gpu", "is empty"),
    ):
        with pytest.raises(SpecError, match=cause) as refused:
            api.client.submit(replace(SPEC, instances=bounds))
        assert field in str(refused.value)
    accepted = replace(SPEC, instances=InstanceBounds(gpus=(GpuKind("core"),)))
    job = api.client.submit(accepted)
    assert api.world.store.jobs.get(job.id).spec.instances == accepted.instances


def test_an_undecided_shard_is_chosen_and_stored_at_submission(api: Api) -> None:
    api.world.tick()
    undecided = replace(SPEC, parallelism=ParallelismSpec(shards=(1, 2)))
    assert api.client.plan(undecided).shards is not None
    job = api.client.submit(undecided)
    stored = api.world.store.jobs.get(job.id).spec.parallelism
    assert stored == ParallelismSpec(shard=stored.shard, has_chosen_shard=True)
    assert stored.shard in (1, 2)
    (text,) = [event.text for event in api.world.store.events.latest() if event.kind == "sharded"]
    assert text.startswith(f"shard {stored.shard}, least cost: $")


def test_a_shard_that_no_offer_can_form_is_refused(api: Api) -> None:
    api.world.tick()
    spec = replace(SPEC, parallelism=ParallelismSpec(shard=64))
    with pytest.raises(SpecError, match="a copy takes") as refused:
        api.client.submit(spec)
    assert "parallelism.shard" in str(refused.value)
    with pytest.raises(SpecError, match="a copy takes"):
        api.client.plan(spec)


def test_bounds_below_a_gang_are_refused_while_the_job_runs(api: Api) -> None:
    api.world.tick()
    wide = InstanceBounds(maximum=8)
    job = api.client.submit(replace(SPEC, instances=wide, parallelism=ParallelismSpec(shard=4)))
    with pytest.raises(SpecError, match="a copy takes"):
        api.client.change(job.id, Change(instances=InstanceBounds(maximum=1)))
    assert api.world.store.jobs.get(job.id).spec.instances == wide
