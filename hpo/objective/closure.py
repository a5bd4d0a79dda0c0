"""Replacement of a study in the closure of an objective.

The study itself stays on the driver's machine. On an instance its place is taken by the
`RemoteStudy` of the trial that runs there.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from io import BytesIO
from typing import Any

import cloudpickle
import optuna

from autoscaler.domain.errors import SpecError
from hpo import optuna_internals


class ClosureStudy:
    """Stand-in for the study in an unpickled objective; forwards to the bound study."""

    _bound: Any = None

    def bind(self, study: object) -> None:
        """Forward to this study from now on."""
        self._bound = study

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the bound study.

        Raises:
            AttributeError: there is no such attribute, or no study is bound yet.
        """
        if self._bound is None:
            raise AttributeError(f"study.{name}: the objective's study is known within a trial")
        return getattr(self._bound, name)

    def __reduce__(self) -> tuple[Callable[[], ClosureStudy], tuple[()]]:
        """Pickle as a reference to the study of the process."""
        return closure_study, ()


_closure_study = ClosureStudy()


def closure_study() -> ClosureStudy:
    """Return the stand-in of this process; a worker runs one trial at a time."""
    return _closure_study


def pickle_objective(objective: object, study: optuna.Study | None) -> bytes:
    """Return the pickle of an objective of `study`.

    Raises:
        SpecError: the objective refers to another study.
        Exception: another part of the objective can't be pickled.
    """
    with BytesIO() as file:
        _Pickler(file, study).dump(objective)
        return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    def __init__(self, file: BytesIO, study: optuna.Study | None) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._study = study

    def reducer_override(self, value: Any) -> Any:
        """Replace the optimized study by its stand-in, and refuse other studies."""
        if not isinstance(value, optuna.Study):
            return super().reducer_override(value)
        if self._study is None or not _is_same(value, self._study):
            raise SpecError(
                f"it refers to the study {value.study_name!r}, which is not the one that is "
                "optimized and can't travel to another machine: read what it needs of that study "
                "beforehand",
                "objective",
            )
        return closure_study, ()


def _is_same(study: optuna.Study, other: optuna.Study) -> bool:
    if study is other:
        return True
    url = optuna_internals.database_url(study)
    has_same_storage = optuna_internals.storage_of(study) is optuna_internals.storage_of(
        other
    ) or (url != "" and url == optuna_internals.database_url(other))
    return has_same_storage and study.study_name == other.study_name
