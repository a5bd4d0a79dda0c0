"""Joins of instances whose cloud proves their identity."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.errors import NotAllowed, Unavailable
from autoscaler.domain.instance import CloudInstance, CloudState, HeldInstance
from autoscaler.wire.messages import JoinRequest
from providers.identity import IdentityVerifier, InstanceIdentity
from tests.service.agents import SPEC, launched
from tests.service.conftest import Api


class Words(IdentityVerifier):
    """Believes `INSTANCE SECONDS`, and nothing else."""

    def verify(self, proof: str) -> InstanceIdentity:
        instance, _, seconds = proof.partition(" ")
        if not seconds:
            raise NotAllowed("the proof is not signed")
        return InstanceIdentity(instance, float(seconds))


@pytest.fixture
def held(api: Api) -> HeldInstance:
    api.verifiers["file"] = Words()
    held = launched(api)
    assert held.cloud_id is not None
    return held


def request(api: Api, held: HeldInstance, proof: str | None) -> JoinRequest:
    return JoinRequest(api.authentication.join_token(held), held.id, proof)


def told(api: Api) -> list[str]:
    return [each.text for each in api.client.job("job").events if each.kind == "join refused"]


def test_the_instance_that_was_launched_joins_and_once(api: Api, held: HeldInstance) -> None:
    proof = f"{held.cloud_id} {held.launched_seconds}"
    assert api.node().join(request(api, held, proof)).assignment.job == "job"
    assert told(api) == []
    for other in (proof, f"{held.cloud_id} {held.launched_seconds}1", "i-other 2000000"):
        with pytest.raises(NotAllowed, match="used before"):
            api.node().join(request(api, held, other))


@pytest.mark.parametrize(
    ("proof", "reason"),
    [
        (None, "sends no proof of its identity: apply Terraform again"),
        ("unsigned", "the proof is not signed"),
        ("i-other 2000000", "the proof names i-other, but job-0-1 is"),
        ("{cloud_id} 990000", "is older than its order"),
    ],
)
def test_another_one_is_refused_and_its_owner_told(
    api: Api, held: HeldInstance, proof: str | None, reason: str
) -> None:
    proof = proof and proof.format(cloud_id=held.cloud_id)
    for _ in range(2):
        with pytest.raises(NotAllowed, match=reason):
            api.node().join(request(api, held, proof))
    (text,) = told(api)
    assert reason in text
    proven = f"{held.cloud_id} {held.launched_seconds}"
    assert api.node().join(request(api, held, proven)), "the token is still the right one's"


def test_one_whose_launch_was_not_answered_waits_until_the_cloud_shows_it(
    api: Api, held: HeldInstance
) -> None:
    unseen = api.world.store.instances.order(
        "job",
        next(offer for offer in api.world.controller.status.offers if offer.id == held.offer),
        1,
        lambda instance: f"token of {instance}",
        api.world.clock.now(),
    )
    api.authentication.issue(unseen)
    with pytest.raises(Unavailable, match="not in its cloud's list yet"):
        api.node().join(request(api, unseen, "i-1 2000000"))
    assert told(api) == [], "nobody has been refused"


def test_one_that_waited_in_a_queue_joins_when_that_has_capacity(api: Api) -> None:
    """However long: to its cloud it is as old as its order, and its token is issued anew."""
    store, clock = api.world.store, api.world.clock
    api.client.submit(SPEC)
    offer = api.world.cloud.sold[0]
    ordered_seconds = clock.now()
    held = store.instances.order("job", offer, 1, lambda name: "token", ordered_seconds)
    api.authentication.issue(held)
    waiting = CloudInstance("i-9", "token", offer.id, CloudState.QUEUED, {}, None)
    held = store.instances.observe_cloud(held.id, waiting, ordered_seconds)
    api.verifiers["file"] = Words()
    clock.advance(5000.0)
    proof = f"i-9 {ordered_seconds}"
    with pytest.raises(Unavailable, match="is in its cloud's queue"):
        api.node().join(request(api, held, proof))
    api.authentication.issue(held)
    there = replace(waiting, state=CloudState.RUNNING, launched_seconds=clock.now())
    held = store.instances.observe_cloud(held.id, there, clock.now())
    assert api.node().join(request(api, held, proof)).assignment.job == "job"
    assert told(api) == []


def test_a_token_that_came_too_late_is_told_and_a_strangers_is_not(api: Api) -> None:
    late = launched(api, replace(SPEC, name="job"))
    api.world.clock.advance(1000.0)
    with pytest.raises(NotAllowed, match="expired"):
        api.node().join(request(api, late, None))
    assert ["expired" in text for text in told(api)] == [True]
    with pytest.raises(NotAllowed):
        api.node().join(JoinRequest("a made-up token", late.id))
    assert len(told(api)) == 1


def test_where_the_cloud_signs_nothing_a_token_is_enough(api: Api) -> None:
    api.verifiers["file"] = None
    held = launched(api)
    assert api.node().join(request(api, held, None)).assignment.job == "job"


@pytest.mark.parametrize(("late_seconds", "joins"), [(3600.0, True), (4000.0, False)])
def test_a_token_is_valid_for_as_long_as_the_pool_gives_its_instance_to_join(
    api: Api, late_seconds: float, joins: bool
) -> None:
    api.world.cloud.sold = tuple(
        replace(offer, join_seconds=3600.0) for offer in api.world.cloud.sold
    )
    held = launched(api, replace(SPEC, name="job"))
    api.world.clock.advance(late_seconds)
    if joins:
        assert api.node().join(request(api, held, None)).assignment.job == "job"
    else:
        with pytest.raises(NotAllowed, match="expired"):
            api.node().join(request(api, held, None))
