"""Summary of a fleet in words and numbers: its instances and its limits. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Final

from autoscaler.controller.controller import ControllerStatus
from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase
from autoscaler.domain.offer import Limit, LimitUnit, Offer, Purchase
from autoscaler.domain.size_bars import BarKind
from autoscaler.service.pages.formats import billed, predicted
from autoscaler.service.pages.prospects import PAYS_FROM, Prospect

_HOUR_SECONDS: Final = 3600.0
_MOST_BLOCKS: Final = 16
_NEARLY_FULL: Final = 0.999
_STARTING: Final = frozenset(
    {
        InstancePhase.REQUESTED,
        InstancePhase.QUEUED,
        InstancePhase.BOOTING,
        InstancePhase.PREPARING,
        InstancePhase.STARTING,
        InstancePhase.READY,
    }
)


def state_of(held: HeldInstance) -> str:
    """Return the state of an instance in one word: working, starting or leaving."""
    if held.desired is Desired.ABSENT or held.phase in (
        InstancePhase.DRAINING,
        InstancePhase.DRAINED,
    ):
        return "leaving"
    return "starting" if held.phase in _STARTING else "working"


@dataclass(slots=True)
class FleetCount:
    """Instances that are held now, by state, offer and job, and their price."""

    states: Counter[str] = field(default_factory=Counter)
    offers: Counter[str] = field(default_factory=Counter)
    of_provider: Counter[str] = field(default_factory=Counter)
    usd_per_hour: Decimal = Decimal(0)
    rates: dict[str, Decimal] = field(default_factory=dict)
    provider_rates: dict[str, Decimal] = field(default_factory=dict)


def count_fleet(alive: Iterable[HeldInstance], providers: Mapping[str, str]) -> FleetCount:
    """Count instances. `providers` has the provider of each offer."""
    count = FleetCount()
    zero = Decimal(0)
    for held in alive:
        usd_per_hour = held.costing_usd_per_hour
        count.states[state_of(held)] += 1
        count.offers[held.offer] += 1
        count.usd_per_hour += usd_per_hour
        count.rates[held.job] = count.rates.get(held.job, zero) + usd_per_hour
        provider = providers.get(held.offer, "")
        count.of_provider[provider] += 1
        count.provider_rates[provider] = count.provider_rates.get(provider, zero) + usd_per_hour
    return count


@dataclass(frozen=True, slots=True)
class LimitLine:
    """Limit, its use, and what one more unit of it is worth, in words."""

    name: str
    use: str
    share: float
    worth_usd_per_hour: float
    sentence: str


@dataclass(frozen=True, slots=True)
class BarredStep:
    """Instance that would pay for a job, and that one limit alone forbids.

    `usd_per_hour` is what it would save, with waiting at its value, less its price.
    """

    job: str
    limit: str
    offer: str
    usd_per_hour: float


def barred_step(job: str, prospect: Prospect | None) -> BarredStep | None:
    """Return one instance more of a job, if a limit alone forbids it and it would pay."""
    step = None if prospect is None else prospect.next
    if prospect is None or prospect.offer is None or step is None or not step.pays:
        return None
    if len(step.forbidden_by) != 1 or step.forbidden_by[0].kind is not BarKind.LIMIT:
        return None
    usd_per_hour = step.usd_per_hour * ((step.worth or 0.0) - PAYS_FROM)
    return BarredStep(job, step.forbidden_by[0].name, prospect.offer, usd_per_hour)


def limit_lines(
    status: ControllerStatus, count: FleetCount, barred: Sequence[BarredStep] = ()
) -> tuple[LimitLine, ...]:
    """Return all limits, those first of which more is worth most.

    A limit has a shadow price only where jobs compete for it. The `barred` steps tell what more of
    another one is worth.
    """
    offers = {offer.id: offer for offer in status.offers}
    held = {name: offer for name, offer in offers.items() if name in count.offers}
    lines = [
        _limit_line(
            limit,
            _used(limit, held, count.offers),
            status.shadow_prices.get(limit.name, 0.0) * _HOUR_SECONDS,
            _dearest(limit, barred, offers),
        )
        for limit in status.limits
    ]
    return tuple(sorted(lines, key=lambda line: (-line.worth_usd_per_hour, -line.share)))


def _used(limit: Limit, offers: Mapping[str, Offer], counts: Mapping[str, int]) -> float:
    return sum(limit.use(offer) * counts[name] for name, offer in offers.items())


def _dearest(
    limit: Limit, barred: Sequence[BarredStep], offers: Mapping[str, Offer]
) -> tuple[str, float]:
    """Return the job for which one unit more is worth most, and the dollars an hour; 0: nobody."""
    worths = [
        (step.usd_per_hour / limit.use(offers[step.offer]), step.job)
        for step in barred
        if step.limit == limit.name and step.offer in offers and limit.use(offers[step.offer]) > 0
    ]
    worth, job = max(worths, default=(0.0, ""))
    return job, worth


def _limit_line(
    limit: Limit, used: float, shadow_usd_per_hour: float, dearest: tuple[str, float]
) -> LimitLine:
    worth, to_job = max(shadow_usd_per_hour, 0.0), ""
    if worth == 0 and dearest[1] > 0:
        worth, to_job = dearest[1], f" to {dearest[0]}"
    share = used / limit.maximum if limit.maximum > 0 else 1.0
    match limit.unit:
        case LimitUnit.USD_PER_HOUR:
            use, unit = f"{billed(used)} of {billed(limit.maximum)} an hour", "dollar an hour"
        case LimitUnit.DEVICES:
            use, unit = _counts(used, limit.maximum, "device"), "device"
        case LimitUnit.INSTANCES:
            use, unit = _counts(used, limit.maximum, "instance"), "instance"
    if worth > 0:
        sentence = f"One more {unit} is worth {predicted(worth)} an hour{to_job}, waiting counted."
    elif share >= _NEARLY_FULL:
        sentence = "Full, but more is worth nothing now."
    else:
        sentence = "More is worth nothing now."
    return LimitLine(limit.name, use, min(share, 1.0), worth, sentence)


def _counts(used: float, maximum: float, noun: str) -> str:
    return f"{used:,.12g} of {maximum:,.12g} {noun}s"


@dataclass(frozen=True, slots=True)
class BlockGroup:
    """Instances of one offer for drawing: a state for each block, `more` beyond the drawn ones."""

    offer: str
    count: int
    states: tuple[str, ...]
    more: int
    title: str


def block_groups(
    alive: Iterable[HeldInstance], offers: Mapping[str, Offer]
) -> tuple[BlockGroup, ...]:
    """Return the instances of a job by offer, those that work first."""
    states: dict[str, list[str]] = {}
    for held in alive:
        states.setdefault(held.offer, []).append(state_of(held))
    order = {"working": 0, "starting": 1, "leaving": 2}
    groups = []
    for name, offer_states in sorted(states.items(), key=lambda item: (-len(item[1]), item[0])):
        offer_states.sort(key=order.__getitem__)
        counts = Counter(offer_states)
        words = ", ".join(f"{counts[state]} {state}" for state in order if counts[state])
        offer = offers.get(name)
        shown = name if offer is None else offer.instance_type
        if offer is not None and offer.purchase is Purchase.SPOT:
            shown += " (spot)"
        groups.append(
            BlockGroup(
                shown,
                len(offer_states),
                tuple(offer_states[:_MOST_BLOCKS]),
                max(len(offer_states) - _MOST_BLOCKS, 0),
                f"{name}: {words}",
            )
        )
    return tuple(groups)
