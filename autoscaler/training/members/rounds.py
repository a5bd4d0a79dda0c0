"""Rows that replicas exchange at the start of a round, and the agreement computed from them.

A *round* is some steps with one membership, one batch size and one learning-rate factor. It starts
with an exchange: every replica contributes a `ReplicaRow` of numbers and receives the rows of all.
It ends early if a replica requests that in a step. The agreement is a pure function of the rows,
so all replicas of a committed step agree. A replica that received other rows was in another
exchange, and its steps fail.
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
_MAX_ROUND_STEPS = 1000
_LEAVE_MARGIN = 1.4
# Resolution of speeds, as a natural logarithm: 4 %.
_LOG_SPEED_STEP = 0.04


@dataclass(frozen=True, slots=True)
class Membership:
    """Place of one replica among the members of a round.

    `healed`: whether it received a peer's state. `changed`: whether members joined or left since
    the last round.
    """

    replicas: int
    index: int
    healed: bool
    changed: bool


@dataclass(frozen=True, slots=True)
class ReplicaRow:
    """Numbers that one replica contributes, sent as 64-bit floats; flags are 0 or 1.

    Attributes:
        ranks: number of ranks of the replica.
        kind: number that identifies the kind of device.
        age: rounds since the replica joined.
        leaves: flag: the replica leaves with this round.
        sees_lighthouse: flag: the replica reaches the lighthouse.
        wants_checkpoint: flag: a checkpoint is due.
        batch_total: batch size that the replica proposes.
        gradient_square: squared gradient norm that the replica proposes.
        gradient_variance: gradient variance that the replica proposes.
        sees_change: flag: the lighthouse hears others than the members.
        batch_reason: reason for the proposed batch size, a `BatchReason`.
        device_maximum: most examples that the replica's devices take at once.
        speed: examples per second of one device, without waiting; 0 if unknown.
        stops: first rank of the replica that requests an early stop, from 1; 0 for none.
        step_seconds: seconds per step of the last round.
        sync_seconds: part of `step_seconds` spent waiting for gradient sums.
        timed_steps: number of steps behind these times; 0 if they are not new.
        steps_per_sample: proposed steps per sample of gradient squares.
        trained_seconds: seconds of the last round's steps, without samples.
        sampled_seconds: seconds of the last round's samples.
        squares_samples: number of sampled steps; this and the other `squares_*` are the last
            round's sums of `GradientSquares`.
        fingerprint: the replica's fingerprint, sent as `FINGERPRINT_WIDTH` numbers.
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
        """Sums of gradient squares that the replica sampled."""
        return GradientSquares(
            self.squares_samples,
            self.squares_smalls,
            self.squares_small,
            self.squares_small_inverse,
            self.squares_big,
            self.squares_big_inverse,
        )


_PLAIN_FIELDS = [column.name for column in fields(ReplicaRow) if column.name != "fingerprint"]
ROW_WIDTH = len(_PLAIN_FIELDS) + FINGERPRINT_WIDTH


def encode(row: ReplicaRow) -> list[float]:
    """Return the row as `ROW_WIDTH` numbers."""
    values = [getattr(row, name) for name in _PLAIN_FIELDS]
    return [float(value) for value in (*values, *row.fingerprint.numbers())]


def decode(numbers: Sequence[float]) -> ReplicaRow:
    """Return the row that `ROW_WIDTH` numbers encode."""
    plain = dict(zip(_PLAIN_FIELDS, numbers, strict=False))
    fingerprint = Fingerprint.of(numbers[len(_PLAIN_FIELDS) :])
    make: Callable[..., ReplicaRow] = ReplicaRow
    return make(**plain, fingerprint=fingerprint)


