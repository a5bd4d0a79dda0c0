"""Text of `/metrics`: the state of the controller, its fleet and its live jobs.

Everything is computed from what the leader of a store has in memory, at most once every few
seconds, so that many scrapes cost no more than one. A follower has no jobs and no fleet here, so
that the sums over all controllers of a store are right.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Final

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import CounterMetricFamily
from prometheus_client.samples import Sample

from autoscaler.clock import Clock
from autoscaler.controller.controller import ControllerStatus
from autoscaler.controller.errors import ErrorRecord
from autoscaler.domain.instance import HeldInstance, InstancePhase, by_job
from autoscaler.domain.job import JobRecord
from autoscaler.domain.offer import Limit, Offer
from autoscaler.service.health import Health
from autoscaler.service.instances.gpu_uses import GpuUses
from autoscaler.store.store import Store
from autoscaler.telemetry import catalogue
from autoscaler.telemetry.billed_times import USEFUL, BilledSeconds, BilledTimes
from autoscaler.telemetry.catalogue import MetricKind, MetricSpec
from autoscaler.telemetry.job_series import JobSeries, info_labels_of, labels_of
from autoscaler.telemetry.meters import Meters

_KEPT_SECONDS: Final = 2.0
_NOT_JOINED: Final = (InstancePhase.REQUESTED, InstancePhase.QUEUED, InstancePhase.BOOTING)

Families = dict[MetricSpec, Metric]


@dataclass(frozen=True, slots=True)
class MetricSources:
    """Objects that the metrics are read from.

    `billed_seconds` returns a job's billed time by category, `health` the present health of the
    controller, `certificate_end_seconds` the end of the API certificate's validity since the
    epoch, or None without HTTPS. At most `most_jobs` jobs have series of their own.
    """

    store: Store
    status: ControllerStatus
    health: Callable[[], Health]
    meters: Meters
    clock: Clock
    version: str
    fleet_usd: Decimal | None
    most_jobs: int
    gpu_uses: GpuUses
    billed_seconds: BilledSeconds
    certificate_end_seconds: Callable[[], float | None] = lambda: None


class MetricsPage:
    """Metrics of one controller as text. Threads may share it."""

    def __init__(self, sources: MetricSources) -> None:
        self._sources = sources
        self._jobs = JobSeries(sources.store, sources.status, sources.gpu_uses)
        self._billed = BilledTimes(sources.billed_seconds)
        self._errors = ErrorRecord("job")
        self._computing = threading.Lock()
        self._texts: dict[str, tuple[float, bytes]] = {}
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def text(self, accept: str) -> tuple[bytes, str]:
        """Return the text in a format that a scraper accepts, and its type.

        The text may be a few seconds old.
        """
        encode, content_type = choose_encoder(accept)
        with self._computing:
            now_seconds = self._sources.clock.monotonic()
            known = self._texts.get(content_type)
            if known is None or not 0.0 <= now_seconds - known[0] < _KEPT_SECONDS:
                known = now_seconds, encode(self._registry)
                self._texts = {content_type: known}
        return known[1], content_type

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics; those without a value now are left out."""
        sources, families = self._sources, Families()
        health = sources.health()
        _add_health(families, health, sources)
        if health.role == "leader":
            self._add_fleet(families)
            self._add_jobs(families)
        yield from families.values()
        yield from sources.meters.families()

    def _add_fleet(self, families: Families) -> None:
        sources = self._sources
        status, now_seconds = sources.status, sources.clock.now()
        alive = sources.store.instances.alive()
        _add_status(families, status)
        _add_instances(families, alive, now_seconds)
        _add_limits(families, status, alive)
        if sources.fleet_usd is not None:
            _add(families, catalogue.FLEET_BUDGET, float(sources.fleet_usd))
        if status.fleet_spent_usd is not None:
            _add(families, catalogue.FLEET_SPENT, float(status.fleet_spent_usd))

    def _add_jobs(self, families: Families) -> None:
        sources = self._sources
        jobs, now_seconds = sources.store.jobs.alive(), sources.clock.now()
        alive = sources.store.instances.alive()
        grouped = by_job(alive)
        sources.gpu_uses.keep({held.id for held in alive})
        for phase, count in Counter(job.phase.value for job in jobs).items():
            _add(families, catalogue.JOBS, count, {"phase": phase})
        shown = jobs[: sources.most_jobs]
        _add(families, catalogue.JOBS_LEFT_OUT, len(jobs) - len(shown))
        self._jobs.keep(shown)
        self._billed.renew(shown, now_seconds)
        for job in shown:
            held = grouped.get(job.id, ())
            add = partial(self._add_job, families, job, held, now_seconds)
            self._errors.attempt(job.id, "metrics", add)
        self._errors.keep({job.id for job in shown})

    def _add_job(
        self,
        families: Families,
        job: JobRecord,
        held: Sequence[HeldInstance],
        now_seconds: float,
    ) -> None:
        labels = labels_of(job)
        _add(families, catalogue.JOB_INFO, 1, info_labels_of(job))
        _add_billed(families, self._billed.of(job.id), labels)
        for spec, value in self._jobs.of(job, held, now_seconds):
            _add(families, spec, value, labels)


