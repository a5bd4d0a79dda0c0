"""People who use the API: roles, teams, access tokens and owners of what they make."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from autoscaler.domain.errors import SpecError
from autoscaler.domain.text import quoted

OWNER: Final = "owner"
"""Person who runs the controller: an admin for good, with the token of its state directory."""

MYSELF: Final = "me"
"""Name that means the requester in paths of the API. Nobody has it."""

NO_TEAM: Final = "none"
"""Word for no team. No team has it as its name."""

CONTROLLER: Final = "controller"
"""Name of the controller itself in the audit log. Nobody has it."""

LOGIN_TOKEN: Final = "login-"
"""Start of the names of tokens that logins through an identity provider make."""

LEAST_LOGIN_HOURS: Final = 0.1
MOST_LOGIN_HOURS: Final = 90 * 24.0
"""Bounds of the validity of a token that a login makes."""

BROWSER_TOKEN: Final = "browser-"
"""Start of the names of tokens that are sessions of browsers."""

_PERSON: Final = re.compile(r"[a-z0-9][a-z0-9.@_-]{0,79}")
_TOKEN_NAME: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")


class Role(StrEnum):
    """Role of a person or of a service token. Each role may do all that the roles before may."""

    VIEWER = "viewer"
    SUBMITTER = "submitter"
    OPERATOR = "operator"
    ADMIN = "admin"

    @property
    def rank(self) -> int:
        """Position of the role, from 0 for a viewer."""
        return list(Role).index(self)

    def covers(self, needed: Role) -> bool:
        """Return whether this role may do what the role `needed` may."""
        return self.rank >= needed.rank

    def capped(self, limit: Role | None) -> Role:
        """Return the lower one of this role and a limit; None: no limit."""
        return self if limit is None or limit.covers(self) else limit


@dataclass(frozen=True, slots=True)
class Person:
    """A person of the API. A person has at most one team; None: no team.

    With one team, the team of a job follows from its submitter, without an option that could be
    forgotten or be wrong.
    """

    name: str
    role: Role
    team: str | None = None


@dataclass(frozen=True, slots=True)
class AccessToken:
    """Facts of a token of a person; the token itself is stored nowhere.

    `role` is the limit of what the token may do; None: as much as its person. A service token is
    for programs: it never manages tokens. `expires_seconds` None: never. `revoked_seconds` None:
    not revoked. `used_seconds` is the last use, known to about a minute; None: never used.
    """

    person: str
    name: str
    created_seconds: float
    created_by: str
    expires_seconds: float | None = None
    role: Role | None = None
    is_service: bool = False
    used_seconds: float | None = None
    revoked_seconds: float | None = None

    @property
    def ends_seconds(self) -> float | None:
        """The time at which the token expires or is replaced, whichever is first; None: never."""
        ends = (self.expires_seconds, self.revoked_seconds)
        return min((end for end in ends if end is not None), default=None)

    def is_usable(self, now_seconds: float) -> bool:
        """Return whether the token is neither revoked nor expired."""
        return not self.is_revoked(now_seconds) and not self.has_expired(now_seconds)

    def is_revoked(self, now_seconds: float) -> bool:
        """Return whether the token is revoked by now."""
        return self.revoked_seconds is not None and self.revoked_seconds <= now_seconds

    def has_expired(self, now_seconds: float) -> bool:
        """Return whether the token has expired."""
        return self.expires_seconds is not None and self.expires_seconds <= now_seconds


@dataclass(frozen=True, slots=True)
class Identity:
    """Person and token behind a request, with the role that both permit.

    `limit` is the role that limits the token; None: the token permits as much as its person.
    `ends_seconds` is the end of the token, which no token that it makes outlives; None: none.
    """

    person: str
    role: Role
    team: str | None = None
    token: str = ""
    is_service: bool = False
    limit: Role | None = None
    ends_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Owner:
    """Owner of a job, a study, a program or a bundle: a person, and the team of that time."""

    person: str
    team: str | None = None

    def is_shared_with(self, identity: Identity) -> bool:
        """Return whether an identity is the owner, or of the owner's team."""
        is_same_team = self.team is not None and self.team == identity.team
        return self.person == identity.person or is_same_team

    def __str__(self) -> str:
        return self.person if self.team is None else f"{self.person} of team {self.team}"


def require_person_name(name: str) -> None:
    """Check the name of a person who is no owner of the controller.

    Raises:
        SpecError: the name is invalid or reserved.
    """
    if name in (OWNER, MYSELF, CONTROLLER) or not _PERSON.fullmatch(name):
        raise SpecError(
            f"{quoted(name)} can't be invited: take another name, of a-z, 0-9 and .@_-", "name"
        )


def require_token_name(name: str) -> None:
    """Check the name of a token.

    Raises:
        SpecError: the name is invalid.
    """
    if not _TOKEN_NAME.fullmatch(name):
        raise SpecError(
            f"{quoted(name)} is not a valid name of a token: write 1 to 40 of a-z, 0-9 and ._-",
            "name",
        )


def require_team_name(name: str) -> None:
    """Check the name of a team.

    Raises:
        SpecError: the name is invalid.
    """
    if name == NO_TEAM or not _TOKEN_NAME.fullmatch(name):
        raise SpecError(
            f"{quoted(name)} is not a valid team: write 1 to 40 of a-z, 0-9 and ._-", "team"
        )