@dataclass(frozen=True, slots=True)
class Agreement:
    """Decisions for one round, from the view of one replica.

    Attributes:
        decides: whether this replica is the deciding one.
        replicas: number of replicas.
        ranks: number of ranks of all replicas.
        first_rank: index of this replica's first rank among all ranks.
        batch_total: batch size over all ranks.
        gradient_square: squared gradient norm for learning-rate rules.
        gradient_variance: gradient variance for learning-rate rules.
        steps: most steps of the round.
        steps_per_sample: steps per sample of gradient squares.
        someone_joins: whether a replica is in its first round.
        we_leave: whether this replica leaves with the round.
        someone_leaves: whether any replica leaves with the round.
        everyone_leaves: whether all replicas leave, so that the state must be saved.
        saves_checkpoint: whether a checkpoint follows the round.
        stopper: replica and its rank, from 1, whose early stop is agreed on; None for no stop.
        batch_reason: reason for the batch size.
        device_maximum: most examples that every device takes at once.
        speeds: relative speed of each rank if devices of several kinds take shares by speed; empty
            for equal shares.
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


def agree(rows: Sequence[ReplicaRow], index: int, farewell_seconds: float) -> Agreement:
    """Return the agreement of the round that these rows open, for the replica at `index`.

    Rounds with a join, a leave or a checkpoint are short, as others follow at once. A round with a
    leave lasts `farewell_seconds` or longer, so that the lighthouse notices the missing
    heartbeats.
    """
    decider = decider_of(rows)
    leaving = [row.leaves > 0 for row in rows]
    step_seconds = max(row.step_seconds for row in rows)
    someone_leaves, everyone_leaves = any(leaving), all(leaving)
    someone_joins, saves_checkpoint = (
        any(row.age == 0 for row in rows),
        rows[decider].wants_checkpoint > 0,
    )
    is_short = someone_joins or saves_checkpoint or someone_leaves
    steps = _steps_in(_SHORT_ROUND_SECONDS if is_short else ROUND_SECONDS, step_seconds)
    if everyone_leaves:
        steps = 1
    elif someone_leaves:
        least_seconds = _LEAVE_MARGIN * farewell_seconds
        steps = max(steps, math.ceil(least_seconds / max(step_seconds, 1e-3)))
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
        someone_joins=someone_joins,
        we_leave=leaving[index],
        someone_leaves=someone_leaves,
        everyone_leaves=everyone_leaves,
        saves_checkpoint=saves_checkpoint,
        stopper=_first_stopper(rows),
        batch_reason=BatchReason(int(rows[decider].batch_reason)),
        device_maximum=min(row.device_maximum for row in rows),
        speeds=speeds_of_ranks(rows),
    )


def speeds_of_ranks(rows: Sequence[ReplicaRow]) -> tuple[float, ...]:
    """Return the relative speed of each rank of the job; empty for equal shares.

    Speeds are empty with a single kind of device, or while a kind has no measured speed. A kind
    has one speed, rounded to steps of 4 %, so that shares stay constant despite measurement noise.
    """
    measured: dict[float, list[float]] = {row.kind: [] for row in rows}
    for row in rows:
        if row.speed > 0:
            measured[row.kind].append(row.speed)
    if len(measured) == 1 or not all(measured.values()):
        return ()
    steps = {
        kind: round(math.log(fmean(kind_speeds)) / _LOG_SPEED_STEP)
        for kind, kind_speeds in measured.items()
    }
    slowest = min(steps.values())
    return tuple(
        math.exp(_LOG_SPEED_STEP * (steps[row.kind] - slowest))
        for row in rows
        for _ in range(int(row.ranks))
    )


def _first_stopper(rows: Sequence[ReplicaRow]) -> tuple[int, int] | None:
    stops = ((index, int(row.stops)) for index, row in enumerate(rows) if row.stops > 0)
    return next(stops, None)


def wants_forming(rows: Sequence[ReplicaRow]) -> bool:
    """Return whether the replicas must form a new membership before the round begins.

    While any of them does not reach the lighthouse, they keep the membership.
    """
    sees_change = any(row.sees_change > 0 for row in rows)
    return sees_change and all(row.sees_lighthouse > 0 for row in rows)


def decider_of(rows: Sequence[ReplicaRow]) -> int:
    """Return the index of the deciding replica: the one with the longest membership.

    A leaving replica decides only if no other has the state yet. Training may end in its last
    round, and a replica that stays has to report the end.
    """

    def seniority(index: int) -> tuple[bool, float, int]:
        row = rows[index]
        return row.age > 0 and not row.leaves, row.age, -index

    return max(range(len(rows)), key=seniority)


def combined_squares(rows: Sequence[ReplicaRow]) -> GradientSquares:
    """Return the gradient squares of one round, summed over all replicas that sampled them."""
    sampled = [row.squares for row in rows if row.squares_samples > 0]
    if not sampled:
        return GradientSquares()
    return GradientSquares(
        samples=sampled[0].samples,
        smalls=sum(squares.smalls for squares in sampled),
        small_square=sum(squares.small_square for squares in sampled),
        small_inverse=sum(squares.small_inverse for squares in sampled),
        big_square=sampled[0].big_square,
        big_inverse=sampled[0].big_inverse,
    )


def observation(
    rows: Sequence[ReplicaRow], device_kind: str, device_batch: int, accumulation: int
) -> StepObservation | None:
    """Return the step time of the last round; None unless all replicas are of one kind and timed.

    The step takes as long as at its slowest replica, which waits least for the others.
    """
    timed = [row for row in rows if row.timed_steps > 0]
    if len(timed) != len(rows) or len({row.kind for row in rows}) != 1:
        return None
    step_seconds = max(row.step_seconds for row in rows)
    sync_seconds = min(row.sync_seconds for row in rows)
    if sync_seconds >= step_seconds:  # no time is left for computation
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
    return max(1, min(_MAX_ROUND_STEPS, round(seconds / step_seconds)))
