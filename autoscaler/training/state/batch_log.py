"""Batch log of a run: the batch size of each step, and the reason of each change.

An adaptive batch follows measured step times, so two runs differ even with one script. The log
holds all that steps depend on beside the script: the batch size, and the squared gradient norm
and gradient variance from which learning-rate rules and useful examples are computed. A run that
replays the log takes the same examples in the same steps on any instances.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import IntEnum
from pathlib import Path
from typing import Any, Final

from autoscaler.domain.text import parse_json, quoted

_MOST_CHARACTERS: Final = 200
BATCH_LOG_FILE: Final = "castor-batches.jsonl"


class BatchReason(IntEnum):
    """Reason for a proposed batch size, as the number that the deciding replica sends."""

    KEPT = 0
    GOODPUT = 1
    MEASUREMENT = 2


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """Batch size and gradient statistics in force after `step` committed steps.

    Attributes:
        step: number of committed steps before this decision applies.
        batch: examples per step, over all ranks.
        initial_batch: batch size that the script's learning rate is meant for.
        instances: number of instances that train together.
        ranks: number of ranks of these instances.
        learning_rate: learning rate of the first parameter group, at this batch and step.
        gradient_square: agreed |G|^2 of the noise scale; 0 at the initial batch.
        gradient_variance: trace of the gradient's covariance; 0 at the initial batch.
        reason: start, goodput, measurement, bounds, instances, noise scale or repeated.
    """

    step: int
    batch: int
    initial_batch: int
    instances: int
    ranks: int
    learning_rate: float
    gradient_square: float
    gradient_variance: float
    reason: str = ""

    @property
    def gain_inputs(self) -> tuple[float, float]:
        """Squared gradient norm and gradient variance, the inputs of AdaScale's gain."""
        return self.gradient_square, self.gradient_variance

    @property
    def members(self) -> tuple[int, int]:
        """Number of instances and number of ranks."""
        return self.instances, self.ranks


class BatchLog:
    """Batch decisions of one job so far, equal on all ranks."""

    def __init__(self, decisions: Iterable[BatchDecision] = ()) -> None:
        self.decisions = list(decisions)

    def add(
        self, decision: BatchDecision, proposed: BatchReason, is_repeated: bool = False
    ) -> None:
        """Append a decision whose batch, members or gradient statistics differ from the last ones.

        Decisions of the same or later steps are removed first. The stored reason names what
        differs.

        Args:
            decision: the decision; its `reason` is ignored.
            proposed: why the deciding replica proposed the batch.
            is_repeated: whether the batch is replayed from another run; the reason is "repeated".
        """
        while self.decisions and self.decisions[-1].step >= decision.step:
            self.decisions.pop()
        last = self.decisions[-1] if self.decisions else None
        reason = _reason(last, decision, proposed)
        if reason is not None:
            reason = "repeated" if is_repeated else reason
            self.decisions.append(replace(decision, reason=reason))

    def state(self) -> list[dict[str, Any]]:
        """Return the decisions as plain values."""
        return [asdict(decision) for decision in self.decisions]

    @property
    def text(self) -> str:
        """The log as lines of JSON, one per decision."""
        return "".join(json.dumps(line) + "\n" for line in self.state())


def _reason(last: BatchDecision | None, now: BatchDecision, proposed: BatchReason) -> str | None:
    """Return why `now` replaces `last`; None if both hold the same."""
    if last is None:
        return "start"
    if now.batch != last.batch:
        return "bounds" if proposed is BatchReason.KEPT else proposed.name.lower()
    if now.members != last.members:
        return "instances"
    return None if now.gain_inputs == last.gain_inputs else "noise scale"


class BatchReplay:
    """Batch decisions that a run replays from the log of another run."""

    def __init__(self, decisions: Sequence[BatchDecision]) -> None:
        self._decisions = tuple(decisions)
        self._steps = [decision.step for decision in self._decisions]

    @property
    def digest(self) -> str:
        """Hash of all decision values that steps depend on."""
        values = [
            (decision.step, decision.batch, *decision.gain_inputs) for decision in self._decisions
        ]
        return hashlib.sha256(repr(values).encode()).hexdigest()

    def at(self, step: int) -> BatchDecision:
        """Return the decision in force after `step` committed steps."""
        return self._decisions[max(bisect_right(self._steps, step) - 1, 0)]

    def steps_left(self, step: int) -> int | None:
        """Return the steps until the next decision; None if there is no further decision."""
        index = bisect_right(self._steps, step)
        return self._steps[index] - step if index < len(self._steps) else None


def _has_sizes(decision: BatchDecision) -> bool:
    """Return whether the batch sizes of a parsed decision are numbers of examples."""
    sizes = (decision.batch, decision.initial_batch)
    return all(isinstance(size, int) and size >= 1 for size in sizes)


def batches_of(path: Path, initial_batch: int) -> BatchReplay:
    """Read the batch log at `path`, for a run whose initial batch size is `initial_batch`.

    Raises:
        ValueError: the log can't be read, is malformed, or has another initial batch size.
    """
    try:
        lines = path.read_text().splitlines()
        decisions = [BatchDecision(**parse_json(line)) for line in lines]
        steps = [decision.step for decision in decisions]
        is_log = steps[:1] == [0] and steps == sorted(set(steps))
        is_log = is_log and all(_has_sizes(decision) for decision in decisions)
    except OSError as error:
        raise ValueError(f"batch_log={str(path)!r} can't be read: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        problem = quoted(error, _MOST_CHARACTERS)
        raise ValueError(f"batch_log={str(path)!r} is not a batch log: {problem}") from error
    if not is_log:
        raise ValueError(
            f"batch_log={str(path)!r} is not a complete batch log: its steps must rise from 0, "
            "with batch sizes above 0"
        )
    if decisions[0].initial_batch != initial_batch:
        raise ValueError(
            f"batch_log={str(path)!r} has batch_size={decisions[0].initial_batch}, and this run "
            f"has {initial_batch}: use the same batch_size"
        )
    return BatchReplay(decisions)
