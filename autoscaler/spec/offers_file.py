"""Offers files: YAML with offers, limits and prices, for simulations and pools.

::

    offers:
      - type: g4dn.12xlarge            # of the catalogue, which has the other values
        profile: aws                   # name of its device kind in application profiles
        max_instances: 16
      - {type: g5.12xlarge, purchase: spot, zone: use1-az1, reclaims_per_hour: 0.1}
      - {type: p4d.24xlarge, purchase: reserved, max_instances: 2, until: 2026-12-31T00:00Z}
      - id: office                     # or with all values given
        devices: 8
        device_kind: rtx2080ti
        usd_per_hour: 1.20
        network: 25Gbit/s
    limits:
      - {name: gpus, devices: 64}
      - {name: budget, usd_per_hour: 50, offers: [office, g5.12xlarge-spot]}
    prices_from:
      - {file: spot.csv, as_of: 2026-07-20}
    discounts:
      - {provider: aws, type: "g5*", factor: 0.8, reason: enterprise agreement}

Defaults of an offer: `id` is type and purchase. `purchase` is on-demand. `zone` is the
catalogue's region. `provider` is the catalogue's, or ``pool``. `boot` is 3m. `minimum_billed` is
60s for a type of the catalogue, else 0. `max_instances` or `max_devices` limits this offer alone.
`profile` applies to every offer of the same kind of device.

Purchases: spot needs `reclaims_per_hour` or, for simulations, `trace`. A `trace` is a file of
capacity over time (`providers.simulated.capacity`). Flex-start orders wait for the capacity of
their `trace`. A reserved offer (reservation, savings plan, capacity block) is already paid for, so
its price is 0 unless `usd_per_hour` is given. It needs `max_instances` or `max_devices`, the
number reserved. `until` is the end of the reservation; jobs leave before, in time to boot another
instance.

The price of other offers is `usd_per_hour`. A spot price of exactly a tenth or the whole of the
on-demand price counts as on-demand, because no market has it. By default it is that of the first
list in `prices_from` (see `market.price_table`) with the type in this zone. If no list has the
type, it is the catalogue's on-demand price, in its region only. The first matching discount
reduces both. A limit counts one of `devices`, `instances` and `usd_per_hour`, over all offers or
over the offers that it names by id.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Final, TypeVar

from autoscaler.domain.errors import SpecError
from autoscaler.domain.offer import Limit, LimitUnit, Offer, Purchase
from autoscaler.domain.text import did_you_mean
from autoscaler.market import queues
from autoscaler.market.catalogue import (
    MINIMUM_BILLED_SECONDS,
    InstanceType,
    UnknownInstanceType,
    instance_type,
)
from autoscaler.market.price_table import PriceTable, is_in_region, parse_price_table
from autoscaler.market.prices import Discount, Price, Quote, RefusedPrice, checked, spot_price
from autoscaler.spec.form_file import located, read_document, read_text, validated
from autoscaler.spec.forms import Problem
from autoscaler.spec.located_yaml import LocatedYaml
from autoscaler.spec.offers_form import LimitForm, OfferForm, OffersForm, PricesForm

# Default boot time. Measured start times replace it.
BOOT_SECONDS: Final = 180.0
POOL: Final = "pool"

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")


@dataclass(frozen=True, slots=True)
class OffersFile:
    """Content of an offers file.

    The three mappings are by offer id: device kind in application profiles and file of capacity
    over time, where the file has one, and price with its source and time.
    """

    offers: tuple[Offer, ...]
    limits: tuple[Limit, ...]
    profile_kinds: Mapping[str, str]
    prices: Mapping[str, Price]
    traces: Mapping[str, Path]


def load_offers(path: Path, now_seconds: float) -> OffersFile:
    """Read an offers file.

    Args:
        path: the file; the module's docstring describes its format.
        now_seconds: current time, seconds since the Unix epoch; durations count from it.

    Raises:
        SpecError: the file, or a price list that it names, can't be read or used. The message has
            a line for each problem: file, line number, key, problem and remedy.
    """
    document = read_document(path, "an offers file; castor schema offers has its keys")
    form = validated(document, OffersForm, {"now_seconds": now_seconds})
    tables = _convert_all(
        form.prices_from,
        "prices_from",
        document,
        lambda price_list: _price_table(price_list, path.parent),
    )
    discounts = [discount.discount() for discount in form.discounts]
    prices = _PriceSources(tables, discounts, path.name, now_seconds)
    sales = _convert_all(
        form.offers, "offers", document, lambda offer: _priced_offer(offer, prices)
    )
    _require_unique_names(sales, form.limits, document)
    profiles = _profiles(sales, document)
    offers = {sale.offer.id: sale.offer for sale in sales}
    limits = _convert_all(form.limits, "limits", document, lambda limit: _limit(limit, offers))
    limits.extend(sale.limit for sale in sales if sale.limit is not None)
    return OffersFile(
        offers=tuple(offers.values()),
        limits=tuple(limits),
        profile_kinds={
            offer.id: profiles[offer.device_kind]
            for offer in offers.values()
            if offer.device_kind in profiles
        },
        prices={sale.offer.id: sale.price for sale in sales},
        traces={
            offer.offer_id: path.parent / Path(offer.trace).expanduser()
            for offer in form.offers
            if offer.trace
        },
    )


@dataclass(frozen=True, slots=True)
class _PricedOffer:
    """Offer with its price, its own limit (None if unlimited) and its profile's kind."""

    offer: Offer
    price: Price
    limit: Limit | None
    profile: str | None


