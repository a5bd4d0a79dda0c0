"""What the replicas tell each other at the start of a round, and what follows from it.

A *round* is some steps with one membership, one batch and one learning-rate factor. It starts with
an exchange: every replica contributes a `Row` of numbers and sees the rows of all. It ends early
once a replica asks for that in a step. What is done in
the round is a pure function of these rows, so all replicas of a committed step agree by
construction: a replica that saw other rows took part in another exchange, and its steps fail.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from statistics import fmean

from autoscaler.domain.report import StepObservation
from autoscaler.training.gradients.noise import GradientSquares
from autoscaler.training.state.batch_log import BatchReason
from autoscaler.training.state.fingerprint import FINGERPRINT_WIDTH, Fingerprint

ROUND_SECONDS = 1.0
_SHORT_ROUND_SECONDS = 0.15
_MOST_STEPS = 1000
_FAREWELL_MARGIN = 1.4
# As a logarithm.
_SPEED_STEP = 0.04


@dataclass(frozen=True, slots=True)
class Membership:
    """Our place in the quorum. `healed`: a peer's state became ours; `changed`: others came or
    went since we formed it last."""

    replicas: int
    index: int
    healed: bool
    changed: bool


@dataclass(frozen=True, slots=True)
class Row:
    """One replica's contribution; flags are 0 or 1, all fields travel as 64-bit floats.

    `stops` is the first rank of the replica that asks for an early stop, counted from 1, or 0.
    `kind` tells kinds of device apart; `age` is the number of rounds since the replica joined;
    `sees_change`: the lighthouse hears others than the members. `device_maximum` are the most
    examples that its devices take at once; `speed` is what one of them takes in a second beside
    all waiting, 0 where that is not known.
    `batch_total`, `gradient_square`, `gradient_variance`, `steps_per_sample` are what it would
    decide, `batch_reason` why (a `BatchReason`). The sums of `squares_*` and the times are those
    of its last round: `trained_seconds` without samples, `sampled_seconds` for them. `fingerprint`
    travels as so many numbers more.
    """

    ranks: float
    kind: float
    age: float
    leaves: float
    sees_lighthouse: float
    wants_checkpoint: float
    batch_total: float
    gradient_square: float
    gradient_variance: float
    sees_change: float = 0.0
    batch_reason: float = 0.0
    device_maximum: float = math.inf
    speed: float = 0.0
    stops: float = 0.0
    step_seconds: float = 0.0
    sync_seconds: float = 0.0
    timed_steps: float = 0.0
    steps_per_sample: float = 1.0
    trained_seconds: float = 0.0
    sampled_seconds: float = 0.0
    squares_samples: float = 0.0
    squares_smalls: float = 0.0
    squares_small: float = 0.0
    squares_small_inverse: float = 0.0
    squares_big: float = 0.0
    squares_big_inverse: float = 0.0
    fingerprint: Fingerprint = field(default_factory=Fingerprint)

    @property
    def squares(self) -> GradientSquares:
        """This replica's part of the sampled gradient squares."""
        return GradientSquares(
            self.squares_samples,
            self.squares_smalls,
            self.squares_small,
            self.squares_small_inverse,
            self.squares_big,
            self.squares_big_inverse,
        )


_PLAIN = [each.name for each in fields(Row) if each.name != "fingerprint"]
ROW_WIDTH = len(_PLAIN) + FINGERPRINT_WIDTH


def encode(row: Row) -> list[float]:
    """The row as `ROW_WIDTH` numbers."""
    values = [getattr(row, name) for name in _PLAIN]
    return [float(value) for value in (*values, *row.fingerprint.numbers())]


def decode(numbers: Sequence[float]) -> Row:
    """The row that these `ROW_WIDTH` numbers are."""
    plain = dict(zip(_PLAIN, numbers, strict=False))
    of_fingerprint = Fingerprint.of(numbers[len(_PLAIN) :])
    make: Callable[..., Row] = Row
    return make(**plain, fingerprint=of_fingerprint)


@dataclass(frozen=True, slots=True)
class Agreement:
    """What holds for one round. `first_rank` is an index among ranks.

    `decides`: this replica is the one that decides. `someone_joins`: a replica is in its first
    round.
    `device_maximum` are the most examples that every device takes at once. `speeds` are those of
    all ranks, where devices of several kinds take shares by them; empty where shares are equal.
    `steps_per_sample` is how often gradient squares are taken. `everyone_leaves`: nobody is left
    to carry the state, so it must be saved.
    `stopper`: training stops early, as this replica asks for, by this rank of it, counted from 1.
    """

    decides: bool
    replicas: int
    ranks: int
    first_rank: int
    batch_total: int
    gradient_square: float
    gradient_variance: float
    steps: int
    steps_per_sample: int
    someone_joins: bool
    we_leave: bool
    someone_leaves: bool
    everyone_leaves: bool
    saves_checkpoint: bool
    stopper: tuple[int, int] | None = None
    batch_reason: BatchReason = BatchReason.KEPT
    device_maximum: float = math.inf
    speeds: tuple[float, ...] = ()


