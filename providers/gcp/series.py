"""Facts of machine series that no API of Google reports: purchases, disks, bandwidth.

`machine_series.json` is the table, by the beginning of machine types; the longest one that fits
counts. The Terraform module has a copy. Sources of the columns:

- purchases: Google's table of consumption options by machine type, as its pages on GPU machine
  types, AI Hypercomputer and Cluster Director have it. Reservations are not in it, since the
  project's own show what was sold;
- disks: boot disks in the tables of each series, as skypilot#4705 and #5457 have them;
- gbit_per_second: bandwidth of the first of several network interfaces, as the module's templates
  have one; Google's page on network bandwidth states the number and the sum of all. Without it,
  the catalogue's figure holds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Final

from autoscaler.domain.offer import Purchase

_TABLE: Final = "machine_series.json"


@dataclass(frozen=True, slots=True)
class MachineSeries:
    """Machine types that are sold alike.

    `disks` are the types of boot disks that fit. `gbit_per_second` is the bandwidth of one network
    interface; None if the machine has no more than one.
    """

    purchases: frozenset[Purchase]
    disks: frozenset[str]
    gbit_per_second: float | None


def series_of(machine_type: str) -> MachineSeries | None:
    """Return the series of a machine type; None if the table lacks it."""
    prefixes = [prefix for prefix in _series() if machine_type.startswith(prefix)]
    return _series()[max(prefixes, key=len)] if prefixes else None


def unsold_reason(machine_type: str, purchase: Purchase) -> str | None:
    """Return why a machine type is not sold on a kind of purchase; None if it may be.

    Types that the table lacks may be sold.
    """
    series = series_of(machine_type)
    if series is None or purchase in series.purchases:
        return None
    if not series.purchases:
        return (
            f"Google sells {machine_type} by reservation only: reserve it, or choose another type"
        )
    words = " and ".join(sorted(sold.value for sold in series.purchases))
    return (
        f"Google sells {machine_type} on {words} only, not on {purchase.value}: choose "
        "another of purchases"
    )


def unfit_disk_reason(machine_type: str, disk_type: str) -> str | None:
    """Return why a machine type does not take a type of boot disk; None if it may.

    An empty `disk_type` leaves the choice to Compute Engine.
    """
    series = series_of(machine_type)
    if not disk_type or series is None or disk_type in series.disks:
        return None
    words = " or ".join(sorted(series.disks))
    return f"{machine_type} does not take a boot disk of type {disk_type}: use {words}"


@cache
def _series() -> Mapping[str, MachineSeries]:
    table = json.loads(resources.files("providers.gcp").joinpath(_TABLE).read_text("utf-8"))
    return {
        prefix: MachineSeries(
            frozenset(Purchase(word) for word in row["purchases"]),
            frozenset(row["disks"]),
            row.get("gbit_per_second"),
        )
        for prefix, row in table.items()
    }
