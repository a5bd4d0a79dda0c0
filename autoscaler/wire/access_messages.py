"""Messages of the HTTP API about people and their tokens."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pydantic import ConfigDict

from autoscaler.domain.access import Role
from autoscaler.wire.messages import FROM_PEOPLE


@dataclass(frozen=True, slots=True)
class InvitationRequest:
    """Request to invite a person.

    `role` None: that of before, or submitter. `team` None: that of before, or none.
    `valid_seconds` None: 90 days, or to the end of the requester's token if that is earlier.
    """

    __pydantic_config__: ClassVar[ConfigDict] = FROM_PEOPLE

    role: Role | None = None
    team: str | None = None
    valid_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Invitation:
    """New access token of a person, in place of the token of an earlier invitation."""

    person: str
    token: str
    role: Role | None = None
    team: str | None = None
    expires_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class PersonView:
    """A person, the number of usable tokens, and the last use of any; None: never used."""

    name: str
    role: Role
    team: str | None = None
    tokens: int = 0
    used_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class PersonChange:
    """Change of a person; None leaves a value as it is. `leaves_team`: of no team afterwards."""

    __pydantic_config__: ClassVar[ConfigDict] = FROM_PEOPLE

    role: Role | None = None
    team: str | None = None
    leaves_team: bool = False


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """Request for a token.

    `role` None: as much as the person, for a service token as the requester. `valid_seconds`
    None: 90 days, or to the end of the requester's token if that is earlier.
    """

    __pydantic_config__: ClassVar[ConfigDict] = FROM_PEOPLE

    name: str
    role: Role | None = None
    is_service: bool = False
    valid_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class NewToken:
    """New token of a person. `role` None: as much as the person. `expires_seconds` None: never."""

    person: str
    name: str
    token: str
    role: Role | None = None
    expires_seconds: float | None = None
