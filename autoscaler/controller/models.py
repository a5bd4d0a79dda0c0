"""The fitted models of all jobs, refitted when what was measured says so."""

from __future__ import annotations

import math
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
# Step times are compared with what was predicted this often.
_LOOK_SECONDS = 10.0
_REFIT_ERROR = 0.03


@dataclass(frozen=True, slots=True)
class _Fitted:
    """`errors` are what the fit left unexplained, by kind: more of that is no news.

    `groups` are the eras of the sizes: kind of device, instances, devices, era.
    `times` are those of the `observations` last looked at, at `looked_seconds`. Where none of them
    moves by more than `margin`, as a logarithm, the models can't have come to be off.
    """

    models: Mapping[str, ThroughputModel]
    groups: frozenset[tuple[str, int, int, int]]
    kinds: frozenset[str]
    parameter_bytes: int
    looked_seconds: float
    observations: Sequence[StepObservation]
    times: Mapping[tuple[object, ...], float]
    errors: Mapping[str, float] = field(default_factory=dict)
    margin: float = _REFIT_ERROR


class Models:
    """One job's models by kind of device, for every kind that it may come to run on."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._fitted: dict[str, _Fitted] = {}

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
        parameter_bytes = job.report.parameter_bytes if job.report else _UNKNOWN_PARAMETER_BYTES
        around = frozenset(offer.device_kind for offer in offers), parameter_bytes
        as_before = known is not None and known.observations is observations
        if known is not None and as_before and (known.kinds, known.parameter_bytes) == around:
            return known.models
        fresh = _Fitted(
            models={},
            groups=frozenset((o.device_kind, o.instances, o.devices, o.era) for o in observations),
            kinds=around[0],
            parameter_bytes=parameter_bytes,
            looked_seconds=now_seconds,
            observations=observations,
            times={each.configuration: each.step_seconds for each in observations},
        )
        if known is not None and _is_like(known, fresh):
            is_soon = now_seconds - known.looked_seconds < _LOOK_SECONDS
            if is_soon or _moved(known.times, fresh.times) <= known.margin:
                return known.models
            margin = _margin(known, observations)
            if margin >= 0:
                self._fitted[job.id] = replace(
                    fresh, models=known.models, errors=known.errors, margin=margin
                )
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


def _is_like(known: _Fitted, fresh: _Fitted) -> bool:
    """Return whether models of the same would be fitted, if to other step times.

    While a size of one report is doubted (`goodput.fit`), a second one makes other models.
    """
    alike = known.groups == fresh.groups and known.kinds == fresh.kinds
    has_doubts = any(
        (instances, devices) not in known.models[kind].measured
        for kind, instances, devices, _ in known.groups
    )
    return alike and known.parameter_bytes == fresh.parameter_bytes and not has_doubts


def _moved(
    known: Mapping[tuple[object, ...], float], fresh: Mapping[tuple[object, ...], float]
) -> float:
    """How far step times have moved at most, as logarithms; infinite where others are there."""
    if known.keys() != fresh.keys():
        return math.inf
    ratios = [fresh[key] / known[key] for key in fresh]
    return max(math.log(max(ratios)), -math.log(min(ratios))) if ratios else 0.0


def _margin(known: _Fitted, observations: Sequence[StepObservation]) -> float:
    """How much further off what was measured the models may come to be; below 0 they are off."""
    errors = _errors(known.models, observations)
    further = (known.errors.get(kind, 0.0) + _REFIT_ERROR - errors[kind] for kind in errors)
    return min(further, default=_REFIT_ERROR)


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
