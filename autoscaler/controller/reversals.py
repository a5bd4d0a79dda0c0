"""Which changes were taken back by a later one: how far ahead it pays to plan."""

from __future__ import annotations

from autoscaler.domain.plan import Action, Decision

_CHANGES = (Action.GROW, Action.SHRINK, Action.MOVE)


class Reversals:
    """The last change of every job."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Decision, float]] = {}

    def note(self, decision: Decision, now_seconds: float) -> float | None:
        """Take in what was decided; returns how long the change that it takes back has lasted.

        None where it takes nothing back.
        """
        if decision.action not in _CHANGES:
            return None
        last = self._last.get(decision.job)
        if last is not None and last[0].target == decision.target:
            return None
        self._last[decision.job] = (decision, now_seconds)
        if last is None or not _takes_back(decision, last[0]):
            return None
        return now_seconds - last[1]


def _takes_back(later: Decision, earlier: Decision) -> bool:
    before, after, target = earlier.current, earlier.target, later.target
    if before is None or after is None or target is None or later.current != after:
        return False
    if Action.MOVE in (earlier.action, later.action):
        return earlier.action is later.action and target.offer == before.offer
    return earlier.action is not later.action
