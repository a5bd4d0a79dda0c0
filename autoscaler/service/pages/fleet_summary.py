"""Summary of a fleet in words and numbers: its instances, what is wrong, and its limits. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Final

from autoscaler.controller.controller import ControllerStatus
from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase
from autoscaler.domain.job import JobRecord
from autoscaler.domain.job_names import exact_name
from autoscaler.domain.offer import Limit, LimitUnit, Offer
from autoscaler.service.pages.formats import billed, counted, duration, predicted, rate

LATE_TICK_SECONDS: Final = 120.0
"""Age of the last tick from which the controller's loop counts as stopped."""

_HOUR_SECONDS: Final = 3600.0
_MOST_NAMED: Final = 3
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


class NoticeLevel(StrEnum):
    """Urgency of a notice."""

    DANGER = "danger"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True)
class FleetNotice:
    """Condition that a person should know of. `address` leads to more; empty: nowhere."""

    level: NoticeLevel
    text: str
    address: str = ""


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


def notices(
    status: ControllerStatus,
    count: FleetCount,
    failed: Sequence[JobRecord],
    now_seconds: float,
) -> tuple[FleetNotice, ...]:
    """Return what a person should know of, the most urgent first; empty if all is well.

    `failed` are jobs that failed lately.
    """
    known = [
        *_of_controller(status, now_seconds),
        *_of_providers(status, count),
        *_of_jobs(status, failed),
        *_of_limits(status, count),
    ]
    levels = list(NoticeLevel)
    return tuple(sorted(known, key=lambda notice: levels.index(notice.level)))


def _of_controller(status: ControllerStatus, now_seconds: float) -> Iterable[FleetNotice]:
    ticked_seconds = status.ticked_seconds
    if ticked_seconds is not None and now_seconds - ticked_seconds > LATE_TICK_SECONDS:
        age = duration(now_seconds - ticked_seconds)
        text = f"The controller has not looked at the fleet for {age}: nothing is decided."
        yield FleetNotice(NoticeLevel.DANGER, text)
    if status.hands_off is not None:
        reason = status.hands_off
        text = f"Nothing is launched or released: {reason}."
        yield FleetNotice(NoticeLevel.WARNING, text)
    if status.trouble is not None:
        yield FleetNotice(
            NoticeLevel.DANGER, f"The last look at the fleet failed: {status.trouble}."
        )


def _of_providers(status: ControllerStatus, count: FleetCount) -> Iterable[FleetNotice]:
    for provider in sorted(status.silent):
        instances = counted(count.of_provider[provider], "instance")
        cost = billed(count.provider_rates.get(provider, Decimal(0)))
        text = f"{provider} is silent: its {instances} ({cost}/h) can't be seen or changed now."
        yield FleetNotice(NoticeLevel.DANGER, text, "/offers")
    if status.strays:
        instances = counted(len(status.strays), "instance")
        text = f"{instances} of this controller that no job holds: being ended."
        yield FleetNotice(NoticeLevel.WARNING, text)
    refused = sorted(status.unavailable)
    if refused:
        text = f"{counted(len(refused), 'offer')} refused by the clouds now: {_named(refused)}."
        yield FleetNotice(NoticeLevel.WARNING, text, "/offers")


def _of_jobs(status: ControllerStatus, failed: Sequence[JobRecord]) -> Iterable[FleetNotice]:
    for job, text in sorted(status.stalls.items())[:_MOST_NAMED]:
        yield FleetNotice(NoticeLevel.DANGER, f"{job} makes no progress: {text}.", f"/jobs/{job}")
    if len(status.stalls) > _MOST_NAMED:
        rest = counted(len(status.stalls) - _MOST_NAMED, "further job")
        yield FleetNotice(NoticeLevel.DANGER, f"{rest} without progress.", "/jobs")
    for job, text in sorted(status.job_troubles.items())[:_MOST_NAMED]:
        yield FleetNotice(NoticeLevel.WARNING, f"{job}: {text}.", f"/jobs/{job}")
    for record in failed[:_MOST_NAMED]:
        cause = f": {record.cause}" if record.cause else ""
        place = f"/jobs/{exact_name(record.id)}"
        yield FleetNotice(NoticeLevel.WARNING, f"{record.id} failed{cause}.", place)
    if len(status.alarms) == 1:
        (job,) = status.alarms
        text = f"{job} steps at another speed than its model predicts."
        yield FleetNotice(NoticeLevel.WARNING, text, f"/jobs/{job}")
    elif status.alarms:
        text = f"{len(status.alarms)} jobs step at another speed than their models predict."
        yield FleetNotice(NoticeLevel.WARNING, text)


