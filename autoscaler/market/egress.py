"""List prices of data leaving a cloud or one of its regions, in US dollars per GB.

Incoming data is free. Prices are those of the first terabytes of a month between North America
and Europe. Other regions cost more; negotiated prices and dedicated lines cost less.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

FREE: Final = Decimal(0)
# aws.amazon.com/ec2/pricing/on-demand, "Data Transfer"; cloud.google.com/vpc/network-pricing.
_TO_THE_INTERNET: Final = {"aws": Decimal("0.09"), "gcp": Decimal("0.12")}
_TO_ANOTHER_REGION: Final = {"aws": Decimal("0.02"), "gcp": Decimal("0.02")}


def network_of(cloud: str, region: str) -> str:
    """Return the name of the network of a region's instances, such as ``aws/us-east-1``."""
    return f"{cloud}/{region}"


def egress_usd_per_gb(origin: str, destination: str) -> Decimal:
    """Return the price of data from one network to another.

    0 within a network, and from networks that are not in a cloud.
    """
    if origin == destination:
        return FREE
    cloud, other = origin.partition("/")[0], destination.partition("/")[0]
    prices = _TO_ANOTHER_REGION if cloud == other else _TO_THE_INTERNET
    return prices.get(cloud, FREE)
