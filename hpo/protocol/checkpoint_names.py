"""Names of the checkpoints of trials."""

from __future__ import annotations

import datetime


def name_of_states(number: int, begun: datetime.datetime | None) -> str:
    """What the states of a trial are called, wherever it runs.

    Another study of its study's name has other trials of that number.
    """
    return f"trial-{number}-" + (f"{begun:%Y%m%dT%H%M%S%f}" if begun else "")
