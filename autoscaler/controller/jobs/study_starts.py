"""Start and pause times of trials' training, for the trials' records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoscaler.controller.jobs.holdings import trained_allocation
from autoscaler.domain.instance import HeldInstance
from autoscaler.store.store import Store


def note_beginnings(
    store: Store, study: str, held: Mapping[str, Sequence[HeldInstance]], now_seconds: float
) -> None:
    """Record trials of a study that started to train or paused since their last record.

    `held` maps each job to the instances that it holds.
    """
    for record in store.studies.trials(study):
        instances = held.get(record.stands.job, ())
        size = trained_allocation(instances)
        if (record.trained is None) == (size is None) or record.stands.has_ended:
            continue
        changed_seconds = now_seconds
        if size is not None:
            changed_seconds = max(instance.training_seconds or 0.0 for instance in instances)
        store.studies.tell(study, [(record.stands, size)], changed_seconds)
