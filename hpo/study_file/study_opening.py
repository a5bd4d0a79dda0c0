"""Optuna studies that study files describe."""

from __future__ import annotations

import importlib
import os
import re
import sqlite3
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import optuna
from optuna.artifacts import FileSystemArtifactStore
from optuna.storages import RDBStorage
from optuna.study import StudyDirection

from autoscaler.domain.errors import CastorError, NotFound, SpecError, StoreError
from autoscaler.domain.study import StudySpec
from hpo.objective.packaging import Objective
from hpo.samplers_and_pruners.registry import create_pruner, create_sampler
from hpo.storage.controller_names import names_by_controller, slug
from hpo.storage.retrying import one_line
from hpo.storage.trial_counts import count_trials
from hpo.study_file.command import CommandObjective

_PASSWORD = re.compile(r"(//[^:/@]*):[^@]*@")


def silence_optuna() -> None:
    """Set Optuna's log level to warnings; Castor logs the progress itself."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def open_study(spec: StudySpec) -> optuna.Study:
    """Open the study of a file in its storage; create it if it is new.

    `$NAME` in the storage's URL is an environment variable, for passwords. The default SQLite file
    is in WAL mode, so that it can be read while it is written. A seed applies to the first run
    only; later runs draw other random numbers.

    Raises:
        SpecError: the sampler or pruner can't be created, or the stored study has another
            direction.
        StoreError: the storage can't be opened.
    """
    storage = _storage_of(spec)
    sampler, pruner = create_sampler(spec.sampler), create_pruner(spec.pruner)
    with _opening(storage):
        if spec.storage is None:
            _enable_wal(Path(_own_file(spec)))
        study = optuna.create_study(
            study_name=spec.name,
            storage=storage,
            sampler=sampler,
            pruner=pruner,
            directions=[StudyDirection[name.upper()] for name in spec.directions],
            load_if_exists=True,
        )
        if study.get_trials(deepcopy=False):
            study.sampler.reseed_rng()  # a seeded sampler would repeat its first draws
    stored_directions = [direction.name.lower() for direction in study.directions]
    if stored_directions != list(spec.directions):
        raise SpecError(
            f"the study {spec.name!r} in {_shown(storage)} is there to "
            f"{' and '.join(stored_directions)}: say so, or give this one another name",
            "direction",
        )
    return study


def load_recorded_study(spec: StudySpec) -> optuna.Study:
    """Load the study of a file from its storage, read-only.

    Raises:
        NotFound: the storage has no such study.
        StoreError: the storage can't be opened.
    """
    storage = _storage_of(spec)
    missing = NotFound(f"{_shown(storage)} has no study {spec.name!r}: castor study run begins it")
    with _opening(storage):
        kind, _, place = storage.partition(":///")
        if kind.startswith("sqlite") and not place.startswith("file:"):
            file, _, options = place.partition("?")
            if not Path(file).is_file():
                raise missing
            options = f"mode=ro&uri=true&{options}".rstrip("&")
            if _is_closed_wal(Path(file)):
                options += "&immutable=1"  # keeps SQLite from creating a WAL file
            storage = f"{kind}:///file:{quote(str(Path(file).absolute()))}?{options}"
        backend = RDBStorage(storage, skip_table_creation=True)
        try:
            return optuna.load_study(study_name=spec.name, storage=backend)
        except KeyError:
            raise missing from None


def trials_left(spec: StudySpec) -> int | None:
    """Return how many trials of a file's total have not ended; None without a total.

    If the study has not begun or its storage can't be read, that is the total.
    """
    if spec.trials is None:
        return None
    try:
        return max(spec.trials - count_trials(load_recorded_study(spec)).ended, 0)
    except CastorError:
        return spec.trials


def recorded_names(spec: StudySpec) -> Mapping[str, str]:
    """Return the study's names at controllers by controller id.

    The result is empty if the storage can't be read.
    """
    try:
        return names_by_controller(load_recorded_study(spec))
    except CastorError:
        return {}


def _storage_of(spec: StudySpec) -> str:
    storage = os.path.expandvars(spec.storage or f"sqlite:///{_own_file(spec)}")
    if "://" not in storage:
        raise StoreError(
            f"storage: {storage} can't be opened: it is no URL of a database, such as "
            f"sqlite:///{_own_file(spec)}"
        )
    return storage


def _own_file(spec: StudySpec) -> str:
    return f"{slug(spec.name)}.db"


def _shown(storage: str) -> str:
    return _PASSWORD.sub(r"\1:***@", storage)


@contextmanager
def _opening(storage: str) -> Iterator[None]:
    """Convert errors of a storage to one StoreError without the password."""
    try:
        yield
    except CastorError:
        raise
    except Exception as error:  # each database raises its own errors
        message = one_line(error).replace(storage, _shown(storage))
        raise StoreError(f"storage: {_shown(storage)} can't be opened: {message}") from None


def _is_closed_wal(file: Path) -> bool:
    """Return whether a SQLite file is in WAL mode and no process has it open.

    Source: https://www.sqlite.org/fileformat.html, section 1.3.
    """
    with file.open("rb") as content:
        is_wal = content.read(20)[18:] == b"\x02\x02"
    return is_wal and not Path(f"{file}-wal").exists()


def _enable_wal(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")


def open_artifact_store(spec: StudySpec) -> FileSystemArtifactStore | None:
    """Open the artifact store that a study file names; None if it names none.

    Raises:
        SpecError: the directory can't be made.
    """
    if spec.artifacts is None:
        return None
    directory = Path(os.path.expandvars(spec.artifacts))
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SpecError(f"{directory} can't be made: {error.strerror}", "artifacts") from None
    return FileSystemArtifactStore(directory)


def check_methods(spec: StudySpec) -> None:
    """Check that the file's sampler and pruner can be created.

    Raises:
        SpecError: one is unknown, or does not take an option.
    """
    create_sampler(spec.sampler)
    create_pruner(spec.pruner)


def load_objective(spec: StudySpec, directory: Path) -> Objective:
    """Return the objective of a study file: a command or an imported function.

    Raises:
        SpecError: `directory` has no such function, or importing its module fails.
    """
    if spec.function is None:
        return CommandObjective(spec.command, spec.space)
    module_name, _, name = spec.function.partition(":")
    sys.path.insert(0, str(directory))
    try:
        imported: Any = importlib.import_module(module_name)
        for part in name.split("."):
            imported = getattr(imported, part)
    except (Exception, SystemExit) as error:  # the user's module may raise anything
        message = one_line(error)
        if not isinstance(error, ImportError | AttributeError):
            message = f"{type(error).__name__}: {message}".rstrip(": ")
        raise SpecError(f"{spec.function} can't be imported: {message}", "function") from error
    if not callable(imported):
        raise SpecError(
            f"{spec.function} is {imported!r:.60}, which no trial can call", "function"
        )
    objective: Objective = imported
    return objective
