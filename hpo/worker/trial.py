"""Trial that an objective receives on an instance."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeVar

from optuna.distributions import (
    BaseDistribution,
    CategoricalChoiceType,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
    json_to_distribution,
)
from optuna.study import StudyDirection
from optuna.trial import BaseTrial

from autoscaler.domain.trial import TrialFile
from hpo.protocol import requests
from hpo.protocol.known_parameters import KnownParameters, UnknownParameter
from hpo.protocol.requests import TrialRequest, parse_answer
from hpo.worker.interfaces import DriverChannel, WorkerContext
from hpo.worker.study import STORAGE_ATTRIBUTES, RemoteStudy, ScoreStorage, storage_error

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class TrialDescription:
    """Record of a trial as its worker receives it in the answer to `begin`.

    `never_prunes`: whether the study's pruner never prunes. `fixed`: parameters that were enqueued
    with the trial.
    """

    number: int
    study_name: str
    directions: tuple[StudyDirection, ...]
    params: dict[str, Any]
    distributions: dict[str, BaseDistribution]
    user_attrs: dict[str, Any]
    constraints: dict[str, float]
    datetime_start: datetime.datetime | None
    is_finished: bool
    keeps_artifacts: bool = False
    never_prunes: bool = False
    fixed: dict[str, Any] = field(default_factory=dict)


def parse_description(value: dict[str, Any]) -> TrialDescription:
    """Parse the answer to `begin`."""
    started = value["datetime_start"]
    return TrialDescription(
        number=value["number"],
        study_name=value["study_name"],
        directions=tuple(StudyDirection[name] for name in value["directions"]),
        params=value["params"],
        distributions={
            name: json_to_distribution(text) for name, text in value["distributions"].items()
        },
        user_attrs=value["user_attrs"],
        constraints=value["constraints"],
        datetime_start=datetime.datetime.fromisoformat(started) if started else None,
        is_finished=value["is_finished"],
        keeps_artifacts=value["keeps_artifacts"],
        never_prunes=value["never_prunes"],
        fixed=value["fixed"],
    )


class RemoteTrial(BaseTrial):
    """Optuna trial whose study is on the machine of the driver.

    The study's sampler makes the suggestions. A repeated suggestion has the same value, also after
    the objective was restarted on another instance. Errors are Optuna's own.
    """

    def __init__(
        self,
        description: TrialDescription,
        channel: DriverChannel,
        context: WorkerContext | None = None,
        is_shared: bool = False,
    ) -> None:
        """Set up the trial of a worker.

        Args:
            description: record of the trial.
            channel: channel to the driver.
            context: instance of the worker; None where the process can't drain.
            is_shared: whether other processes run the same trial, perhaps at another step.
        """
        self._description = description
        self._channel = channel
        self.context = context
        self.is_shared = is_shared
        self._last_step: int | None = None
        self.leave: Callable[[], NoReturn] | None = None
        self.keeps_states = False
        self._known_parameters = KnownParameters(description.fixed)
        self._params = dict(description.params)
        self._distributions = dict(description.distributions)
        self._user_attrs = dict(description.user_attrs)
        self._constraints = dict(description.constraints)
        self.study = RemoteStudy(
            description.study_name, description.directions, channel, description.number
        )

    def suggest_float(
        self,
        name: str,
        low: float,
        high: float,
        *,
        step: float | None = None,
        log: bool = False,
    ) -> float:
        """Suggest a float; see `optuna.trial.Trial.suggest_float`."""
        value: float = self._suggest(name, FloatDistribution(low, high, log=log, step=step))
        return value

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        """Suggest an integer; see `optuna.trial.Trial.suggest_int`."""
        value: int = self._suggest(name, IntDistribution(low, high, log=log, step=step))
        return value

    def suggest_categorical(  # type: ignore[override]  # one signature for all of Optuna's
        self, name: str, choices: Sequence[CategoricalChoiceType]
    ) -> CategoricalChoiceType:
        """Suggest a choice; see `optuna.trial.Trial.suggest_categorical`."""
        value: CategoricalChoiceType = self._suggest(name, CategoricalDistribution(choices))
        return value

    def suggest_uniform(self, name: str, low: float, high: float) -> float:
        """Suggest a float (deprecated by Optuna in favour of `suggest_float`)."""
        return self.suggest_float(name, low, high)

    def suggest_loguniform(self, name: str, low: float, high: float) -> float:
        """Suggest a float on a log scale (deprecated by Optuna in favour of `suggest_float`)."""
        return self.suggest_float(name, low, high, log=True)

    def suggest_discrete_uniform(self, name: str, low: float, high: float, q: float) -> float:
        """Suggest a float with a step (deprecated by Optuna in favour of `suggest_float`)."""
        return self.suggest_float(name, low, high, step=q)

    def report(self, value: float, step: int) -> None:
        """Report an intermediate value; see `optuna.trial.Trial.report`.

        The report is stored before the method returns, and reaches the driver later.
        """
        if len(self.study.directions) > 1:
            raise NotImplementedError("a study of several objectives takes no reports")
        number, step_number = _number(float, value, "value"), _number(int, step, "step")
        if step_number < 0:
            raise ValueError(f"trial.report: step is {step_number}, and must not be below 0")
        self._last_step = step_number
        self._tell(requests.REPORT, value=number, step=step_number)

    def should_prune(self) -> bool:
        """Return the pruner's decision on the last report.

        See `optuna.trial.Trial.should_prune`.

        If the pruner never prunes, no request is sent.
        """
        never = self._description.never_prunes and not self.is_shared
        step = {"step": self._last_step} if self.is_shared and self._last_step is not None else {}
        question = TrialRequest(requests.SHOULD_PRUNE, step, self.number).text()
        if self.context is None or self.leave is None:
            return not never and bool(parse_answer(self._channel.ask(question)))
        self.context.report_steps(
            max(self._last_step or 0, 1)
        )  # the worker can drain from here on
        if never:
            return self.leave() if self.context.must_drain else False
        answer = self.context.ask_unless_draining(question)
        return self.leave() if answer is None else bool(parse_answer(answer))

    def set_user_attr(self, key: str, value: Any) -> None:
        """Set a user attribute; see `optuna.trial.Trial.set_user_attr`."""
        self._tell(requests.SET_USER_ATTR, key=key, value=value)
        self._user_attrs[key] = value

    def set_constraint(self, key: str, value: float) -> None:
        """Set a constraint; see `optuna.trial.Trial.set_constraint` (Optuna 5.0 and newer)."""
        self._ask(requests.SET_CONSTRAINT, key=key, value=float(value))
        self._constraints[key] = float(value)

    @property
    def keeps_artifacts(self) -> bool:
        """Whether the study has an artifact store."""
        return self._description.keeps_artifacts

    def keep_artifact(self, name: str, file: TrialFile) -> str:
        """Upload a file of the checkpoint directory as an artifact; return the artifact's id."""
        call = TrialRequest(requests.ARTIFACT, {"name": name, "sha256": file.sha256}, self.number)
        return str(parse_answer(self._channel.ask(call.text(), file)))

    def set_system_attr(self, key: str, value: Any) -> None:
        """Raise, since Optuna 4 deprecates system attributes and Optuna 5 removes them.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(f"system attribute {key!r}: use set_user_attr")

    @property
    def system_attrs(self) -> dict[str, Any]:
        """Empty mapping; system attributes belong to the driver."""
        return {}

    @property
    def storage(self) -> ScoreStorage:
        """Storage that accepts the scores of terminators only."""
        return ScoreStorage(self._channel, self.number)

    @property
    def _trial_id(self) -> int:
        return self.number

    @property
    def number(self) -> int:
        """Number of the trial in its study."""
        return self._description.number

    @property
    def params(self) -> dict[str, Any]:
        """Parameters suggested so far."""
        return dict(self._params)

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        """Distributions of the parameters suggested so far."""
        return dict(self._distributions)

    @property
    def user_attrs(self) -> dict[str, Any]:
        """User attributes of the trial."""
        return dict(self._user_attrs)

    @property
    def constraints(self) -> dict[str, float]:
        """Constraints of the trial."""
        return dict(self._constraints)

    def __getattr__(self, name: str) -> Any:
        if name in STORAGE_ATTRIBUTES:
            raise storage_error(f"trial.{name}")
        raise AttributeError(f"a trial has no {name!r}")

    @property
    def datetime_start(self) -> datetime.datetime | None:
        """Time of the first start of the trial."""
        return self._description.datetime_start

    def _suggest(self, name: str, distribution: BaseDistribution) -> Any:
        if self._distributions.get(name) == distribution:
            return self._params[name]
        arguments = {"name": name, "distribution": distribution_to_json(distribution)}
        try:
            if self.is_shared or name in self._distributions:
                raise UnknownParameter
            value = self._known_parameters.value(name, distribution)
            self._tell(requests.SUGGEST, **arguments)
        except UnknownParameter:
            suggested = self._ask(requests.SUGGEST, **arguments)
            self._known_parameters.learn(suggested["sampled"])
            value = suggested["value"]
        self._params.setdefault(name, value)
        self._distributions.setdefault(name, distribution)
        return value

    def _tell(self, method: str, **arguments: Any) -> None:
        self._channel.tell(TrialRequest(method, arguments, self.number).text())

    def _ask(self, method: str, **arguments: Any) -> Any:
        return parse_answer(self._channel.ask(TrialRequest(method, arguments, self.number).text()))


def _number(kind: Callable[[Any], Value], argument: Any, name: str) -> Value:
    """Convert an argument of `report` to a number.

    Raises:
        TypeError: the argument is no number.
    """
    try:
        return kind(argument)
    except (TypeError, ValueError):
        raise TypeError(f"trial.report: {name} is {argument!r}, which is no number") from None
