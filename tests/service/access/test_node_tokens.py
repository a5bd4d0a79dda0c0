"""Tokens of instances: random, stored as hashes, renewed by heartbeats; repeated joins."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.clock import VirtualClock
from autoscaler.domain.errors import NotAllowed
from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.service.access.authentication import Authentication
from autoscaler.wire.messages import JoinRequest
from autoscaler.wire.node_client import NodeClient
from tests.service.agents import SPEC, joined, launched, node_report
from tests.service.conftest import Api
from tests.service.jobs.test_resume import give_back

LIFE_SECONDS = 2 * 1800.0 + 600.0


def request(api: Api, held: HeldInstance, key: str | None) -> JoinRequest:
    return JoinRequest(api.authentication.join_token(held), held.id, key=key)


def report_with(api: Api, held: HeldInstance, token: str) -> str | None:
    """Send a heartbeat with a token; return the token that the agent uses afterwards."""
    node = api.node(token)
    node.heartbeat(node_report(held))
    return node.token


def test_a_join_is_repeated_for_a_minute_by_the_same_agent(api: Api) -> None:
    held = launched(api)
    tokens = []
    for seconds in (0.0, 30.0, 29.0):
        api.world.clock.advance(seconds)
        tokens.append(api.node().join(request(api, held, "key")).token)
    assert len(set(tokens)) == 3
    for earlier in tokens[:-1]:
        with pytest.raises(NotAllowed):
            api.node(earlier).assignment()
    assert api.node(tokens[-1]).assignment().job == "job"
    api.world.clock.advance(1.0)
    with pytest.raises(NotAllowed, match="expired or was used before"):
        api.node().join(request(api, held, "key"))
    assert api.node(tokens[-1]).assignment().job == "job"


@pytest.mark.parametrize("key", ["other", None])
def test_another_agent_does_not_repeat_a_join(api: Api, key: str | None) -> None:
    held = launched(api)
    token = api.node().join(request(api, held, "key")).token
    with pytest.raises(NotAllowed, match="expired or was used before"):
        api.node().join(request(api, held, key))
    assert api.node(token).assignment().job == "job", "a refused join ends no token"


def test_tokens_of_two_joins_of_one_key_differ_and_only_hashes_are_stored(api: Api) -> None:
    held = launched(api)
    token = api.node().join(request(api, held, "key")).token
    files = [path for path in api.directory.rglob("*") if path.is_file()]
    for secret in (token, api.authentication.join_token(held)):
        assert files and not any(secret.encode() in path.read_bytes() for path in files)


def test_a_heartbeat_renews_a_token_at_half_of_its_life(api: Api) -> None:
    held, node = joined(api)
    first = node.token or ""
    api.world.clock.advance(LIFE_SECONDS / 2 - 1)
    assert report_with(api, held, first) == first
    api.world.clock.advance(1.0)
    second = report_with(api, held, first)
    assert second is not None and second != first
    for token in (first, second):
        assert api.node(token).assignment().job == "job", "the reply may have been lost"
    api.world.clock.advance(LIFE_SECONDS / 2)
    with pytest.raises(NotAllowed, match="token of job-0-1 has expired: the next heartbeat"):
        api.node(first).assignment()
    assert api.node(second).assignment().job == "job"


def test_a_lost_renewal_is_repeated_and_ends_the_lost_token(api: Api) -> None:
    held, node = joined(api)
    first = node.token or ""
    api.world.clock.advance(LIFE_SECONDS / 2)
    lost = report_with(api, held, first) or ""
    second = report_with(api, held, first) or ""
    assert second != lost
    with pytest.raises(NotAllowed):
        api.node(lost).assignment()
    third_seconds = LIFE_SECONDS / 2
    api.world.clock.advance(third_seconds)
    third = report_with(api, held, second) or ""
    with pytest.raises(NotAllowed):
        report_with(api, held, first)
    assert api.node(third).assignment().job == "job"


def test_an_expired_token_of_a_living_instance_is_good_for_a_heartbeat_only(api: Api) -> None:
    """Keep instances through a jump of the clock, or a pause of their host."""
    held, node = joined(api)
    first = node.token or ""
    api.world.clock.advance(86_400.0)
    with pytest.raises(NotAllowed, match="has expired"):
        node.assignment()
    renewed = report_with(api, held, first) or ""
    assert renewed != first
    assert api.node(renewed).assignment().job == "job"


def test_the_token_of_an_ended_instance_is_not_renewed_and_expires(api: Api) -> None:
    held, node = joined(api)
    give_back(api, held)
    api.world.clock.advance(LIFE_SECONDS - 1)
    token = node.token or ""
    assert report_with(api, held, token) == token
    api.world.clock.advance(1.0)
    with pytest.raises(NotAllowed, match="has expired"):
        report_with(api, held, token)


def test_a_clock_that_goes_back_renews_a_token_soon(api: Api) -> None:
    held, node = joined(api)
    clock = VirtualClock(api.world.clock.now() - 86_400.0)
    earlier = Authentication(api.world.store, api.authentication._key, clock)
    assert earlier.renewed(node.token or "", held) is not None


def test_agents_go_on_across_a_restart_of_the_controller(api: Api) -> None:
    held, node = joined(api)
    old = api.authentication
    restarted = Authentication(api.world.store, old._key, api.world.clock)
    assert restarted.node(node.token or "").id == held.id
    assert restarted.is_recognised("/v1/node/heartbeat", node.token)


def test_a_signed_token_of_an_earlier_release_lives_as_long_as_its_instance(api: Api) -> None:
    held = launched(api)
    api.world.store.instances.record_node(held.id, InstancePhase.PREPARING, 0.0)
    signed = api.authentication._sign({"kind": "node", "sub": held.id})
    node = NodeClient(api.url, signed)
    assert node.assignment().job == "job"
    api.world.clock.advance(10 * LIFE_SECONDS)
    assert report_with(api, held, signed) == signed, "its agent knows of no renewal"
    give_back(api, held)
    with pytest.raises(NotAllowed):
        node.assignment()


def test_a_signed_token_of_an_instance_that_joined_today_is_refused(api: Api) -> None:
    held, _ = joined(api, replace(SPEC))
    signed = api.authentication._sign({"kind": "node", "sub": held.id})
    with pytest.raises(NotAllowed, match="the token of job-0-1 was replaced"):
        api.node(signed).assignment()


def test_the_life_of_a_token_exceeds_that_of_an_agent_without_a_controller(api: Api) -> None:
    held = launched(api)
    lease_seconds = 12 * 3600.0
    access = Authentication(
        api.world.store, api.authentication._key, api.world.clock, lease_seconds
    )
    token = access.join(access.join_token(held), held.id)
    api.world.clock.advance(lease_seconds)
    assert access.renewed(token, held) is None
    api.world.clock.advance(lease_seconds)
    assert access.node(token).id == held.id
    assert access.renewed(token, held) is not None
