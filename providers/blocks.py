"""Contract of a market of capacity blocks, from which `castor buy` buys.

A block is instances of one type in one zone for a fixed time, paid for in advance.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Protocol


@dataclass(frozen=True, slots=True)
class BlockSearch:
    """Block that is wanted: `instances` of a type for `hours`.

    The block begins after `from_seconds` and ends before `to_seconds`, both since the Unix epoch;
    None: at any time.
    """

    instance_type: str
    instances: int
    hours: int
    from_seconds: float | None = None
    to_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class BlockOffering:
    """Block that can be bought now, at `usd` for all of it. `devices` are those of an instance."""

    id: str
    region: str
    zone: str
    instance_type: str
    instances: int
    devices: int
    starts_seconds: float
    ends_seconds: float
    usd: Decimal

    @property
    def usd_per_device_hour(self) -> Decimal:
        """Price of a device for an hour of the block, in US dollars."""
        hours = Decimal(self.ends_seconds - self.starts_seconds) / 3600
        return self.usd / (hours * self.instances * self.devices)


class BlockMarket(Protocol):
    """Market of capacity blocks in the regions of some pools, with the user's credentials."""

    def offerings(self, search: BlockSearch) -> Sequence[BlockOffering]:
        """Return the blocks that fit a search, the cheapest first.

        Raises:
            SpecError: the cloud sells no such block at all.
            ProviderError: the cloud refuses the call or does not answer.
        """
        ...

    def buy(self, offering: BlockOffering) -> str:
        """Buy a block, which can't be undone, and return the name of its reservation.

        Raises:
            Unavailable: the outcome is unknown. Calling again may buy a second block.
            ProviderError: nothing was bought.
        """
        ...

    def pool_input(self, offering: BlockOffering, reservation: str) -> str:
        """Return the pool of a bought block, as an input of the Terraform module."""
        ...
