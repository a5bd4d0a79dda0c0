"""Answers of a study's driver to the requests of one trial's worker."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import optuna
from optuna.distributions import (
    BaseDistribution,
    CategoricalDistribution,
    FloatDistribution,
    IntDistribution,
    distribution_to_json,
    json_to_distribution,
)
from optuna.trial import FrozenTrial, Trial, TrialState

from autoscaler.domain.errors import SpecError, StoreError, Unavailable
from hpo import optuna_internals
from hpo.driver import retries
from hpo.driver.artifacts import StudyArtifacts
from hpo.driver.error_origin import error_origin
from hpo.protocol import attributes, requests
from hpo.protocol.known_parameters import enqueued_values, sampled_values
from hpo.protocol.requests import TrialRequest
from hpo.protocol.study_queries import query_study
from hpo.samplers_and_pruners.synchronous_halving import SynchronousHalvingPruner

# Pruners without side effects on the storage: a repeated question has the same answer.
_PURE_PRUNERS = (
    optuna.pruners.NopPruner,
    optuna.pruners.PercentilePruner,
    optuna.pruners.ThresholdPruner,
    optuna.pruners.WilcoxonPruner,
)


class AnswerPending(Exception):
    """A request can't be answered yet, because other trials decide it."""


class TrialServer:
    """Server of one trial: applies its worker's requests to the study.

    A request may arrive twice, also across drivers; it changes the study once.

    Attributes:
        artifacts: transfers uploaded files; None if the study has no artifact store.
        has_ended: whether the worker has reported the end.
        error_kinds: names of the classes of the objective's error, most specific first.
        study_error: error of the sampler or `constraints_func` at the end of the trial.
        method_error: error of the sampler or pruner that the objective failed with.
    """

    def __init__(self, study: optuna.Study, trial: Trial) -> None:
        self._study = study
        self._trial = trial
        self.artifacts: StudyArtifacts | None = None
        self._verdicts: dict[int, bool] = {}
        self._fixed: Mapping[str, Any] | None = (
            None  # enqueued parameters; None before they are read
        )
        self._steps: set[int] = set()
        self._names: set[str] = set()
        self.has_ended = False
        self.error_kinds: tuple[str, ...] = ()
        self.study_error: Exception | None = None
        self.method_error: Exception | None = None

    @property
    def number(self) -> int:
        """Number of the trial."""
        return self._trial.number

    @property
    def is_finished(self) -> bool:
        """Whether the trial has a final state."""
        return self.frozen().state.is_finished()

    def frozen(self) -> FrozenTrial:
        """Return the current record of the trial."""
        return optuna_internals.frozen_trial(self._study, self._trial)

    def _load_once(self) -> Mapping[str, Any]:
        """Load the trial's reports and parameters at the first call.

        Return its enqueued parameters.

        Only this driver writes to the trial, so later calls need no storage access.
        """
        if self._fixed is None:
            frozen = self.frozen()
            self._fixed = frozen.system_attrs.get(optuna_internals.FIXED_PARAMETERS, {})
            self._steps.update(frozen.intermediate_values)
            self._names.update(frozen.distributions)
        return self._fixed

    def bind(self, job: str) -> None:
        """Record the job that runs the trial, and keep the names of earlier jobs."""
        user_attributes = self.frozen().user_attrs
        previous = str(user_attributes.get(attributes.JOB, job))
        earlier_jobs = user_attributes.get(attributes.EARLIER_JOBS, [])
        if previous not in (job, *earlier_jobs) and not attributes.NO_JOB.fullmatch(previous):
            self._trial.set_user_attr(attributes.EARLIER_JOBS, [*earlier_jobs, previous])
        self._trial.set_user_attr(attributes.JOB, job)

    def answer(self, call: TrialRequest) -> Any:
        """Apply a worker's request to the study; return the answer.

        Raises:
            AnswerPending: the answer depends on other trials.
            StoreError: the storage was unavailable for too long.
            Unavailable: the controller is unavailable and has a file that the request needs.
            Exception: an error of Optuna, to be raised in the objective.
        """
        methods: dict[str, Callable[..., Any]] = {
            requests.BEGIN: self._begin,
            requests.SUGGEST: self._suggest,
            requests.REPORT: self._report,
            requests.SHOULD_PRUNE: self._should_prune,
            requests.SET_USER_ATTR: self._set_user_attr,
            requests.SET_CONSTRAINT: self._set_constraint,
            requests.SET_SCORES: self._set_scores,
            requests.STOP_STUDY: lambda: optuna_internals.stop(self._study),
            requests.READ_STUDY: lambda what: query_study(self._study, what),
            requests.ARTIFACT: self._keep_artifact,
            requests.END: self._end,
        }
        if call.method != requests.END:  # the objective has caught an earlier error
            self.method_error = None
        try:
            return methods[call.method](**call.arguments)
        except (AnswerPending, StoreError, Unavailable):
            raise
        except Exception as error:
            if error_origin(error, self._study) is not None:
                self.method_error = error
            raise

    @property
    def waits(self) -> bool:
        """Whether the trial waits at a rung for other trials."""
        return self._verdict() is None

    @property
    def is_eliminated(self) -> bool:
        """Whether the trial has reached a rung and is to be pruned there."""
        return not self.is_finished and self._verdict() is True

    def _verdict(self) -> bool | None:
        pruner = self._study.pruner
        if not isinstance(pruner, SynchronousHalvingPruner):
            return False
        return pruner.verdict(self._study, self.frozen())

    def prune(self) -> None:
        """Prune the trial without its worker."""
        self._study.tell(self._trial, state=TrialState.PRUNED, skip_if_finished=True)

    def fail(self, cause: str, most_retries: int = 0) -> bool:
        """Fail the trial unless it has ended; return whether a retry follows.

        A retry follows if fewer than `most_retries` retries led to this trial.
        """
        frozen = self.frozen()
        if frozen.state.is_finished():
            return False
        before = retries.retry_count(frozen)
        is_owed = before < most_retries
        if is_owed:
            self._trial.set_user_attr(attributes.RETRIED, before + 1)
        self._trial.set_user_attr(attributes.CAUSE, cause)
        self._study.tell(self._trial, state=TrialState.FAIL, skip_if_finished=True)
        return is_owed

    def _begin(self) -> dict[str, Any]:
        frozen = self.frozen()
        started = frozen.datetime_start
        return {
            "number": frozen.number,
            "study_name": self._study.study_name,
            "directions": [direction.name for direction in self._study.directions],
            "params": frozen.params,
            "distributions": {
                name: distribution_to_json(kind) for name, kind in frozen.distributions.items()
            },
            "user_attrs": frozen.user_attrs,
            "constraints": dict(getattr(frozen, "constraints", None) or {}),
            "datetime_start": started.isoformat() if started else None,
            "is_finished": frozen.state.is_finished(),
            "keeps_artifacts": self.artifacts is not None,
            "never_prunes": self._never_prunes(),
            "fixed": enqueued_values(frozen.system_attrs),
        }

    def _never_prunes(self) -> bool:
        """Return whether the pruner never prunes; False for a class of a user."""
        is_single = (
            len(self._study.directions) == 1
        )  # Optuna refuses the question for several directions
        return is_single and type(self._study.pruner) is optuna.pruners.NopPruner

    def _suggest(self, name: str, distribution: str) -> dict[str, Any]:
        """Return the suggested value, and the values that were drawn jointly with it."""
        wanted, fixed = json_to_distribution(distribution), self._load_once()
        is_sampled = not (name in fixed or name in self._names or wanted.single())
        value = _suggested(self._trial, name, wanted)
        self._names.add(name)
        return {"value": value, "sampled": sampled_values(self._trial) if is_sampled else {}}

    def _report(self, value: float, step: int) -> None:
        self._load_once()
        if step not in self._steps:
            self._trial.report(value, step)
            self._steps.add(step)

    def _should_prune(self, step: int | None = None) -> bool:
        """Return the pruner's decision on a step, or on the last one if `step` is None.

        Instances of a distributed trial name the step, and all receive one decision.
        """
        if step is None:
            return self._prunes_last_step()
        frozen = self.frozen()
        known = frozen.user_attrs.get(attributes.VERDICT, {})
        if known.get("step") == step:
            return bool(known["prunes"])
        if frozen.state.is_finished():
            return frozen.state in (TrialState.PRUNED, TrialState.FAIL)
        if frozen.last_step != step:
            return False  # another instance has passed this step
        prunes = self._prunes_last_step()
        self._trial.set_user_attr(attributes.VERDICT, {"step": step, "prunes": prunes})
        return prunes

    def _prunes_last_step(self) -> bool:
        """Return the pruner's decision on the last reported step.

        Ask the pruner once for each step.

        A pruner such as successive halving records a trial as it judges it. If a driver dies
        before it answers, the trial is judged again as if it had not been recorded.
        """
        self._load_once()
        step = max(self._steps, default=None)
        if step is None or len(self._study.directions) > 1:
            return bool(self._trial.should_prune())
        if step not in self._verdicts:
            self._verdicts[step] = self._ask_pruner(step)
        return self._verdicts[step]

    def _ask_pruner(self, step: int) -> bool:
        if isinstance(self._study.pruner, SynchronousHalvingPruner):
            verdict = self._verdict()
            if verdict is None:
                raise AnswerPending
            return verdict
        if isinstance(self._study.pruner, _PURE_PRUNERS):
            return bool(self._trial.should_prune())
        frozen = self.frozen()
        judging = frozen.user_attrs.get(attributes.JUDGING)
        if judging is None or judging["step"] != step:
            known = sorted(frozen.system_attrs)
            self._trial.set_user_attr(attributes.JUDGING, {"step": step, "known": known})
            return bool(self._trial.should_prune())
        frozen.system_attrs = {
            key: value for key, value in frozen.system_attrs.items() if key in judging["known"]
        }
        return bool(self._study.pruner.prune(self._study, frozen))

    def _set_user_attr(self, key: str, value: Any) -> None:
        self._trial.set_user_attr(key, value)

    def _set_constraint(self, key: str, value: float) -> None:
        if not hasattr(self._trial, "set_constraint"):
            raise AttributeError("set_constraint needs Optuna 5.0 or newer beside the study")
        self._trial.set_constraint(key, value)

    def _set_scores(self, scores: Sequence[float]) -> None:
        values = [float(score) for score in scores]
        optuna_internals.set_system_attribute(self._study, self._trial, attributes.SCORES, values)

    def _keep_artifact(self, name: str, sha256: str) -> str:
        if self.artifacts is None:
            raise SpecError("the study has no artifact store", "artifact_store")
        return self.artifacts.keep(self._trial, name, sha256)

    def _end(
        self,
        state: str,
        values: Sequence[float] | None = None,
        cause: str | None = None,
        error_kinds: Sequence[str] = (),
        takes_more: bool = False,
    ) -> None:
        """End the trial in the study as `study.optimize` does; the first end counts.

        An error of the sampler or `constraints_func` does not belong to the objective: the trial
        has ended, and `study_error` keeps the error for the driver.
        """
        known = self.frozen().state
        if known is TrialState[state] or not known.is_finished():
            self.error_kinds = tuple(error_kinds)
        if known.is_finished():
            self.has_ended = True
            return
        if cause is not None:
            self._trial.set_user_attr(attributes.CAUSE, cause)
        if state != TrialState.FAIL.name:  # the objective has caught the error
            self.method_error = None
        final_values = values if state == TrialState.COMPLETE.name else None
        other_state = None if state == TrialState.COMPLETE.name else TrialState[state]
        try:
            self._study.tell(self._trial, final_values, other_state, skip_if_finished=True)
        except (StoreError, Unavailable):
            raise
        except Exception as error:
            if not self.is_finished:
                raise
            self.study_error = error
        self.has_ended = True


