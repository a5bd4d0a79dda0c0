"""Files of offers: YAML that says what can be bought, for simulations and self-described pools.

::

    offers:
      - type: g4dn.12xlarge            # of the catalogue, which fills in the rest
        profile: aws                   # its device kind's name in files of measured profiles
        max_instances: 16
      - {type: g5.12xlarge, purchase: spot, zone: use1-az1, reclaims_per_hour: 0.1}
      - {type: p4d.24xlarge, purchase: reserved, max_instances: 2, until: 2026-12-31T00:00Z}
      - id: office                     # or all by hand
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

Of an offer: `id` is the type and the purchase unless given; `purchase` is on-demand unless it is
spot, which needs `reclaims_per_hour` or, for simulations, `trace`, a file of how many there are
when (`providers.simulated.capacity`), or flex-start, whose orders wait for what a `trace` has, or
reserved; `zone` is the catalogue's region; `provider`
is the catalogue's or ``pool``; `boot` is 3m; `minimum_billed` is 60s of a type in the catalogue,
else nothing; `max_instances` or `max_devices` bounds this offer alone; `profile` holds for every
offer of the same kind of device.

What is reserved (a reservation, a savings plan, a capacity block) is paid for whether it is used
or not, so it costs nothing more unless `usd_per_hour` says so. It needs `max_instances` or
`max_devices`, as many as are reserved; `until` is when that ends, if it does: in time for another
instance to boot, jobs leave it.

Of all others the price is `usd_per_hour` (of spot at exactly a tenth or the whole of on-demand it
is that of on-demand: no market has such a price); else, less the first of `discounts` that covers
it, that of the first list in `prices_from` (what one is: `market.price_table`) that sells it in
its zone; else, where no list has the type, the catalogue's on-demand price in the catalogue's
region. A limit counts one of `devices`, `instances` and `usd_per_hour`, over all offers or those
it names by id.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Final, TypeVar

from autoscaler.domain.errors import SpecError
from autoscaler.domain.offer import Limit, LimitUnit, Offer, Purchase
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

# What the economics were tried with; starts that are measured take its place.
BOOT_SECONDS: Final = 180.0
POOL: Final = "pool"

_Part = TypeVar("_Part")
_Made = TypeVar("_Made")


@dataclass(frozen=True, slots=True)
class OffersFile:
    """What a file of offers says.

    `profile_kinds` (offer id -> its device kind's name in files of measured profiles) has the
    offers whose kind the file gives one; `prices` (offer id -> price) say where each offer's price
    is from, and of when. `traces` (offer id -> file) are of the offers that have one.
    """

    offers: tuple[Offer, ...]
    limits: tuple[Limit, ...]
    profile_kinds: Mapping[str, str]
    prices: Mapping[str, Price]
    traces: Mapping[str, Path]


def load_offers(path: Path, now_seconds: float) -> OffersFile:
    """Read a file of offers.

    Args:
        path: the file; the module says what it holds.
        now_seconds: the moment that prices given by hand are of and durations count from, in
            seconds since the epoch.

    Raises:
        SpecError: the file, or a price list it names, can't be read or used. Every problem is a
            line with the file, the line number, the key, what is wrong and what was meant.
    """
    document = read_document(path)
    form = validated(document, OffersForm, {"now_seconds": now_seconds})
    tables = _each(
        form.prices_from,
        "prices_from",
        document,
        lambda listed: _table(listed, path.parent),
    )
    discounts = [discount.discount() for discount in form.discounts]
    prices = _PriceSources(tables, discounts, path.name, now_seconds)
    sales = _each(form.offers, "offers", document, lambda offer: _sale(offer, prices))
    _refuse_repeated(sales, form.limits, document)
    profiles = _profiles(sales, document)
    offers = {sale.offer.id: sale.offer for sale in sales}
    limits = _each(form.limits, "limits", document, lambda limit: _limit(limit, offers))
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
class _Sale:
    """An offer, the price behind it, and what the file says of it alone."""

    offer: Offer
    price: Price
    limit: Limit | None
    profile: str | None


class _Fault(Exception):
    """What is wrong with one part of the file; `key` None: with all of it."""

    def __init__(self, key: str | None, message: str) -> None:
        super().__init__(message)
        self.key = key


def _each(
    parts: Iterable[_Part],
    key: str,
    document: LocatedYaml,
    make: Callable[[_Part], _Made],
) -> list[_Made]:
    """What `make` makes of every part of the list `key`; all faults are told at once."""
    made, problems = [], []
    for index, part in enumerate(parts):
        try:
            made.append(make(part))
        except _Fault as fault:
            path = (key, index) if fault.key is None else (key, index, fault.key)
            problems.append(Problem(path, str(fault)))
    if problems:
        raise located(problems, document)
    return made


def _table(form: PricesForm, folder: Path) -> PriceTable:
    path = folder / Path(form.file).expanduser()
    try:
        return parse_price_table(read_text(path), str(path), form.as_of)
    except SpecError as error:
        raise _Fault("file", str(error)) from error


@dataclass(frozen=True, slots=True)
class _PriceSources:
    """Where the offers of one file get their prices."""

    tables: Sequence[PriceTable]
    discounts: Sequence[Discount]
    file_name: str
    now_seconds: float

    def price(self, form: OfferForm, shape: _Shape) -> Price:
        """What one instance costs.

        Raises:
            _Fault: nobody sells it so, its price is not known, or is none that can be used.
        """
        if form.usd_per_hour is not None:
            quote = Quote(form.usd_per_hour, self.now_seconds, self.file_name)
            check = spot_price if form.purchase is Purchase.SPOT else checked
            return _accepted(check(quote, shape.list_price), "usd_per_hour")
        if form.purchase is Purchase.RESERVED:
            source = f"{self.file_name}: paid already"
            return Price(Decimal(0), self.now_seconds, source, is_paid=True)
        price = self._listed(form.purchase, shape)
        for discount in self.discounts:
            if discount.covers(shape.provider, shape.instance_type, form.purchase):
                quote = discount.applied_to(price)
                return _accepted(checked(quote, shape.list_price), "type")
        return price

    def _listed(self, purchase: Purchase, shape: _Shape) -> Price:
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
            raise _Fault(
                None,
                f"no {purchase} price of {name} is known: give usd_per_hour, "
                "or a list that has it in prices_from",
            )
        if not is_in_region(zone, shape.region):
            raise _Fault(
                "zone",
                f"the catalogue's price of {name} is of {shape.region}: write that, or give "
                "usd_per_hour or a list in prices_from",
            )
        return shape.list_price


def _accepted(answer: Price | RefusedPrice, key: str) -> Price:
    if isinstance(answer, RefusedPrice):
        raise _Fault(key, answer.reason)
    return answer


@dataclass(frozen=True, slots=True)
class _Shape:
    """What an offer is of, before its price. `list_price` is the catalogue's, of `region`."""

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
        return _shape_by_hand(form, "without a type")
    try:
        return _shape_in_catalogue(form, instance_type(form.type))
    except UnknownInstanceType as error:
        return _shape_by_hand(form, f"{error}; if it is your own")


def _shape_in_catalogue(form: OfferForm, known: InstanceType) -> _Shape:
    if form.devices not in (None, known.devices):
        raise _Fault("devices", f"{known.name} has {known.devices}: leave devices out")
    if form.device_kind not in (None, known.device_kind):
        raise _Fault("device_kind", f"{known.name} has {known.device_kind}: leave it out")
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


def _shape_by_hand(form: OfferForm, why: str) -> _Shape:
    if form.devices is None or form.device_kind is None or form.network is None:
        wanted = ("devices", "device_kind", "network")
        missing = ", ".join(key for key in wanted if getattr(form, key) is None)
        raise _Fault("type" if form.type else "id", f"{why}, give {missing} too")
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


def _sale(form: OfferForm, prices: _PriceSources) -> _Sale:
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
    return _Sale(offer, price, _own_limit(form, offer), form.profile)


def _own_limit(form: OfferForm, offer: Offer) -> Limit | None:
    if form.max_instances is not None:
        unit, maximum = LimitUnit.INSTANCES, form.max_instances
    elif form.max_devices is not None:
        unit, maximum = LimitUnit.DEVICES, form.max_devices
    else:
        return None
    limit = Limit(f"{unit} of {offer.id}", unit, maximum, frozenset({offer.id}))
    if limit.use(offer) > maximum:
        raise _Fault(
            f"max_{unit}",
            f"{maximum} is below the {offer.devices} devices of one instance: none could be held",
        )
    return limit


def _limit(form: LimitForm, offers: Mapping[str, Offer]) -> Limit:
    for name in form.offers or ():
        if name not in offers:
            meant = difflib.get_close_matches(name, offers, n=1)
            instead = f'did you mean "{meant[0]}"?' if meant else f"known are {', '.join(offers)}"
            raise _Fault("offers", f'there is no offer "{name}": {instead}')
    unit, maximum = form.bound
    limit = Limit(form.name, unit, maximum, frozenset(form.offers) if form.offers else None)
    counted = [offers[name] for name in form.offers or offers]
    least = min(limit.use(offer) for offer in counted)
    if least > maximum:
        raise _Fault(
            unit, f"{maximum:g} is below the {least:g} of one instance: none could be held"
        )
    return limit


def _refuse_repeated(
    sales: Sequence[_Sale], limits: Sequence[LimitForm], document: LocatedYaml
) -> None:
    ids = [sale.offer.id for sale in sales]
    names = [limit.name for limit in limits]
    problems = [
        Problem((part, index, key), f'"{name}" stands twice: give each its own {key}')
        for part, key, given in (("offers", "id", ids), ("limits", "name", names))
        for index, name in enumerate(given)
        if name in given[:index]
    ]
    if problems:
        raise located(problems, document)


def _profiles(sales: Sequence[_Sale], document: LocatedYaml) -> dict[str, str]:
    """The profile of each kind of device that has one."""
    profiles: dict[str, str] = {}
    for index, sale in enumerate(sales):
        kind = sale.offer.device_kind
        if sale.profile and profiles.setdefault(kind, sale.profile) != sale.profile:
            message = f'"{sale.profile}" is not "{profiles[kind]}", which {kind} has above'
            raise located([Problem(("offers", index, "profile"), message)], document)
    return profiles