def agree(rows: Sequence[Row], index: int, farewell_seconds: float) -> Agreement:
    """What the replica at `index` does in the round that these rows open.

    `decider_of` says which replica decides. Rounds in which somebody joins or leaves, or a
    checkpoint is wanted, are short: others follow at once. Those in which somebody leaves last
    `farewell_seconds` at least, in which the lighthouse comes to miss its heartbeats.
    """
    decider = decider_of(rows)
    leaving = [row.leaves > 0 for row in rows]
    step_seconds = max(row.step_seconds for row in rows)
    someone, everyone = any(leaving), all(leaving)
    joins, saves = any(row.age == 0 for row in rows), rows[decider].wants_checkpoint > 0
    is_short = joins or saves or someone
    steps = _steps_in(_SHORT_ROUND_SECONDS if is_short else ROUND_SECONDS, step_seconds)
    if everyone:
        steps = 1
    elif someone:
        lasting_seconds = _FAREWELL_MARGIN * farewell_seconds
        steps = max(steps, math.ceil(lasting_seconds / max(step_seconds, 1e-3)))
    return Agreement(
        decides=index == decider,
        replicas=len(rows),
        ranks=int(sum(row.ranks for row in rows)),
        first_rank=int(sum(row.ranks for row in rows[:index])),
        batch_total=int(rows[decider].batch_total),
        gradient_square=rows[decider].gradient_square,
        gradient_variance=rows[decider].gradient_variance,
        steps=steps,
        steps_per_sample=int(rows[decider].steps_per_sample),
        someone_joins=joins,
        we_leave=leaving[index],
        someone_leaves=someone,
        everyone_leaves=everyone,
        saves_checkpoint=saves,
        stopper=_first_that_stops(rows),
        batch_reason=BatchReason(int(rows[decider].batch_reason)),
        device_maximum=min(row.device_maximum for row in rows),
        speeds=speeds_of_ranks(rows),
    )


def speeds_of_ranks(rows: Sequence[Row]) -> tuple[float, ...]:
    """Return the speed of each rank of the job; nothing where one kind of device trains alone.

    A kind has one speed, in steps of 4 %, so that shares rest while it is measured anew. While a
    kind has none yet, there are no speeds at all.
    """
    measured: dict[float, list[float]] = {row.kind: [] for row in rows}
    for row in rows:
        if row.speed > 0:
            measured[row.kind].append(row.speed)
    if len(measured) == 1 or not all(measured.values()):
        return ()
    steps = {kind: round(math.log(fmean(own)) / _SPEED_STEP) for kind, own in measured.items()}
    slowest = min(steps.values())
    return tuple(
        math.exp(_SPEED_STEP * (steps[row.kind] - slowest))
        for row in rows
        for _ in range(int(row.ranks))
    )


def _first_that_stops(rows: Sequence[Row]) -> tuple[int, int] | None:
    stops = ((index, int(row.stops)) for index, row in enumerate(rows) if row.stops > 0)
    return next(stops, None)


def wants_forming(rows: Sequence[Row]) -> bool:
    """Whether the replicas are to agree anew on who takes part, before the round begins.

    While one of them does not see the lighthouse, they keep the membership that they have.
    """
    sees_change = any(row.sees_change > 0 for row in rows)
    return sees_change and all(row.sees_lighthouse > 0 for row in rows)


def decider_of(rows: Sequence[Row]) -> int:
    """Return the index of the replica that decides: the one that has been a member longest.

    One that leaves decides only where no other has the state yet: training may end in the round
    in which it leaves, and a replica that stays has to report that.
    """

    def seniority(place: int) -> tuple[bool, float, int]:
        row = rows[place]
        return row.age > 0 and not row.leaves, row.age, -place

    return max(range(len(rows)), key=seniority)


def combined_squares(rows: Sequence[Row]) -> GradientSquares:
    """The gradient squares of one round over all replicas that took them."""
    taken = [row.squares for row in rows if row.squares_samples > 0]
    if not taken:
        return GradientSquares()
    return GradientSquares(
        samples=taken[0].samples,
        smalls=sum(squares.smalls for squares in taken),
        small_square=sum(squares.small_square for squares in taken),
        small_inverse=sum(squares.small_inverse for squares in taken),
        big_square=taken[0].big_square,
        big_inverse=taken[0].big_inverse,
    )


def observation(
    rows: Sequence[Row], device_kind: str, device_batch: int, accumulation: int
) -> StepObservation | None:
    """The step times of the round that has ended, if all its replicas were of one kind.

    The step lasts as long as its slowest replica says; the wait for others is least there.
    """
    timed = [row for row in rows if row.timed_steps > 0]
    if len(timed) != len(rows) or len({row.kind for row in rows}) != 1:
        return None
    step_seconds = max(row.step_seconds for row in rows)
    sync_seconds = min(row.sync_seconds for row in rows)
    if sync_seconds >= step_seconds:  # nothing is left for the devices' work
        return None
    return StepObservation(
        device_kind=device_kind,
        instances=len(rows),
        devices=int(sum(row.ranks for row in rows)),
        device_batch=device_batch,
        accumulation=accumulation,
        step_seconds=step_seconds,
        sync_seconds=sync_seconds,
        steps=int(min(row.timed_steps for row in rows)),
    )


def _steps_in(seconds: float, step_seconds: float) -> int:
    if step_seconds <= 0:
        return 1
    return max(1, min(_MOST_STEPS, round(seconds / step_seconds)))
