"""People and their tokens: invitations, roles, expiry, revocation, rotation.

A token is random, and printed once; the store has its hash. A token never permits more than the
token that made it, and never outlives that token.
"""

from __future__ import annotations

import hashlib
import secrets
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from autoscaler.clock import Clock
from autoscaler.domain.access import (
    LOGIN_TOKEN,
    OWNER,
    AccessToken,
    Identity,
    Person,
    Role,
    require_person_name,
    require_team_name,
    require_token_name,
)
from autoscaler.domain.errors import (
    Conflict,
    Forbidden,
    NotAllowed,
    NotFound,
    SpecError,
    StoreError,
)
from autoscaler.domain.rules import LONGEST_SECONDS, require_positive
from autoscaler.service.versions import person_version
from autoscaler.store.repositories.people import (
    KnownToken,
    PersonCheck,
    accept_person,
    unknown_person,
)
from autoscaler.store.store import Store
from autoscaler.wire.access_messages import (
    Invitation,
    InvitationRequest,
    NewPerson,
    NewToken,
    PersonChange,
    PersonView,
    TokenRequest,
)

DEFAULT_SECONDS: Final = 90 * 86_400.0
"""Validity of a token that is made without an expiry, by a token that lasts for longer."""

OWNER_TOKEN: Final = "client.json"
INVITATION: Final = "invitation"
_REMEMBERED_SECONDS: Final = 5.0
_USE_SECONDS: Final = 60.0
_MOST_REMEMBERED: Final = 10_000


def digest(token: str) -> str:
    """Return the hash under which a token is stored."""
    return hashlib.sha256(token.encode(errors="replace")).hexdigest()


@dataclass(frozen=True, slots=True)
class _Remembered:
    """Identity of a token, as the store had it at a time of the monotonic clock."""

    identity: Identity
    token: AccessToken
    at_seconds: float


