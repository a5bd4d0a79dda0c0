"""A study in the closure of an objective: on an instance it is the study of the trial there.

The study itself stays beside its storage: a copy of it would know none of its trials, and would
stop nothing.
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
    """Stands for the study in an unpickled objective, once its worker has taken up a trial."""

    _bound: Any = None

    def bind(self, study: object) -> None:
        """Let this be the study of the trial that the worker runs."""
        self._bound = study

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of that study.

        Raises:
            AttributeError: there is no such attribute there, or no trial yet.
        """
        if self._bound is None:
            raise AttributeError(f"study.{name}: the objective's study is known within a trial")
        return getattr(self._bound, name)

    def __reduce__(self) -> tuple[Callable[[], ClosureStudy], tuple[()]]:
        """Let a copy of an objective have the same study."""
        return closure_study, ()


_closure_study = ClosureStudy()


def closure_study() -> ClosureStudy:
    """Return the study of this process: a worker runs one trial."""
    return _closure_study


def pickled(objective: object, study: optuna.Study | None) -> bytes:
    """Return the pickle of an objective of `study`.

    Raises:
        SpecError: it refers to another study.
        Exception: something else of it can't be pickled.
    """
    with BytesIO() as file:
        _Pickler(file, study).dump(objective)
        return file.getvalue()


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    def __init__(self, file: BytesIO, study: optuna.Study | None) -> None:
        super().__init__(file, protocol=pickle.HIGHEST_PROTOCOL)
        self._study = study

    def reducer_override(self, value: Any) -> Any:
        """Replace the study that is optimized; refuse any other."""
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
    is_there = optuna_internals.storage_of(study) is optuna_internals.storage_of(other) or (
        url != "" and url == optuna_internals.database_url(other)
    )
    return is_there and study.study_name == other.study_name
