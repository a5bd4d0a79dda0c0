"""Offers and behaviour of the local cloud."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass, field
from decimal import Decimal

from autoscaler.domain.offer import Offer, Purchase

_PRICES = {
    ("local-small", 1, Purchase.ON_DEMAND): Decimal("0.0450"),
    ("local-large", 2, Purchase.ON_DEMAND): Decimal("0.0850"),
    ("local-small-spot", 1, Purchase.SPOT): Decimal("0.0170"),
    ("local-large-spot", 2, Purchase.SPOT): Decimal("0.0320"),
}
_LOOPBACK_BYTES_PER_SECOND = 2e9

_AGENT = (sys.executable, "-P", "-m", "autoscaler.cli.app", "node", "--user-data")

# Variables for programs, packages and the network. The controller's secrets are not passed on.
_INHERITED = (
    *("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR"),
    *("LD_LIBRARY_PATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *("PIP_CONFIG_FILE", "PIP_CACHE_DIR", "PIP_CERT", "PIP_FIND_LINKS"),
    *("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL"),
)


def default_catalogue(
    boot_seconds: float = 1.0, reclaims_per_hour: float = 0.0
) -> tuple[Offer, ...]:
    """Return offers of one and two cores, on-demand and spot.

    `reclaims_per_hour` is the reclaim rate of spot; 0 means that no instance is reclaimed at
    random. Prices are similar to those of small general-purpose cloud instances.
    """
    return tuple(
        Offer(
            id=name,
            provider="local",
            instance_type=name.removesuffix("-spot"),
            zone="local",
            purchase=purchase,
            devices=devices,
            device_kind="cpu-core",
            usd_per_hour=usd_per_hour,
            boot_seconds=boot_seconds,
            network_bytes_per_second=_LOOPBACK_BYTES_PER_SECOND,
            reclaims_per_hour=reclaims_per_hour if purchase is Purchase.SPOT else 0.0,
        )
        for (name, devices, purchase), usd_per_hour in _PRICES.items()
    )


def _own_cores() -> tuple[int, ...]:
    return tuple(sorted(os.sched_getaffinity(0)))


@dataclass(frozen=True, slots=True)
class LocalSettings:
    """Settings of the local cloud.

    `devices` are the logical cores for sale. Two of one physical core slow each other down, so
    name one of each where measurements matter. Boot times and reclaim rates are those of the
    offers in `catalogue`. Each reclaim has a notice of `notice_period_seconds`. An ending process
    has `grace_seconds` between SIGTERM and SIGKILL. The n-th instance of a directory has the same
    lifetime under the same `seed`. `agent` is the command that an instance runs after its boot;
    the path of its user data is the last argument. An instance inherits only the environment
    variables in `inherited`.
    """

    devices: tuple[int, ...] = field(default_factory=_own_cores)
    catalogue: tuple[Offer, ...] = field(default_factory=default_catalogue)
    notice_period_seconds: float = 10.0
    grace_seconds: float = 2.0
    seed: int = 0
    agent: tuple[str, ...] = _AGENT
    inherited: tuple[str, ...] = _INHERITED

    def __post_init__(self) -> None:
        if not self.devices or len(set(self.devices)) < len(self.devices):
            raise ValueError(f"devices={self.devices}: name at least one core, and no core twice")
        if min(self.notice_period_seconds, self.grace_seconds) < 0:
            raise ValueError("notice_period_seconds and grace_seconds can't be negative")
