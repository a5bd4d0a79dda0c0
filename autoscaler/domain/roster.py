"""Messages between the members of a job and the job's roster.

Each message is one line of JSON. A member sends calls while it lives, and the roster answers each
ask with one order. At each change of membership, every member gets a notice.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from autoscaler.domain.text import parse_json


@dataclass(frozen=True, slots=True)
class Ask:
    """Request of a member at a step boundary for the members of the next steps.

    `world` is the member's present world, empty before the first. `has_failed`: a collective of
    that world failed.
    """

    world: str
    has_failed: bool = False


@dataclass(frozen=True, slots=True)
class MemberHeartbeat:
    """Heartbeat of the member `name`, whose store listens at `store`; may carry an ask."""

    name: str
    store: str
    ask: Ask | None = None


@dataclass(frozen=True, slots=True)
class QuorumReply:
    """Answer to an ask: the `members` of the new `world`, and the `store` where they meet."""

    world: str
    members: tuple[str, ...]
    store: str


@dataclass(frozen=True, slots=True)
class Notice:
    """Names of all present processes: members, and joiners that await admission."""

    names: tuple[str, ...]


def line_of(message: MemberHeartbeat | QuorumReply | Notice) -> bytes:
    """Return a message as one line of JSON."""
    return json.dumps(asdict(message)).encode() + b"\n"


def call_from(line: bytes) -> MemberHeartbeat:
    """Parse a line into a call.

    Raises:
        ValueError, KeyError, TypeError: the line is not a call.
    """
    values = parse_json(line)
    ask = values["ask"]
    if ask is not None:
        ask = Ask(str(ask["world"]), bool(ask["has_failed"]))
    return MemberHeartbeat(name=str(values["name"]), store=str(values["store"]), ask=ask)


def answer_from(line: bytes) -> QuorumReply | Notice:
    """Parse a line of the server into an order or a notice.

    Raises:
        ValueError, KeyError, TypeError: the line is neither.
    """
    values = parse_json(line)
    if "names" in values:
        return Notice(tuple(str(name) for name in values["names"]))
    members = tuple(str(name) for name in values["members"])
    return QuorumReply(str(values["world"]), members, str(values["store"]))
