"""Step times of the present round, and the pause at a change of membership."""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.report import MembershipPause
from autoscaler.training.members.rounds import Agreement

# Weight of a new round's speed in the moving average.
_NEW_SHARE = 0.5


@dataclass(slots=True)
class Round:
    """Present round: its agreement and the times of its steps.

    Attributes:
        agreement: agreement of the round.
        clean: whether members and batch are those of the round before and no step has failed.
        started_seconds: clock time of the start.
        waited_seconds: seconds of waiting for other ranks.
        paused_seconds: clock time at which the script began to evaluate; None before. No step
            follows.
        steps: number of whole steps; the others are not timed as steps of the round's batch.
        cut_steps: number of steps that the end of a pass cut short.
        cut_seconds: seconds of these.
        split_steps: number of steps with more micro-steps than the batch needs, for a sample.
        split_seconds: seconds of these.
    """

    agreement: Agreement
    clean: bool
    started_seconds: float
    waited_seconds: float = 0.0
    paused_seconds: float | None = None
    steps: int = 0
    cut_steps: int = 0
    cut_seconds: float = 0.0
    split_steps: int = 0
    split_seconds: float = 0.0


@dataclass(slots=True)
class Halts:
    """Time of this start, since its first round, in which the instance made no progress.

    Attributes:
        paused_seconds: changes of membership, and waits for checkpoints.
        lost_seconds: steps that were not committed or skipped, and recovery from lost replicas.
    """

    paused_seconds: float = 0.0
    lost_seconds: float = 0.0


class Speed:
    """Examples per second of one device, without waiting; 0 if unknown."""

    def __init__(self) -> None:
        self.examples_per_second = 0.0

    def count(self, examples: int, timed: tuple[float, float, int]) -> None:
        """Update the moving average with one round.

        Args:
            examples: examples of the device in each step.
            timed: seconds per step, seconds of waiting in it, and number of steps.
        """
        seconds = timed[0] - timed[1]
        if seconds <= 0:
            return
        difference = examples / seconds - self.examples_per_second
        self.examples_per_second += difference * (_NEW_SHARE if self.examples_per_second else 1.0)


def samples_seconds(
    round_: Round, samples: int, squares_seconds: float, step_seconds: float
) -> float:
    """Return the seconds of a round's samples: of the squares, or of split steps if more.

    A split step takes at most twice as long. Any further time, such as the first use of a
    function, does not recur and is not counted.
    """
    split_seconds = round_.split_seconds - round_.split_steps * step_seconds
    return min(max(squares_seconds, split_seconds), samples * step_seconds)


def pause_of(last: Agreement, replicas: int, seconds: float) -> MembershipPause:
    """Return the pause at a change from the round of `last` to `replicas` replicas."""
    kind = "drain" if last.someone_leaves else "loss"
    if replicas > last.replicas:
        kind = "join"
    return MembershipPause(kind, seconds, last.replicas, replicas)
