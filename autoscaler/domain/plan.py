"""What a policy answers: data that can be printed, stored, compared and refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from autoscaler.domain.allocation import Allocation, Placement

# The grounds of a trial that waits for ever: its study can't pay for it, or not in time.
BEYOND_BUDGET: Final = "beyond the budget of its study"
BEYOND_DEADLINE: Final = "beyond the deadline of its study"
# The ground of a job that planning leaves out, since it makes every plan fail.
UNPLANNED: Final = "can't be planned"


class Action(StrEnum):
    """What a decision changes."""

    START = "start"
    GROW = "grow"
    SHRINK = "shrink"
    MOVE = "move"
    HOLD = "hold"
    WAIT = "wait"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Decision:
    """One job's next allocation, and why.

    `reason` is one line in the terms of docs/economics.md; `figures` are the numbers it was made
    of. `release_first`: the limits leave no room for what comes beside all that is held now, so
    what goes, here or from other jobs, must go first. On machines that jobs share it is
    `placement` that is decided. Neither a `target` nor a `placement` gives everything back.
    `ground` is why in a word or two, the same for all alike, where the policy tells grounds apart.
    `note`, at the end of the reason too, is what the owner should know: what can't be kept.
    """

    job: str
    action: Action
    current: Allocation | None
    target: Allocation | None
    reason: str
    figures: Mapping[str, float] = field(default_factory=dict)
    release_first: bool = False
    placement: Placement | None = None
    ground: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions for every job of a snapshot.

    `shadow_prices` (limit name -> $ per second of one more unit) are 0 where nothing binds;
    `gap_usd_per_second` bounds what the plan may be short of the best one. `notes` say what a
    solver failed at, where the plan was made without it.
    """

    decisions: tuple[Decision, ...]
    shadow_prices: Mapping[str, float] = field(default_factory=dict)
    gap_usd_per_second: float = 0.0
    notes: tuple[str, ...] = ()
