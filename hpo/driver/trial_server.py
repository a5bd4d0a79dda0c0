"""A trial of an Optuna study, held by the study's driver."""

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
from hpo.driver.error_origin import origin_of
from hpo.methods.synchronous_halving import SynchronousHalvingPruner
from hpo.protocol import attributes, requests
from hpo.protocol.known_parameters import fixed_values, sampled_values
from hpo.protocol.requests import Call
from hpo.protocol.study_queries import read_study

# What these decide changes nothing in the storage: to be asked twice is to be told the same.
_WRITES_NOTHING = (
    optuna.pruners.NopPruner,
    optuna.pruners.PercentilePruner,
    optuna.pruners.ThresholdPruner,
    optuna.pruners.WilcoxonPruner,
)


class NotYet(Exception):
    """What a call asks is not decided yet: it is to be answered later."""


class Attachment:
    """One trial, and what its worker's calls make of it.

    Every call may come again, from this driver's life or from an earlier one's: nothing in the
    study's record counts twice. `has_ended` once its worker has said how it ended; `error_kinds`
    are the classes of the error that its objective raised then, by name, the class itself first;
    `study_error` is what the sampler or `constraints_func` raised then. `asked_error` is what the
    sampler or pruner raised in answer to the objective, and the objective has failed by.
    `artifacts` takes files in; None if the study has no store for them.
    """

    def __init__(self, study: optuna.Study, trial: Trial) -> None:
        self._study = study
        self._trial = trial
        self.artifacts: StudyArtifacts | None = None
        self._verdicts: dict[int, bool] = {}
        self._fixed: Mapping[str, Any] | None = None  # of an enqueued trial; None: not read yet
        self._steps: set[int] = set()
        self._names: set[str] = set()
        self.has_ended = False
        self.error_kinds: tuple[str, ...] = ()
        self.study_error: Exception | None = None
        self.asked_error: Exception | None = None

    @property
    def number(self) -> int:
        """The number of the trial."""
        return self._trial.number

    @property
    def is_finished(self) -> bool:
        """Nothing is added to the trial any more."""
        return self.frozen().state.is_finished()

    def frozen(self) -> FrozenTrial:
        """The trial as it stands."""
        return optuna_internals.frozen_trial(self._study, self._trial)

    def _read_once(self) -> Mapping[str, Any]:
        """Read what is known of the trial at first; return its fixed parameters.

        This driver alone writes to the trial, so its steps and parameters are known from then on.
        """
        if self._fixed is None:
            frozen = self.frozen()
            self._fixed = frozen.system_attrs.get(optuna_internals.FIXED_PARAMETERS, {})
            self._steps.update(frozen.intermediate_values)
            self._names.update(frozen.distributions)
        return self._fixed

    def bind(self, job: str) -> None:
        """Note which job runs the trial, and which have run it before."""
        known = self.frozen().user_attrs
        before = str(known.get(attributes.JOB, job))
        earlier = known.get(attributes.EARLIER_JOBS, [])
        if before not in (job, *earlier) and not attributes.NO_JOB.fullmatch(before):
            self._trial.set_user_attr(attributes.EARLIER_JOBS, [*earlier, before])
        self._trial.set_user_attr(attributes.JOB, job)

    def answer(self, call: Call) -> Any:
        """Do what a worker's call asks; returns its answer.

        Raises:
            NotYet: it waits for other trials.
            StoreError: the storage was away for too long.
            Unavailable: the controller is away, and has a file that is asked for.
            Exception: what Optuna raises for such a call; it is the worker's.
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
            requests.READ_STUDY: lambda what: read_study(self._study, what),
            requests.ARTIFACT: self._keep_artifact,
            requests.END: self._end,
        }
        if call.method != requests.END:  # the objective has gone on since
            self.asked_error = None
        try:
            return methods[call.method](**call.arguments)
        except (NotYet, StoreError, Unavailable):
            raise
        except Exception as error:
            if origin_of(error, self._study) is not None:
                self.asked_error = error
            raise

    @property
    def waits(self) -> bool:
        """It has come to a rung where it waits for others."""
        return self._verdict() is None

    @property
    def is_out(self) -> bool:
        """It has waited at a rung, and is among those that go no further."""
        return not self.is_finished and self._verdict() is True

    def _verdict(self) -> bool | None:
        pruner = self._study.pruner
        if not isinstance(pruner, SynchronousHalvingPruner):
            return False
        return pruner.verdict(self._study, self.frozen())

    def prune(self) -> None:
        """Let the trial be pruned, as if its worker had said so."""
        self._study.tell(self._trial, state=TrialState.PRUNED, skip_if_finished=True)

    def fail(self, cause: str, most_retries: int = 0) -> bool:
        """Let the trial have failed, unless it has ended.

        Returns whether a retry is owed: if fewer than `most_retries` have led to it.
        """
        frozen = self.frozen()
        if frozen.state.is_finished():
            return False
        before = retries.retries_before(frozen)
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
                name: distribution_to_json(each) for name, each in frozen.distributions.items()
            },
            "user_attrs": frozen.user_attrs,
            "constraints": dict(getattr(frozen, "constraints", None) or {}),
            "datetime_start": started.isoformat() if started else None,
            "is_finished": frozen.state.is_finished(),
            "keeps_artifacts": self.artifacts is not None,
            "never_prunes": self._never_prunes(),
            "fixed": fixed_values(frozen.system_attrs),
        }

    def _never_prunes(self) -> bool:
        """Return whether the pruner says no whatever was reported, and is no class of a user's."""
        is_single = len(self._study.directions) == 1  # of several, Optuna refuses the question
        return is_single and type(self._study.pruner) is optuna.pruners.NopPruner

    def _suggest(self, name: str, distribution: str) -> dict[str, Any]:
        """Return the value, and what the sampler has sampled together with it."""
        wanted, fixed = json_to_distribution(distribution), self._read_once()
        is_sampled = not (name in fixed or name in self._names or wanted.single())
        value = _suggested(self._trial, name, wanted)
        self._names.add(name)
        return {"value": value, "sampled": sampled_values(self._trial) if is_sampled else {}}

    def _report(self, value: float, step: int) -> None:
        self._read_once()
        if step not in self._steps:
            self._trial.report(value, step)
            self._steps.add(step)

    def _should_prune(self, step: int | None = None) -> bool:
        """The pruner's word on a step that one of several processes asks of, or on the last."""
        if step is None:
            return self._judged()
        frozen = self.frozen()
        known = frozen.user_attrs.get(attributes.VERDICT, {})
        if known.get("step") == step:
            return bool(known["prunes"])
        if frozen.state.is_finished():
            return frozen.state in (TrialState.PRUNED, TrialState.FAIL)
        if frozen.last_step != step:
            return False  # somebody has gone on from it
        prunes = self._judged()
        self._trial.set_user_attr(attributes.VERDICT, {"step": step, "prunes": prunes})
        return prunes

    def _judged(self) -> bool:
        """Ask the pruner, once for each step that was reported.

        A pruner such as successive halving counts a trial as it judges it. Where a driver died
        between that and its answer, the trial is judged again as it was before.
        """
        self._read_once()
        step = max(self._steps, default=None)
        if step is None or len(self._study.directions) > 1:
            return bool(self._trial.should_prune())
        if step not in self._verdicts:
            self._verdicts[step] = self._judge(step)
        return self._verdicts[step]

    def _judge(self, step: int) -> bool:
        if isinstance(self._study.pruner, SynchronousHalvingPruner):
            verdict = self._verdict()
            if verdict is None:
                raise NotYet
            return verdict
        if isinstance(self._study.pruner, _WRITES_NOTHING):
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
        """Tell the study how the trial ended, as `study.optimize` does; the first word counts.

        What the sampler or `constraints_func` raises then is no error of the objective's: the
        trial has ended, and `study_error` keeps it for the driver.
        """
        known = self.frozen().state
        if known is TrialState[state] or not known.is_finished():
            self.error_kinds = tuple(error_kinds)
        if known.is_finished():
            self.has_ended = True
            return
        if cause is not None:
            self._trial.set_user_attr(attributes.CAUSE, cause)
        if state != TrialState.FAIL.name:  # the objective went on without the answer
            self.asked_error = None
        told = values if state == TrialState.COMPLETE.name else None
        other = None if state == TrialState.COMPLETE.name else TrialState[state]
        try:
            self._study.tell(self._trial, told, other, skip_if_finished=True)
        except (StoreError, Unavailable):
            raise
        except Exception as error:
            if not self.is_finished:
                raise
            self.study_error = error
        self.has_ended = True


