"""Series over time of one job, on one axis, as a message of the API."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from autoscaler.clock import Clock
from autoscaler.domain.job import JobRecord
from autoscaler.domain.report import ReportSample
from autoscaler.ledger.ledger import Ledger
from autoscaler.ledger.series import SpendingSeries, grid, last_in_bins, spending_series
from autoscaler.service.jobs.views import decision_view
from autoscaler.store.store import Store
from autoscaler.wire.outlook_messages import HistoryView

MOST_POINTS = 2000
_MOST_DECISIONS = 500

Number = TypeVar("Number")


class Histories:
    """Builder of series from the ledger, the samples of reports and the journal."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    def of(self, job: JobRecord, since_seconds: float, points: int) -> HistoryView:
        """Return at most `points` values of each series of a job.

        Args:
            job: the job.
            since_seconds: first time, since the Unix epoch; not before its submission.
            points: number of points, at least 2.
        """
        store = self._store
        end_seconds = job.ended_seconds or self._clock.now()
        first_seconds = min(max(since_seconds, job.submitted_seconds), end_seconds)
        times = grid(first_seconds, end_seconds, points)
        spending = spending_series(Ledger(store.ledger.entries(job.id)), {job.id}, times)
        samples = store.reports.samples(job.id)
        bins = last_in_bins(times, [sample.at_seconds for sample in samples])
        sampled = [None if index is None else samples[index] for index in bins]
        entries = store.journal.decisions(job.id, _MOST_DECISIONS)
        shown = [entry for entry in reversed(entries) if entry.at_seconds >= first_seconds]
        return HistoryView(
            job=job.id,
            times=times,
            instances={
                offer: counts for offer, counts in spending.instances.items() if any(counts)
            },
            devices=self._devices(job, spending),
            usd_per_hour=spending.usd_per_hour,
            spent_usd=spending.spent_usd,
            progress_examples=_picked(sampled, lambda sample: sample.progress_examples),
            batch=_picked(sampled, lambda sample: sample.batch),
            noise_examples=_picked(sampled, lambda sample: sample.noise_examples),
            learning_rate=_picked(sampled, lambda sample: sample.learning_rate),
            loss=_picked(sampled, lambda sample: sample.loss),
            goodput=_picked(sampled, lambda sample: sample.goodput),
            decisions=tuple(decision_view(entry) for entry in shown),
        )

    def _devices(self, job: JobRecord, spending: SpendingSeries) -> tuple[int, ...]:
        """Return the devices in use on all held instances, by their last use."""
        held_devices = {
            held.id: held.devices_used
            for held in self._store.instances.of_job(job.id, include_ended=True)
        }
        sums = [0] * len(spending.usd_per_hour)
        for instance, counts in spending.held.items():
            for index, count in enumerate(counts):
                sums[index] += count * held_devices.get(instance, 0)
        return tuple(sums)


def _picked(
    samples: Sequence[ReportSample | None], pick: Callable[[ReportSample], Number | None]
) -> tuple[Number | None, ...]:
    """Return one number of each sample; None where there is no sample."""
    return tuple(None if sample is None else pick(sample) for sample in samples)