class _ItemError(Exception):
    """Problem with an item of a list in the file; `key` is the wrong key, None for the item."""

    def __init__(self, key: str | None, message: str) -> None:
        super().__init__(message)
        self.key = key


def _convert_all(
    items: Iterable[_Item],
    key: str,
    document: LocatedYaml,
    convert: Callable[[_Item], _Result],
) -> list[_Result]:
    """Apply `convert` to every item of the list `key`.

    Raises:
        SpecError: some items are wrong; the message has a line for each.
    """
    results, problems = [], []
    for index, item in enumerate(items):
        try:
            results.append(convert(item))
        except _ItemError as error:
            path = (key, index) if error.key is None else (key, index, error.key)
            problems.append(Problem(path, str(error)))
    if problems:
        raise located(problems, document)
    return results


def _price_table(form: PricesForm, folder: Path) -> PriceTable:
    path = folder / Path(form.file).expanduser()
    try:
        return parse_price_table(read_text(path, "a price list"), str(path), form.as_of)
    except SpecError as error:
        raise _ItemError("file", str(error)) from error


@dataclass(frozen=True, slots=True)
class _PriceSources:
    """Sources of the prices of a file's offers."""

    tables: Sequence[PriceTable]
    discounts: Sequence[Discount]
    file_name: str
    now_seconds: float

    def price(self, form: OfferForm, shape: _Shape) -> Price:
        """Return the price of one instance.

        Raises:
            _ItemError: the price is unknown, or is refused as implausible.
        """
        if form.usd_per_hour is not None:
            quote = Quote(form.usd_per_hour, self.now_seconds, self.file_name)
            check = spot_price if form.purchase is Purchase.SPOT else checked
            return _accepted(check(quote, shape.list_price), "usd_per_hour")
        if form.purchase is Purchase.RESERVED:
            source = f"{self.file_name}: paid already"
            return Price(Decimal(0), self.now_seconds, source, is_paid=True)
        price = self._list_price(form.purchase, shape)
        for discount in self.discounts:
            if discount.covers(shape.provider, shape.instance_type, form.purchase):
                quote = discount.applied_to(price)
                return _accepted(checked(quote, shape.list_price), "type")
        return price

    def _list_price(self, purchase: Purchase, shape: _Shape) -> Price:
        name, zone = shape.instance_type, shape.zone
        answers = [
            table.price(name, zone, purchase, shape.list_price)
            for table in self.tables
            if name in table
        ]
        if answers:
            prices = (answer for answer in answers if isinstance(answer, Price))
            return _accepted(next(prices, answers[0]), "zone")
        is_unlisted = purchase in (Purchase.SPOT, Purchase.FLEX_START)
        if shape.list_price is None or is_unlisted:
            raise _ItemError(
                None,
                f"the {purchase} price of {name} is unknown: set usd_per_hour, "
                "or name a list with this price in prices_from",
            )
        if not is_in_region(zone, shape.region):
            raise _ItemError(
                "zone",
                f"the catalogue's price of {name} is for {shape.region}: use this zone, or set "
                "usd_per_hour, or name a list in prices_from",
            )
        return shape.list_price


def _accepted(answer: Price | RefusedPrice, key: str) -> Price:
    if isinstance(answer, RefusedPrice):
        raise _ItemError(key, answer.reason)
    return answer


@dataclass(frozen=True, slots=True)
class _Shape:
    """Properties of an offer other than its price.

    `list_price` is the catalogue's price in `region`; None for a type that it does not have.
    """

    instance_type: str
    provider: str
    region: str
    zone: str
    devices: int
    device_kind: str
    network_bytes_per_second: float
    minimum_billed_seconds: int
    list_price: Price | None


def _shape(form: OfferForm) -> _Shape:
    if form.type is None:
        return _given_shape(form, "without a type")
    try:
        return _catalogue_shape(form, instance_type(form.type))
    except UnknownInstanceType as error:
        return _given_shape(form, f"{error}; for your own type")


