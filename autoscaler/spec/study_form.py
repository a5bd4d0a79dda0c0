"""Pydantic forms of a study file."""

from __future__ import annotations

import builtins
import difflib
import re
import string
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Self

import yaml
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from autoscaler.domain.study import (
    ChoiceParameter,
    Method,
    NumberParameter,
    Parameter,
    StudySpec,
)
from autoscaler.spec.forms import Form, one_or_many
from autoscaler.spec.job_form import Command, Count, JobForm, Text, split_command
from autoscaler.spec.objective_text import ObjectiveForm, ShortObjective
from autoscaler.spec.quantities import Duration

Bound = Annotated[float, Field(allow_inf_nan=False)]
Bounds = Annotated[tuple[Bound, ...], Field(min_length=2, max_length=2)]


def _parse_scalar(value: object) -> object:
    """Convert a text of a file to a boolean, number, None or text, by the rules of YAML.

    A text that YAML would read as a date, a list or a mapping stays a text.
    """
    if not isinstance(value, str):
        return value
    try:
        scalar = yaml.safe_load(value)
    except (yaml.YAMLError, ValueError):  # not YAML, or an impossible date or number
        return value
    return scalar if isinstance(scalar, bool | int | float | None) else value


def _parse_option(value: object) -> object:
    """Convert all texts in an option of a sampler or a pruner; lists and mappings are kept."""
    if isinstance(value, dict):
        return {key: _parse_option(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_parse_option(part) for part in value]
    return _parse_scalar(value)


Scalar = Annotated[
    bool | int | float | str | None,
    BeforeValidator(_parse_scalar, json_schema_input_type=bool | float | str | None),
]
Option = Annotated[Any, BeforeValidator(_parse_option)]


class ParameterForm(Form):
    """Form of a parameter of `space`: `float: [low, high]`, `int: [low, high]` or `choice`."""

    float: Bounds | None = None
    int: Bounds | None = None
    choice: Annotated[tuple[Scalar, ...], Field(min_length=1)] | None = None
    step: Annotated[Bound, Field(gt=0)] | None = None
    log: bool = False

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        kinds = [name for name in ("float", "int", "choice") if getattr(self, name) is not None]
        if len(kinds) != 1:
            raise ValueError("write one of float: [low, high], int: [low, high] or choice: [...]")
        if self.choice is not None and (self.step is not None or self.log):
            raise ValueError("step and log need float or int")
        if self.log and self.step is not None:
            raise ValueError("step and log: leave one of the two out")
        bounds = self.float or self.int
        if bounds is not None:
            self._require_valid_bounds(*bounds)
        return self

    def _require_valid_bounds(self, low: Any, high: Any) -> None:
        if low > high:
            raise ValueError(f"{low:g} is above {high:g}: write the lower bound first")
        if self.log and low <= 0:
            raise ValueError(f"log: {low:g} must be more than 0")
        numbers = (low, high, self.step or 1)
        if self.int is not None and any(part != round(part) for part in numbers):
            raise ValueError("int: write whole numbers as bounds and step")

    @property
    def samples(self) -> tuple[Any, ...]:
        """All choices, or the lower bound; these cover the types of the parameter's values."""
        if self.choice is not None:
            return self.choice
        low, _ = self.float or self.int or (0.0, 0.0)
        return (low,) if self.int is None else (round(low),)

    def parameter(self) -> Parameter:
        """Return the parameter as a domain object."""
        if self.choice is not None:
            return ChoiceParameter(self.choice)
        low, high = self.float or self.int or (0.0, 0.0)
        return NumberParameter(low, high, self.int is not None, self.step, self.log)


class MethodForm(Form):
    """Form of a sampler or a pruner: its name, or a mapping from its name to its options."""

    name: Text
    options: dict[Text, Option] = Field(default_factory=dict)

    def method(self) -> Method:
        """Return the method as a domain object."""
        return Method(self.name, self.options)


def _expand_method(value: object) -> object:
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, dict) and len(value) == 1 and "name" not in value:
        ((name, options),) = value.items()
        return {"name": name, "options": options if options is not None else {}}
    if isinstance(value, dict) and set(value) <= {"name", "options"}:
        return value
    raise ValueError("write one name, or a name with options, as {median: {interval_steps: 2}}")


class TrialJobForm(JobForm):
    """Form of `job`: the keys of a job file, except for those that the study file has itself."""

    name: Literal["trial"] = "trial"
    command: Literal["worker"] = "worker"  # type: ignore[assignment]
    working_directory: Literal["."] = "."


_FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def _require_function(value: str) -> str:
    module, colon, name = value.partition(":")
    parts = [*module.split("."), *name.split(".")]
    if not colon or not all(part.isidentifier() for part in parts):
        raise ValueError(f'"{value}" is not a function: write module:name, as train:objective')
    return value


_ANY_ERROR: Final = "builtins.Exception"
_BUILT_IN_ERRORS: Final = sorted(
    name
    for name, value in vars(builtins).items()
    if isinstance(value, type) and issubclass(value, Exception)
)