def _of_limits(status: ControllerStatus, count: FleetCount) -> Iterable[FleetNotice]:
    lines = [line for line in limit_lines(status, count) if line.worth_usd_per_hour > 0]
    if lines:
        names = _named([line.name for line in lines])
        full = f"{counted(len(lines), 'limit')} hold{'s' if len(lines) == 1 else ''} jobs back"
        yield FleetNotice(NoticeLevel.NOTE, f"{full}: {names}. {lines[0].sentence}")


def headline(
    known: Sequence[FleetNotice], count: FleetCount, running: int, waiting: int, starting: int = 0
) -> str:
    """Return the state of the fleet in one sentence.

    The jobs that have not ended run, start on their first instances, or wait without any.
    """
    urgent = sum(notice.level is NoticeLevel.DANGER for notice in known)
    work = counted(running, "job runs", "jobs run")
    if starting:
        work += f" and {starting:,} {'starts' if starting == 1 else 'start'}"
    work += f" on {counted(sum(count.states.values()), 'instance')}"
    if not running and not count.states:
        work = "Nothing runs and nothing costs"
    elif count.usd_per_hour:
        work += f" for {rate(count.usd_per_hour)}"
    if waiting:
        work += f", {waiting:,} {'waits' if waiting == 1 else 'wait'}"
    if urgent:
        things = "One thing needs" if urgent == 1 else f"{urgent} things need"
        return f"{things} you. {work}."
    return f"Nothing is wrong. {work}."


@dataclass(frozen=True, slots=True)
class LimitLine:
    """Limit, its use, and what one more unit of it is worth, in words."""

    name: str
    use: str
    share: float
    worth_usd_per_hour: float
    sentence: str


def limit_lines(status: ControllerStatus, count: FleetCount) -> tuple[LimitLine, ...]:
    """Return all limits, those first of which more is worth most."""
    offers = {offer.id: offer for offer in status.offers if offer.id in count.offers}
    lines = [
        _limit_line(limit, _used(limit, offers, count.offers), status.shadow_prices)
        for limit in status.limits
    ]
    return tuple(sorted(lines, key=lambda line: (-line.worth_usd_per_hour, -line.share)))


def _used(limit: Limit, offers: Mapping[str, Offer], counts: Mapping[str, int]) -> float:
    return sum(limit.use(offer) * counts[name] for name, offer in offers.items())


def _limit_line(limit: Limit, used: float, prices: Mapping[str, float]) -> LimitLine:
    worth = max(prices.get(limit.name, 0.0), 0.0) * _HOUR_SECONDS
    share = used / limit.maximum if limit.maximum > 0 else 1.0
    match limit.unit:
        case LimitUnit.USD_PER_HOUR:
            use, unit = f"{billed(used)} of {billed(limit.maximum)} an hour", "dollar an hour"
        case LimitUnit.DEVICES:
            use, unit = _counts(used, limit.maximum, "device"), "device"
        case LimitUnit.INSTANCES:
            use, unit = _counts(used, limit.maximum, "instance"), "instance"
    if worth > 0:
        sentence = f"One more {unit} is worth {predicted(worth)} an hour, waiting counted."
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


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    return shown if len(names) <= _MOST_NAMED else f"{shown} and {len(names) - _MOST_NAMED} more"