class PeopleAccess:
    """Issuer and verifier of the tokens of people."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._remembered: dict[str, _Remembered] = {}

    def set_owner(self, token: str) -> None:
        """Make `token` the only one of the owner's state directory, without an expiry.

        The owner is an admin afterwards, and keeps a team.
        """
        now_seconds, token_hash = self._clock.now(), digest(token)
        people, admin = self._store.people, Person(OWNER, Role.ADMIN)
        people.update(OWNER, lambda owner: replace(owner or admin, role=Role.ADMIN))
        known = people.of_token(token_hash)
        if known is None or not known.token.is_usable(now_seconds):
            made = AccessToken(OWNER, OWNER_TOKEN, now_seconds, OWNER)
            people.add_token(made, token_hash, now_seconds)
        self._remembered = {}

    def identity(self, token: str) -> Identity:
        """Return the person and the role of a token, and note its use.

        Raises:
            NotAllowed: the token is unknown, revoked or expired.
        """
        token_hash, now_seconds = digest(token), self._clock.now()
        remembered = self._remembered  # a change of tokens replaces this dictionary
        known = self._store.people.of_token(token_hash)
        if known is None:
            raise NotAllowed(
                "this token is not known here: take the one in the controller's state directory, "
                "set CASTOR_TOKEN, or run castor login again"
            )
        _require_usable(known.token, now_seconds)
        identity = _identity(known)
        self._note_use(known.token, token_hash, now_seconds)
        if len(remembered) >= _MOST_REMEMBERED:
            remembered.clear()
        remembered[token_hash] = _Remembered(identity, known.token, self._clock.monotonic())
        return identity

    def known(self, token: str) -> Identity | None:
        """Return the identity of a token that was seen a moment ago; None: ask the store."""
        remembered = self._remembered.get(digest(token))
        if remembered is None:
            return None
        age_seconds = self._clock.monotonic() - remembered.at_seconds
        is_fresh = age_seconds < _REMEMBERED_SECONDS
        is_usable = is_fresh and remembered.token.is_usable(self._clock.now())
        return remembered.identity if is_usable else None

    def people(self) -> tuple[PersonView, ...]:
        """Return all people, with the number of their usable tokens and the last use of one."""
        now_seconds, tokens = self._clock.now(), self._store.people.tokens()
        return tuple(
            PersonView(
                person.name,
                person.role,
                person.team,
                tokens=sum(
                    token.person == person.name and token.is_usable(now_seconds)
                    for token in tokens
                ),
                used_seconds=max(
                    (token.used_seconds or 0.0 for token in tokens if token.person == person.name),
                    default=0.0,
                )
                or None,
                version=person_version(person),
            )
            for person in self._store.people.all()
        )

    def invite(
        self, name: str, request: InvitationRequest, by: Identity
    ) -> tuple[Person | None, Invitation]:
        """Make a token for a person, who is added with the requested role if needed.

        Return the person as before, None for a new one, and the invitation. The token of an
        earlier invitation becomes invalid, other tokens stay.

        Raises:
            SpecError: the name, the team or the validity is invalid, or the token would outlive
                the requester's.
        """
        require_person_name(name)
        if request.team is not None:
            require_team_name(request.team)
        expires_seconds = self._expiry(request.valid_seconds, by)

        def invited(before: Person | None) -> Person:
            known = before or Person(name, Role.SUBMITTER)
            team = request.team or known.team
            return replace(known, role=request.role or known.role, team=team)

        before, person = self._store.people.update(name, invited)
        token = self._add(
            AccessToken(name, INVITATION, self._clock.now(), by.person, expires_seconds)
        )
        return before, Invitation(name, token, person.role, person.team, expires_seconds)

    def add(self, request: NewPerson) -> Person:
        """Add a person without a token, who logs in through the identity provider.

        Raises:
            SpecError: the name or the team is invalid.
            Conflict: the person is known.
        """
        require_person_name(request.name)
        if request.team is not None:
            require_team_name(request.team)

        def new(known: Person | None) -> Person:
            if known is not None:
                raise Conflict(f"{known.name} is known here: castor people set changes the role")
            return Person(request.name, request.role, request.team)

        return self._store.people.update(request.name, new)[1]

    def is_known(self, name: str) -> bool:
        """Return whether there is a person of this name."""
        return self._store.people.get(name) is not None

    def standing(self, name: str, role: Role | None) -> Person:
        """Return a person who has proved the name to the identity provider.

        The person may be new if `role` is one for new people, None: no new people.

        Raises:
            Forbidden: the person is not known, and may not be added; or an admin removed them.
        """
        return self._store.people.get(name) or self._newcomer(name, role)

    def log_in(
        self, name: str, role: Role | None, token: str, valid_seconds: float
    ) -> tuple[Person, NewToken]:
        """Return a person and a new token called `token`; a new person is added with `role`.

        Raises:
            Forbidden: as `standing`.
        """
        person = self._store.people.get(name)
        if person is None:
            newcomer = self._newcomer(name, role)
            _, person = self._store.people.update(name, lambda known: known or newcomer)
        now_seconds = self._clock.now()
        made = AccessToken(name, token, now_seconds, name, now_seconds + valid_seconds)
        return person, self._new(made)

    def change(
        self,
        name: str,
        change: PersonChange,
        precondition: PersonCheck = accept_person,
    ) -> tuple[Person, Person]:
        """Change role and team of a person; tokens follow at once. Return before and after.

        `precondition` may refuse the person as it is stored.

        Raises:
            NotFound: there is no such person.
            Conflict: the owner is no admin afterwards.
            SpecError: the team is invalid.
        """
        if name == OWNER and change.role not in (None, Role.ADMIN):
            raise Conflict(f"{OWNER} runs this controller and stays an admin")
        if change.team is not None:
            require_team_name(change.team)

        def changed(known: Person | None) -> Person:
            if known is None:
                raise unknown_person(name)
            precondition(known)
            team = None if change.leaves_team else change.team or known.team
            return replace(known, role=change.role or known.role, team=team)

        before, after = self._store.people.update(name, changed)
        self._remembered = {}
        return before or after, after  # `changed` refuses an unknown person

    def remove(self, name: str, precondition: PersonCheck = accept_person) -> None:
        """Remove a person and revoke all tokens. Jobs run on.

        `precondition` may refuse the person as it is stored.

        Raises:
            NotFound: there is no such person.
            Conflict: the person is the owner.
        """
        self.require_removable(name)
        with self._store.grouped():
            if not self._store.people.remove(name, self._clock.now(), precondition):
                raise unknown_person(name)
            self._store.settings.note_removal(name)
        self._remembered = {}

    def require_removable(self, name: str) -> None:
        """Check that a person may be removed. `Conflict`: the owner may not."""
        if name == OWNER:
            raise Conflict(f"{OWNER} runs this controller and can't be removed")

    def tokens(self, person: str) -> tuple[AccessToken, ...]:
        """Return the tokens of a person, revoked and expired ones included.

        Raises:
            NotFound: there is no such person.
        """
        self._person(person)
        return self._store.people.tokens(person)

    def create(self, person: str, request: TokenRequest, by: Identity) -> NewToken:
        """Return a new token of a person.

        Raises:
            NotFound: there is no such person.
            Conflict: there is a token of this name.
            Forbidden: the role is above that of the requester.
            SpecError: the name or the validity is invalid, or the token would outlive the
                requester's.
        """
        require_token_name(request.name)
        owner = self._person(person)
        now_seconds = self._clock.now()
        if self._usable(person, request.name) is not None:
            raise Conflict(
                f"{person} has a token {request.name}: castor token rotate {request.name} "
                "replaces it"
            )
        role = request.role
        is_limited = request.is_service or by.limit is not None
        if role is None and (is_limited or not by.role.covers(owner.role)):
            role = by.role
        if role is not None and not by.role.covers(role):
            raise Forbidden(
                f"create token: the role {role} is above {by.role}, that of the requester: "
                f"write role {by.role} or a lower one"
            )
        expires_seconds = self._expiry(request.valid_seconds, by)
        return self._new(
            AccessToken(
                *(person, request.name, now_seconds, by.person, expires_seconds),
                role=role,
                is_service=request.is_service,
            )
        )

    def rotate(self, person: str, name: str, by: Identity, grace_seconds: float = 0.0) -> NewToken:
        """Return a new token in place of the one of this name, with its role and validity.

        The earlier one is valid for `grace_seconds` more. A token without an expiry gets the
        default one. The new one ends with the requester's at the latest.

        Raises:
            NotFound: there is no such person or token.
            Conflict: the token is that of the controller's state directory.
            Forbidden: the token permits more than the requester's.
            SpecError: the grace is invalid.
        """
        if grace_seconds:
            require_positive(grace_seconds, "grace_seconds", LONGEST_SECONDS)
        _require_other_than_owner_token(person, name)
        owner, token = self._person(person), self._usable(person, name)
        if token is None:
            raise _unknown_token(person, name)
        is_below_limit = by.limit is None or by.limit.covers(token.role or Role.ADMIN)
        if not is_below_limit or not by.role.covers(owner.role.capped(token.role)):
            raise Forbidden(
                f"rotate token: {name} permits more than the role {by.limit or by.role} of the "
                "requester: use a token with the person's full role"
            )
        now_seconds = self._clock.now()
        valid_seconds = (
            DEFAULT_SECONDS
            if token.expires_seconds is None
            else token.expires_seconds - token.created_seconds
        )
        renewed = replace(
            token,
            created_seconds=now_seconds,
            created_by=by.person,
            expires_seconds=_no_later(now_seconds + valid_seconds, by),
            used_seconds=None,
            revoked_seconds=None,
        )
        return self._new(renewed, now_seconds + grace_seconds)

    def revoke(self, person: str, name: str) -> None:
        """Revoke the tokens of a person with this name, also one that rotation has replaced.

        Raises:
            NotFound: there is no such token, or it is revoked already.
            Conflict: the token is that of the controller's state directory.
        """
        _require_other_than_owner_token(person, name)
        if not self._store.people.revoke(person, name, self._clock.now()):
            raise _unknown_token(person, name)
        self._remembered = {}

    def require_revocable(self, person: str, name: str) -> None:
        """Check that a token can be revoked. Errors are those of `revoke`."""
        _require_other_than_owner_token(person, name)
        if self._usable(person, name) is None:
            raise _unknown_token(person, name)

    def _new(self, token: AccessToken, replaced_seconds: float | None = None) -> NewToken:
        text = self._add(token, replaced_seconds)
        return NewToken(token.person, token.name, text, token.role, token.expires_seconds)

    def _add(self, token: AccessToken, replaced_seconds: float | None = None) -> str:
        """Store a new token and return its text; the one of its name ends, at once if None."""
        text = secrets.token_urlsafe(32)
        ends_seconds = self._clock.now() if replaced_seconds is None else replaced_seconds
        self._store.people.add_token(token, digest(text), ends_seconds)
        self._remembered = {}
        return text

    def _person(self, name: str) -> Person:
        person = self._store.people.get(name)
        if person is None:
            raise unknown_person(name)
        return person

    def _newcomer(self, name: str, role: Role | None) -> Person:
        """Return a person who logs in for the first time, to be stored.

        Raises:
            Forbidden: there is no role for new people, or an admin removed the person.
        """
        way_out = f"ask an admin for castor people add {name}"
        if self._store.settings.was_removed(name) or self._store.people.tokens(name):
            raise Forbidden(f"{name} was removed here by an admin: {way_out}")
        if role is None:
            raise Forbidden(f"{name} is not known here: {way_out}")
        return Person(name, role)

    def _usable(self, person: str, name: str) -> AccessToken | None:
        """Return the newest usable token of this name; None if there is none."""
        now_seconds = self._clock.now()
        usable = (
            token
            for token in self._store.people.tokens(person)
            if token.name == name and token.is_usable(now_seconds)
        )
        return max(usable, key=lambda token: token.created_seconds, default=None)

    def _expiry(self, valid_seconds: float | None, by: Identity) -> float:
        """Return when a token expires that `by` makes.

        Raises:
            SpecError: the validity is invalid, or goes beyond the end of the requester's token.
        """
        now_seconds = self._clock.now()
        if valid_seconds is None:
            return _no_later(now_seconds + DEFAULT_SECONDS, by)
        require_positive(valid_seconds, "valid_seconds", LONGEST_SECONDS)
        expires_seconds = now_seconds + valid_seconds
        if by.ends_seconds is not None and expires_seconds > by.ends_seconds:
            raise SpecError(
                f"{valid_seconds:.0f} s is too long: no token outlives the one that makes it, and "
                f"{by.token} of {by.person} ends at {_utc(by.ends_seconds)}: leave the validity "
                "(--expires) out for that moment, or write a shorter one",
                "valid_seconds",
            )
        return expires_seconds

    def _note_use(self, token: AccessToken, token_hash: str, now_seconds: float) -> None:
        if token.used_seconds is None or abs(now_seconds - token.used_seconds) >= _USE_SECONDS:
            with suppress(StoreError):  # reading goes on where nothing can be written
                self._store.people.note_use(token_hash, now_seconds)


def _identity(known: KnownToken) -> Identity:
    token, person = known.token, known.person
    role = person.role.capped(token.role)
    return Identity(
        *(person.name, role, person.team, token.name, token.is_service, token.role),
        token.ends_seconds,
    )


def _no_later(expires_seconds: float, by: Identity) -> float:
    """Return an expiry, at the end of the requester's token at the latest."""
    return expires_seconds if by.ends_seconds is None else min(expires_seconds, by.ends_seconds)


def _utc(at_seconds: float) -> str:
    return f"{datetime.fromtimestamp(at_seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"


def _require_usable(token: AccessToken, now_seconds: float) -> None:
    way_out = (
        "run castor login again"
        if token.name.startswith(LOGIN_TOKEN)
        else "make another with castor token create, or ask an admin for castor invite "
        f"{token.person}"
    )
    if token.is_revoked(now_seconds):
        raise NotAllowed(
            f"the token {token.name} of {token.person} was revoked or replaced: {way_out}"
        )
    if token.has_expired(now_seconds):
        raise NotAllowed(
            f"the token {token.name} of {token.person} expired at "
            f"{_utc(token.expires_seconds or 0.0)}: {way_out}"
        )


def _require_other_than_owner_token(person: str, name: str) -> None:
    if (person, name) == (OWNER, OWNER_TOKEN):
        raise Conflict(
            f"{OWNER_TOKEN} is in the controller's state directory: stop the controller, "
            "remove the file and start it again for a new token"
        )


def _unknown_token(person: str, name: str) -> NotFound:
    return NotFound(f"{person} has no usable token {name}: castor token list shows all")
