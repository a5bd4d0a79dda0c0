"""Effect of reclaims on the goodput and the price of spot instances.

Instances are lost one at a time, each with its gang: the instances that hold one copy of the model
together. A lost gang is given back and reordered whole at once, and trains after `refill_seconds`.
Meanwhile the others train on; if too few are left, the job stands still and restarts from a
checkpoint. The hazard is that of the instances at their age, averaged over the next hours
(`autoscaler/market/hazards.py`).
"""

from __future__ import annotations

import numpy as np

from autoscaler.goodput.throughput import FloatArray, IntArray

# Smallest hazard, once in 30,000 years: below it quotients of small numbers lose precision.
_LEAST_HAZARD = 1e-12
# Shortest interval, reached where checkpoints cost nothing.
_LEAST_INTERVAL_SECONDS = 1e-6
_MOST_EXPONENT = 700.0


def goodput_with_reclaims(
    goodput: FloatArray,
    goodput_of_one_less: FloatArray,
    reclaims_per_second: FloatArray,
    refill_seconds: FloatArray,
    pause_seconds: FloatArray,
) -> FloatArray:
    """Return the mean goodput of n gangs with refills after reclaims, at least 0.

    ``(1 - x) G(n) + x G(n - 1) - L * pause * G(n)`` with L reclaims a second over all instances,
    refill time t, and ``x = L t / (1 + L t)``, the share of time in which one gang is missing.
    Goodput is in useful examples a second. Arrays broadcast.

    Args:
        goodput: G(n).
        goodput_of_one_less: G(n - 1).
        reclaims_per_second: L.
        refill_seconds: t, from a reclaim until the new gang trains.
        pause_seconds: pause of training after each reclaim.
    """
    missing = reclaims_per_second * refill_seconds
    share = missing / (1.0 + missing)
    mean = (1.0 - share) * goodput + share * goodput_of_one_less
    reduced: FloatArray = np.maximum(mean - reclaims_per_second * pause_seconds * goodput, 0.0)
    return reduced


def goodput_with_restarts(
    goodput: FloatArray,
    reclaims_per_second: FloatArray,
    restart_seconds: FloatArray,
    checkpoint_seconds: float,
    interval_seconds: float | None,
) -> FloatArray:
    """Return the mean goodput of a job that restarts from a checkpoint at each reclaim.

    ``G tau / ((exp(L (tau + c)) - 1) (1 / L + r))`` (Daly 2006, section 3). There are L Poisson
    reclaims a second, and a checkpoint of c seconds after every tau seconds of training. A restart
    takes r seconds.

    Args:
        goodput: G, useful examples a second.
        reclaims_per_second: L, over all instances together.
        restart_seconds: r.
        checkpoint_seconds: c.
        interval_seconds: tau; None: `checkpoint_interval_seconds`.
    """
    hazard = np.maximum(reclaims_per_second, _LEAST_HAZARD)
    interval = checkpoint_interval_seconds(checkpoint_seconds, hazard)
    if interval_seconds is not None:
        interval = np.full_like(hazard, interval_seconds)
    lost = np.expm1(np.minimum(hazard * (interval + checkpoint_seconds), _MOST_EXPONENT))
    mean: FloatArray = goodput * interval / (lost * (1.0 / hazard + restart_seconds))
    return mean


def checkpoint_interval_seconds(
    checkpoint_seconds: float | FloatArray, reclaims_per_second: FloatArray
) -> FloatArray:
    """Return the training time between two checkpoints that loses least.

    It is ``sqrt(2 c / L)`` (Young 1974) with the next two terms (Daly 2006, equation 37), for
    checkpoints of c seconds and L reclaims a second. If a checkpoint takes longer than 2 / L, it
    is 1 / L.
    """
    lives = 1.0 / np.maximum(reclaims_per_second, _LEAST_HAZARD)
    half = checkpoint_seconds / (2.0 * lives)
    longer = np.sqrt(2.0 * checkpoint_seconds * lives) * (1.0 + np.sqrt(half) / 3.0 + half / 9.0)
    interval = np.where(half < 1.0, longer - checkpoint_seconds, lives)
    best: FloatArray = np.maximum(interval, _LEAST_INTERVAL_SECONDS)
    return best


def price_with_refills(
    unit_usd_per_second: FloatArray,
    instances: FloatArray,
    reclaims_per_second: FloatArray,
    boot_seconds: FloatArray,
    lost_together: IntArray | int = 1,
) -> FloatArray:
    """Return $ per second of `instances`, with the boots that replace lost ones.

    A reclaim takes `lost_together` instances with it, all of which are billed during the boot.
    """
    refills: FloatArray = reclaims_per_second * boot_seconds * unit_usd_per_second * lost_together
    return instances * unit_usd_per_second + refills
