"""Present causes by which the API explains that a job does not train."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

PLANNED_SECONDS: Final = 60
"""Age of a plan by which a controller that can act has planned again."""
START_SECONDS: Final = 720
"""Time from an order to training, or to the end of an instance that does not start."""
_ACTS_SECONDS: Final = 240
_STARTS: Final = frozenset({"requested", "queued", "booting", "preparing", "ready", "starting"})


def present_causes(
    view: Mapping[str, Any], now_seconds: float, able_seconds: float = math.inf
) -> list[str]:
    """Return why a job does not train now, by its view in the API; empty if nothing says so.

    Events and decisions of the past are no causes: a decision counts only while plans keep it, and
    one that wants instances only until they must have been ordered. `able_seconds` is the time for
    which nothing has kept the controller from ending instances that do not start.
    """
    causes = [view[name] for name in ("trouble", "hands_off", "stall") if view[name]]
    causes += view["false_starts"]
    if view["phase"] == "stopping":
        causes.append("the job stops")
    causes += [
        f"{instance['id']} is {instance['phase']}"
        for instance in view["instances"]
        if instance["phase"] in _STARTS
        and min(now_seconds - instance["requested_seconds"], able_seconds) < START_SECONDS
    ]
    decision = view["decision"]
    if decision is not None and _is_present(decision, now_seconds):
        causes.append(decision["reason"])
    return [cause for cause in causes if cause]


def _is_present(decision: Mapping[str, Any], now_seconds: float) -> bool:
    # A decision of this tick has no such time yet.
    planned_seconds = decision["planned_seconds"] or decision["at_seconds"]
    if now_seconds - planned_seconds > PLANNED_SECONDS:
        return False
    is_wait = decision["target"] is None and not decision.get("placement")
    return is_wait or now_seconds - decision["at_seconds"] < _ACTS_SECONDS
