"""What the members of a job and its roster tell each other where torchft can't be had.

Each message is one line of JSON. A member sends calls as long as it lives; each ask among them is
answered by one order. At each change of who is there, every member gets a notice.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Ask:
    """A member stands at a step boundary and asks who takes part in the next steps.

    Members with the same `origin` and `step` have the same state: the origin is the world in
    which they have trained up to that step, or whose checkpoint they started from.
    `has_failed`: a collective of that world has. `has_published`: a checkpoint of `step` is there
    for others to load, or could not be written.
    """

    origin: str
    step: int
    has_failed: bool = False
    has_published: bool = False

    @property
    def state(self) -> tuple[str, int]:
        """Equal for members whose states are equal."""
        return self.origin, self.step


@dataclass(frozen=True, slots=True)
class Call:
    """A sign of life of the member `name`, whose store listens at `store`; with or without ask."""

    name: str
    store: str
    ask: Ask | None = None


class OrderKind(StrEnum):
    """What a member is to do: train in a world, or make the states equal and ask again."""

    GO = "go"
    PUBLISH = "publish"
    LOAD = "load"


@dataclass(frozen=True, slots=True)
class Order:
    """The answer to an ask.

    GO: be one of `members` of the world `origin`; they meet at `store`. PUBLISH: write a
    checkpoint. LOAD: read that of `step`, which makes the state that of `origin`; `members` have
    it in memory, and keep what they have if there is no such checkpoint.
    """

    kind: OrderKind
    origin: str = ""
    step: int = 0
    members: tuple[str, ...] = ()
    store: str = ""


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
        ask = Ask(
            origin=str(ask["origin"]),
            step=int(ask["step"]),
            has_failed=bool(ask["has_failed"]),
            has_published=bool(ask["has_published"]),
        )
    return Call(name=str(values["name"]), store=str(values["store"]), ask=ask)


def answer_from(line: bytes) -> Order | Notice:
    """Return the order or the notice that a line of the server is.

    Raises:
        ValueError, KeyError, TypeError: it is neither.
    """
    values = json.loads(line)
    if "names" in values:
        return Notice(tuple(str(name) for name in values["names"]))
    kind, members = OrderKind(values.pop("kind")), tuple(values.pop("members"))
    return Order(kind=kind, members=members, **values)
