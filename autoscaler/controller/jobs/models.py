"""Fitted models of all jobs, refitted when measurements contradict them."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice

from autoscaler.controller.jobs.step_times import JobStepTimes
from autoscaler.domain.errors import StoreError
from autoscaler.domain.job import JobRecord, ParallelismSpec
from autoscaler.domain.offer import Offer
from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.goodput.fit import fit
from autoscaler.goodput.formulas import formula_for, predictor_of
from autoscaler.goodput.prediction import prediction_error
from autoscaler.goodput.prior import prior_for, prior_from_kind
from autoscaler.market.device_kinds import UnknownDeviceKind, speed_ratio
from autoscaler.store.store import Store

# Assumed size of a job's parameters until the job reports it.
_UNKNOWN_PARAMETER_BYTES = 100_000_000
# Step times are compared with predictions this often.
_CHECK_SECONDS = 10.0
_REFIT_ERROR = 0.03
# Jobs without step times differ in what their models are made of; so many kinds of them are kept.
_MOST_UNMEASURED = 64
# Stored models of so many jobs are read at once, at a start.
_STORED_AT_ONCE = 250
# Models of so many jobs are stored in one transaction.
_SAVED_AT_ONCE = 250

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Fitted:
    """Models of one job, and the inputs of the fit.

    `groups` are the eras of the sizes: kind of device, instances, devices, era. `times` are the
    step times by configuration of those that were checked last, `checked`, at `looked_seconds`.
    While none of them changes by more than `margin`, as a logarithm, the models need no refit.
    """

    models: Mapping[str, ThroughputModel]
    groups: frozenset[tuple[str, int, int, int]]
    kinds: frozenset[str]
    parameter_bytes: int
    looked_seconds: float
    checked: JobStepTimes
    times: Mapping[tuple[object, ...], float]
    margin: float = _REFIT_ERROR


class Models:
    """Models of jobs by kind of device, for every kind that a job may use."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._fitted: dict[str, _Fitted] = {}
        self._unsaved: dict[str, Mapping[str, ThroughputModel]] = {}
        self._stored: dict[str, Mapping[str, ThroughputModel]] | None = None

    def restore(self, jobs: Sequence[str]) -> None:
        """Read the stored models of measured jobs once, before the first call of `of`.

        A controller that has just started goes on with the models of the one before.

        Raises:
            StoreError: the store refused or did not answer.
        """
        if self._stored is not None:
            return
        self._stored, measurements = {}, self._store.measurements
        measured = [job for job in jobs if measurements.observations_revision(job)]
        for first in range(0, len(measured), _STORED_AT_ONCE):
            some = measured[first : first + _STORED_AT_ONCE]
            try:
                self._stored |= measurements.models_of(some)
            except StoreError:
                self._stored = None
                raise
            except Exception:
                _log.exception("stored models of %d jobs can't be read: fitted again", len(some))

    def of(
        self,
        job: JobRecord,
        step_times: JobStepTimes,
        offers: Sequence[Offer],
        now_seconds: float,
    ) -> Mapping[str, ThroughputModel]:
        """Return the job's models for the kinds of these offers, fitted to all its step times.

        Models are kept while they predict later measurements, so that estimates change only with
        data. The result is the same object until a refit.
        """
        observations = step_times.all
        fitted = self._fitted.get(job.id)
        parameter_bytes = _parameter_bytes(job)
        kinds_and_bytes = frozenset(offer.device_kind for offer in offers), parameter_bytes
        is_unchanged = fitted is not None and fitted.checked == step_times
        if (
            fitted is not None
            and is_unchanged
            and (fitted.kinds, fitted.parameter_bytes) == kinds_and_bytes
        ):
            return fitted.models
        fresh = _inputs(step_times, *kinds_and_bytes, now_seconds)
        if fitted is None:
            restored = _restored((self._stored or {}).pop(job.id, {}), fresh, job.spec.parallelism)
            if restored is not None:
                self._fitted[job.id] = restored
                return restored.models
        if fitted is not None and _has_same_inputs(fitted, fresh):
            is_checked = now_seconds - fitted.looked_seconds < _CHECK_SECONDS
            if is_checked or _largest_change(fitted.times, fresh.times) <= fitted.margin:
                return fitted.models
            margin = _margin(fitted, observations)
            if margin >= 0:
                self._fitted[job.id] = replace(fresh, models=fitted.models, margin=margin)
                return fitted.models
        models = fit_models(job, observations, offers)
        self._fitted[job.id] = replace(fresh, models=models)
        self._unsaved[job.id] = models
        return models

    def save(self) -> None:
        """Store the models that were fitted since the last call, and drop those of `restore`.

        Models that can't be stored do not affect those of other jobs.

        Raises:
            StoreError: the store refused or did not answer; the next call tries again.
        """
        self._stored = {}
        while self._unsaved:
            some = dict(islice(self._unsaved.items(), _SAVED_AT_ONCE))
            try:
                self._store.measurements.save_all_models(some)
            except StoreError:
                raise
            except Exception:
                for job, models in some.items():
                    self._save_alone(job, models)
            self._unsaved = {
                job: models for job, models in self._unsaved.items() if job not in some
            }

    def _save_alone(self, job: str, models: Mapping[str, ThroughputModel]) -> None:
        try:
            self._store.measurements.save_models(job, models)
        except StoreError:
            raise
        except Exception:
            _log.exception("models of job %s can't be stored", job, extra={"job": job})

    def forget(self, jobs: Iterable[str]) -> None:
        """Drop the models of all jobs but these."""
        kept_jobs = set(jobs)
        self._fitted = {job: fitted for job, fitted in self._fitted.items() if job in kept_jobs}


