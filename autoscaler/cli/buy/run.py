"""Search for capacity blocks, and purchase of one."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Final

from rich.console import Group
from rich.text import Text

from autoscaler.cli.live import print_whole
from autoscaler.cli.logging_setup import leave_providers_unlogged
from autoscaler.cli.output import print_json
from autoscaler.cli.tables import counted, money, utc_minute, words_table
from autoscaler.clock import Clock
from autoscaler.clouds import open_block_market, open_providers
from autoscaler.domain.errors import CastorError, ProviderError, SpecError, Unavailable
from autoscaler.domain.offer import Offer, Purchase
from autoscaler.spec.quantities import parse_moment
from providers.blocks import BlockMarket, BlockOffering, BlockSearch
from providers.plugin import ControllerContext

_CONTROLLER: Final = "castor-buy"
_COLUMNS: Final = ("offering", "zone", "begins, UTC", "ends, UTC", "$", "$/GPU-hour")


@dataclass(frozen=True, slots=True)
class BlockListing:
    """Blocks that fit a search, and what the pools sell of the same type.

    `no_prices` is the reason why the pools' prices are unknown; None if they are known.
    """

    market: BlockMarket
    search: BlockSearch
    offerings: Sequence[BlockOffering]
    offers: Sequence[Offer]
    no_prices: str | None = None

    def chosen(self, offering_id: str) -> BlockOffering:
        """Return the offering with an id.

        Raises:
            SpecError: the search does not find it.
        """
        for offering in self.offerings:
            if offering.id == offering_id:
                return offering
        ids = ", ".join(offering.id for offering in self.offerings) or "nothing"
        raise SpecError(f"{offering_id} is not sold now: the search finds {ids}", "--offering")


@dataclass(frozen=True, slots=True)
class Purchased:
    """Block that was bought, and its pool as an input of Terraform."""

    reservation: str
    offering: BlockOffering
    pool_input: str


def parse_search(
    instance_type: str,
    instances: int,
    days: int,
    first: str | None,
    last: str | None,
    now_seconds: float,
) -> BlockSearch:
    """Return the search that the options describe.

    Raises:
        SpecError: a time is malformed or past, or the end is before the begin.
    """
    from_seconds = _moment(first, "--from", now_seconds)
    to_seconds = _moment(last, "--to", now_seconds)
    if to_seconds is not None and to_seconds <= (from_seconds or now_seconds):
        raise SpecError("is before --from: name a later time", "--to")
    return BlockSearch(instance_type, instances, days * 24, from_seconds, to_seconds)


def search_blocks(source: str, search: BlockSearch, clock: Clock) -> BlockListing:
    """Return the blocks that fit a search, and the pools' offers of the same type.

    Raises:
        SpecError: the source can't be used, or its cloud sells no such block.
        ProviderError: the cloud refuses the search or does not answer.
    """
    leave_providers_unlogged()
    market = open_block_market(source, clock)
    offerings = _answered(lambda: market.offerings(search))
    try:
        with tempfile.TemporaryDirectory(prefix="castor-buy-") as state:
            context = ControllerContext(Path(state), "controller", _CONTROLLER, clock)
            (provider,) = open_providers(None, [source], context).values()
            offers = [
                offer for offer in provider.offers() if offer.instance_type == search.instance_type
            ]
    except CastorError as error:
        return BlockListing(market, search, offerings, (), str(error))
    return BlockListing(market, search, offerings, offers)


def print_listing(listing: BlockListing, as_json: bool) -> None:
    """Print the blocks beside the pools' prices, or the blocks as JSON."""
    if as_json:
        print_json(list[BlockOffering], list(listing.offerings))
        return
    table = words_table(*_COLUMNS, right=_COLUMNS[-2:])
    for offering in listing.offerings:
        table.add_row(
            offering.id,
            offering.zone,
            utc_minute(offering.starts_seconds),
            utc_minute(offering.ends_seconds),
            _exact(offering.usd),
            f"{offering.usd_per_device_hour:,.2f}",
        )
    wanted = f"{listing.search.instances} x {listing.search.instance_type}"
    hours = counted(listing.search.hours, "hour")
    none = f"no block of {wanted} for {hours} is sold: try other --instances, --days or times"
    parts = [table] if listing.offerings else [Text(none)]
    print_whole(Group(*parts, *map(Text, _comparison(listing))))


