"""What reclaims take from the goodput and add to the price of spot instances.

Instances are lost one at a time at a hazard that is the same for all and does not age. The one
that is lost is ordered again at once and works after `refill_seconds`; meanwhile the others go
on, or, if too few are left, the job stands still and starts again from a checkpoint.
"""

from __future__ import annotations

import numpy as np

from autoscaler.goodput.throughput import FloatArray


def goodput_with_reclaims(
    goodput: FloatArray,
    goodput_of_one_less: FloatArray,
    reclaims_per_second: FloatArray,
    refill_seconds: FloatArray,
    pause_seconds: FloatArray,
) -> FloatArray:
    """Mean goodput of n instances of which one is refilled now and then, never below 0.

    ``(1 - x) G(n) + x G(n - 1) - L * pause * G(n)`` with L reclaims a second of all n together
    and ``x = L t / (1 + L t)`` the share of time in which one is missing. Where the job can't do
    without the one, G(n - 1) is 0 and t holds the start from a checkpoint too.
    """
    missing = reclaims_per_second * refill_seconds
    share = missing / (1.0 + missing)
    mean = (1.0 - share) * goodput + share * goodput_of_one_less
    left: FloatArray = np.maximum(mean - reclaims_per_second * pause_seconds * goodput, 0.0)
    return left


def price_with_refills(
    unit_usd_per_second: FloatArray,
    instances: FloatArray,
    reclaims_per_second: FloatArray,
    boot_seconds: FloatArray,
) -> FloatArray:
    """$ per second of `instances`, the boots of those that take a lost one's place included."""
    refills: FloatArray = reclaims_per_second * boot_seconds * unit_usd_per_second
    return instances * unit_usd_per_second + refills