def _inputs(
    step_times: JobStepTimes, kinds: frozenset[str], parameter_bytes: int, now_seconds: float
) -> _Fitted:
    """Return the inputs of a fit, without models yet."""
    return _Fitted(
        models={},
        groups=frozenset(
            (
                observation.device_kind,
                observation.instances,
                observation.devices,
                observation.era,
            )
            for observation in step_times.all
        ),
        kinds=kinds,
        parameter_bytes=parameter_bytes,
        looked_seconds=now_seconds,
        checked=step_times,
        times={
            observation.configuration: observation.step_seconds for observation in step_times.all
        },
    )


def _restored(
    models: Mapping[str, ThroughputModel], fresh: _Fitted, parallelism: ParallelismSpec
) -> _Fitted | None:
    """Return stored models with the present inputs; None if they need a fit.

    They are kept if they are of the present kinds and measured sizes, and predict the step times
    nearly as well as those of their fit. Models without step times are not kept: they follow from
    priors alone.
    """
    sizes: dict[str, set[tuple[int, int]]] = {kind: set() for kind in fresh.kinds}
    for kind, instances, devices, _ in fresh.groups:
        sizes.setdefault(kind, set()).add((instances, devices))
    if not fresh.groups or {kind: model.measured for kind, model in models.items()} != sizes:
        return None
    formula = formula_for(parallelism)
    if any(predictor_of(model.point).formula != formula for model in models.values()):
        return None
    restored = replace(fresh, models=models)
    margin = _margin(restored, fresh.checked.all)
    return replace(restored, margin=margin) if margin >= 0 else None


def _parameter_bytes(job: JobRecord) -> int:
    """Return the bytes of the gradients that devices sum: reported, declared, or assumed."""
    if job.report is not None:
        return job.report.parameter_bytes
    return _UNKNOWN_PARAMETER_BYTES if job.spec.model is None else job.spec.model.gradient_bytes


def _has_same_inputs(fitted: _Fitted, fresh: _Fitted) -> bool:
    """Return whether both fits have the same inputs, except for step times.

    False while a size with a single report is doubted (`goodput.fit`), because a second report
    changes the models.
    """
    has_same_groups = fitted.groups == fresh.groups and fitted.kinds == fresh.kinds
    has_doubts = any(
        (instances, devices) not in fitted.models[kind].measured
        for kind, instances, devices, _ in fitted.groups
    )
    return has_same_groups and fitted.parameter_bytes == fresh.parameter_bytes and not has_doubts


