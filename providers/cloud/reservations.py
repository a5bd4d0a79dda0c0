"""Reserved capacity of pools: what it costs more, how many instances fit, and until when."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Generic, Protocol, TypeVar

from autoscaler.clock import Clock
from autoscaler.domain.errors import ProviderError
from autoscaler.domain.offer import Limit, LimitUnit
from autoscaler.market.prices import Price, RefusedPrice
from providers.cloud.facts import TTLValue
from providers.cloud.sales import Sale
from providers.cloud.stock import PoolListing, PoolTerms


class ReservingPool(PoolTerms, Protocol):
    """Pool of the settings that may have a reservation."""

    @property
    def reservation(self) -> str | None:
        """Name of the reservation that the pool launches into; None without one."""
        ...

    @property
    def zones(self) -> Sequence[str] | None:
        """Zones that the pool names; None if it names none."""
        ...


Pool = TypeVar("Pool", bound=ReservingPool)


@dataclass(frozen=True, slots=True)
class Reservation:
    """Reserved capacity as its cloud describes it.

    `total` instances of one type in one zone are reserved, and `free` of them are unused.
    Instances must have left at `until_seconds`, since the Unix epoch; None: there is no end.
    `closed` says why nothing can be launched into the reservation now; None: it is open. If it
    `is_over`, too, what runs in it is no longer paid for. `begins_seconds` is set if it is closed
    only because it begins then.
    """

    instance_type: str
    zone: str
    total: int
    free: int
    until_seconds: float | None = None
    closed: str | None = None
    is_over: bool = False
    begins_seconds: float | None = None


class PoolReservations(Generic[Pool]):
    """Reservations of `pools`, described anew at intervals, with the last known ones until then.

    `describe` returns the reservations by pool, without those that do not exist. `held` returns
    the number of this deployment's instances in pools of these names. Without a reserved pool
    neither is called.
    """

    def __init__(
        self,
        pools: Mapping[str, Pool],
        describe: Callable[[], Mapping[str, Reservation]],
        held: Callable[[Collection[str]], int],
        every_seconds: float,
        retry_seconds: float,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._held = held
        self._pools: dict[str, list[str]] = {}  # by reservation: names are unique in a zone
        for name, pool in pools.items():
            if pool.reservation is not None:
                place = f"{pool.reservation} in {', '.join(pool.zones or ())}"
                self._pools.setdefault(place, []).append(name)
        self._described: TTLValue[_Described] = TTLValue(
            lambda: self._fetch(describe), every_seconds, retry_seconds, clock
        )

    def price(self, listing: PoolListing[Pool]) -> Price | RefusedPrice:
        """Return the price of a reserved item: 0, or the reason why it can't be had now.

        An item that this deployment holds keeps its price, since a job stays on an offer that is
        no longer sold.
        """
        described, name = self._known(), listing.pool.reservation or ""
        if isinstance(described, ProviderError):
            return RefusedPrice(f"{_field(listing)}: {name} can't be read: {described}")
        reason = self._closed_reason(described, listing)
        if reason is not None and not self._held([listing.pool_name]):
            reservation = described.reservations.get(listing.pool_name)
            is_fit = reservation is not None and reason == reservation.closed
            begins_seconds = reservation.begins_seconds if reservation and is_fit else None
            return RefusedPrice(f"{_field(listing)}: {name} {reason}", begins_seconds)
        source = f"reservation {name}: {reason or 'paid already'}"
        return Price(Decimal(0), described.at_seconds, source, is_paid=True)

    def with_ends(self, sales: Sequence[Sale[Pool]]) -> list[Sale[Pool]]:
        """Return the sales, those into a reservation with its end: past, if that is over."""
        return [
            sale
            if sale.pool.reservation is None
            else replace(sale, offer=replace(sale.offer, until_seconds=self._until_seconds(sale)))
            for sale in sales
        ]

    def limits(self, sales: Sequence[Sale[Pool]]) -> list[Limit]:
        """Return the number of instances that fit into each reservation that is sold.

        It is what was free, and what this deployment held when the reservation was described. An
        instance held now fits, whatever else has changed since, and nothing more into a closed
        one.
        """
        limits = []
        described = self._described.last
        for place, pools in self._pools.items():
            offers = frozenset(sale.offer.id for sale in sales if sale.pool_name in pools)
            if not offers or described is None:
                continue
            most, reservation = self._held(pools), described.reservations.get(pools[0])
            if reservation is not None and reservation.closed is None:
                most = max(most, reservation.free + described.held[place])
                most = min(most, reservation.total)
            name, source = f"reservation {place}", "the reservation in the cloud"
            limits.append(Limit(name, LimitUnit.INSTANCES, most, offers, source))
        return limits

    def _until_seconds(self, sale: Sale[Pool]) -> float | None:
        described = self._described.last
        assert described is not None
        reservation = described.reservations.get(sale.pool_name)
        if reservation is None or reservation.is_over:
            return described.at_seconds
        return reservation.until_seconds

    def _closed_reason(self, described: _Described, listing: PoolListing[Pool]) -> str | None:
        """Return why nothing can be launched into a pool's reservation; None if it can."""
        reservation = described.reservations.get(listing.pool_name)
        if reservation is None:
            return f"does not exist in {listing.pool.region}: correct it"
        if (listing.type, listing.zone) != (reservation.instance_type, reservation.zone):
            place = f"{reservation.instance_type} in {reservation.zone}"
            return f"is of {place}, not {listing.type} in {listing.zone}: correct type and zone"
        until_seconds = reservation.until_seconds
        if until_seconds is not None and until_seconds <= self._clock.now():
            return f"ended at {moment(until_seconds)}"
        return reservation.closed

    def _known(self) -> _Described | ProviderError:
        try:
            return self._described.get()
        except ProviderError as error:
            return self._described.last or error

    def _fetch(self, describe: Callable[[], Mapping[str, Reservation]]) -> _Described:
        """Return the reservations, and then what is held: a launch between the two counts."""
        reservations = describe()
        held = {place: self._held(pools) for place, pools in self._pools.items()}
        return _Described(self._clock.now(), reservations, held)


@dataclass(frozen=True, slots=True)
class _Described:
    """Reservations by pool at a time, and the instances held in each, by reservation."""

    at_seconds: float
    reservations: Mapping[str, Reservation]
    held: Mapping[str, int]


def _field(listing: PoolListing[Pool]) -> str:
    return f"pools.{listing.pool_name}.reservation"


def moment(seconds: float) -> str:
    """Return a time since the epoch as text in UTC."""
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
