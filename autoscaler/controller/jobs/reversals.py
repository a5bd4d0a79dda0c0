"""Detection of changes that a later change reverses, to learn how long allocations last."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from autoscaler.domain.offer import Offer
from autoscaler.domain.plan import Action, Decision
from autoscaler.domain.snapshot import JobSnapshot

_CHANGES = (Action.GROW, Action.SHRINK, Action.MOVE)


class Reversals:
    """The last change of every job."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Decision, float, bool]] = {}

    def note(
        self,
        decision: Decision,
        now_seconds: float,
        is_look: Callable[[], bool] = lambda: False,
    ) -> float | None:
        """Record a decision; return how many seconds the change lasted that the decision reverses.

        None if it reverses nothing. If `is_look()` is true, the target's size was unmeasured:
        leaving it again completes an exploration and reverses nothing.
        """
        if decision.action not in _CHANGES:
            return None
        previous = self._last.get(decision.job)
        if previous is not None and previous[0].target == decision.target:
            return None
        self._last[decision.job] = (decision, now_seconds, is_look())
        if previous is None or previous[2] or not _reverses(decision, previous[0]):
            return None
        return now_seconds - previous[1]


def is_look(decision: Decision, job: JobSnapshot | None, offers: Iterable[Offer]) -> bool:
    """Return whether the target of a decision has a size that was not measured yet."""
    target = decision.target
    if target is None or job is None:
        return False
    kind = next((offer.device_kind for offer in offers if offer.id == target.offer), None)
    model = job.models.get(kind) if kind is not None else None
    return model is None or (target.instances, target.devices) not in model.measured


def _reverses(later: Decision, earlier: Decision) -> bool:
    before, after, target = earlier.current, earlier.target, later.target
    if before is None or after is None or target is None or later.current != after:
        return False
    if Action.MOVE in (earlier.action, later.action):
        return earlier.action is later.action and target.offer == before.offer
    return earlier.action is not later.action
