"""Forms of a job file, which pydantic validates.

They check the kinds of values. What values a job may have say the rules of the domain
(`require_valid_job`), which hold for requests too.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated, Self

from pydantic import BeforeValidator, ByteSize, Field, model_validator

from autoscaler.domain.job import (
    BatchSpec,
    CheckpointSpec,
    DataMount,
    InstanceBounds,
    JobSpec,
    ParallelismSpec,
    SecretReference,
)
from autoscaler.domain.job_rules import (
    MOST_EXAMPLES_OF_BATCH,
    MOST_INSTANCES,
    MOST_RETRIES,
    require_output_pattern,
    require_valid_bounds,
)
from autoscaler.domain.output import DEFAULT_OUTPUT_BYTES, OutputSpec
from autoscaler.domain.paths import relative_names, require_absolute_path
from autoscaler.domain.rules import require_name, require_variable
from autoscaler.spec.bundle import DEFAULT_MAXIMUM_BYTES
from autoscaler.spec.forms import Form, as_value_error, obeys, one_or_many, short_for
from autoscaler.spec.objective_text import ObjectiveForm, ShortObjective
from autoscaler.spec.quantities import parse_duration, parse_priority

_SHELL_WORDS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1"})


def split_command(value: object) -> object:
    """Lets a command be one text, which is split as a shell would.

    Raises:
        ValueError: it can't be, or only a shell could run it.
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
            f'no shell runs the command, so "{shell_word}" has no meaning in it: '
            'prepare in setup, or write it as ["bash", "-c", "..."]'
        )
    return words


def _batch(value: object) -> object:
    if not isinstance(value, str):
        return value
    if value != "fixed":
        raise ValueError(f'"{value}" is no batch: write fixed, or bounds like {{initial: 64}}')
    return {"fixed": True}


def _reference(value: object) -> object:
    if isinstance(value, Mapping):
        return value
    raise ValueError(
        "a secret is never written down here: name where it is, {variable: NAME} or {file: PATH}"
    )


def _outputs(value: object) -> object:
    return {"paths": value} if isinstance(value, str | list) else value


Text = Annotated[str, Field(min_length=1)]
OutputPattern = Annotated[str, obeys(require_output_pattern)]
Priority = Annotated[float, BeforeValidator(lambda value: parse_priority(str(value)))]
Duration = Annotated[float, BeforeValidator(lambda value: parse_duration(str(value)))]
Name = Annotated[str, obeys(require_name)]
Variable = Annotated[str, obeys(require_variable)]
Count = Annotated[int, Field(ge=1)]
InstanceCount = Annotated[int, Field(ge=1, le=MOST_INSTANCES)]
BatchSize = Annotated[int, Field(ge=1, le=MOST_EXAMPLES_OF_BATCH)]


class BatchForm(Form):
    """`batch`: adaptive within bounds, or fixed."""

    initial: BatchSize | None = None
    max: BatchSize | None = None
    device_max: BatchSize | None = None
    fixed: bool = False

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if self.fixed and self.max is not None:
            raise ValueError("a fixed batch has no max: leave out max, or fixed")
        return self

    def spec(self) -> BatchSpec:
        """As the domain has it."""
        return BatchSpec(self.initial, self.max, self.device_max, adaptive=not self.fixed)


class ParallelismForm(Form):
    """`parallelism`: how the devices share a step."""

    pipeline: Count = 1
    microbatches: Count = 1
    near_instances: Count | None = None

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if self.pipeline == 1 and self.microbatches > 1:
            raise ValueError(
                f"microbatches: {self.microbatches} are of a pipeline: say how many stages it has"
            )
        if self.pipeline > 1 and self.near_instances is not None:
            raise ValueError("near_instances: not known of a pipeline: leave one of the two out")
        return self

    def spec(self) -> ParallelismSpec:
        """As the domain has it."""
        return ParallelismSpec(self.pipeline, self.microbatches, self.near_instances)


