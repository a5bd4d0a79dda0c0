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
from hpo.storage.retrying import PatientStorage, one_line


@contextmanager
def optimizing(
    study: optuna.Study, clock: Clock, on_wait: Callable[[], None] = lambda: None
) -> Iterator[None]:
    """Drive the study: its storage is waited for while it is away, as `PatientStorage` does.

    `study.stop()` works in callbacks meanwhile, as it does in `study.optimize`.
    """
    storage = PatientStorage(optuna_internals.storage_of(study), clock, on_wait)
    with optuna_internals.optimization_loop(study, storage):
        yield


def is_lasting(study: optuna.Study) -> bool:
    """Whether the study outlives this process."""
    storage = optuna_internals.storage_of(study)
    return not isinstance(storage, optuna.storages.InMemoryStorage)


def own_file(study: optuna.Study) -> Path | None:
    """The file of SQLite's that the study is in, if it is in one."""
    kind, _, place = optuna_internals.database_url(study).partition(":///")
    file = place.partition("?")[0].removeprefix("file:")
    return Path(file).absolute() if kind.startswith("sqlite") and file else None


def check_writable(study: optuna.Study) -> None:
    """Refuse a study whose storage can be read only.

    Raises:
        StoreError: so it is.
    """
    try:
        study.set_user_attr(attributes.DRIVEN, True)
    except (optuna.exceptions.StorageInternalError, OSError) as error:
        raise StoreError(
            f"storage: the study {study.study_name!r} can't be written: {one_line(error)}"
        ) from error