def _parse_error_name(value: str) -> str:
    """Return the name of an exception class; `all` becomes ``builtins.Exception``.

    Raises:
        ValueError: the text is not a class name, or is an unknown name without a module.
    """
    if value == "all":
        return _ANY_ERROR
    if not all(part.isidentifier() for part in value.split(".")):
        raise ValueError(
            f'"{value}" is not an error: write all, or classes such as RuntimeError or '
            "torch.OutOfMemoryError"
        )
    if "." not in value and value not in _BUILT_IN_ERRORS:
        close = difflib.get_close_matches(value, _BUILT_IN_ERRORS, n=1)
        hint = f' (did you mean "{close[0]}"?)' if close else ""
        raise ValueError(
            f'"{value}" is not a built-in error{hint}: write other classes with their module, '
            "as torch.OutOfMemoryError"
        )
    return value


_MethodMapping = Annotated[dict[str, Any], Field(min_length=1)]
ErrorName = Annotated[Text, AfterValidator(_parse_error_name)]
SearchMethod = Annotated[
    MethodForm, BeforeValidator(_expand_method, json_schema_input_type=Text | _MethodMapping)
]
Direction = Literal["minimize", "maximize"]


class StudyForm(Form):
    """Form of a whole study file. Validated with ``context={"now_seconds": ...}``."""

    name: Text
    storage: Text | None = None
    direction: Annotated[tuple[Direction, ...], one_or_many(Direction), Field(min_length=1)] = (
        "minimize",
    )
    sampler: SearchMethod | None = None
    pruner: SearchMethod | None = None
    command: (
        Annotated[tuple[Text, ...], BeforeValidator(split_command, json_schema_input_type=Command)]
        | None
    ) = None
    function: Annotated[Text, AfterValidator(_require_function)] | None = None
    working_directory: Text = "."
    space: dict[Text, ParameterForm] = Field(default_factory=dict)
    objective: ShortObjective = ObjectiveForm()
    trials: Count | None = None
    at_once: Count | None = None
    timeout: Duration | None = None
    retries: Annotated[int, Field(ge=0)] = 1
    catch: Annotated[tuple[ErrorName, ...], one_or_many(Text)] = ()
    max_failures: Annotated[int, Field(ge=0)] | None = None
    artifacts: Text | None = None
    keep_checkpoints: bool = False
    job: TrialJobForm = TrialJobForm()

    @field_validator("objective", mode="before")
    @classmethod
    def _is_no_function(cls, value: object) -> object:
        if isinstance(value, str) and _FUNCTION.fullmatch(value):
            raise ValueError(
                f'"{value}" is a function: write function: {value}; objective is what the study '
                "may cost and when it must end"
            )
        return value

    @model_validator(mode="after")
    def _has_one_objective(self, info: ValidationInfo) -> Self:
        if (self.command is None) == (self.function is None):
            raise ValueError("write one of command and function: the code of a trial")
        if self.function is not None and self.space:
            raise ValueError("space needs a command: a function suggests its own parameters")
        named = {name for part in self.command or () for name in fields_of(part)}
        if self.command is not None and not self.space:
            raise ValueError("space is missing: write the parameters of the command")
        for name in sorted(named - self.space.keys()):
            raise ValueError(f"command: {{{name}}} is not in space")
        for name in sorted(self.space.keys() - named if self.command is not None else ()):
            raise ValueError(f"space: {name} is not in the command: write {{{name}}} there")
        for part in self.command or ():
            check_format(part, {name: form.samples for name, form in self.space.items()})
        if self.command is not None and any(name != _ANY_ERROR for name in self.catch):
            raise ValueError("catch: errors of a command have no class: write catch: all")
        if (self.job.instances.max or 1) > 1 or self.job.instances.min > 1:
            raise ValueError("job.instances: a trial runs on one instance")
        return self

    def study(self) -> StudySpec:
        """Return the study as a domain object."""
        return StudySpec(
            name=self.name,
            job=self.job.spec(),
            space={name: form.parameter() for name, form in self.space.items()},
            command=self.command or (),
            function=self.function,
            directions=self.direction,
            storage=self.storage,
            sampler=None if self.sampler is None else self.sampler.method(),
            pruner=None if self.pruner is None else self.pruner.method(),
            objective=self.objective.objective(),
            trials=self.trials,
            at_once=self.at_once,
            timeout_seconds=self.timeout,
            retries=self.retries,
            catch=self.catch,
            max_failures=self.max_failures,
            artifacts=self.artifacts,
            keep_checkpoints=self.keep_checkpoints,
        )


def fields_of(part: str) -> list[str]:
    """Return the names in braces in a word of a command.

    Raises:
        ValueError: braces do not match, or are empty.
    """
    try:
        names = [name for _, name, _, _ in string.Formatter().parse(part) if name is not None]
    except ValueError:
        names = [""]
    if not all(names):
        raise ValueError(
            f'command: braces without a name in "{part}": write {{name}}, or {{{{ for a brace'
        )
    return names


def check_format(part: str, samples: Mapping[str, Sequence[Any]]) -> None:
    """Check that parameter values can be formatted into a word of a command.

    Raises:
        ValueError: a value does not fit its format, such as ``{rate:d}`` for 0.5.
    """
    first = {name: values[0] for name, values in samples.items()}
    for name in {name for name in fields_of(part) if name in samples}:
        for value in samples[name]:
            try:
                part.format(**{**first, name: value})
            except (ValueError, TypeError, LookupError) as error:
                raise ValueError(
                    f'command: {name}={value!r} can\'t be written into "{part}": {error}'
                ) from None