def _largest_change(
    former: Mapping[tuple[object, ...], float], present: Mapping[tuple[object, ...], float]
) -> float:
    """Return the largest absolute log ratio of step times; infinite if configurations differ."""
    if former.keys() != present.keys():
        return math.inf
    ratios = [present[key] / former[key] for key in present]
    return max(math.log(max(ratios)), -math.log(min(ratios))) if ratios else 0.0


def _margin(fitted: _Fitted, observations: Sequence[StepObservation]) -> float:
    """Return the further log error that the models may have before a refit; below 0 to refit."""
    errors = _prediction_errors(fitted.models, observations)
    margins = (fitted.models[kind].fit_error + _REFIT_ERROR - errors[kind] for kind in errors)
    return min(margins, default=_REFIT_ERROR)


def _prediction_errors(
    models: Mapping[str, ThroughputModel], observations: Sequence[StepObservation]
) -> Mapping[str, float]:
    """Return the prediction error of each measured kind's model."""
    error_of = {}
    for kind, model in models.items():
        kind_observations = [
            observation for observation in observations if observation.device_kind == kind
        ]
        if kind_observations:
            error_of[kind] = prediction_error(model, kind_observations)
    return error_of


def fit_models(
    job: JobRecord, observations: Sequence[StepObservation], offers: Sequence[Offer]
) -> Mapping[str, ThroughputModel]:
    """Fit a job's model for every kind; all others inherit from the kind measured longest."""
    parameter_bytes, parallelism = _parameter_bytes(job), job.spec.parallelism
    networks: dict[str, float] = {}
    for offer in offers:
        networks.setdefault(offer.device_kind, offer.network_bytes_per_second)
    if not observations:
        return _unmeasured_models(parameter_bytes, parallelism, tuple(networks.items()))
    return _fit_kinds(observations, parameter_bytes, parallelism, networks)


@lru_cache(maxsize=_MOST_UNMEASURED)
def _unmeasured_models(
    parameter_bytes: int, parallelism: ParallelismSpec, networks: tuple[tuple[str, float], ...]
) -> Mapping[str, ThroughputModel]:
    """Return the models of jobs without step times, which follow from their priors alone."""
    return _fit_kinds((), parameter_bytes, parallelism, dict(networks))


def _fit_kinds(
    observations: Sequence[StepObservation],
    parameter_bytes: int,
    parallelism: ParallelismSpec,
    networks: Mapping[str, float],
) -> Mapping[str, ThroughputModel]:
    """Fit a model for every kind of `networks`, bytes a second by kind, and every measured one."""
    formula, weights = formula_for(parallelism), dict.fromkeys(networks, 0.0)
    for observation in observations:
        seconds = observation.steps * observation.step_seconds
        kind = observation.device_kind
        weights[kind] = weights.get(kind, 0.0) + seconds
    first = max(sorted(weights), key=lambda kind: weights[kind])
    network = networks.get(first, min(networks.values()))
    models: dict[str, ThroughputModel] = {}
    for kind in sorted(weights, key=lambda kind: (kind != first, kind)):
        if kind == first:
            prior = prior_for(kind, parameter_bytes, network, formula=formula)
        else:
            prior = prior_from_kind(models[first], kind, _speed_ratio(kind, first))
        kind_observations = [
            observation for observation in observations if observation.device_kind == kind
        ]
        model = fit(kind_observations, prior)
        models[kind] = replace(model, fit_error=prediction_error(model, kind_observations))
    return models


def _speed_ratio(kind: str, other: str) -> float:
    """Return the expected ratio of speeds of two kinds of device; 1 if unknown."""
    try:
        return speed_ratio(kind, other)
    except UnknownDeviceKind:
        return 1.0
