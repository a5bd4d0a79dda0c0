"""Forecasts of a whole job at each fixed size, for the API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.clock import Clock
from autoscaler.controller.controller import ControllerStatus
from autoscaler.controller.observe.snapshots import job_snapshot, total_examples
from autoscaler.domain.allocation import Allocation
from autoscaler.domain.snapshot import JobSnapshot
from autoscaler.economics.forecasts.forecast import Forecast, fixed_sizes
from autoscaler.store.store import Store


@dataclass(frozen=True, slots=True)
class FixedSize:
    """Forecast of a whole job at one size; `measured`: the job has trained at that size."""

    forecast: Forecast
    measured: bool


class Forecasts:
    """Forecasts from the last fitted models of jobs; nothing is fitted here."""

    def __init__(self, store: Store, status: ControllerStatus, clock: Clock) -> None:
        self._store = store
        self._status = status
        self._clock = clock

    def of(self, job_id: str) -> tuple[FixedSize, ...]:
        """Return the forecast at each fixed size that the job's bounds and the limits permit.

        Empty before the first fit, and for jobs of unknown length.
        """
        job = self._store.jobs.get(job_id)
        models = self._store.measurements.models(job_id)
        total = total_examples(job)
        if total is None or not models:
            return ()
        instances = self._store.instances.of_job(job_id)
        offers = self._status.offers
        snapshot = job_snapshot(self._store, job, instances, offers, models, self._clock.now())
        kinds = {offer.id: offer.device_kind for offer in offers}
        return tuple(
            FixedSize(forecast, _is_measured(snapshot, forecast.allocation, kinds))
            for forecast in fixed_sizes(snapshot, offers, total)
            if self._has_room(forecast.allocation)
        )

    def _has_room(self, allocation: Allocation) -> bool:
        offers = {offer.id: offer for offer in self._status.offers}
        return all(
            limit.use(offers[allocation.offer]) * allocation.instances <= limit.maximum
            for limit in self._status.limits
        )


def _is_measured(job: JobSnapshot, allocation: Allocation, kinds: Mapping[str, str]) -> bool:
    model = job.models.get(kinds[allocation.offer])
    return model is not None and (allocation.instances, allocation.devices) in model.measured
