"""Pydantic forms of a job file.

Forms check the types of values. The rules of the domain (`require_valid_job`) check the values
themselves, of API requests, too.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, ByteSize, Field, model_validator

from autoscaler.domain.job import (
    BatchSpec,
    CheckpointSpec,
    DataMount,
    InstanceBounds,
    JobSpec,
    ParallelismSpec,
    SecretReference,
    StallPolicy,
)
from autoscaler.domain.job_rules import (
    LEAST_PRIORITY,
    MOST_EXAMPLES_OF_BATCH,
    MOST_INSTANCES,
    MOST_PRIORITY,
    MOST_RETRIES,
    MOST_SHARD_DEVICES,
    require_output_pattern,
    require_valid_bounds,
)
from autoscaler.domain.model import ModelSpec, OptimizerKind, Precision
from autoscaler.domain.output import DEFAULT_OUTPUT_BYTES, OutputSpec
from autoscaler.domain.paths import relative_names, require_absolute_path
from autoscaler.domain.rules import require_name, require_variable
from autoscaler.domain.text import quoted
from autoscaler.spec.bundle import DEFAULT_MAXIMUM_BYTES
from autoscaler.spec.forms import Form, as_value_error, obeys, one_or_many, short_for
from autoscaler.spec.gpus import parse_gpus
from autoscaler.spec.objective_text import ObjectiveForm, ShortObjective
from autoscaler.spec.quantities import Duration, Money, parse_priority
from autoscaler.spec.restart_form import JobKind, RestartForm, restart_problem

_SHELL_WORDS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1"})


def split_command(value: object) -> object:
    """Split a command given as one text into words, like a shell; return other values as is.

    Raises:
        ValueError: a quotation is not closed, or the command has operators of a shell.
    """
    if not isinstance(value, str):
        return value
    try:
        words = shlex.split(value)
    except ValueError as error:
        raise ValueError(f"{str(error).lower()}: close the quotation") from error
    shell_word = next((word for word in words if word in _SHELL_WORDS), None)
    if shell_word is not None:
        raise ValueError(
            f'the command runs without a shell, so "{shell_word}" does not work: '
            'prepare in setup, or write ["bash", "-c", "..."]'
        )
    return words


def _expand_batch(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value != "fixed":
        raise ValueError(
            f"{quoted(value)} is not a batch: write fixed, or bounds like {{initial: 64}}"
        )
    return {"fixed": True}


def _require_reference(value: object) -> object:
    if isinstance(value, Mapping):
        return value
    raise ValueError(
        "a job file must not contain a secret: name its source, {variable: NAME} or {file: PATH}"
    )


def _expand_shard(value: object) -> object:
    """Return sizes to choose from: one if it is fixed, none for `auto`."""
    if value == "auto":
        return ()
    if value == []:
        raise ValueError("is empty: write a size, a list of sizes, or auto")
    if isinstance(value, str) and not value.isdecimal():
        raise ValueError(f"{quoted(value)} is no size: write a number of devices, a list, or auto")
    return value if isinstance(value, list | tuple) else (value,)


def _expand_outputs(value: object) -> object:
    return {"paths": value} if isinstance(value, str | list) else value


Text = Annotated[str, Field(min_length=1)]
Command = Text | Annotated[list[Text], Field(min_length=1)]
OutputPattern = Annotated[str, obeys(require_output_pattern)]
Priority = Annotated[
    float,
    BeforeValidator(
        lambda value: parse_priority(str(value)),
        json_schema_input_type=Literal["low", "normal", "high"]
        | Annotated[float, Field(ge=LEAST_PRIORITY, le=MOST_PRIORITY)],
    ),
]
Name = Annotated[str, obeys(require_name)]
Variable = Annotated[str, obeys(require_variable)]
Count = Annotated[int, Field(ge=1)]
ShardSize = Annotated[int, Field(ge=1, le=MOST_SHARD_DEVICES)]
InstanceCount = Annotated[int, Field(ge=1, le=MOST_INSTANCES)]
BatchSize = Annotated[int, Field(ge=1, le=MOST_EXAMPLES_OF_BATCH)]


_LEAST_GPU_BYTES = 10**9


class BatchForm(Form):
    """Form of `batch`: adaptive within bounds, or fixed."""

    initial: BatchSize | None = None
    max: BatchSize | None = None
    device_max: BatchSize | None = None
    fixed: bool = False

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.fixed and self.max is not None:
            raise ValueError("a fixed batch has no max: leave out max, or fixed")
        return self

    def spec(self) -> BatchSpec:
        """Return the batch as a domain object."""
        return BatchSpec(self.initial, self.max, self.device_max, adaptive=not self.fixed)


class ParallelismForm(Form):
    """Form of `parallelism`: the split of a step between devices."""

    pipeline: Count = 1
    microbatches: Count = 1
    near_instances: Count | None = None
    shard: Annotated[
        tuple[ShardSize, ...],
        BeforeValidator(
            _expand_shard,
            json_schema_input_type=Literal["auto"]
            | ShardSize
            | Annotated[list[ShardSize], Field(min_length=1)],
        ),
    ] = (1,)

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if self.pipeline == 1 and self.microbatches > 1:
            raise ValueError(
                f"microbatches: {self.microbatches} needs a pipeline: set pipeline to its number "
                "of stages"
            )
        if self.pipeline > 1 and self.near_instances is not None:
            raise ValueError(
                "near_instances: not supported with a pipeline: leave one of the two out"
            )
        if self.shard != (1,) and (self.pipeline > 1 or self.near_instances is not None):
            raise ValueError(
                "shard: not supported with pipeline or near_instances: leave shard, or the other "
                "key, out"
            )
        return self

    def spec(self) -> ParallelismSpec:
        """Return the parallelism as a domain object."""
        if len(self.shard) == 1:
            return ParallelismSpec(
                self.pipeline, self.microbatches, self.near_instances, shard=self.shard[0]
            )
        return ParallelismSpec(shards=self.shard, auto_shard=not self.shard)


class ModelForm(Form):
    """Form of `model`: what a device must hold of it, for choosing devices before a run."""

    parameters: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    optimizer: OptimizerKind = OptimizerKind.ADAMW
    dtype: Precision = Precision.MIXED
    activations: ByteSize | None = None

    def spec(self) -> ModelSpec:
        """Return the model as a domain object."""
        activation_bytes = None if self.activations is None else float(self.activations)
        return ModelSpec(self.parameters, self.optimizer, self.dtype, activation_bytes)


class InstancesForm(Form):
    """Form of `instances`: bounds on their number and offers."""

    min: InstanceCount = 1
    max: InstanceCount | None = None
    offers: Annotated[tuple[Text, ...], one_or_many(Text), Field(min_length=1)] | None = None
    spot: bool = True
    max_of: dict[Text, InstanceCount] = Field(default_factory=dict)
    gpu: Annotated[tuple[Text, ...], one_or_many(Text), Field(min_length=1)] | None = None
    gpu_memory: ByteSize | None = None
    max_usd_per_hour: Money | None = None
    max_instance_usd_per_hour: Money | None = None

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        with as_value_error():
            require_valid_bounds(self.spec())
        return self

    def spec(self) -> InstanceBounds:
        """Return the bounds as a domain object; without `max`, the maximum is `min`."""
        maximum = self.min if self.max is None else self.max
        maxima = tuple(self.max_of.items())
        if self.gpu_memory is not None and self.gpu_memory < _LEAST_GPU_BYTES:
            raise ValueError(f"gpu_memory: {self.gpu_memory} bytes: write it with a unit, as 80GB")
        has_gpus = self.gpu is not None or self.gpu_memory is not None
        gpus = parse_gpus(self.gpu or (), self.gpu_memory or 0) if has_gpus else None
        return InstanceBounds(
            *(self.min, maximum, self.offers, self.spot, maxima, gpus),
            max_usd_per_hour=self.max_usd_per_hour,
            max_instance_usd_per_hour=self.max_instance_usd_per_hour,
        )


class SecretForm(Form):
    """Form of an item of `secrets`: the secret's source at the controller."""

    variable: Variable | None = None
    file: Text | None = None

    def spec(self) -> SecretReference:
        """Return the reference as a domain object."""
        return SecretReference(self.variable, self.file)


