"""The round that a replica is in: what was agreed on, and what its steps took."""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.report import MembershipPause
from autoscaler.training.members.rounds import Agreement

# What the speed in one more round counts for, beside that before.
_NEW_SHARE = 0.5


@dataclass(slots=True)
class Round:
    """The present round. `clean`: same members and batch as before, and nothing failed in it.

    `steps` are whole ones. Others are not timed as steps of the round's batch: `cut_seconds` are
    those of steps that the end of a pass cut short, `split_seconds` those of steps that were split
    into more micro-steps than the batch, for a sample. At `paused_seconds` of the clock the script
    began to evaluate; the round has no step after that.
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


class Speed:
    """How many examples a device takes in a second beside all waiting; 0 where it is not known."""

    def __init__(self) -> None:
        self.examples_per_second = 0.0

    def count(self, examples: int, timed: tuple[float, float, int]) -> None:
        """Take in one more round.

        Args:
            examples: of the device in each step.
            timed: seconds of a step, what of that the device waited, and the number of steps.
        """
        seconds = timed[0] - timed[1]
        if seconds <= 0:
            return
        news = examples / seconds - self.examples_per_second
        self.examples_per_second += news * (_NEW_SHARE if self.examples_per_second else 1.0)


def samples_seconds(
    round_: Round, samples: int, squares_seconds: float, step_seconds: float
) -> float:
    """Return what a round's samples took: the squares, or more where steps are split for them.

    A step that is split in two takes twice as long at most. What is more, such as the first use
    of a function, does not come again.
    """
    split_seconds = round_.split_seconds - round_.split_steps * step_seconds
    return min(max(squares_seconds, split_seconds), samples * step_seconds)


def pause_of(last: Agreement, replicas: int, seconds: float) -> MembershipPause:
    """Return the pause at a change to so many replicas after the round of `last`."""
    kind = "drain" if last.someone_leaves else "loss"
    if replicas > last.replicas:
        kind = "join"
    return MembershipPause(kind, seconds, last.replicas, replicas)
