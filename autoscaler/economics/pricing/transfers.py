"""Cost of moving checkpoints between instances and the storage of jobs' files.

Instances of one cloud save to another cloud's storage through the internet, billed by the
gigabyte. Such jobs save less often: the price of a save counts as the time it would pay for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from autoscaler.domain.offer import Offer
from autoscaler.domain.snapshot import SwitchingCosts
from autoscaler.domain.transfer import BYTES_PER_GB
from autoscaler.economics.pricing.spot import checkpoint_interval_seconds
from autoscaler.economics.supply.sizes import Sizes
from autoscaler.economics.supply.supply import BoolArray, IntArray, MarketTerms
from autoscaler.goodput.throughput import FloatArray

# Shortest interval: a reclaim then loses little compared with the boot that follows.
_LEAST_SAVE_SECONDS: Final = 30.0
# Longest interval, because jobs fail for other reasons than reclaims, too.
_MOST_SAVE_SECONDS: Final = 3600.0
# Seconds that a priced save counts as where instances cost nothing: beyond any instance's life.
_PRICELESS_SECONDS: Final = 1e11


@dataclass(frozen=True, slots=True, eq=False)
class Reclaims:
    """Reclaims at each of A sizes.

    Attributes:
        per_second: reclaims a second over all instances of a size together, (A,).
        lost_together: instances that each reclaim takes from the job: a gang, (A,).
        starts_again: whether too few instances are left then, so that the job restarts from a
            checkpoint, (A,).
    """

    per_second: FloatArray
    lost_together: IntArray
    starts_again: BoolArray


def reclaims_of(sizes: Sizes, per_second: FloatArray, shard: int, minimum: int) -> Reclaims:
    """Return the reclaims of a job that needs `minimum` instances, `shard` devices for a copy."""
    gangs = sizes.gangs(shard)
    return Reclaims(per_second, gangs, sizes.instances - gangs < minimum)


def upload_usd(switching: SwitchingCosts, offer: Offer) -> float:
    """Return the price of sending one checkpoint from an instance to storage, in US dollars."""
    return switching.checkpoint_bytes * float(offer.upload_usd_per_gb) / BYTES_PER_GB


def save_interval_seconds(
    checkpoint_seconds: float,
    upload_usd: FloatArray,
    usd_per_second: FloatArray,
    restarts_per_second: FloatArray,
) -> FloatArray:
    """Return the unbounded seconds of training between two saves; see `bounded_seconds`.

    All arrays have one shape.

    Args:
        checkpoint_seconds: pause of training during one save.
        upload_usd: price of sending one checkpoint.
        usd_per_second: price of the held instances.
        restarts_per_second: restarts from a checkpoint.
    """
    as_seconds = np.where(upload_usd > 0, _PRICELESS_SECONDS, 0.0)
    np.divide(upload_usd, usd_per_second, out=as_seconds, where=usd_per_second > 0)
    return checkpoint_interval_seconds(checkpoint_seconds + as_seconds, restarts_per_second)


def bounded_seconds(interval_seconds: FloatArray) -> FloatArray:
    """Return an interval between two saves, limited to 30 s to 1 h."""
    return np.clip(interval_seconds, _LEAST_SAVE_SECONDS, _MOST_SAVE_SECONDS)


def transfer_usd_per_second(
    switching: SwitchingCosts, terms: MarketTerms, sizes: Sizes, reclaims: Reclaims
) -> FloatArray:
    """Return $ per second for a job's saves and for fetching checkpoints at restarts, (A,).

    Args:
        switching: switching costs of the job.
        terms: offers with their prices per byte.
        sizes: A allocations.
        reclaims: reclaims at each size.
    """
    upload = switching.checkpoint_bytes * terms.upload_usd_per_byte[sizes.offer]
    download = switching.checkpoint_bytes * terms.download_usd_per_byte[sizes.offer]
    if not (upload.any() or download.any()):
        return np.zeros(len(sizes.offer))
    starts_again, per_second = reclaims.starts_again, reclaims.per_second
    fetched = np.where(starts_again, per_second * sizes.instances * download, 0.0)
    if switching.checkpoint_interval_seconds is not None:
        return fetched + upload / switching.checkpoint_interval_seconds
    interval = save_interval_seconds(
        switching.checkpoint_seconds,
        upload,
        terms.usd_per_second[sizes.offer] * sizes.instances,
        np.where(starts_again, per_second, per_second * reclaims.lost_together / sizes.instances),
    )
    return fetched + upload / bounded_seconds(interval)
