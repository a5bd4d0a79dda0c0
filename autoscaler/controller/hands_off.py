"""Modes in which the controller plans and reports but carries out nothing."""

from __future__ import annotations

from autoscaler.controller.settings import ControllerSettings
from autoscaler.store.store import Store


def hands_off(settings: ControllerSettings, store: Store) -> str | None:
    """Return why decisions are not carried out and no instances launched; None if they are.

    Other changes continue: jobs end or are stopped by their owners, and their instances are then
    terminated. Lost instances are not replaced.
    """
    frozen = store.settings.frozen()
    if frozen is not None:
        return f"frozen by {frozen.person}"
    return "the controller only observes" if settings.observes else None
