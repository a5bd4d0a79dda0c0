"""Checkpoints on their way to where jobs keep their files, and from there: what it costs.

Instances of one cloud save to the storage of another through the internet, by the gigabyte. So
they save less often: what a save costs counts as so much time of what is paid for.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from autoscaler.domain.offer import Offer
from autoscaler.domain.snapshot import SwitchingCosts
from autoscaler.domain.transfer import BYTES_PER_GB
from autoscaler.economics.sizes import Sizes
from autoscaler.economics.spot import checkpoint_interval_seconds
from autoscaler.economics.supply import Terms
from autoscaler.goodput.throughput import FloatArray

# With less between two saves, what a reclaim loses is short beside the boot that follows it.
_LEAST_SAVE_SECONDS: Final = 30.0
# Jobs fail for other reasons than reclaims, too.
_MOST_SAVE_SECONDS: Final = 3600.0
# No save is worth its price where nothing else is paid for: longer than any instance lives.
_PRICELESS_SECONDS: Final = 1e11


def upload_usd(switching: SwitchingCosts, offer: Offer) -> float:
    """What it costs to send one checkpoint from an instance of the offer to storage."""
    return switching.checkpoint_bytes * float(offer.upload_usd_per_gb) / BYTES_PER_GB


def save_interval_seconds(
    checkpoint_seconds: float,
    upload_usd: FloatArray,
    usd_per_second: FloatArray,
    restarts_per_second: FloatArray,
) -> FloatArray:
    """How long to train between two saves; arrays of one shape. See `bounded_seconds`.

    Args:
        checkpoint_seconds: a save holds training up for so long.
        upload_usd: what one costs on its way.
        usd_per_second: the price of the instances that are held.
        restarts_per_second: how often they start again from a checkpoint.
    """
    as_seconds = np.where(upload_usd > 0, _PRICELESS_SECONDS, 0.0)
    np.divide(upload_usd, usd_per_second, out=as_seconds, where=usd_per_second > 0)
    return checkpoint_interval_seconds(checkpoint_seconds + as_seconds, restarts_per_second)


def bounded_seconds(interval_seconds: FloatArray) -> FloatArray:
    """An interval between two saves, within reason."""
    return np.clip(interval_seconds, _LEAST_SAVE_SECONDS, _MOST_SAVE_SECONDS)


def carried_usd_per_second(
    switching: SwitchingCosts, terms: Terms, sizes: Sizes, reclaims: FloatArray, minimum: int
) -> FloatArray:
    """$ per second for a job's saves, and for the checkpoints that it starts again from, (A,).

    Args:
        switching: the job's.
        terms: what can be bought.
        sizes: A of them.
        reclaims: a second, of all instances of each size together, (A,).
        minimum: with fewer instances than this a job starts again when one is lost.
    """
    upload = switching.checkpoint_bytes * terms.upload_usd_per_byte[sizes.offer]
    download = switching.checkpoint_bytes * terms.download_usd_per_byte[sizes.offer]
    if not (upload.any() or download.any()):
        return np.zeros(len(sizes.offer))
    starts_again = sizes.instances <= minimum
    fetched = np.where(starts_again, reclaims * sizes.instances * download, 0.0)
    if switching.checkpoint_interval_seconds is not None:
        return fetched + upload / switching.checkpoint_interval_seconds
    interval = save_interval_seconds(
        switching.checkpoint_seconds,
        upload,
        terms.usd_per_second[sizes.offer] * sizes.instances,
        np.where(starts_again, reclaims, reclaims / sizes.instances),
    )
    return fetched + upload / bounded_seconds(interval)
