"""The round that a replica is in: what was agreed on, and what its steps took."""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.training.members.rounds import Agreement


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


def samples_seconds(
    round_: Round, samples: int, squares_seconds: float, step_seconds: float
) -> float:
    """Return what a round's samples took: the squares, or more where steps are split for them.

    A step that is split in two takes twice as long at most. What is more, such as the first use
    of a function, does not come again.
    """
    split_seconds = round_.split_seconds - round_.split_steps * step_seconds
    return min(max(squares_seconds, split_seconds), samples * step_seconds)
