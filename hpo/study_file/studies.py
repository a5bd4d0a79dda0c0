"""The study that a file describes, as Optuna has it."""

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
from hpo.methods.registry import pruner_of, sampler_of
from hpo.objective.packaging import Objective
from hpo.storage.controller_names import names_of, slug
from hpo.storage.retrying import one_line
from hpo.storage.trial_counts import totals_of
from hpo.study_file.command import CommandObjective

_PASSWORD = re.compile(r"(//[^:/@]*):[^@]*@")


def be_quiet() -> None:
    """Have Optuna say only what goes wrong: what goes well is said by others."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def open_study(spec: StudySpec) -> optuna.Study:
    """The study in its storage, made there if it is new.

    `$NAME` in the storage's URL is a variable of the environment: passwords are not for files.
    The file that is made where none is named is in WAL mode, so that it is read while it is
    written to. A seed is of the first run: later ones draw on at random.

    Raises:
        SpecError: a sampler or pruner is not known, or does not take an option; or the study that
            is there goes in another direction.
        StoreError: the storage can't be opened.
    """
    storage = _storage_of(spec)
    sampler, pruner = sampler_of(spec.sampler), pruner_of(spec.pruner)
    with _opening(storage):
        if spec.storage is None:
            _write_ahead(Path(_own_file(spec)))
        study = optuna.create_study(
            study_name=spec.name,
            storage=storage,
            sampler=sampler,
            pruner=pruner,
            directions=[StudyDirection[name.upper()] for name in spec.directions],
            load_if_exists=True,
        )
        if study.get_trials(deepcopy=False):
            study.sampler.reseed_rng()  # or one with a seed would draw the first trials again
    there = [direction.name.lower() for direction in study.directions]
    if there != list(spec.directions):
        raise SpecError(
            f"the study {spec.name!r} in {_shown(storage)} is there to {' and '.join(there)}: say "
            "so, or give this one another name",
            "direction",
        )
    return study


def recorded_study(spec: StudySpec) -> optuna.Study:
    """The study as its storage has it, to be read: nothing is made or changed there.

    Raises:
        NotFound: it is not there.
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
            if _is_left_alone(Path(file)):
                options += "&immutable=1"  # or SQLite would make its log, and leave it there
            storage = f"{kind}:///file:{quote(str(Path(file).absolute()))}?{options}"
        backend = RDBStorage(storage, skip_table_creation=True)
        try:
            return optuna.load_study(study_name=spec.name, storage=backend)
        except KeyError:
            raise missing from None


def trials_left(spec: StudySpec) -> int | None:
    """Return how many trials of a file's total have not ended; None if it has no total.

    All of them where the study has not begun, or its storage can't be read.
    """
    if spec.trials is None:
        return None
    try:
        return max(spec.trials - totals_of(recorded_study(spec)).ended, 0)
    except CastorError:
        return spec.trials


def recorded_names(spec: StudySpec) -> Mapping[str, str]:
    """What controllers call the study of a file, as far as its storage is here and tells."""
    try:
        return names_of(recorded_study(spec))
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
    """Whatever goes wrong with a storage is one error, without its password."""
    try:
        yield
    except CastorError:
        raise
    except Exception as error:  # each database has errors of its own
        said = one_line(error).replace(storage, _shown(storage))
        raise StoreError(f"storage: {_shown(storage)} can't be opened: {said}") from None


def _is_left_alone(file: Path) -> bool:
    """Whether a SQLite file is in WAL mode, and nobody has it open.

    Source: https://www.sqlite.org/fileformat.html, section 1.3.
    """
    with file.open("rb") as content:
        is_wal = content.read(20)[18:] == b"\x02\x02"
    return is_wal and not Path(f"{file}-wal").exists()


def _write_ahead(file: Path) -> None:
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")


def artifact_store_of(spec: StudySpec) -> FileSystemArtifactStore | None:
    """Where files go that its trials hand over; None for nowhere.

    Raises:
        SpecError: there can't be such a directory.
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
    """Make sure that its sampler and pruner can be made.

    Raises:
        SpecError: one is not known, or does not take an option.
    """
    sampler_of(spec.sampler)
    pruner_of(spec.pruner)


def objective_of(spec: StudySpec, directory: Path) -> Objective:
    """What each trial runs; a function is imported from the directory.

    Raises:
        SpecError: there is no such function there, or its module fails or ends as it is imported.
    """
    if spec.function is None:
        return CommandObjective(spec.command, spec.space)
    module_name, _, name = spec.function.partition(":")
    sys.path.insert(0, str(directory))
    try:
        found: Any = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except (Exception, SystemExit) as error:  # whatever the user's module does
        said = one_line(error)
        if not isinstance(error, ImportError | AttributeError):
            said = f"{type(error).__name__}: {said}".rstrip(": ")
        raise SpecError(f"{spec.function} can't be imported: {said}", "function") from error
    if not callable(found):
        raise SpecError(f"{spec.function} is {found!r:.60}, which no trial can call", "function")
    objective: Objective = found
    return objective