def _add(
    families: Families, spec: MetricSpec, value: float, labels: Mapping[str, str] | None = None
) -> None:
    """Add a value to the family of its metric; `labels` are not copied."""
    family = families.get(spec)
    if family is None:
        is_counter = spec.kind is MetricKind.COUNTER
        make = CounterMetricFamily if is_counter else GaugeMetricFamily
        family = families[spec] = make(spec.name, spec.meaning)
    family.samples.append(Sample(spec.name, dict(labels or {}), float(value), None, None, None))


def _add_billed(
    families: Families, seconds: Mapping[str, float], labels: Mapping[str, str]
) -> None:
    """Add the billed time of a job by category, and its useful part."""
    for category, category_seconds in seconds.items():
        by_category = {**labels, "category": category}
        _add(families, catalogue.JOB_BILLED, category_seconds, by_category)
    total_seconds = sum(seconds.values())
    if total_seconds > 0:
        share = seconds.get(USEFUL, 0.0) / total_seconds
        _add(families, catalogue.JOB_GOODPUT_RATIO, share, labels)


def _add_health(families: Families, health: Health, sources: MetricSources) -> None:
    """Add the metrics of the controller's process, which followers have too."""
    _add(families, catalogue.BUILD, 1, {"version": sources.version})
    _add(families, catalogue.LEADER, health.role == "leader")
    _add(families, catalogue.LOOP_QUIET, health.loop.quiet_seconds)
    if health.loop.tick_age_seconds is not None:
        ticked_seconds = sources.clock.now() - health.loop.tick_age_seconds
        _add(families, catalogue.LAST_TICK, ticked_seconds)
    if health.written_age_seconds is not None:
        _add(families, catalogue.STORE_WRITE_AGE, health.written_age_seconds)
    _add(families, catalogue.STORE_WRITE_FAILS, health.store_error is not None)
    certificate_end_seconds = sources.certificate_end_seconds()
    if certificate_end_seconds is not None:
        _add(families, catalogue.CERTIFICATE_END, certificate_end_seconds)


def _add_status(families: Families, status: ControllerStatus) -> None:
    """Add what the last tick found."""
    _add(families, catalogue.FAILED_PLANS, status.failed_plans)
    _add(families, catalogue.SOLVER_FAILURES, status.solver_failures)
    _add(families, catalogue.STRAYS, len(status.strays))
    _add(families, catalogue.HANDS_OFF, status.hands_off is not None)
    troubles = {
        "fleet": int(status.trouble is not None),
        "jobs": len(status.job_troubles),
        "studies": len(status.study_troubles),
    }
    for scope, count in troubles.items():
        _add(families, catalogue.TROUBLE, count, {"scope": scope})
    for provider, asked_seconds in status.asked_seconds.items():
        _add(families, catalogue.PROVIDER_ANSWERED, asked_seconds, {"provider": provider})
    for provider in sorted({*status.asked_seconds, *status.silent}):
        _add(
            families, catalogue.PROVIDER_SILENT, provider in status.silent, {"provider": provider}
        )
    for offer in status.offers:
        labels = {"offer": offer.id, "provider": offer.provider, "purchase": offer.purchase.value}
        _add(families, catalogue.OFFER_PRICE, float(offer.usd_per_hour), labels)
        is_refused = offer.id in status.unavailable
        _add(families, catalogue.OFFER_REFUSED, is_refused, {"offer": offer.id})


def _add_instances(families: Families, alive: Sequence[HeldInstance], now_seconds: float) -> None:
    counts = Counter((held.offer, held.phase.value) for held in alive)
    for (offer, phase), count in counts.items():
        _add(families, catalogue.INSTANCES, count, {"offer": offer, "phase": phase})
    devices: Counter[str] = Counter()
    for held in alive:
        devices[held.offer] += held.devices_used
    for offer, count in devices.items():
        _add(families, catalogue.DEVICES, count, {"offer": offer})
    usd_per_hour = sum((held.costing_usd_per_hour for held in alive), Decimal(0))
    _add(families, catalogue.FLEET_RATE, float(usd_per_hour))
    silences = (
        now_seconds - held.seen_seconds
        for held in alive
        if held.seen_seconds is not None and held.phase not in _NOT_JOINED
    )
    _add(families, catalogue.SILENCE, max(silences, default=0.0))


def _add_limits(
    families: Families, status: ControllerStatus, alive: Iterable[HeldInstance]
) -> None:
    counts = Counter(held.offer for held in alive)
    offers = {offer.id: offer for offer in status.offers if offer.id in counts}
    for limit in status.limits:
        labels = {"limit": limit.name, "unit": limit.unit.value}
        _add(families, catalogue.LIMIT, limit.maximum, labels)
        _add(families, catalogue.LIMIT_USED, _used(limit, offers, counts), labels)
    for name, usd_per_second in status.shadow_prices.items():
        _add(families, catalogue.LIMIT_PRICE, usd_per_second * 3600, {"limit": name})


def _used(limit: Limit, offers: Mapping[str, Offer], counts: Mapping[str, int]) -> float:
    """Return how much of a limit the instances held use, in its unit."""
    return sum(limit.use(offer) * counts[offer_id] for offer_id, offer in offers.items())
