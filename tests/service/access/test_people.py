"""Submitters of jobs, and the weights of jobs by user and priority."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.errors import Forbidden, NotAllowed, SpecError
from autoscaler.domain.job import InstanceBounds, JobSpec
from autoscaler.wire.messages import Change
from tests.service.conftest import TOKEN, Api

SPEC = JobSpec("job", ("python", "train.py"), instances=InstanceBounds(maximum=2))


def test_a_job_is_whose_token_submitted_it(api: Api) -> None:
    ada = api.stranger(api.client.invite("ada").token)
    with pytest.raises(SpecError, match="person: is set from the token"):
        ada.submit(replace(SPEC, person="bob"))
    view = ada.submit(SPEC)
    assert (view.person, view.priority, view.weight) == ("ada", 1.0, 1.0)


def test_a_new_invitation_replaces_the_one_before(api: Api) -> None:
    lost = api.client.invite("ada").token
    assert api.stranger(lost).jobs() == ()
    found = api.client.invite("ada").token
    assert api.stranger(found).jobs() == ()
    with pytest.raises(NotAllowed, match=r"invitation of ada was revoked or replaced.*castor inv"):
        api.stranger(lost).jobs()


def test_only_an_admin_invites_and_nobody_in_a_reserved_name(api: Api) -> None:
    ada = api.stranger(api.client.invite("ada").token)
    with pytest.raises(Forbidden, match="invite: needs the role admin, and ada is a submitter"):
        ada.invite("bob")
    for name in ("owner", "me", "controller", "Two Words"):
        with pytest.raises(SpecError, match="take another name"):
            api.client.invite(name)


def test_a_priority_is_changed_as_the_job_runs(api: Api) -> None:
    api.client.submit(SPEC)
    assert api.client.change("job", Change(priority=4.0)).priority == 4.0
    api.world.tick()
    assert api.client.job("job").weight == 4.0
    assert api.client.job("job").events[0].text == "priority by owner"
    with pytest.raises(SpecError, match=r"priority: must be a number from 0\.01 to 100"):
        api.client.change("job", Change(priority=0.0))


def test_bounds_of_an_offer_that_nobody_has_are_refused(api: Api) -> None:
    bounded = replace(SPEC, instances=InstanceBounds(maximum=2, maxima=(("smal", 1),)))
    with pytest.raises(SpecError, match=r"instances\.max_of: .*did you mean 'small'"):
        api.client.submit(bounded)


def test_whose_token_is_known_or_signed_is_let_in_without_the_store(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Take no thread for a known token; ask the store for another token."""
    authentication = api.authentication
    api.client.jobs()
    api.world.set_target(api.client.submit(SPEC).id, 1)
    api.world.tick(2, agents=False)
    (held,) = api.world.store.instances.alive()
    authentication.issue(held)
    node = authentication.join(authentication.join_token(held), held.id)
    monkeypatch.setattr(authentication, "_store", None)
    assert authentication.is_recognised("/v1/fleet", TOKEN)
    assert authentication.is_recognised("/v1/node/heartbeat", node)
    for path, token in (("/v1/fleet", node), ("/v1/node/heartbeat", TOKEN), ("/v1/fleet", None)):
        assert not authentication.is_recognised(path, token)