class DataForm(Form):
    """Form of an item of `data`."""

    source: Annotated[str, obeys(require_absolute_path)]
    target: Annotated[str, obeys(relative_names)]
    read_only: bool | None = None

    def spec(self, has_image: bool) -> DataMount:
        """Return the mount as a domain object.

        By default it is read-only in a container, and writable as a link, which can't prevent
        writes.
        """
        read_only = has_image if self.read_only is None else self.read_only
        return DataMount(self.source, self.target, read_only)


class CheckpointForm(Form):
    """Form of `checkpoint`."""

    directory: Text | None = None
    interval: Duration | None = None
    keep: Count = 2
    adopt: Text | None = None

    def spec(self) -> CheckpointSpec:
        """Return the checkpoint settings as a domain object."""
        return CheckpointSpec(self.directory, self.interval, self.keep, self.adopt)


class OutputsForm(Form):
    """Form of `outputs`: the script's files to upload."""

    paths: Annotated[tuple[OutputPattern, ...], one_or_many(Text)] | None = None
    limit: Annotated[ByteSize, Field(gt=0)] = ByteSize(DEFAULT_OUTPUT_BYTES)

    def spec(self) -> OutputSpec:
        """Return the choice of files as a domain object."""
        return OutputSpec(self.paths, int(self.limit))


