"""Checkpoints on their way to where jobs keep their files: what that costs where it is dear.

Instances of one cloud save to the storage of another through the internet, by the gigabyte. So
they save less often: what a save costs counts as so much time of what is paid for.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from autoscaler.domain.offer import Offer
from autoscaler.domain.snapshot import SwitchingCosts
from autoscaler.economics.spot import checkpoint_interval_seconds
from autoscaler.economics.supply import BYTES_PER_GB, SECONDS_PER_HOUR, Terms
from autoscaler.goodput.throughput import FloatArray

# With less between two saves, what a reclaim loses is short beside the boot that follows it.
LEAST_SAVE_SECONDS: Final = 30.0
# Jobs fail for other reasons than reclaims, too.
MOST_SAVE_SECONDS: Final = 3600.0


def upload_usd(switching: SwitchingCosts, offer: Offer) -> float:
    """What it costs to send one checkpoint from an instance of the offer to storage."""
    return switching.checkpoint_bytes * float(offer.upload_usd_per_gb) / BYTES_PER_GB


def uploads_usd_per_second(switching: SwitchingCosts, terms: Terms) -> FloatArray:
    """$ per second for all saves of a job, whatever it holds of each offer, (O,)."""
    usd = switching.checkpoint_bytes * terms.upload_usd_per_byte
    if not usd.any():
        return usd
    if switching.checkpoint_interval_seconds is not None:
        return usd / switching.checkpoint_interval_seconds
    price = terms.usd_per_second
    as_seconds = np.divide(usd, price, out=np.zeros_like(usd), where=price > 0)
    hazard = terms.reclaims_per_hour / SECONDS_PER_HOUR
    best = checkpoint_interval_seconds(switching.checkpoint_seconds + as_seconds, hazard)
    return usd / np.clip(best, LEAST_SAVE_SECONDS, MOST_SAVE_SECONDS)
