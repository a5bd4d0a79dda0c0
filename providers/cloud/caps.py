"""The owner's bounds, held at the one moment that decides: before a launch is sent.

A launch whose outcome is unknown holds its place until the same token tells, or until a list has
come that would show what it had launched.
"""

from __future__ import annotations

import math
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal

from autoscaler.clock import Clock
from autoscaler.domain.errors import QuotaExceeded
from autoscaler.domain.instance import CloudInstance
from autoscaler.domain.offer import Limit, LimitUnit, Purchase
from providers.cloud.known_prices import KnownPrices
from providers.cloud.register import Register
from providers.cloud.sales import AnySale, Bounds, PoolBounds, Sales
from providers.cloud.tags import POOL_TAG


@dataclass(frozen=True, slots=True)
class _Held:
    """One instance, or one launch that may become one; None is a price that nobody knows."""

    pool: str
    most_usd_per_hour: Decimal | None
    name: str
    scope: str = ""
    until_seconds: float = math.inf
    may_be_there: bool = False


class Caps:
    """Counts what runs, what is on its way and what may have been launched. Thread-safe.

    An instance whose offer is no longer sold counts at its last known price, which `prices` keeps
    across restarts. An instance whose price nobody knows takes the whole of every cap that it
    counts for.

    `provider` is the name that its bound of all pools goes by.
    """

    def __init__(
        self,
        provider: str,
        settings: Bounds[PoolBounds],
        register: Register,
        visible_seconds: float,
        clock: Clock,
        prices: KnownPrices,
    ) -> None:
        self._provider = provider
        self._prices = prices
        self._settings = settings
        self._register = register
        self._visible_seconds = visible_seconds
        self._clock = clock
        self._on_the_way: dict[str, _Held] = {}
        self._known: dict[str, Decimal] = {}
        self._lock = threading.Lock()

    def learn(self, sales: Sales) -> None:
        """Prices of now: the dearest that was ever heard of an offer counts."""
        with self._lock:
            for sale in sales.values():
                price = max(self._known.get(sale.offer.id, Decimal(0)), sale.most_usd_per_hour)
                self._known[sale.offer.id] = price
            self._prices.learn({sale.offer.id: sale.most_usd_per_hour for sale in sales.values()})

    def reserve(self, token: str, sale: AnySale) -> None:
        """Take a place for a launch that is about to be sent.

        Raises:
            QuotaExceeded: a bound of the settings leaves none; the error names it.
        """
        with self._lock:
            held = self._held(without_token=token)
            self._check(held, sale)
            before = self._on_the_way.get(token)
            self._on_the_way[token] = _Held(
                sale.pool_name,
                sale.most_usd_per_hour,
                f"a launch of {sale.offer.id}",
                sale.scope,
                may_be_there=before is not None and before.may_be_there,
            )

    def launched(self, token: str) -> None:
        """The register has the instance: it counts by itself."""
        with self._lock:
            self._on_the_way.pop(token, None)

    def unknown(self, token: str) -> None:
        """What came of the launch is not known: it keeps its place until a list would show it."""
        with self._lock:
            self._keep(token)

    def refused(self, token: str) -> None:
        """This try yielded nothing; one before it may have, if that is not known."""
        with self._lock:
            held = self._on_the_way.get(token)
            if held is not None and held.may_be_there:
                self._keep(token)
            else:
                self._on_the_way.pop(token, None)

    def limits(self, sales: Sales) -> list[Limit]:
        """The same bounds for those who plan."""
        settings = self._settings
        found = _money_limits(self._provider, settings.max_usd_per_hour, list(sales.values()))
        for name, pool in settings.pools.items():
            own = [sale for sale in sales.values() if sale.pool_name == name]
            found.append(_limit(f"pools.{name}", LimitUnit.INSTANCES, pool.max_instances, own))
            found += _money_limits(f"pools.{name} budget", pool.max_usd_per_hour, own)
        return [limit for limit in found if limit.offers]

    def _keep(self, token: str) -> None:
        held = self._on_the_way.get(token)
        if held is not None:
            until_seconds = self._clock.now() + self._visible_seconds
            self._on_the_way[token] = replace(held, until_seconds=until_seconds, may_be_there=True)

    def _held(self, without_token: str) -> list[_Held]:
        self._on_the_way = {
            token: held
            for token, held in self._on_the_way.items()
            if held.until_seconds > self._register.asked_seconds(held.scope)
        }
        alive = [one.instance for one in self._register.all() if not one.has_ended]
        listed = {instance.token for instance in alive} | {without_token}
        waiting = [held for token, held in self._on_the_way.items() if token not in listed]
        return waiting + [self._price(instance) for instance in alive]

    def _price(self, instance: CloudInstance) -> _Held:
        """Return what an instance counts as: the dearest heard of its offer, or the last known."""
        price = self._known.get(instance.offer, self._prices.of(instance.offer))
        return _Held(instance.tags.get(POOL_TAG, ""), price, instance.id)

    def _check(self, held: list[_Held], sale: AnySale) -> None:
        settings, pool, name = self._settings, sale.pool, sale.pool_name
        count = Counter(one.pool for one in held)[name]
        if count + 1 > pool.max_instances:
            raise QuotaExceeded(
                f"pools.{name}.max_instances: {count} of {pool.max_instances} are there or on "
                "their way: end one, or raise it in Terraform"
            )
        own = [one for one in held if one.pool == name]
        for field, most, counted in (
            (f"pools.{name}.max_usd_per_hour", pool.max_usd_per_hour, own),
            ("max_usd_per_hour", settings.max_usd_per_hour, held),
        ):
            unpriced = [one.name for one in counted if one.most_usd_per_hour is None]
            if unpriced:
                raise QuotaExceeded(
                    f"{field}: the price of {', '.join(unpriced)} is not known, which counts as "
                    f"all of ${most}/h: end it, or name its pool again in Terraform"
                )
            spent = sum((one.most_usd_per_hour or Decimal(0) for one in counted), Decimal(0))
            if spent + sale.most_usd_per_hour > most:
                raise QuotaExceeded(
                    f"{field}: ${spent}/h are committed and {sale.offer.id} may cost "
                    f"${sale.most_usd_per_hour}/h of ${most}/h: end some, or raise it in Terraform"
                )


def _money_limits(name: str, most_usd: Decimal, sales: Sequence[AnySale]) -> list[Limit]:
    """A cap as planners can count it.

    They count an offer at its price of now, and spot may come to cost more: so many instances
    that may each cost so much are the most that the cap bears.
    """
    limits = [_limit(name, LimitUnit.USD_PER_HOUR, most_usd, sales)]
    prices = {sale.most_usd_per_hour for sale in sales if sale.offer.purchase is Purchase.SPOT}
    for usd in sorted(prices):
        dear = [sale for sale in sales if sale.most_usd_per_hour >= usd]
        count = math.floor(most_usd / usd)
        limits.append(_limit(f"{name} at ${usd}/h or more", LimitUnit.INSTANCES, count, dear))
    return limits


def _limit(name: str, unit: LimitUnit, maximum: Decimal | int, sales: Iterable[AnySale]) -> Limit:
    return Limit(name, unit, float(maximum), frozenset(sale.offer.id for sale in sales))