class JobForm(Form):
    """Form of a whole job file. Validated with ``context={"now_seconds": ...}``."""

    name: Name
    program: Name | None = None
    command: Annotated[
        tuple[Text, ...],
        BeforeValidator(split_command, json_schema_input_type=Command),
        Field(min_length=1),
    ]
    working_directory: Text = "."
    ref: Text | None = None
    bundle_limit: Annotated[ByteSize, Field(gt=0)] = ByteSize(DEFAULT_MAXIMUM_BYTES)
    environment: dict[Variable, str] = Field(default_factory=dict)
    secrets: dict[
        Variable,
        Annotated[
            SecretForm, BeforeValidator(_require_reference, json_schema_input_type=SecretForm)
        ],
    ] = Field(default_factory=dict)
    setup: Annotated[tuple[Text, ...], one_or_many(Text)] = ()
    image: Text | None = None
    data: tuple[DataForm, ...] = ()
    batch: Annotated[
        BatchForm,
        BeforeValidator(_expand_batch, json_schema_input_type=Literal["fixed"] | BatchForm),
    ] = BatchForm(fixed=True)
    instances: Annotated[InstancesForm, short_for("max", InstanceCount | InstancesForm)] = (
        InstancesForm()
    )
    parallelism: ParallelismForm = ParallelismForm()
    model: ModelForm | None = None
    objective: ShortObjective = ObjectiveForm()
    checkpoint: Annotated[CheckpointForm, short_for("directory", Text | CheckpointForm)] = (
        CheckpointForm()
    )
    outputs: Annotated[
        OutputsForm,
        BeforeValidator(_expand_outputs, json_schema_input_type=Text | list[Text] | OutputsForm),
    ] = OutputsForm()
    total_progress: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    retries: Annotated[int, Field(ge=0, le=MOST_RETRIES)] = 3
    priority: Priority = 1.0
    stalls: StallPolicy = StallPolicy.TELL
    kind: JobKind = JobKind.SESSION
    restart: Annotated[RestartForm, short_for("checkpoint", Text | RestartForm)] | None = None

    @model_validator(mode="after")
    def _has_kind(self) -> Self:
        problem = restart_problem(self.kind, self.restart)
        if problem is not None:
            raise ValueError(problem)
        return self

    def spec(self) -> JobSpec:
        """Return the job as a domain object, without a bundle."""
        return JobSpec(
            name=self.name,
            command=self.command,
            environment=self.environment,
            secrets={name: secret.spec() for name, secret in self.secrets.items()},
            data=tuple(mount.spec(self.image is not None) for mount in self.data),
            setup=self.setup,
            image=self.image,
            batch=self.batch.spec(),
            instances=self._bounds(),
            parallelism=self.parallelism.spec(),
            model=None if self.model is None else self.model.spec(),
            objective=self.objective.objective(),
            checkpoint=self.checkpoint.spec(),
            total_examples=self.total_progress,
            retries=self.retries,
            program=self.program,
            priority=self.priority,
            stalls=self.stalls,
            outputs=self.outputs.spec(),
            restart=None if self.restart is None else self.restart.spec(),
        )

    def _bounds(self) -> InstanceBounds:
        """Return the bounds; where no size can be measured, the maximum is the minimum too."""
        bounds = self.instances.spec()
        is_one_size = self.restart is not None and self.restart.progress is None
        if is_one_size and "min" not in self.instances.model_fields_set:
            return replace(bounds, minimum=bounds.maximum)
        return bounds
