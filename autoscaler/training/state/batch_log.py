"""The log of a run's batches: from which step on which batch held, and why.

Where the batch may grow it follows measured times, so that no run repeats another by itself. The
log has all that steps depend on beside the script: the batch, and the gradient square and variance
from which learning-rate rules and useful examples are computed. A run that is given the log takes
the same examples in the same steps, whatever its instances.
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

BATCH_LOG_FILE: Final = "castor-batches.jsonl"


class BatchReason(IntEnum):
    """What the deciding replica says of the batch that it proposes; travels as a number."""

    KEPT = 0
    GOODPUT = 1
    MEASUREMENT = 2


@dataclass(frozen=True, slots=True)
class BatchDecision:
    """What holds in the steps after `step` committed ones.

    Attributes:
        step: committed steps before it.
        batch: examples in a step, over all ranks.
        initial_batch: the batch that the script's learning rate is meant for.
        instances: instances that train together.
        ranks: their ranks.
        learning_rate: the first parameter group's, at this batch and step.
        gradient_square: |G|^2 of the noise scale that was agreed on; 0 at the initial batch.
        gradient_variance: trace of the gradient's covariance at the initial batch; 0 likewise.
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
        """What AdaScale's gain is computed from."""
        return self.gradient_square, self.gradient_variance

    @property
    def members(self) -> tuple[int, int]:
        """Instances and ranks."""
        return self.instances, self.ranks


class BatchLog:
    """The decisions of one job so far, equal on all ranks."""

    def __init__(self, decisions: Iterable[BatchDecision] = ()) -> None:
        self.decisions = list(decisions)

    def add(self, decision: BatchDecision, told: BatchReason, is_repeated: bool = False) -> None:
        """Note what holds now, unless it held before. What was noted for the same step goes.

        Args:
            decision: without a reason.
            told: why the deciding replica has proposed the batch.
            is_repeated: the batch is from the log of another run.
        """
        while self.decisions and self.decisions[-1].step >= decision.step:
            self.decisions.pop()
        last = self.decisions[-1] if self.decisions else None
        reason = _reason(last, decision, told)
        if reason is not None:
            reason = "repeated" if is_repeated else reason
            self.decisions.append(replace(decision, reason=reason))

    def state(self) -> list[dict[str, Any]]:
        """Return the decisions as plain values."""
        return [asdict(decision) for decision in self.decisions]

    @property
    def text(self) -> str:
        """The log as lines of JSON, one for each decision."""
        return "".join(json.dumps(line) + "\n" for line in self.state())


def _reason(last: BatchDecision | None, now: BatchDecision, told: BatchReason) -> str | None:
    """Return why `now` holds in place of `last`; None if the same holds."""
    if last is None:
        return "start"
    if now.batch != last.batch:
        return "bounds" if told is BatchReason.KEPT else told.name.lower()
    if now.members != last.members:
        return "instances"
    return None if now.gain_inputs == last.gain_inputs else "noise scale"


class BatchScript:
    """The batches that a run repeats from the log of another one."""

    def __init__(self, decisions: Sequence[BatchDecision]) -> None:
        self._decisions = tuple(decisions)
        self._steps = [decision.step for decision in self._decisions]

    @property
    def digest(self) -> str:
        """A hash of all that steps depend on."""
        held = [(made.step, made.batch, *made.gain_inputs) for made in self._decisions]
        return hashlib.sha256(repr(held).encode()).hexdigest()

    def at(self, step: int) -> BatchDecision:
        """Return what holds in the step after `step` committed ones."""
        return self._decisions[max(bisect_right(self._steps, step) - 1, 0)]

    def steps_left(self, step: int) -> int | None:
        """Return how many steps what holds then lasts; None to the end of training."""
        place = bisect_right(self._steps, step)
        return self._steps[place] - step if place < len(self._steps) else None


def batches_of(path: Path, initial_batch: int) -> BatchScript:
    """Return the batches of the log at `path`, for a run whose initial batch is `initial_batch`.

    Raises:
        ValueError: it can't be read, is no log, or is of a run with another initial batch.
    """
    try:
        lines = path.read_text().splitlines()
        decisions = [BatchDecision(**json.loads(line)) for line in lines]
        steps = [decision.step for decision in decisions]
        is_log = steps[:1] == [0] and steps == sorted(set(steps))
        is_log = is_log and all(decision.batch >= 1 for decision in decisions)
    except OSError as error:
        raise ValueError(f"batch_log={str(path)!r} can't be read: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise ValueError(f"batch_log={str(path)!r} is no log of batches: {error}") from error
    if not is_log:
        raise ValueError(
            f"batch_log={str(path)!r} is no whole log of batches: its steps must rise from 0"
        )
    if decisions[0].initial_batch != initial_batch:
        raise ValueError(
            f"batch_log={str(path)!r} is of a run with batch_size={decisions[0].initial_batch}, "
            f"and this one has {initial_batch}: use the same"
        )
    return BatchScript(decisions)