def _catalogue_shape(form: OfferForm, known: InstanceType) -> _Shape:
    if form.devices not in (None, known.devices):
        raise _ItemError("devices", f"{known.name} has {known.devices}: leave devices out")
    if form.device_kind not in (None, known.device_kind):
        raise _ItemError("device_kind", f"{known.name} has {known.device_kind}: leave it out")
    return _Shape(
        instance_type=known.name,
        provider=form.provider or known.provider,
        region=known.region,
        zone=form.zone or known.region,
        devices=known.devices,
        device_kind=known.device_kind,
        network_bytes_per_second=form.network or known.network_bytes_per_second,
        minimum_billed_seconds=math.ceil(form.minimum_billed or MINIMUM_BILLED_SECONDS),
        list_price=known.price,
    )


def _given_shape(form: OfferForm, condition: str) -> _Shape:
    if form.devices is None or form.device_kind is None or form.network is None:
        required = ("devices", "device_kind", "network")
        missing = ", ".join(key for key in required if getattr(form, key) is None)
        raise _ItemError("type" if form.type else "id", f"{condition}, set {missing}, too")
    return _Shape(
        instance_type=form.type or form.offer_id,
        provider=form.provider or POOL,
        region=POOL,
        zone=form.zone or POOL,
        devices=form.devices,
        device_kind=form.device_kind,
        network_bytes_per_second=form.network,
        minimum_billed_seconds=math.ceil(form.minimum_billed or 0),
        list_price=None,
    )


def _priced_offer(form: OfferForm, prices: _PriceSources) -> _PricedOffer:
    shape = _shape(form)
    price = prices.price(form, shape)
    offer = Offer(
        id=form.offer_id,
        provider=shape.provider,
        instance_type=shape.instance_type,
        zone=shape.zone,
        purchase=form.purchase,
        devices=shape.devices,
        device_kind=shape.device_kind,
        usd_per_hour=price.usd_per_hour,
        boot_seconds=form.boot or BOOT_SECONDS,
        network_bytes_per_second=shape.network_bytes_per_second,
        reclaims_per_hour=form.reclaims_per_hour or 0.0,
        fill_seconds=queues.USUAL_SECONDS if form.purchase is Purchase.FLEX_START else 0.0,
        minimum_billed_seconds=shape.minimum_billed_seconds,
        until_seconds=form.until,
        price_source=price.source,
        priced_seconds=price.as_of_seconds,
    )
    return _PricedOffer(offer, price, _own_limit(form, offer), form.profile)


def _own_limit(form: OfferForm, offer: Offer) -> Limit | None:
    if form.max_instances is not None:
        unit, maximum = LimitUnit.INSTANCES, form.max_instances
    elif form.max_devices is not None:
        unit, maximum = LimitUnit.DEVICES, form.max_devices
    else:
        return None
    place = f"max_{unit} of the offer in the offers file"
    limit = Limit(f"{unit} of {offer.id}", unit, maximum, frozenset({offer.id}), place)
    if limit.use(offer) > maximum:
        raise _ItemError(
            f"max_{unit}",
            f"{maximum} is below the {offer.devices} devices of one instance: raise the limit",
        )
    return limit


def _limit(form: LimitForm, offers: Mapping[str, Offer]) -> Limit:
    for name in form.offers or ():
        if name not in offers:
            hint = did_you_mean(name, offers, f"offers are {', '.join(offers)}")
            raise _ItemError("offers", f'there is no offer "{name}": {hint}')
    unit, maximum = form.bound
    of_offers = frozenset(form.offers) if form.offers else None
    limit = Limit(form.name, unit, maximum, of_offers, "limits of the offers file")
    counted = [offers[name] for name in form.offers or offers]
    least = min(limit.use(offer) for offer in counted)
    if least > maximum:
        raise _ItemError(
            unit, f"{maximum:g} is below the {least:g} of one instance: raise the limit"
        )
    return limit


def _require_unique_names(
    sales: Sequence[_PricedOffer], limits: Sequence[LimitForm], document: LocatedYaml
) -> None:
    ids = [sale.offer.id for sale in sales]
    names = [limit.name for limit in limits]
    problems = [
        Problem((part, index, key), f'"{name}" is given twice: use a different {key} for each')
        for part, key, values in (("offers", "id", ids), ("limits", "name", names))
        for index, name in enumerate(values)
        if name in values[:index]
    ]
    if problems:
        raise located(problems, document)


def _profiles(sales: Sequence[_PricedOffer], document: LocatedYaml) -> dict[str, str]:
    """Return the profile by kind of device, for kinds that have one.

    Raises:
        SpecError: two offers of one kind have different profiles.
    """
    profiles: dict[str, str] = {}
    for index, sale in enumerate(sales):
        kind = sale.offer.device_kind
        if sale.profile and profiles.setdefault(kind, sale.profile) != sale.profile:
            message = (
                f'"{sale.profile}" differs from "{profiles[kind]}", the profile of {kind} above'
            )
            raise located([Problem(("offers", index, "profile"), message)], document)
    return profiles
