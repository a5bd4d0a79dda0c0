"""A trial as its objective sees it, on whatever instance that runs."""

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
from hpo.protocol.known_parameters import Foreseen, NotForeseen
from hpo.protocol.requests import Call, read_answer
from hpo.worker.interfaces import Asks, Place
from hpo.worker.study import OF_STORAGE, OwnStorage, StudyOfTrial, no_storage

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class TrialFacts:
    """What the driver tells of a trial when a worker takes it up.

    `never_prunes`: the study's pruner would say no to every question. `fixed`: parameters that
    were enqueued with the trial.
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


def read_facts(value: dict[str, Any]) -> TrialFacts:
    """The facts in the answer to `begin`."""
    started = value["datetime_start"]
    return TrialFacts(
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
    """Optuna's trial, with the driver of the study at the other end of a line.

    What is suggested comes from the study's sampler, and what is suggested again is the same, also
    after the objective was started anew elsewhere. Errors are Optuna's own.
    """

    def __init__(
        self,
        facts: TrialFacts,
        line: Asks,
        place: Place | None = None,
        is_shared: bool = False,
    ) -> None:
        """`is_shared`: other processes hold it too, which may be a step ahead or behind."""
        self._facts = facts
        self._line = line
        self.place = place
        self.is_shared = is_shared
        self._last_step: int | None = None
        self.leave: Callable[[], NoReturn] | None = None
        self.keeps_states = False
        self._foreseen = Foreseen(facts.fixed)
        self._params = dict(facts.params)
        self._distributions = dict(facts.distributions)
        self._user_attrs = dict(facts.user_attrs)
        self._constraints = dict(facts.constraints)
        self.study = StudyOfTrial(facts.study_name, facts.directions, line, facts.number)

    def suggest_float(
        self,
        name: str,
        low: float,
        high: float,
        *,
        step: float | None = None,
        log: bool = False,
    ) -> float:
        """As `optuna.trial.Trial.suggest_float`."""
        value: float = self._suggest(name, FloatDistribution(low, high, log=log, step=step))
        return value

    def suggest_int(
        self, name: str, low: int, high: int, *, step: int = 1, log: bool = False
    ) -> int:
        """As `optuna.trial.Trial.suggest_int`."""
        value: int = self._suggest(name, IntDistribution(low, high, log=log, step=step))
        return value

    def suggest_categorical(  # type: ignore[override]  # one signature for all of Optuna's
        self, name: str, choices: Sequence[CategoricalChoiceType]
    ) -> CategoricalChoiceType:
        """As `optuna.trial.Trial.suggest_categorical`."""
        value: CategoricalChoiceType = self._suggest(name, CategoricalDistribution(choices))
        return value

    def suggest_uniform(self, name: str, low: float, high: float) -> float:
        """As `suggest_float`; deprecated by Optuna."""
        return self.suggest_float(name, low, high)

    def suggest_loguniform(self, name: str, low: float, high: float) -> float:
        """As `suggest_float` with `log`; deprecated by Optuna."""
        return self.suggest_float(name, low, high, log=True)

    def suggest_discrete_uniform(self, name: str, low: float, high: float, q: float) -> float:
        """As `suggest_float` with `step`; deprecated by Optuna."""
        return self.suggest_float(name, low, high, step=q)

    def report(self, value: float, step: int) -> None:
        """As `optuna.trial.Trial.report`. The driver has it in the end, whoever is away now."""
        if len(self.study.directions) > 1:
            raise NotImplementedError("a study of several objectives takes no reports")
        number, at = _number(float, value, "value"), _number(int, step, "step")
        if at < 0:
            raise ValueError(f"trial.report: step is {at}, and must not be below 0")
        self._last_step = at
        self._tell(requests.REPORT, value=number, step=at)

    def should_prune(self) -> bool:
        """As `optuna.trial.Trial.should_prune`. It is asked once a report, whatever happens.

        Where the answer is known, no question leaves the process.
        """
        never = self._facts.never_prunes and not self.is_shared
        step = {"step": self._last_step} if self.is_shared and self._last_step is not None else {}
        question = Call(requests.SHOULD_PRUNE, step, self.number).text()
        if self.place is None or self.leave is None:
            return not never and bool(read_answer(self._line.ask(question)))
        self.place.stepped(max(self._last_step or 0, 1))  # from now on it can leave by itself
        if never:
            return self.leave() if self.place.must_leave else False
        answer = self.place.ask_unless_leaving(question)
        return self.leave() if answer is None else bool(read_answer(answer))

    def set_user_attr(self, key: str, value: Any) -> None:
        """As `optuna.trial.Trial.set_user_attr`."""
        self._tell(requests.SET_USER_ATTR, key=key, value=value)
        self._user_attrs[key] = value

    def set_constraint(self, key: str, value: float) -> None:
        """As `optuna.trial.Trial.set_constraint`, which Optuna has from 5.0 on."""
        self._ask(requests.SET_CONSTRAINT, key=key, value=float(value))
        self._constraints[key] = float(value)

    @property
    def keeps_artifacts(self) -> bool:
        """Whether the study was given an artifact store."""
        return self._facts.keeps_artifacts

    def keep_artifact(self, name: str, file: TrialFile) -> str:
        """Have a file of the checkpoint directory kept as the trial's; returns its id there."""
        call = Call(requests.ARTIFACT, {"name": name, "sha256": file.sha256}, self.number)
        return str(read_answer(self._line.ask(call.text(), file)))

    def set_system_attr(self, key: str, value: Any) -> None:
        """Refused: Optuna 4 deprecates it, 5 has it no more.

        Raises:
            NotImplementedError: always.
        """
        raise NotImplementedError(f"system attribute {key!r}: use set_user_attr")

    @property
    def system_attrs(self) -> dict[str, Any]:
        """None: they are the study's own."""
        return {}

    @property
    def storage(self) -> OwnStorage:
        """Not the study's, whose driver alone has that."""
        return OwnStorage(self._line, self.number)

    @property
    def _trial_id(self) -> int:
        return self.number

    @property
    def number(self) -> int:
        """The trial's number in its study."""
        return self._facts.number

    @property
    def params(self) -> dict[str, Any]:
        """What was suggested so far."""
        return dict(self._params)

    @property
    def distributions(self) -> dict[str, BaseDistribution]:
        """From what it was."""
        return dict(self._distributions)

    @property
    def user_attrs(self) -> dict[str, Any]:
        """The user attributes."""
        return dict(self._user_attrs)

    @property
    def constraints(self) -> dict[str, float]:
        """The constraints that were set."""
        return dict(self._constraints)

    def __getattr__(self, name: str) -> Any:
        if name in OF_STORAGE:
            raise no_storage(f"trial.{name}")
        raise AttributeError(f"a trial has no {name!r}")

    @property
    def datetime_start(self) -> datetime.datetime | None:
        """When the trial began first."""
        return self._facts.datetime_start

    def _suggest(self, name: str, distribution: BaseDistribution) -> Any:
        if self._distributions.get(name) == distribution:
            return self._params[name]
        arguments = {"name": name, "distribution": distribution_to_json(distribution)}
        try:
            if self.is_shared or name in self._distributions:
                raise NotForeseen
            value = self._foreseen.value(name, distribution)
            self._tell(requests.SUGGEST, **arguments)
        except NotForeseen:
            suggested = self._ask(requests.SUGGEST, **arguments)
            self._foreseen.learn(suggested["sampled"])
            value = suggested["value"]
        self._params.setdefault(name, value)
        self._distributions.setdefault(name, distribution)
        return value

    def _tell(self, method: str, **arguments: Any) -> None:
        self._line.tell(Call(method, arguments, self.number).text())

    def _ask(self, method: str, **arguments: Any) -> Any:
        return read_answer(self._line.ask(Call(method, arguments, self.number).text()))


def _number(kind: Callable[[Any], Value], given: Any, name: str) -> Value:
    """What was given as a number of that kind.

    Raises:
        TypeError: it is none.
    """
    try:
        return kind(given)
    except (TypeError, ValueError):
        raise TypeError(f"trial.report: {name} is {given!r}, which is no number") from None
