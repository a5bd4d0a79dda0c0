"""Tokens of people: names, roles, expiry, revocation, rotation, last use."""

from __future__ import annotations

import pytest

from autoscaler.domain.access import OWNER, Role
from autoscaler.domain.errors import Conflict, Forbidden, NotAllowed, NotFound, SpecError
from autoscaler.wire.access_messages import (
    InvitationRequest,
    NewToken,
    PersonChange,
    TokenRequest,
)
from autoscaler.wire.client import Client
from tests.service.conftest import Api

DAY_SECONDS = 86_400.0


@pytest.fixture
def ada(api: Api) -> Client:
    """Client of a submitter."""
    return api.stranger(api.client.invite("ada").token)


def test_a_person_has_several_tokens_of_which_one_is_revoked(api: Api, ada: Client) -> None:
    laptop, phone = (ada.create_token(TokenRequest(name)) for name in ("laptop", "phone"))
    assert {token.name for token in ada.tokens()} == {"invitation", "laptop", "phone"}
    assert api.stranger(phone.token).jobs() == ()
    ada.revoke_token("phone")
    with pytest.raises(NotAllowed, match=r"token phone of ada was revoked.*castor invite ada"):
        api.stranger(phone.token).jobs()
    assert api.stranger(laptop.token).jobs() == ()
    with pytest.raises(NotFound, match="no usable token phone: castor token list"):
        ada.revoke_token("phone")


def test_a_token_expires_after_90_days_or_as_asked(api: Api, ada: Client) -> None:
    now_seconds = api.world.clock.now()
    assert ada.create_token(TokenRequest("long")).expires_seconds == now_seconds + 90 * DAY_SECONDS
    short = ada.create_token(TokenRequest("short", valid_seconds=60.0))
    api.world.clock.advance(59.0)
    assert api.stranger(short.token).jobs() == ()
    api.world.clock.advance(1.0)
    with pytest.raises(NotAllowed, match=r"token short of ada expired at 1970.* UTC: make anoth"):
        api.stranger(short.token).jobs()
    assert ada.jobs() == ()
    for seconds in (0.0, -1.0, float("nan"), 367 * DAY_SECONDS):
        with pytest.raises(SpecError, match="valid_seconds"):
            ada.create_token(TokenRequest("odd", valid_seconds=seconds))


def test_a_known_token_expires_without_a_look_into_the_store(api: Api, ada: Client) -> None:
    token = ada.create_token(TokenRequest("short", valid_seconds=3.0)).token
    people = api.authentication.people
    people.identity(token)
    assert people.known(token) is not None
    api.world.clock.advance(3.0)
    assert people.known(token) is None


def test_a_rotated_token_is_replaced_after_its_grace(api: Api, ada: Client) -> None:
    first = api.client.create_token(TokenRequest("ci", Role.VIEWER, True, 10 * DAY_SECONDS), "ada")
    api.world.clock.advance(DAY_SECONDS)
    second = api.client.rotate_token("ci", 60.0, "ada")
    assert (second.role, second.expires_seconds) == (
        Role.VIEWER,
        api.world.clock.now() + 10 * DAY_SECONDS,
    )
    assert api.stranger(first.token).jobs() == api.stranger(second.token).jobs() == ()
    api.world.clock.advance(60.0)
    with pytest.raises(NotAllowed, match="ci of ada was revoked or replaced"):
        api.stranger(first.token).jobs()
    assert api.stranger(second.token).jobs() == ()
    third = ada.rotate_token("ci")
    with pytest.raises(NotAllowed):
        api.stranger(second.token).jobs()
    assert [token.is_service for token in ada.tokens() if token.name == "ci"] == [True] * 3
    assert api.stranger(third.token).jobs() == ()


def test_a_replaced_token_is_revoked_within_its_grace(api: Api, ada: Client) -> None:
    first = ada.create_token(TokenRequest("ci"))
    second = ada.rotate_token("ci", 3600.0)
    ada.revoke_token("ci")
    for token in (first.token, second.token):
        with pytest.raises(NotAllowed, match="was revoked"):
            api.stranger(token).jobs()


def limited(api: Api, person: Client, role: Role, name: str = "limited") -> Client:
    """Return a client with a token of a person that has a lower role."""
    return api.stranger(person.create_token(TokenRequest(name, role)).token)


