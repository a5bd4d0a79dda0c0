"""Plans of a policy: data that can be printed, stored, compared and refused."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from autoscaler.domain.allocation import Allocation, Placement
from autoscaler.domain.budget import BudgetPlan

CHANCE_FIGURE: Final = "kept_chance"
"""Figure of a decision: share of draws in which the job keeps its deadline and its budget."""
LATE_FIGURE: Final = "late_seconds"
"""Figure of a decision: seconds after its deadline at which the job ends, at its confidence."""
NEEDED_FIGURE: Final = "needed_usd"
"""Figure of a decision: cost of the whole job, which exceeds its budget, at its confidence."""


class Action(StrEnum):
    """Kind of change that a decision makes to a job's allocation."""

    START = "start"
    GROW = "grow"
    SHRINK = "shrink"
    MOVE = "move"
    HOLD = "hold"
    WAIT = "wait"
    STOP = "stop"


class ReasonCode(StrEnum):
    """Category of the reason of a decision. Journals hold the values.

    BEYOND_BUDGET, BEYOND_DEADLINE: the trial never starts within its study's budget or deadline.
    SLOWED: each dollar counts more for the job, since a shared budget binds. BUDGET_USED_UP: a
    shared budget leaves nothing, or no room for the job's instances.
    UNPLANNED: the job is left out of planning, because it makes every plan fail. OTHER: a code
    that this version does not know.
    """

    NONE = ""
    OTHER = "other"
    AT_BARRIER = "at a barrier"
    BEYOND_BUDGET = "beyond the budget of its study"
    BEYOND_DEADLINE = "beyond the deadline of its study"
    BOOTING = "a boot is under way"
    BUDGET_USED_UP = "a shared budget is used up"
    FIRST_START = "first start"
    HOLDS_UNKNOWN = "holds unknown"
    LEAST_COST = "least cost"
    NOTHING_ALLOWED = "nothing allowed"
    OUTBID = "outbid"
    SLOWED = "slowed by a shared budget"
    STAGES = "stages"
    STOPS = "stops"
    STUDY = "study"
    UNDER_WAY = "under way"
    UNMEASURED = "unmeasured"
    UNPLANNED = "can't be planned"

    @classmethod
    def _missing_(cls, value: object) -> ReasonCode:
        return cls.OTHER


@dataclass(frozen=True, slots=True)
class Decision:
    """One job's next allocation, and the reason.

    `reason` is one line in the terms of docs/economics.md, and `figures` are the numbers behind
    it. `release_first`: the limits leave no room for the new instances beside those held now, so
    instances of this or other jobs must be released first. On shared machines `placement` is the
    decision. With neither a `target` nor a `placement` the job releases everything. `ground` is
    the category of the reason. Code that depends on the reason reads it, and never the text.
    `note` is a warning for the owner, such as a limit that can't be kept; it also ends the reason.
    """

    job: str
    action: Action
    current: Allocation | None
    target: Allocation | None
    reason: str
    figures: Mapping[str, float] = field(default_factory=dict)
    release_first: bool = False
    placement: Placement | None = None
    ground: ReasonCode = ReasonCode.NONE
    note: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """Decisions for every job of a snapshot.

    `shadow_prices` (limit name -> $ per second for one more unit) are 0 where a limit does not
    bind. `gap_usd_per_second` bounds the loss against the optimal plan. `notes` describe solver
    failures that the plan works around. `budgets` are those of the snapshot of which something is
    left.
    """

    decisions: tuple[Decision, ...]
    shadow_prices: Mapping[str, float] = field(default_factory=dict)
    gap_usd_per_second: float = 0.0
    notes: tuple[str, ...] = ()
    budgets: tuple[BudgetPlan, ...] = ()
