"""Study of a trial as its objective sees it, without access to the storage."""

from __future__ import annotations

from collections.abc import Container, Sequence
from typing import Any

from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState

from hpo.protocol import attributes, requests, study_queries
from hpo.protocol.requests import TrialRequest, parse_answer
from hpo.protocol.study_queries import parse_trials
from hpo.worker.interfaces import DriverChannel

# Attributes through which integrations access a study's storage.
STORAGE_ATTRIBUTES = ("storage", "_storage", "_study_id", "_cached_frozen_trial")


def storage_error(wanted: str) -> AttributeError:
    """Return the error for access to the study's storage."""
    return AttributeError(
        f"{wanted}: the study's storage is not here, and needs not be, of whatever kind it is: in "
        "place of a callback that asks for it call trial.report and trial.should_prune, on every "
        "rank"
    )


class ScoreStorage:
    """Part of a storage that accepts cross-validation scores.

    `optuna.terminator.report_cross_validation_scores` uses it.
    """

    def __init__(self, channel: DriverChannel, trial: int) -> None:
        """Set up for the trial with the number `trial`."""
        self._channel = channel
        self._trial = trial

    def set_trial_system_attr(self, trial_id: int, key: str, value: Sequence[float]) -> None:
        """Set the scores of this trial; other attributes are refused."""
        if key != attributes.SCORES:
            raise storage_error(f"trial.storage: {key}")
        scores = [float(score) for score in value]
        self._channel.tell(
            TrialRequest(requests.SET_SCORES, {"scores": scores}, self._trial).text()
        )

    def __getattr__(self, name: str) -> Any:
        raise storage_error(f"trial.storage.{name}")


class RemoteStudy:
    """Study of a trial: directions, trials, user attributes and `stop`.

    Each access to trials or attributes sends a request to the driver.
    """

    def __init__(
        self, name: str, directions: Sequence[StudyDirection], channel: DriverChannel, trial: int
    ) -> None:
        """Set up for the objective of the trial with the number `trial`."""
        self.study_name = name
        self.directions = list(directions)
        self._channel = channel
        self._trial = trial

    @property
    def direction(self) -> StudyDirection:
        """Direction of a study with one objective.

        Raises:
            RuntimeError: the study has several directions.
        """
        if len(self.directions) > 1:
            raise RuntimeError("this study has several objectives: ask for its directions")
        return self.directions[0]

    def stop(self) -> None:
        """Request that no further trial begins."""
        self._channel.tell(TrialRequest(requests.STOP_STUDY, {}, self._trial).text())

    @property
    def trials(self) -> list[FrozenTrial]:
        """Current records of all trials of the study; each access asks the driver."""
        return parse_trials(self._read(study_queries.TRIALS))

    def get_trials(
        self, deepcopy: bool = True, states: Container[TrialState] | None = None
    ) -> list[FrozenTrial]:
        """Return copies of the trials with one of the `states`; see `optuna.Study.get_trials`."""
        return [trial for trial in self.trials if states is None or trial.state in states]

    @property
    def best_trials(self) -> list[FrozenTrial]:
        """Best trial, or the Pareto front of a study with several directions."""
        return parse_trials(self._read(study_queries.BEST))

    @property
    def best_trial(self) -> FrozenTrial:
        """Best trial of a study with one direction.

        Raises:
            RuntimeError: the study has several directions.
            ValueError: no trial is complete.
        """
        if len(self.directions) > 1:
            raise RuntimeError("this study has several objectives: ask for its best_trials")
        return self.best_trials[0]

    @property
    def best_value(self) -> float:
        """Value of the best trial; raises as `best_trial` does."""
        return float(self.best_trial.values[0])

    @property
    def best_params(self) -> dict[str, Any]:
        """Parameters of the best trial; raises as `best_trial` does."""
        return self.best_trial.params

    @property
    def user_attrs(self) -> dict[str, Any]:
        """User attributes of the study."""
        return dict(self._read(study_queries.USER_ATTRS))

    def _read(self, part: str) -> Any:
        call = TrialRequest(requests.READ_STUDY, {"what": part}, self._trial)
        return parse_answer(self._channel.ask(call.text()))

    def __getattr__(self, name: str) -> Any:
        if name in STORAGE_ATTRIBUTES:
            raise storage_error(f"study.{name}")
        raise AttributeError(
            f"study.{name}: the objective runs away from the study's storage, and can read its "
            "trials and user attributes and stop it; use a callback, which runs beside the study"
        )
