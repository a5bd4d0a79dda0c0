"""Messages of the HTTP API about people and their tokens."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
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
    """A person, the number of usable tokens, and the last use of any; None: never used.

    `version` changes with role and team, and is what `If-Match` takes.
    """

    name: str
    role: Role
    team: str | None = None
    tokens: int = 0
    used_seconds: float | None = None
    version: str = ""


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


@dataclass(frozen=True, slots=True)
class BrowserLink:
    """Address that signs one browser in, once, within `valid_seconds`."""

    url: str
    valid_seconds: float


@dataclass(frozen=True, slots=True)
class NewPerson:
    """Request to add a person without a token, who logs in through the identity provider."""

    __pydantic_config__: ClassVar[ConfigDict] = FROM_PEOPLE

    name: str
    role: Role = Role.SUBMITTER
    team: str | None = None


class LoginStatus(StrEnum):
    """State of a terminal's login. The values are the words of RFC 8628."""

    PENDING = "authorization_pending"
    SLOW_DOWN = "slow_down"
    DENIED = "access_denied"
    EXPIRED = "expired_token"
    GRANTED = "granted"


@dataclass(frozen=True, slots=True)
class LoginRequest:
    """Request of a terminal to log a person in. `host` is the terminal's name of its machine."""

    __pydantic_config__: ClassVar[ConfigDict] = FROM_PEOPLE

    host: str = ""


@dataclass(frozen=True, slots=True)
class BegunLogin:
    """Login that awaits a person's approval in a browser.

    The terminal keeps `device_code` secret and asks with it for the token, at most every
    `interval_seconds`. A person opens `url`, whose page shows `user_code`, within
    `valid_seconds`.
    """

    device_code: str
    user_code: str
    url: str
    valid_seconds: float
    interval_seconds: float


@dataclass(frozen=True, slots=True)
class LoginTokenRequest:
    """Request of a terminal for the token of a login that it began."""

    __pydantic_config__: ClassVar[ConfigDict] = FROM_PEOPLE

    device_code: str


@dataclass(frozen=True, slots=True)
class LoginReply:
    """State of a login, the seconds until the next request for it, and the token once granted."""

    status: LoginStatus
    interval_seconds: float
    token: NewToken | None = None
