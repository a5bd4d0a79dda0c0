"""What a job file may hold: the forms that pydantic validates, and the domain's words for them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ByteSize,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from autoscaler.domain.job import (
    BatchSpec,
    CheckpointSpec,
    DataMount,
    InstanceBounds,
    JobSpec,
    ParallelismSpec,
    SecretReference,
)
from autoscaler.spec.bundle import DEFAULT_MAXIMUM_BYTES
from autoscaler.spec.forms import Form, one_or_many, short_for
from autoscaler.spec.objective_text import ObjectiveForm, ShortObjective
from autoscaler.spec.quantities import parse_duration, parse_priority

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,39}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHELL_WORDS = frozenset({"&&", "||", "|", ";", "&", ">", ">>", "<", "2>&1"})


def _job_name(value: str) -> str:
    if not _NAME.fullmatch(value):
        raise ValueError(f'"{value}" is no name: write 1 to 40 of a-z, 0-9 and -, no - first')
    return value


def _variable_name(value: str) -> str:
    if not _VARIABLE.fullmatch(value):
        raise ValueError("is no name of a variable: use letters, digits and _, no digit first")
    return value


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


def _inside(value: str) -> str:
    path = PurePosixPath(value)
    if path.is_absolute() or ".." in path.parts or path == PurePosixPath():
        raise ValueError(f'"{value}" must be a path inside the job\'s own tree, like data')
    return value


def _absolute(value: str) -> str:
    if not PurePosixPath(value).is_absolute():
        raise ValueError(f'"{value}" must be an absolute path on the instances, like /datasets')
    return value


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


Text = Annotated[str, Field(min_length=1)]
Priority = Annotated[float, BeforeValidator(lambda value: parse_priority(str(value)))]
Duration = Annotated[float, BeforeValidator(lambda value: parse_duration(str(value)))]
Variable = Annotated[str, AfterValidator(_variable_name)]
Count = Annotated[int, Field(ge=1)]


class BatchForm(Form):
    """`batch`: adaptive within bounds, or fixed."""

    initial: Count | None = None
    max: Count | None = None
    device_max: Count | None = None
    fixed: bool = False

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if self.fixed and self.max is not None:
            raise ValueError("a fixed batch has no max: leave out max, or fixed")
        if self.max is None:
            return self
        if self.initial is not None and self.initial > self.max:
            raise ValueError(f"initial: {self.initial} is above max: {self.max}; raise max")
        if self.device_max is not None and self.device_max > self.max:
            raise ValueError(f"device_max: {self.device_max} is above max: {self.max}; raise max")
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

    min: Count = 1
    max: Count | None = None
    offers: Annotated[tuple[Text, ...], one_or_many(), Field(min_length=1)] | None = None
    spot: bool = True
    max_of: dict[Text, Count] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if self.max is not None and self.min > self.max:
            raise ValueError(f"min: {self.min} is above max: {self.max}; lower min or raise max")
        for name, most in self.max_of.items():
            if most < self.min:
                raise ValueError(
                    f"max_of: {name}: {most} is below min: {self.min}; raise it, or name only "
                    "others in offers"
                )
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

    @model_validator(mode="after")
    def _names_one_place(self) -> Self:
        if (self.variable is None) == (self.file is None):
            raise ValueError("needs one place to be read from: variable, or file")
        return self

    def spec(self) -> SecretReference:
        """As the domain has it."""
        return SecretReference(self.variable, self.file)


class DataForm(Form):
    """One of `data`."""

    source: Annotated[str, AfterValidator(_absolute)]
    target: Annotated[str, AfterValidator(_inside)]
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

    def spec(self) -> CheckpointSpec:
        """As the domain has it."""
        return CheckpointSpec(self.directory, self.interval, self.keep)


class JobForm(Form):
    """A whole job file. Validated with ``context={"now_seconds": ...}``."""

    name: Annotated[str, AfterValidator(_job_name)]
    program: Annotated[str, AfterValidator(_job_name)] | None = None
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
    total_progress: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    retries: Annotated[int, Field(ge=0)] = 3
    priority: Priority = 1.0

    @field_validator("secrets")
    @classmethod
    def _not_in_environment(
        cls, value: dict[str, SecretForm], info: ValidationInfo
    ) -> dict[str, SecretForm]:
        for name in sorted(value.keys() & info.data.get("environment", {}).keys()):
            raise ValueError(f"{name} stands in environment too: leave one of the two out")
        return value

    @field_validator("data")
    @classmethod
    def _read_only_needs_image(
        cls, value: tuple[DataForm, ...], info: ValidationInfo
    ) -> tuple[DataForm, ...]:
        for mount in value:
            if mount.read_only and info.data.get("image") is None:
                raise ValueError(
                    f"{mount.target}: only a job with an image can be kept from writing: give it "
                    "one, or leave read_only out and see to the rights of the files"
                )
        return value

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
        )
