"""What a gigabyte costs that leaves a cloud, or a region of it, as the clouds' own lists have it.

What comes in is free everywhere. The prices are those of the first terabytes of a month between
North America and Europe; other places are dearer, and who has agreed on others, or has a line of
its own between the clouds, pays less.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Final

FREE: Final = Decimal(0)
# aws.amazon.com/ec2/pricing/on-demand, "Data Transfer"; cloud.google.com/vpc/network-pricing.
_TO_THE_INTERNET: Final = {"aws": Decimal("0.09"), "gcp": Decimal("0.12")}
_TO_ANOTHER_REGION: Final = {"aws": Decimal("0.02"), "gcp": Decimal("0.02")}


def network_of(cloud: str, region: str) -> str:
    """The name of the network that instances of a region are in, as ``aws/us-east-1``."""
    return f"{cloud}/{region}"


def egress_usd_per_gb(origin: str, destination: str) -> Decimal:
    """From one network to another; nothing within one, and from where nobody counts."""
    if origin == destination:
        return FREE
    cloud, other = origin.partition("/")[0], destination.partition("/")[0]
    prices = _TO_ANOTHER_REGION if cloud == other else _TO_THE_INTERNET
    return prices.get(cloud, FREE)
