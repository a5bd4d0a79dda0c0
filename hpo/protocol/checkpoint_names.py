"""Names of the checkpoints of trials."""

from __future__ import annotations

import datetime


def checkpoint_name(number: int, begun: datetime.datetime | None) -> str:
    """Return the name of a trial's checkpoints, which is the same on every instance.

    The start time distinguishes trials of two studies that have the same name.
    """
    return f"trial-{number}-" + (f"{begun:%Y%m%dT%H%M%S%f}" if begun else "")