class InstancesForm(Form):
    """`instances`: how many, and which."""

    min: InstanceCount = 1
    max: InstanceCount | None = None
    offers: Annotated[tuple[Text, ...], one_or_many(), Field(min_length=1)] | None = None
    spot: bool = True
    max_of: dict[Text, InstanceCount] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        with as_value_error():
            require_valid_bounds(self.spec())
        return self

    def spec(self) -> InstanceBounds:
        """As the domain has it. Without a `max` there are never more than `min`."""
        maximum = self.min if self.max is None else self.max
        maxima = tuple(self.max_of.items())
        return InstanceBounds(self.min, maximum, self.offers, self.spot, maxima)


class SecretForm(Form):
    """One of `secrets`: where the controller finds it."""

    variable: Variable | None = None
    file: Text | None = None

    def spec(self) -> SecretReference:
        """As the domain has it."""
        return SecretReference(self.variable, self.file)


class DataForm(Form):
    """One of `data`."""

    source: Annotated[str, obeys(require_absolute_path)]
    target: Annotated[str, obeys(relative_names)]
    read_only: bool | None = None

    def spec(self, has_image: bool) -> DataMount:
        """As the domain has it: a container can be kept from writing, a link keeps nobody."""
        read_only = has_image if self.read_only is None else self.read_only
        return DataMount(self.source, self.target, read_only)


class CheckpointForm(Form):
    """`checkpoint`."""

    directory: Text | None = None
    interval: Duration | None = None
    keep: Count = 2
    adopt: Text | None = None

    def spec(self) -> CheckpointSpec:
        """Return the checkpoints as the domain has them."""
        return CheckpointSpec(self.directory, self.interval, self.keep, self.adopt)


class OutputsForm(Form):
    """`outputs`: what is kept of the script's files."""

    paths: Annotated[tuple[OutputPattern, ...], one_or_many()] | None = None
    limit: Annotated[ByteSize, Field(gt=0)] = ByteSize(DEFAULT_OUTPUT_BYTES)

    def spec(self) -> OutputSpec:
        """Return the choice of files as the domain has it."""
        return OutputSpec(self.paths, int(self.limit))


class JobForm(Form):
    """A whole job file. Validated with ``context={"now_seconds": ...}``."""

    name: Name
    program: Name | None = None
    command: Annotated[tuple[Text, ...], BeforeValidator(split_command), Field(min_length=1)]
    working_directory: Text = "."
    ref: Text | None = None
    bundle_limit: Annotated[ByteSize, Field(gt=0)] = ByteSize(DEFAULT_MAXIMUM_BYTES)
    environment: dict[Variable, str] = Field(default_factory=dict)
    secrets: dict[Variable, Annotated[SecretForm, BeforeValidator(_reference)]] = Field(
        default_factory=dict
    )
    setup: Annotated[tuple[Text, ...], one_or_many()] = ()
    image: Text | None = None
    data: tuple[DataForm, ...] = ()
    batch: Annotated[BatchForm, BeforeValidator(_batch)] = BatchForm(fixed=True)
    instances: Annotated[InstancesForm, short_for("max")] = InstancesForm()
    parallelism: ParallelismForm = ParallelismForm()
    objective: ShortObjective = ObjectiveForm()
    checkpoint: Annotated[CheckpointForm, short_for("directory")] = CheckpointForm()
    outputs: Annotated[OutputsForm, BeforeValidator(_outputs)] = OutputsForm()
    total_progress: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    retries: Annotated[int, Field(ge=0, le=MOST_RETRIES)] = 3
    priority: Priority = 1.0

    def spec(self) -> JobSpec:
        """As the domain has it, without a bundle yet."""
        return JobSpec(
            name=self.name,
            command=self.command,
            environment=self.environment,
            secrets={name: secret.spec() for name, secret in self.secrets.items()},
            data=tuple(mount.spec(self.image is not None) for mount in self.data),
            setup=self.setup,
            image=self.image,
            batch=self.batch.spec(),
            instances=self.instances.spec(),
            parallelism=self.parallelism.spec(),
            objective=self.objective.objective(),
            checkpoint=self.checkpoint.spec(),
            total_examples=self.total_progress,
            retries=self.retries,
            program=self.program,
            priority=self.priority,
            outputs=self.outputs.spec(),
        )