def begin_new_trial(study: optuna.Study) -> TrialServer:
    """Begin the next trial of a study: an enqueued one, or a new one."""
    return TrialServer(study, study.ask())


def begin_waiting_retry(study: optuna.Study) -> TrialServer | None:
    """Begin the oldest waiting retry, before other enqueued trials; None without any."""
    while (retry := retries.first_waiting_retry(study)) is not None:
        if optuna_internals.claim(study, retry):
            return TrialServer(study, optuna_internals.live_trial(study, retry))
    return None


def running_trials(study: optuna.Study) -> dict[str, TrialServer]:
    """Return the running trials of Castor's drivers, by job."""
    servers = {}
    for frozen in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        job = frozen.user_attrs.get(attributes.JOB)
        if job is not None:
            servers[str(job)] = TrialServer(study, optuna_internals.live_trial(study, frozen))
    return servers


def find_ended_trial(
    study: optuna.Study, job: str, number: int | None = None
) -> TrialServer | None:
    """Return the ended trial of a job; None without one.

    `number` is the number of the trial; None for the last one of the job.
    """
    for frozen in reversed(study.get_trials(deepcopy=False)):
        is_match = number in (None, frozen.number) and frozen.user_attrs.get(attributes.JOB) == job
        if is_match and frozen.state.is_finished():
            return TrialServer(study, optuna_internals.live_trial(study, frozen))
    return None


def _suggested(trial: Trial, name: str, distribution: BaseDistribution) -> Any:
    match distribution:
        case FloatDistribution(low=low, high=high, step=step, log=log):
            return trial.suggest_float(name, low, high, step=step, log=log)
        case IntDistribution(low=low, high=high, step=step, log=log):
            return trial.suggest_int(name, low, high, step=step, log=log)
        case CategoricalDistribution():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the worker has warned about unusual choices
                return trial.suggest_categorical(name, distribution.choices)
    raise ValueError(f"{name}: {type(distribution).__name__} is no distribution of Optuna's")
