"""Owner's caps on instances and cost, checked immediately before a launch is sent.

A launch of unknown outcome keeps its reservation until a call with the same token has a known
outcome. The reservation also lapses once a later list would show the launched instance.
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
from providers.cloud.sales import AnySale, PoolBounds, Sales, SalesBounds
from providers.cloud.tags import POOL_TAG


@dataclass(frozen=True, slots=True)
class _Commitment:
    """Instance or pending launch that counts against the caps; a price of None is unknown."""

    pool: str
    most_usd_per_hour: Decimal | None
    name: str
    scope: str = ""
    until_seconds: float = math.inf
    may_be_there: bool = False


class SpendingCaps:
    """Caps on instances and on US dollars per hour, by pool and over all pools. Thread-safe.

    Running instances, pending launches and launches of unknown outcome count. An instance whose
    offer is no longer sold counts at its last known price, which `prices` keeps across restarts.
    An instance of unknown price exhausts every money cap that it counts against.

    `provider` names the cap over all pools. `visible_seconds` is the maximum lag of the cloud's
    lists.
    """

    def __init__(
        self,
        provider: str,
        settings: SalesBounds[PoolBounds],
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
        self._reservations: dict[str, _Commitment] = {}
        self._highest_usd_per_hour: dict[str, Decimal] = {}
        self._lock = threading.Lock()

    def learn(self, sales: Sales) -> None:
        """Record current prices. Each offer counts at its highest recorded price."""
        with self._lock:
            for sale in sales.values():
                price = max(
                    self._highest_usd_per_hour.get(sale.offer.id, Decimal(0)),
                    sale.most_usd_per_hour,
                )
                self._highest_usd_per_hour[sale.offer.id] = price
            self._prices.learn({sale.offer.id: sale.most_usd_per_hour for sale in sales.values()})

    def reserve(self, token: str, sale: AnySale) -> None:
        """Reserve room under the caps for a launch that is about to be sent.

        Raises:
            QuotaExceeded: a cap leaves no room; the error names the cap.
        """
        with self._lock:
            commitments = self._commitments(without_token=token)
            self._check(commitments, sale)
            before = self._reservations.get(token)
            self._reservations[token] = _Commitment(
                sale.pool_name,
                sale.most_usd_per_hour,
                f"a launch of {sale.offer.id}",
                sale.scope,
                may_be_there=before is not None and before.may_be_there,
            )

    def launched(self, token: str) -> None:
        """Release the reservation of a launch whose instance is in the register."""
        with self._lock:
            self._reservations.pop(token, None)

    def unknown(self, token: str) -> None:
        """Keep the reservation of a launch of unknown outcome until a list shows the result."""
        with self._lock:
            self._keep_reservation(token)

    def refused(self, token: str) -> None:
        """Release the reservation of a refused launch, unless an earlier try may have launched."""
        with self._lock:
            reservation = self._reservations.get(token)
            if reservation is not None and reservation.may_be_there:
                self._keep_reservation(token)
            else:
                self._reservations.pop(token, None)

    def limits(self, sales: Sales) -> list[Limit]:
        """Return the caps as limits for the planner.

        A cap without an offer in `sales` is left out.
        """
        settings = self._settings
        limits = _money_limits(
            self._provider,
            settings.max_usd_per_hour,
            list(sales.values()),
            "max_usd_per_hour in Terraform",
        )
        for name, pool in settings.pools.items():
            pool_sales = [sale for sale in sales.values() if sale.pool_name == name]
            limits.append(
                _limit(
                    f"pools.{name}",
                    LimitUnit.INSTANCES,
                    pool.max_instances,
                    pool_sales,
                    f"max_instances of pool {name} in Terraform",
                )
            )
            place = f"max_usd_per_hour of pool {name} in Terraform"
            budget = pool.max_usd_per_hour
            limits += _money_limits(f"pools.{name} budget", budget, pool_sales, place)
        return [limit for limit in limits if limit.offers]

    def _keep_reservation(self, token: str) -> None:
        reservation = self._reservations.get(token)
        if reservation is not None:
            until_seconds = self._clock.now() + self._visible_seconds
            self._reservations[token] = replace(
                reservation, until_seconds=until_seconds, may_be_there=True
            )

    def _commitments(self, without_token: str) -> list[_Commitment]:
        self._reservations = {
            token: reservation
            for token, reservation in self._reservations.items()
            if reservation.until_seconds > self._register.asked_seconds(reservation.scope)
        }
        running = [owned.instance for owned in self._register.all() if not owned.has_ended]
        listed = {instance.token for instance in running} | {without_token}
        waiting = [
            reservation for token, reservation in self._reservations.items() if token not in listed
        ]
        return waiting + [self._commitment_of(instance) for instance in running]

    def _commitment_of(self, instance: CloudInstance) -> _Commitment:
        """Return an instance at its offer's highest recorded price, or its last known price."""
        price = self._highest_usd_per_hour.get(instance.offer, self._prices.of(instance.offer))
        return _Commitment(instance.tags.get(POOL_TAG, ""), price, instance.id)

    def _check(self, commitments: list[_Commitment], sale: AnySale) -> None:
        settings, pool, name = self._settings, sale.pool, sale.pool_name
        count = Counter(commitment.pool for commitment in commitments)[name]
        if count + 1 > pool.max_instances:
            raise QuotaExceeded(
                f"pools.{name}.max_instances: {count} of {pool.max_instances} instances are "
                "running or launching: end one, or raise the cap in Terraform"
            )
        pool_commitments = [commitment for commitment in commitments if commitment.pool == name]
        for field, most, counted in (
            (f"pools.{name}.max_usd_per_hour", pool.max_usd_per_hour, pool_commitments),
            ("max_usd_per_hour", settings.max_usd_per_hour, commitments),
        ):
            unpriced = [
                commitment.name for commitment in counted if commitment.most_usd_per_hour is None
            ]
            if unpriced:
                raise QuotaExceeded(
                    f"{field}: the price of {', '.join(unpriced)} is unknown and counts as all "
                    f"of ${most}/h: end these instances, or restore their pools in Terraform"
                )
            spent = sum(
                (commitment.most_usd_per_hour or Decimal(0) for commitment in counted), Decimal(0)
            )
            if spent + sale.most_usd_per_hour > most:
                raise QuotaExceeded(
                    f"{field}: ${spent}/h of ${most}/h are committed and {sale.offer.id} may cost "
                    f"${sale.most_usd_per_hour}/h: end instances, or raise the cap in Terraform"
                )


def _money_limits(
    name: str, most_usd: Decimal, sales: Sequence[AnySale], place: str
) -> list[Limit]:
    """Return a money cap as limits that a planner can check.

    Planners count an offer at its current price, but a spot price may rise to the offer's maximum.
    For each maximum spot price, the cap divided by it bounds the instances that may cost as much.
    """
    limits = [_limit(name, LimitUnit.USD_PER_HOUR, most_usd, sales, place)]
    prices = {sale.most_usd_per_hour for sale in sales if sale.offer.purchase is Purchase.SPOT}
    for usd in sorted(prices):
        expensive_sales = [sale for sale in sales if sale.most_usd_per_hour >= usd]
        count = math.floor(most_usd / usd)
        limits.append(
            _limit(
                f"{name} at ${usd.normalize():f}/h or more",
                LimitUnit.INSTANCES,
                count,
                expensive_sales,
                place,
            )
        )
    return limits


def _limit(
    name: str, unit: LimitUnit, maximum: Decimal | int, sales: Iterable[AnySale], place: str
) -> Limit:
    return Limit(name, unit, float(maximum), frozenset(sale.offer.id for sale in sales), place)
