"""All throughput models, and the choice of a model by a job's parallelism.

A new model needs a dataclass of its parameters in `domain/goodput.py`, a class here that
satisfies `Formula`, and a line in `formula_of` and `formula_for`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from itertools import chain
from operator import attrgetter
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from autoscaler.domain.goodput import (
    LocalityParameters,
    PipelineParameters,
    ShardedParameters,
    StepParameters,
    ThroughputParameters,
)
from autoscaler.domain.job import ParallelismSpec
from autoscaler.goodput.coordinates import GAMMA_MINIMUM, gamma_slope
from autoscaler.goodput.throughput import (
    Features,
    FloatArray,
    Formula,
    IntArray,
    ParameterPrior,
    Predictor,
    Scale,
    doublings_of,
)

# Priors before any measurement; the constants were measured, see docs/goodput.md.
# The constant part of a micro-step, in units of the seconds per example.
_OVERHEAD_EXAMPLES = 20.0
_OVERHEAD_LOG_DEVIATION = 1.5
_SYNC_LOG_DEVIATION = 0.8
# Time that each doubling of the devices adds to a sync, relative to a sync of two devices.
_GROWTH = 0.3
_GROWTH_LOG_DEVIATION = 1.0
_GAMMA = 1.5
_GAMMA_LOG_DEVIATION = 0.3

_GAMMA_PRIOR = ParameterPrior(_GAMMA, _GAMMA_LOG_DEVIATION * _GAMMA / gamma_slope(_GAMMA))

# Time of forward and backward pass in forward passes: a backward pass takes about twice as long.
_PASSES = 3.0
# Time to pass a micro-batch to a stage on another instance, relative to a micro-step's overhead.
_HANDOVER = 0.3
_HANDOVER_LOG_DEVIATION = 1.5
# Bytes of a copy that a micro-step gathers (twice) and scatters (once), relative to those that an
# all-reduce of its gradients moves, which is a scatter and a gather.
_GATHERS = 1.5
_GATHER_LOG_DEVIATION = 0.8
_GATHER_OVERLAP = _GAMMA - 1.0
_GATHER_OVERLAP_LOG_DEVIATION = 1.0


def _names(parameters: type[StepParameters]) -> tuple[str, ...]:
    """Return the names of the fitted parameters: the fields up to gamma."""
    names = [field.name for field in fields(parameters)]
    return tuple(names[: names.index("gamma") + 1])


@dataclass(frozen=True, slots=True)
class _DataParallel:
    """Data parallelism: each device is a replica (`ThroughputParameters`)."""

    names: ClassVar[tuple[str, ...]] = _names(ThroughputParameters)

    def parameters(self, values: Sequence[float]) -> StepParameters:
        return ThroughputParameters(*values)

    def beliefs(self, scale: Scale) -> tuple[ParameterPrior, ...]:
        return (
            *_compute_priors(scale.example_seconds, scale.example_log_deviation),
            *_sync_priors(scale.across_seconds, 2),
            *_sync_priors(scale.within_seconds, 4),
            _GAMMA_PRIOR,
        )

    def runs(self, devices: NDArray[np.int64]) -> NDArray[np.bool_]:
        return devices >= 1

    def compute_features(
        self, instances: FloatArray, devices: FloatArray, device_batch: FloatArray
    ) -> Features:
        return 1.0, device_batch

    def gather_features(self, instances: FloatArray, devices: FloatArray) -> Features:
        return ()

    def sync_features(self, instances: FloatArray, devices: FloatArray) -> Features:
        return _two_levels(instances, devices)

    @property
    def ratios(self) -> tuple[int, ...]:
        return (len(self.names) - 1,)

    def lost_together(self, instances: IntArray, devices: IntArray) -> IntArray:
        return np.ones_like(instances)


@dataclass(frozen=True, slots=True)
class _Localities(_DataParallel):
    """Data parallelism over several racks or zones (`LocalityParameters`)."""

    near_instances: int
    names: ClassVar[tuple[str, ...]] = _names(LocalityParameters)

    def parameters(self, values: Sequence[float]) -> StepParameters:
        return LocalityParameters(*values, near_instances=self.near_instances)

    def beliefs(self, scale: Scale) -> tuple[ParameterPrior, ...]:
        *data_parallel, gamma = DATA_PARALLEL.beliefs(scale)
        return (*data_parallel, *_sync_priors(scale.across_seconds, len(data_parallel)), gamma)

    def sync_features(self, instances: FloatArray, devices: FloatArray) -> Features:
        groups = np.ceil(instances / self.near_instances)
        spans_groups = (groups > 1).astype(groups.dtype)
        return (
            *_two_levels(instances, devices),
            spans_groups,
            spans_groups * doublings_of(groups),
        )


@dataclass(frozen=True, slots=True)
class _Pipeline(_DataParallel):
    """Pipeline parallelism: every `stages` devices form a replica (`PipelineParameters`)."""

    stages: int
    microbatches: int
    names: ClassVar[tuple[str, ...]] = _names(PipelineParameters)

    def parameters(self, values: Sequence[float]) -> StepParameters:
        return PipelineParameters(*values, stages=self.stages, microbatches=self.microbatches)

    def beliefs(self, scale: Scale) -> tuple[ParameterPrior, ...]:
        stage_seconds = scale.example_seconds / (_PASSES * self.stages)
        overhead, example = _compute_priors(stage_seconds, scale.example_log_deviation)
        return (
            overhead,
            example,
            ParameterPrior(_HANDOVER * overhead.median, _HANDOVER_LOG_DEVIATION, follows=1),
            *_sync_priors(scale.across_seconds / self.stages, 3),
            *_sync_priors(scale.within_seconds / self.stages, 5),
            _GAMMA_PRIOR,
        )

    def runs(self, devices: NDArray[np.int64]) -> NDArray[np.bool_]:
        has_whole_replicas: NDArray[np.bool_] = (devices >= self.stages) & (
            devices % self.stages == 0
        )
        return has_whole_replicas

    def compute_features(
        self, instances: FloatArray, devices: FloatArray, device_batch: FloatArray
    ) -> Features:
        examples = self.stages * device_batch
        microbatches = np.minimum(examples, self.microbatches)
        pipeline_slots = _PASSES * (self.stages - 1 + microbatches)
        crosses_instances = devices % (np.maximum(instances, 1.0) * self.stages) != 0
        return (
            pipeline_slots,
            pipeline_slots * examples / microbatches,
            pipeline_slots * crosses_instances,
        )

    def sync_features(self, instances: FloatArray, devices: FloatArray) -> Features:
        return _two_levels(instances, np.floor(devices / self.stages))


@dataclass(frozen=True, slots=True)
class _Sharded(_DataParallel):
    """Data parallelism of copies that `shard` devices hold each (`ShardedParameters`)."""

    shard: int
    names: ClassVar[tuple[str, ...]] = _names(ShardedParameters)

    def parameters(self, values: Sequence[float]) -> StepParameters:
        return ShardedParameters(*values, shard=self.shard)

    @property
    def ratios(self) -> tuple[int, ...]:
        return self.names.index("gather_overlap"), len(self.names) - 1

    def beliefs(self, scale: Scale) -> tuple[ParameterPrior, ...]:
        gathers = _GATHERS * (1.0 + _GROWTH * np.log2(max(self.shard / 2.0, 1.0)))
        return (
            *_compute_priors(scale.example_seconds, scale.example_log_deviation),
            ParameterPrior(gathers * scale.within_seconds, _GATHER_LOG_DEVIATION),
            ParameterPrior(gathers * scale.across_seconds, _GATHER_LOG_DEVIATION),
            ParameterPrior(_GATHER_OVERLAP, _GATHER_OVERLAP_LOG_DEVIATION),
            *_sync_priors(scale.across_seconds, 5),
            *_sync_priors(scale.within_seconds / self.shard, 7),
            _GAMMA_PRIOR,
        )

    def runs(self, devices: NDArray[np.int64]) -> NDArray[np.bool_]:
        has_whole_copies: NDArray[np.bool_] = (devices >= self.shard) & (devices % self.shard == 0)
        return has_whole_copies

    def gather_features(self, instances: FloatArray, devices: FloatArray) -> Features:
        spans = (devices < np.maximum(instances, 1.0) * self.shard).astype(devices.dtype)
        return 1.0 - spans, spans

    def sync_features(self, instances: FloatArray, devices: FloatArray) -> Features:
        share = np.minimum(devices / (np.maximum(instances, 1.0) * self.shard), 1.0)
        across, growth, *within = _two_levels(instances, np.floor(devices / self.shard))
        return share * across, share * growth, *within

    def lost_together(self, instances: IntArray, devices: IntArray) -> IntArray:
        devices_of_each = np.maximum(devices // np.maximum(instances, 1), 1)
        lost: IntArray = np.maximum(self.shard // devices_of_each, 1)
        return lost


def _two_levels(instances: FloatArray, replicas: FloatArray) -> Features:
    """Return four features: constant and growth of a sync across instances, and within one."""
    doublings = doublings_of(replicas)
    has_sync = replicas > 1
    across = (has_sync & (instances > 1)).astype(doublings.dtype)
    within = (has_sync & (instances <= 1)).astype(doublings.dtype)
    return across, across * doublings, within, within * doublings


DATA_PARALLEL: Formula = _DataParallel()


def formula_of(parameters: StepParameters) -> Formula:
    """Return the formula of a set of parameters."""
    match parameters:
        case ThroughputParameters():
            return DATA_PARALLEL
        case PipelineParameters(stages=stages, microbatches=microbatches):
            return _Pipeline(stages, microbatches)
        case LocalityParameters(near_instances=near_instances):
            return _Localities(near_instances)
        case ShardedParameters(shard=shard):
            return _Sharded(shard)


def formula_for(parallelism: ParallelismSpec) -> Formula:
    """Return the formula for a job with this parallelism."""
    if parallelism.pipeline > 1:
        return _Pipeline(parallelism.pipeline, parallelism.microbatches)
    if parallelism.near_instances is not None:
        return _Localities(parallelism.near_instances)
    return _Sharded(parallelism.shard) if parallelism.shard > 1 else DATA_PARALLEL


def predictor_of(parameters: StepParameters | Sequence[StepParameters]) -> Predictor:
    """Return the predictor of one set of parameters, or of K sets of the same formula.

    Raises:
        ValueError: a parameter is negative or not finite, gamma is below 1, or computing takes
            no time.
    """
    if not isinstance(parameters, Sequence):
        return _predictor_of_one(parameters)
    formula = formula_of(parameters[0])
    values_of = attrgetter(*formula.names)
    flat_values = chain.from_iterable(map(values_of, parameters))
    theta = np.fromiter(flat_values, dtype=np.float64).reshape(len(parameters), -1)
    _validate(theta, formula.names)
    return Predictor(formula, theta)


@lru_cache(maxsize=1024)
def _predictor_of_one(parameters: StepParameters) -> Predictor:
    rows = predictor_of((parameters,))
    rows.theta.setflags(write=False)
    return Predictor(rows.formula, rows.theta[0])


def parameters_of(predictor: Predictor) -> tuple[StepParameters, ...]:
    """Return the K sets of parameters of a predictor."""
    return tuple(map(predictor.formula.parameters, np.atleast_2d(predictor.theta).tolist()))


def _validate(theta: FloatArray, names: Sequence[str]) -> None:
    minimums = np.zeros(len(names))
    minimums[-1] = GAMMA_MINIMUM
    allowed = np.isfinite(theta) & (theta >= minimums)
    if not allowed.all():
        row, column = np.argwhere(~allowed)[0]
        value, minimum = theta[row, column], minimums[column]
        raise ValueError(f"{names[column]}={value}: must be finite and at least {minimum:g}")
    if (theta[:, :2].sum(axis=1) == 0).any():
        raise ValueError(f"{names[0]}=0: computing takes no time because {names[1]} is 0 too")


def _compute_priors(
    example_seconds: float, log_deviation: float
) -> tuple[ParameterPrior, ParameterPrior]:
    """Return the priors of parameters 0 and 1: overhead of a micro-step, and seconds per example.

    `log_deviation` is the standard deviation of the logarithm of `example_seconds`.
    """
    return (
        ParameterPrior(_OVERHEAD_EXAMPLES * example_seconds, _OVERHEAD_LOG_DEVIATION, follows=1),
        ParameterPrior(example_seconds, log_deviation),
    )


def _sync_priors(seconds: float, place: int) -> tuple[ParameterPrior, ParameterPrior]:
    """Return the priors of the parameters at `place` and `place + 1` of a formula.

    They are the constant part of a sync, in seconds, and its growth per doubling of the devices.
    """
    return (
        ParameterPrior(seconds, _SYNC_LOG_DEVIATION),
        ParameterPrior(_GROWTH * seconds, _GROWTH_LOG_DEVIATION, follows=place),
    )
