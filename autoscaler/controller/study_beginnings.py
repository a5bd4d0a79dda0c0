"""Since when trials train, or train no more, for their records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from autoscaler.controller.holdings import trained_allocation
from autoscaler.domain.instance import HeldInstance
from autoscaler.store.store import Store


def note_beginnings(
    store: Store, study: str, held: Mapping[str, Sequence[HeldInstance]], now_seconds: float
) -> None:
    """Tell since when trials train that did not when they were told of, and who has paused.

    `held` is what each job holds.
    """
    for record in store.studies.trials(study):
        own = held.get(record.stands.job, ())
        size = trained_allocation(own)
        if (record.trained is None) == (size is None) or record.stands.has_ended:
            continue
        at = now_seconds
        if size is not None:
            at = max(each.training_seconds or 0.0 for each in own)
        store.studies.tell(study, [(record.stands, size)], at)
