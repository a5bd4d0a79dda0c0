"""What reclaims take from the goodput and add to the price of spot instances.

Instances are lost one at a time. The one that is lost is ordered again at once and works after
`refill_seconds`; meanwhile the others go on, or, if too few are left, the job stands still and
starts again from a checkpoint. The hazard is that of the instances at their age, averaged over
the hours to come (`autoscaler/market/hazards.py`).
"""

from __future__ import annotations

import numpy as np

from autoscaler.goodput.throughput import FloatArray

# Once in 30,000 years; with less a quotient of two small numbers is no more exact.
_LEAST_HAZARD = 1e-12
# Where checkpoints cost nothing.
_LEAST_INTERVAL_SECONDS = 1e-6
_MOST_EXPONENT = 700.0


def goodput_with_reclaims(
    goodput: FloatArray,
    goodput_of_one_less: FloatArray,
    reclaims_per_second: FloatArray,
    refill_seconds: FloatArray,
    pause_seconds: FloatArray,
) -> FloatArray:
    """Mean goodput of n instances of which one is refilled now and then, never below 0.

    ``(1 - x) G(n) + x G(n - 1) - L * pause * G(n)`` with L reclaims a second of all n together
    and ``x = L t / (1 + L t)`` the share of time in which one is missing.
    """
    missing = reclaims_per_second * refill_seconds
    share = missing / (1.0 + missing)
    mean = (1.0 - share) * goodput + share * goodput_of_one_less
    left: FloatArray = np.maximum(mean - reclaims_per_second * pause_seconds * goodput, 0.0)
    return left


def goodput_with_restarts(
    goodput: FloatArray,
    reclaims_per_second: FloatArray,
    restart_seconds: FloatArray,
    checkpoint_seconds: float,
    interval_seconds: float | None,
) -> FloatArray:
    """Mean goodput of a job that starts again from a checkpoint at each of L reclaims a second.

    ``G tau / ((exp(L (tau + c)) - 1) (1 / L + r))`` for Poisson reclaims, with a checkpoint of
    c seconds after every tau of training and r seconds until it trains again (Daly 2006, section
    3). Without an interval it is `checkpoint_interval_seconds` of all instances together.
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
    """How long to train between two checkpoints so that least is lost.

    ``sqrt(2 c / L)`` (Young 1974) with the next two terms (Daly 2006, equation 37); 1 / L where
    a checkpoint takes longer than two lives.
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
) -> FloatArray:
    """$ per second of `instances`, the boots of those that take a lost one's place included."""
    refills: FloatArray = reclaims_per_second * boot_seconds * unit_usd_per_second
    return instances * unit_usd_per_second + refills
