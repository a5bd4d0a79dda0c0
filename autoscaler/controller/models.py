"""The fitted models of all jobs, refitted when what was measured says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from autoscaler.domain.job import JobRecord
from autoscaler.domain.offer import Offer
from autoscaler.domain.report import StepObservation
from autoscaler.domain.snapshot import ThroughputModel
from autoscaler.goodput.fit import fit
from autoscaler.goodput.formulas import formula_for
from autoscaler.goodput.prediction import prediction_error
from autoscaler.goodput.prior import prior_for, prior_from_kind
from autoscaler.goodput.throughput import Formula
from autoscaler.market.device_kinds import UnknownDeviceKind, speed_ratio
from autoscaler.store.store import Store

# Before a job has told how large its model is.
_UNKNOWN_PARAMETER_BYTES = 100_000_000
_REFIT_SECONDS = 10.0
_REFIT_ERROR = 0.03
# A configuration counts as measured once it has trained for this long.
_MEASURED_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class _Fitted:
    """`times` are the step times last looked at: the same again are no news. Nor is more of what
    the fit itself left unexplained, by kind, which are its `errors`."""

    models: Mapping[str, ThroughputModel]
    sizes: frozenset[tuple[str, int, int]]
    kinds: frozenset[str]
    parameter_bytes: int
    at_seconds: float
    times: tuple[tuple[float, float], ...]
    errors: Mapping[str, float] = field(default_factory=dict)


class Models:
    """One job's models by kind of device, for every kind that it may come to run on."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._fitted: dict[str, _Fitted] = {}

    def observations(self, job: JobRecord) -> tuple[StepObservation, ...]:
        """The job's own step times that were measured for long enough to count."""
        return tuple(
            observation
            for observation in self._store.measurements.observations(job.id)
            if observation.steps * observation.step_seconds >= _MEASURED_SECONDS
        )

    def of(
        self,
        job: JobRecord,
        observations: Sequence[StepObservation],
        offers: Sequence[Offer],
        now_seconds: float,
    ) -> Mapping[str, ThroughputModel]:
        """The models that `observations` make, for the kinds of these offers.

        Kept while they predict what was measured since: estimates move only on measurements.
        """
        known = self._fitted.get(job.id)
        fresh = _Fitted(
            models={},
            sizes=frozenset((o.device_kind, o.instances, o.devices) for o in observations),
            kinds=frozenset(offer.device_kind for offer in offers),
            parameter_bytes=job.report.parameter_bytes if job.report else _UNKNOWN_PARAMETER_BYTES,
            at_seconds=now_seconds,
            times=tuple((o.step_seconds, o.sync_seconds) for o in observations),
        )
        if known is not None and not _is_outdated(known, fresh, observations):
            self._fitted[job.id] = replace(known, times=fresh.times)
            return known.models
        models = _fit_all(
            observations, offers, fresh.parameter_bytes, formula_for(job.spec.parallelism)
        )
        errors = _errors(models, observations)
        self._fitted[job.id] = replace(fresh, models=models, errors=errors)
        self._store.measurements.save_models(job.id, models)
        return models

    def forget(self, jobs: Iterable[str]) -> None:
        """Drop what is kept of all jobs but these."""
        kept = set(jobs)
        self._fitted = {job: fitted for job, fitted in self._fitted.items() if job in kept}


def _is_outdated(known: _Fitted, fresh: _Fitted, observations: Sequence[StepObservation]) -> bool:
    if (known.sizes, known.kinds) != (fresh.sizes, fresh.kinds):
        return True
    if known.parameter_bytes != fresh.parameter_bytes:
        return True
    if fresh.times == known.times or fresh.at_seconds - known.at_seconds < _REFIT_SECONDS:
        return False
    errors = _errors(known.models, observations)
    return any(errors[kind] > known.errors.get(kind, 0.0) + _REFIT_ERROR for kind in errors)


def _errors(
    models: Mapping[str, ThroughputModel], observations: Sequence[StepObservation]
) -> Mapping[str, float]:
    """How far each kind's model is off what was measured on it."""
    found = {}
    for kind, model in models.items():
        of_kind = [each for each in observations if each.device_kind == kind]
        if of_kind:
            found[kind] = prediction_error(model, of_kind)
    return found


def _fit_all(
    observations: Sequence[StepObservation],
    offers: Sequence[Offer],
    parameter_bytes: int,
    formula: Formula,
) -> Mapping[str, ThroughputModel]:
    """Fit every kind; all others inherit from the one that was measured most."""
    networks: dict[str, float] = {}
    for offer in offers:
        networks.setdefault(offer.device_kind, offer.network_bytes_per_second)
    weights = dict.fromkeys(networks, 0.0)
    for each in observations:
        seconds = each.steps * each.step_seconds
        weights[each.device_kind] = weights.get(each.device_kind, 0.0) + seconds
    first = max(sorted(weights), key=lambda kind: weights[kind])
    network = networks.get(first, min(networks.values()))
    models: dict[str, ThroughputModel] = {}
    for kind in sorted(weights, key=lambda kind: (kind != first, kind)):
        if kind == first:
            prior = prior_for(kind, parameter_bytes, network, formula=formula)
        else:
            prior = prior_from_kind(models[first], kind, _speed_ratio(kind, first))
        models[kind] = fit([each for each in observations if each.device_kind == kind], prior)
    return models


def _speed_ratio(kind: str, other: str) -> float:
    """How many times as fast one kind of device should be as another; 1 if nobody knows."""
    try:
        return speed_ratio(kind, other)
    except UnknownDeviceKind:
        return 1.0