def question(offering: BlockOffering) -> str:
    """Return the question that the user answers with the price."""
    return (
        f"{offering.instances} x {offering.instance_type} in {offering.zone}, from "
        f"{utc_minute(offering.starts_seconds)} to {utc_minute(offering.ends_seconds)} UTC. "
        f"The price in US dollars is charged at once and never refunded. "
        f"Type {_exact(offering.usd)} to buy"
    )


def buy_block(listing: BlockListing, offering: BlockOffering, amount: str, as_json: bool) -> None:
    """Buy a block if `amount` is its price, and print what to add to Terraform.

    Raises:
        SpecError: `amount` is not the price; nothing was bought.
        ProviderError: nothing was bought, or the outcome is unknown, as the error says.
    """
    if amount.strip() != _exact(offering.usd):
        price = _exact(offering.usd)
        raise SpecError(f"{amount} is not the price, {price}: nothing was bought", "--offering")
    try:
        reservation = listing.market.buy(offering)
    except Unavailable as error:
        raise ProviderError(
            f"{error}: the outcome is unknown: look at the account's capacity reservations "
            "before you buy again"
        ) from error
    text = listing.market.pool_input(offering, reservation)
    if as_json:
        print_json(Purchased, Purchased(reservation, offering, text))
        return
    print(f"bought {reservation} for ${_exact(offering.usd)}")
    print("Add a pool to the Terraform module, and apply it:", "", text, sep="\n")


def _answered(call: Callable[[], Sequence[BlockOffering]]) -> Sequence[BlockOffering]:
    try:
        return call()
    except Unavailable as error:  # a command reports this type as "no controller answers"
        raise ProviderError(str(error)) from error


def _comparison(listing: BlockListing) -> list[str]:
    """Return a line for the pools' cheapest price of a GPU-hour on spot and on demand."""
    if listing.no_prices is not None:
        return [f"The pools' prices are unknown: {listing.no_prices}"]
    lines = []
    for purchase in (Purchase.SPOT, Purchase.ON_DEMAND):
        prices = [
            (offer.usd_per_hour / Decimal(offer.devices), offer.id)
            for offer in listing.offers
            if offer.purchase is purchase
        ]
        price, place = min(prices, default=(None, ""))
        answer = "not sold by these pools" if price is None else f"{money(price)} ({place})"
        lines.append(f"A GPU-hour of {listing.search.instance_type}, {purchase}: {answer}")
        if price is not None and listing.offerings:
            lines[-1] += f"; {_break_even(listing.offerings, price)}"
    return lines


def _break_even(offerings: Sequence[BlockOffering], usd_per_device_hour: Decimal) -> str:
    """Return from which use of its time on the cheapest block costs less than a pool's price."""
    cheapest = min(offerings, key=lambda offering: offering.usd_per_device_hour)
    used_part = cheapest.usd_per_device_hour / usd_per_device_hour
    if used_part >= 1:
        return "every block costs more"
    return f"{cheapest.id} costs less if used for more than {used_part:.0%} of its time"


def _moment(text: str | None, option: str, now_seconds: float) -> float | None:
    try:
        return None if text is None else parse_moment(text, now_seconds)
    except ValueError as error:
        raise SpecError(str(error), option) from error


def _exact(usd: Decimal) -> str:
    """Return a price with all its digits, and cents at least, as the user has to type it."""
    cents = usd.quantize(Decimal("0.01"))
    return f"{cents if cents == usd else usd.normalize():f}"
