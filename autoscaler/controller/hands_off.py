"""When a controller plans and tells, and does nothing of it."""

from __future__ import annotations

from autoscaler.controller.settings import ControllerSettings
from autoscaler.store.store import Store


def hands_off(settings: ControllerSettings, store: Store) -> str | None:
    """Why no decision is carried out and no instance launched now; None where all is.

    What jobs and clouds do by themselves goes on: jobs end or are stopped by their owners, their
    instances are given back then, and instances that are lost are not replaced.
    """
    frozen = store.settings.frozen()
    if frozen is not None:
        return f"frozen by {frozen.person}"
    return "the controller only observes" if settings.observes else None
