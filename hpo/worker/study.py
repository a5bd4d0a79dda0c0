"""A trial's study as its objective sees it, away from the study's storage."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from hpo.protocol import attributes, requests, study_queries
from hpo.protocol.requests import Call, read_answer
from hpo.protocol.study_queries import read_trials
from hpo.worker.interfaces import Asks

# What integrations that write to a study's storage by themselves look for.
OF_STORAGE = ("storage", "_storage", "_study_id", "_cached_frozen_trial")


def no_storage(wanted: str) -> AttributeError:
    """Return the error of whoever looks for the storage."""
    return AttributeError(
        f"{wanted}: the study's storage is not here, and needs not be, of whatever kind it is: in "
        "place of a callback that asks for it call trial.report and trial.should_prune, on every "
        "rank"
    )


class OwnStorage:
    """As much of a storage as an objective may write: its scores, for terminators.

    `optuna.terminator.report_cross_validation_scores` looks for it.
    """

    def __init__(self, line: Asks, trial: int) -> None:
        """`trial` is the trial's number."""
        self._line = line
        self._trial = trial

    def set_trial_system_attr(self, trial_id: int, key: str, value: Sequence[float]) -> None:
        """As a storage of Optuna's, for this one attribute of this trial."""
        if key != attributes.SCORES:
            raise no_storage(f"trial.storage: {key}")
        scores = [float(each) for each in value]
        self._line.tell(Call(requests.SET_SCORES, {"scores": scores}, self._trial).text())

    def __getattr__(self, name: str) -> Any:
        raise no_storage(f"trial.storage.{name}")


class StudyOfTrial:
    """What a trial's objective can know of its study, without a way to the storage."""

    def __init__(
        self, name: str, directions: Sequence[StudyDirection], line: Asks, trial: int
    ) -> None:
        """`trial` is the number of the trial whose objective it is for."""
        self.study_name = name
        self.directions = list(directions)
        self._line = line
        self._trial = trial

    @property
    def direction(self) -> StudyDirection:
        """The one direction.

        Raises:
            RuntimeError: there are several.
        """
        if len(self.directions) > 1:
            raise RuntimeError("this study has several objectives: ask for its directions")
        return self.directions[0]

    def stop(self) -> None:
        """Let no further trial begin."""
        self._line.tell(Call(requests.STOP_STUDY, {}, self._trial).text())

    @property
    def trials(self) -> list[FrozenTrial]:
        """All trials of the study as they stand now; each access asks the study's driver."""
        return read_trials(self._read(study_queries.TRIALS))

    def get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """As `optuna.Study.get_trials`; the trials are copies in any case."""
        return [trial for trial in self.trials if states is None or trial.state in states]

    @property
    def best_trials(self) -> list[FrozenTrial]:
        """The best trial, or of several directions those of the front."""
        return read_trials(self._read(study_queries.BEST))

    @property
    def best_trial(self) -> FrozenTrial:
        """The best trial of a study of one direction.

        Raises:
            RuntimeError: there are several.
            ValueError: no trial is complete.
        """
        if len(self.directions) > 1:
            raise RuntimeError("this study has several objectives: ask for its best_trials")
        return self.best_trials[0]

    @property
    def best_value(self) -> float:
        """The value of the best trial; errors as of `best_trial`."""
        return float(self.best_trial.values[0])

    @property
    def best_params(self) -> dict[str, Any]:
        """The parameters of the best trial; errors as of `best_trial`."""
        return self.best_trial.params

    @property
    def user_attrs(self) -> dict[str, Any]:
        """The study's user attributes."""
        return dict(self._read(study_queries.USER_ATTRS))

    def _read(self, what: str) -> Any:
        call = Call(requests.READ_STUDY, {"what": what}, self._trial)
        return read_answer(self._line.ask(call.text()))

    def __getattr__(self, name: str) -> Any:
        if name in OF_STORAGE:
            raise no_storage(f"study.{name}")
        raise AttributeError(
            f"study.{name}: the objective runs away from the study's storage, and can read its "
            "trials and user attributes and stop it; use a callback, which runs beside the study"
        )