def test_a_token_never_permits_more_than_the_one_that_made_it(api: Api) -> None:
    amy = api.stranger(api.client.invite("amy", InvitationRequest(Role.ADMIN)).token)
    amy.create_token(TokenRequest("strong"))
    viewer = limited(api, amy, Role.VIEWER)
    with pytest.raises(Forbidden, match="invite: needs the role admin, and amy is a viewer"):
        viewer.invite("bob")
    assert viewer.create_token(TokenRequest("weak")).role is Role.VIEWER
    with pytest.raises(Forbidden, match="the role admin is above viewer"):
        viewer.create_token(TokenRequest("more", Role.ADMIN))
    with pytest.raises(Forbidden, match="rotate token: strong permits more than the role viewer"):
        viewer.rotate_token("strong")
    assert viewer.rotate_token("weak").role is Role.VIEWER


def test_a_limited_token_makes_none_that_a_later_role_of_its_person_raises(api: Api) -> None:
    ada = api.stranger(api.client.invite("ada").token)
    ada.create_token(TokenRequest("full"))
    weak = limited(api, ada, Role.SUBMITTER)
    made = weak.create_token(TokenRequest("made"))
    assert made.role is Role.SUBMITTER
    with pytest.raises(Forbidden, match="full permits more than the role submitter"):
        weak.rotate_token("full")
    api.client.change_person("ada", PersonChange(Role.OPERATOR))
    with pytest.raises(Forbidden, match="freeze: needs the role operator, and ada is a submitter"):
        api.stranger(made.token).freeze()
    assert weak.rotate_token("made").role is Role.SUBMITTER


def test_no_token_outlives_the_one_that_made_it(api: Api) -> None:
    amy = api.stranger(api.client.invite("amy", InvitationRequest(Role.ADMIN)).token)
    now_seconds = api.world.clock.now()
    made = amy.create_token(TokenRequest("short", valid_seconds=DAY_SECONDS))
    short, end_seconds = api.stranger(made.token), now_seconds + DAY_SECONDS
    assert made.expires_seconds == end_seconds
    api.world.clock.advance(3600.0)
    for make in (
        lambda: short.create_token(TokenRequest("long", valid_seconds=DAY_SECONDS)),
        lambda: short.create_token(TokenRequest("long", valid_seconds=DAY_SECONDS), "owner"),
        lambda: short.invite("bob", InvitationRequest(valid_seconds=DAY_SECONDS)),
    ):
        with pytest.raises(
            SpecError,
            match=r"^valid_seconds: .* short of amy ends at 1970-.*:.*:.* UTC: leave the",
        ):
            make()
    for name, request in (("default", None), ("least", 60.0)):
        token = short.create_token(TokenRequest(name, valid_seconds=request))
        assert token.expires_seconds == min(
            end_seconds, api.world.clock.now() + (request or 90 * DAY_SECONDS)
        )
    assert short.invite("bob").expires_seconds == end_seconds
    assert short.rotate_token("invitation").expires_seconds == end_seconds
    assert short.rotate_token("short").expires_seconds == end_seconds
    assert [person.name for person in api.client.people()] == ["amy", "bob", OWNER]


def test_a_token_that_is_replaced_makes_none_beyond_its_grace(api: Api, ada: Client) -> None:
    first = api.stranger(ada.create_token(TokenRequest("laptop")).token)
    ada.rotate_token("laptop", 60.0)
    end_seconds = api.world.clock.now() + 60.0
    assert first.create_token(TokenRequest("phone")).expires_seconds == end_seconds
    with pytest.raises(SpecError, match="valid_seconds"):
        first.create_token(TokenRequest("tablet", valid_seconds=61.0))


def test_the_owner_s_token_makes_tokens_of_any_length(api: Api, ada: Client) -> None:
    request = TokenRequest("long", valid_seconds=300 * DAY_SECONDS)
    long = api.client.create_token(request, "ada")
    api.world.clock.advance(10 * DAY_SECONDS)
    assert long.expires_seconds == api.world.clock.now() + 290 * DAY_SECONDS
    renewed = api.client.rotate_token("long", person="ada")
    assert renewed.expires_seconds == api.world.clock.now() + 300 * DAY_SECONDS


def test_a_service_token_manages_no_tokens(api: Api, ada: Client) -> None:
    made = ada.create_token(TokenRequest("ci", is_service=True))
    assert made.role is Role.SUBMITTER
    ci = api.stranger(made.token)
    assert ci.jobs() == ()
    with pytest.raises(Forbidden, match="the service token ci may not do this"):
        ci.create_token(TokenRequest("more"))
    with pytest.raises(Forbidden, match="the role operator is above submitter"):
        ada.create_token(TokenRequest("strong", Role.OPERATOR, is_service=True))


