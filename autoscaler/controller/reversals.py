"""Which changes were taken back by a later one: how far ahead it pays to plan."""

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
        """Note a decision; return the seconds that the change which it takes back has lasted.

        None where it takes nothing back. Where `is_look()` its target was not
        measured: to leave that again is what it was made for, and takes nothing back.
        """
        if decision.action not in _CHANGES:
            return None
        last = self._last.get(decision.job)
        if last is not None and last[0].target == decision.target:
            return None
        self._last[decision.job] = (decision, now_seconds, is_look())
        if last is None or last[2] or not _takes_back(decision, last[0]):
            return None
        return now_seconds - last[1]


def is_look(decision: Decision, job: JobSnapshot | None, offers: Iterable[Offer]) -> bool:
    """Return whether the target of a decision is of a size that was not measured yet."""
    target = decision.target
    if target is None or job is None:
        return False
    kind = next((offer.device_kind for offer in offers if offer.id == target.offer), None)
    model = job.models.get(kind) if kind is not None else None
    return model is None or (target.instances, target.devices) not in model.measured


def _takes_back(later: Decision, earlier: Decision) -> bool:
    before, after, target = earlier.current, earlier.target, later.target
    if before is None or after is None or target is None or later.current != after:
        return False
    if Action.MOVE in (earlier.action, later.action):
        return earlier.action is later.action and target.offer == before.offer
    return earlier.action is not later.action
