"""Counters and histograms of one deployment, and the decorators that feed them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, TypeVar

from prometheus_client import Counter, Histogram
from prometheus_client.core import Metric

from autoscaler.clock import Clock
from autoscaler.domain.instance import CloudInstance, Interruption, LaunchRequest
from autoscaler.domain.offer import Limit, Offer
from autoscaler.domain.plan import Plan
from autoscaler.domain.snapshot import Snapshot
from autoscaler.policies.base import Policy
from autoscaler.spans import SpanOpener, no_span
from autoscaler.telemetry.catalogue import (
    CALLS,
    HEARTBEATS,
    LAUNCHES,
    PLANS,
    REQUEST_SECONDS,
    REQUESTS,
    TICKS,
    MetricSpec,
)
from providers.base import Condition, Provider, SpotScores
from providers.identity import IdentityVerifier

Result = TypeVar("Result")

_OK: Final = "ok"
_FAILED: Final = "failed"
_ACCEPTED: Final = "accepted"
_CREATED: Final = "_created"  # a sample of the client library that no query needs


class Meters:
    """Counters and histograms of a deployment since its start. Threads may share them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counters = {
            spec: Counter(spec.name, spec.meaning, spec.labels, registry=None)
            for spec in (REQUESTS, HEARTBEATS, LAUNCHES)
        }
        self._histograms = {
            spec: Histogram(
                spec.name, spec.meaning, spec.labels, registry=None, buckets=spec.buckets
            )
            for spec in (TICKS, PLANS, REQUEST_SECONDS, CALLS)
        }
        for outcome in (_OK, _FAILED):  # a rate needs the 0 before the first one
            self._histograms[TICKS].labels(outcome)
            self._histograms[PLANS].labels(outcome)
        self.heartbeats(0, 0)

    def families(self) -> Iterator[Metric]:
        """Yield all counters and histograms with their values now."""
        for collector in (*self._counters.values(), *self._histograms.values()):
            for metric in collector.collect():
                metric.samples = [
                    sample for sample in metric.samples if not sample.name.endswith(_CREATED)
                ]
                yield metric

    @contextmanager
    def tick(self) -> Iterator[None]:
        """Time a tick of the control loop: the body."""
        with self._timed(TICKS, lambda error: (_FAILED if error else _OK,)):
            yield

    @contextmanager
    def plan(self) -> Iterator[None]:
        """Time a call of the policy: the body."""
        with self._timed(PLANS, lambda error: (_FAILED if error else _OK,)):
            yield

    @contextmanager
    def call(self, provider: str, operation: str) -> Iterator[None]:
        """Time a call of a provider: the body."""
        with self._timed(CALLS, lambda error: (provider, operation, _outcome(error))):
            yield

    def launched(self, offer: str, error: Exception | None) -> None:
        """Count a call that launches an instance, with the error that refused it."""
        outcome = _ACCEPTED if error is None else _outcome(error)
        self._counters[LAUNCHES].labels(offer, outcome).inc()

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Count a request of the API that took so many seconds."""
        self._counters[REQUESTS].labels(method, route, str(status)).inc()
        self._histograms[REQUEST_SECONDS].labels(route).observe(seconds)

    def heartbeats(self, stored: int, refused: int) -> None:
        """Count heartbeats of a batch."""
        counter = self._counters[HEARTBEATS]
        counter.labels("stored").inc(stored)
        counter.labels("refused").inc(refused)

    @contextmanager
    def _timed(
        self, spec: MetricSpec, labels: Callable[[Exception | None], Sequence[str]]
    ) -> Iterator[None]:
        began_seconds = self._clock.monotonic()
        failed: Exception | None = None
        try:
            yield
        except Exception as error:
            failed = error
            raise
        finally:
            took_seconds = self._clock.monotonic() - began_seconds
            self._histograms[spec].labels(*labels(failed)).observe(took_seconds)


def _outcome(error: Exception | None) -> str:
    return _OK if error is None else type(error).__name__


class MeteredPolicy:
    """Policy whose calls are timed and traced; all its other attributes are the policy's."""

    def __init__(self, policy: Policy, meters: Meters, span: SpanOpener = no_span) -> None:
        self._policy = policy
        self._meters = meters
        self._span = span

    def __getattr__(self, name: str) -> object:
        return getattr(self._policy, name)

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the policy's plan."""
        with self._meters.plan(), self._span("plan", jobs=len(snapshot.jobs)):
            return self._policy.plan(snapshot)


class MeteredProvider(Provider):
    """Provider whose calls are counted, timed and traced, under its name in offers."""

    def __init__(
        self, name: str, provider: Provider, meters: Meters, span: SpanOpener = no_span
    ) -> None:
        self._name = name
        self._provider = provider
        self._meters = meters
        self._span = span

    @property
    def identity(self) -> IdentityVerifier | None:
        """Verifier of instances' identity proofs."""
        return self._provider.identity

    def offers(self) -> Sequence[Offer]:
        """Return every offer, as `Provider.offers`."""
        with self._call("offers"):
            return self._provider.offers()

    def limits(self) -> Sequence[Limit]:
        """Return the limits, as `Provider.limits`."""
        with self._call("limits"):
            return self._provider.limits()

    def launch(self, request: LaunchRequest) -> CloudInstance:
        """Launch an instance, as `Provider.launch`."""
        try:
            with self._call("launch"):
                launched = self._provider.launch(request)
        except Exception as error:
            self._meters.launched(request.offer, error)
            raise
        self._meters.launched(request.offer, None)
        return launched

    def terminate(self, instance_ids: Sequence[str]) -> None:
        """Request the end of instances, as `Provider.terminate`."""
        with self._call("terminate"):
            self._provider.terminate(instance_ids)

    def instances(self) -> Sequence[CloudInstance]:
        """Return this deployment's instances, as `Provider.instances`."""
        with self._call("instances"):
            return self._provider.instances()

    def interruptions(self) -> Sequence[Interruption]:
        """Return reclaim notices, as `Provider.interruptions`."""
        with self._call("interruptions"):
            return self._provider.interruptions()

    def rehearse(self, offer_id: str) -> bool:
        """Ask whether a launch would be permitted, as `Provider.rehearse`."""
        with self._call("rehearse"):
            return self._provider.rehearse(offer_id)

    def spot_scores(self, pool: str) -> SpotScores | None:
        """Return the likelihood of spot launches, as `Provider.spot_scores`."""
        with self._call("spot_scores"):
            return self._provider.spot_scores(pool)

    def console(self, instance_id: str) -> str:
        """Return the console output of an instance, as `Provider.console`."""
        with self._call("console"):
            return self._provider.console(instance_id)

    def condition(self) -> Condition:
        """Return the status found by earlier calls; this makes no call."""
        return self._provider.condition()

    @contextmanager
    def _call(self, operation: str) -> Iterator[None]:
        name = f"{self._name} {operation}"
        with self._meters.call(self._name, operation), self._span(name, provider=self._name):
            yield