def new_attachment(study: optuna.Study) -> Attachment:
    """The next trial of a study: one that was enqueued, or a new one."""
    return Attachment(study, study.ask())


def waiting_retry(study: optuna.Study) -> Attachment | None:
    """The next retry of a trial whose job failed, before whatever else was enqueued."""
    while (found := retries.first_waiting(study)) is not None:
        if optuna_internals.claim(study, found):
            return Attachment(study, optuna_internals.live_trial(study, found))
    return None


def running_attachments(study: optuna.Study) -> dict[str, Attachment]:
    """The trials that drivers of ours have begun and not ended, by the jobs that run them."""
    found = {}
    for frozen in study.get_trials(deepcopy=False, states=(TrialState.RUNNING,)):
        job = frozen.user_attrs.get(attributes.JOB)
        if job is not None:
            found[str(job)] = Attachment(study, optuna_internals.live_trial(study, frozen))
    return found


def ended_one(study: optuna.Study, job: str, number: int | None = None) -> Attachment | None:
    """The trial that ended on a job of which an instance is still to hear that; None if none.

    `number` is the trial's; None: the last one of the job.
    """
    for frozen in reversed(study.get_trials(deepcopy=False)):
        is_it = number in (None, frozen.number) and frozen.user_attrs.get(attributes.JOB) == job
        if is_it and frozen.state.is_finished():
            return Attachment(study, optuna_internals.live_trial(study, frozen))
    return None


def _suggested(trial: Trial, name: str, distribution: BaseDistribution) -> Any:
    match distribution:
        case FloatDistribution(low=low, high=high, step=step, log=log):
            return trial.suggest_float(name, low, high, step=step, log=log)
        case IntDistribution(low=low, high=high, step=step, log=log):
            return trial.suggest_int(name, low, high, step=step, log=log)
        case CategoricalDistribution():
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the worker was told of unusual choices
                return trial.suggest_categorical(name, distribution.choices)
    raise ValueError(f"{name}: {type(distribution).__name__} is no distribution of Optuna's")