def test_a_role_that_is_lowered_lowers_all_tokens_at_once(api: Api) -> None:
    token = api.client.invite("oscar", InvitationRequest(Role.OPERATOR)).token
    oscar = api.stranger(token)
    service = api.stranger(oscar.create_token(TokenRequest("ci", is_service=True)).token)
    for client in (oscar, service):
        client.freeze()
        client.unfreeze()
    api.client.change_person("oscar", PersonChange(Role.VIEWER))
    for client in (oscar, service):
        with pytest.raises(Forbidden, match="freeze: needs the role operator, and oscar is a vie"):
            client.freeze()


def test_a_person_who_is_removed_is_let_in_no_more(api: Api, ada: Client) -> None:
    assert ada.jobs() == ()
    api.client.remove_person("ada")
    with pytest.raises(NotAllowed, match="not known here"):
        ada.jobs()
    assert [person.name for person in api.client.people()] == [OWNER]
    with pytest.raises(NotFound, match="nobody is called ada"):
        api.client.remove_person("ada")


def test_the_owner_stays_an_admin_with_the_token_of_the_state_directory(api: Api) -> None:
    for change in (
        lambda: api.client.remove_person(OWNER),
        lambda: api.client.change_person(OWNER, PersonChange(Role.VIEWER)),
        lambda: api.client.revoke_token("client.json"),
        lambda: api.client.rotate_token("client.json"),
    ):
        with pytest.raises(Conflict):
            change()
    assert api.client.people()[0].role is Role.ADMIN


def test_the_owner_keeps_a_team_when_the_controller_starts_again(api: Api) -> None:
    api.client.change_person(OWNER, PersonChange(team="nlp"))
    api.authentication.people.set_owner(api.token)
    assert [(person.role, person.team) for person in api.client.people()] == [(Role.ADMIN, "nlp")]


def test_a_new_token_of_the_state_directory_replaces_the_one_before(api: Api) -> None:
    api.authentication.people.set_owner("another")
    with pytest.raises(NotAllowed, match=r"client\.json of owner was revoked or replaced"):
        api.client.jobs()
    assert api.stranger("another").jobs() == ()


def test_a_token_s_last_use_is_listed_to_about_a_minute(api: Api, ada: Client) -> None:
    made = ada.create_token(TokenRequest("laptop"))
    laptop = api.stranger(made.token)

    def used_seconds() -> float | None:
        return next(token.used_seconds for token in ada.tokens() if token.name == "laptop")

    assert used_seconds() is None
    laptop.jobs()
    first_seconds = api.world.clock.now()
    assert used_seconds() == first_seconds
    api.world.clock.advance(59.0)
    laptop.jobs()
    assert used_seconds() == first_seconds
    api.world.clock.advance(10.0)
    laptop.jobs()
    assert used_seconds() == first_seconds + 69.0
    (_, person) = sorted(api.client.people(), key=lambda person: person.name == "ada")
    assert (person.tokens, person.used_seconds) == (2, first_seconds + 69.0)


def test_an_invitation_keeps_role_team_and_other_tokens(api: Api) -> None:
    client = api.client
    first = client.invite("ada", InvitationRequest(Role.OPERATOR, "nlp"))
    laptop = api.stranger(first.token).create_token(TokenRequest("laptop"))
    again = client.invite("ada")
    assert (again.role, again.team) == (Role.OPERATOR, "nlp")
    assert api.stranger(laptop.token).jobs() == api.stranger(again.token).jobs() == ()
    with pytest.raises(NotAllowed):
        api.stranger(first.token).jobs()


@pytest.mark.parametrize("name", ["", "a b", "é", "../x", "x" * 41, "A"])
def test_a_token_needs_a_plain_name(ada: Client, name: str) -> None:
    with pytest.raises(SpecError, match=r"name: .*not a valid name of a token"):
        ada.create_token(TokenRequest(name))


def test_a_team_needs_a_plain_name(api: Api) -> None:
    for team in ("", "none", "a b"):
        with pytest.raises(SpecError, match="not a valid team"):
            api.client.invite("ada", InvitationRequest(team=team))
    assert [person.name for person in api.client.people()] == [OWNER]


def test_a_name_in_use_is_refused(ada: Client) -> None:
    ada.create_token(TokenRequest("laptop"))
    with pytest.raises(Conflict, match="ada has a token laptop: castor token rotate laptop"):
        ada.create_token(TokenRequest("laptop"))
    ada.revoke_token("laptop")
    assert isinstance(ada.create_token(TokenRequest("laptop")), NewToken)


def test_only_hashes_are_stored(api: Api, ada: Client) -> None:
    token = ada.create_token(TokenRequest("laptop")).token
    files = [path for path in api.directory.rglob("*") if path.is_file()]
    assert files and not any(token.encode() in path.read_bytes() for path in files)
