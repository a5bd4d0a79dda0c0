"""Announcement of the end of an instance's maximum run, as of a reclaim."""

from __future__ import annotations

import hashlib
from typing import Final

from autoscaler.domain.instance import Interruption

# The end of an instance's maximum run is announced so long ahead, each instance's at another
# time, but at most this share of the run.
_NOTICE_SECONDS: Final = (900.0, 3600.0)
_NOTICE_SHARE: Final = 0.1


def run_end_notice(instance: str, launched_seconds: float, end_seconds: float) -> Interruption:
    """Return the announcement of an end, which may lie in the future.

    Instances that started together would end together; they leave one after the other.
    """
    least_seconds, most_seconds = _NOTICE_SECONDS
    share = hashlib.sha256(instance.encode()).digest()[0] / 255
    ahead_seconds = min(
        least_seconds + share * (most_seconds - least_seconds),
        (end_seconds - launched_seconds) * _NOTICE_SHARE,
    )
    return Interruption(instance, end_seconds - ahead_seconds, end_seconds)
