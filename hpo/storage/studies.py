"""Access to the storage of a study."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import optuna

from autoscaler.clock import Clock
from autoscaler.domain.errors import StoreError
from hpo import optuna_internals
from hpo.protocol import attributes
from hpo.storage.retrying import RetryingStorage, one_line


@contextmanager
def optimization_context(
    study: optuna.Study, clock: Clock, on_wait: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Run the body with a study whose storage is retried while it is unavailable.

    `study.stop()` works in callbacks meanwhile, as in `study.optimize`.
    """
    storage = RetryingStorage(optuna_internals.storage_of(study), clock, on_wait)
    with optuna_internals.optimization_loop(study, storage):
        yield


def is_persistent(study: optuna.Study) -> bool:
    """Return whether the study outlives this process."""
    storage = optuna_internals.storage_of(study)
    return not isinstance(storage, optuna.storages.InMemoryStorage)


def sqlite_file(study: optuna.Study) -> Path | None:
    """Return the SQLite file of a study; None for other storages."""
    kind, _, place = optuna_internals.database_url(study).partition(":///")
    file = place.partition("?")[0].removeprefix("file:")
    return Path(file).absolute() if kind.startswith("sqlite") and file else None


def check_writable(study: optuna.Study) -> None:
    """Check that the storage of a study can be written.

    Raises:
        StoreError: the storage is read-only.
    """
    try:
        study.set_user_attr(attributes.DRIVEN, True)
    except (optuna.exceptions.StorageInternalError, OSError) as error:
        raise StoreError(
            f"storage: the study {study.study_name!r} can't be written: {one_line(error)}"
        ) from error
