"""What the members of a job and its roster tell each other.

Each message is one line of JSON. A member sends calls as long as it lives; each ask among them is
answered by one order. At each change of who is there, every member gets a notice.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass


@dataclass(frozen=True, slots=True)
class Ask:
    """A member stands at a step boundary and asks who takes part in the next steps.

    `world` is the one that it is in, empty before the first. `has_failed`: a collective of that
    world has.
    """

    world: str
    has_failed: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A sign of life of the member `name`, whose store listens at `store`; with or without ask."""

    name: str
    store: str
    ask: Ask | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """The answer to an ask: be one of `members` of `world`; they meet at `store`."""

    world: str
    members: tuple[str, ...]
    store: str


@dataclass(frozen=True, slots=True)
class Notice:
    """The names of all who are there: members, and those who want to be."""

    names: tuple[str, ...]


def line_of(message: Call | Order | Notice) -> bytes:
    """The message as a line."""
    return json.dumps(asdict(message)).encode() + b"\n"


def call_from(line: bytes) -> Call:
    """The call that a line is.

    Raises:
        ValueError, KeyError, TypeError: it is none.
    """
    values = json.loads(line)
    ask = values["ask"]
    if ask is not None:
        ask = Ask(str(ask["world"]), bool(ask["has_failed"]))
    return Call(name=str(values["name"]), store=str(values["store"]), ask=ask)


def answer_from(line: bytes) -> Order | Notice:
    """Return the order or the notice that a line of the server is.

    Raises:
        ValueError, KeyError, TypeError: it is neither.
    """
    values = json.loads(line)
    if "names" in values:
        return Notice(tuple(str(name) for name in values["names"]))
    members = tuple(str(name) for name in values["members"])
    return Order(str(values["world"]), members, str(values["store"]))
