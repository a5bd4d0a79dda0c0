"""Base class of forms, shared validators, and messages for validation problems."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Final, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import ErrorDetails

from autoscaler.domain.errors import SpecError
from autoscaler.domain.text import quoted

KeyPath = tuple[str | int, ...]
AnyValue = TypeVar("AnyValue")

_LONGEST_KEY: Final = 60

# Messages by pydantic's error type.
_MESSAGES: Final = {
    "int_parsing": "must be a whole number{instead}",
    "int_from_float": "must be a whole number{instead}",
    "int_type": "must be a whole number{instead}",
    "float_parsing": "must be a number{instead}",
    "float_type": "must be a number{instead}",
    "finite_number": "must be a number{instead}",
    "bool_parsing": "must be true or false{instead}",
    "bool_type": "must be true or false{instead}",
    "greater_than_equal": "must be at least {ge}{instead}",
    "greater_than": "must be more than {gt}{instead}",
    "less_than": "must be less than {lt}{instead}",
    "less_than_equal": "must be at most {le}{instead}",
    "enum": "must be {expected}{instead}",
    "string_type": "must be one text, not a list or a mapping",
    "string_too_short": "is empty: write a value or leave the key out",
    "too_short": "is empty: write a value or leave the key out",
    "tuple_type": "must be a list{instead}",
    "dict_type": "must be a mapping of keys to values{instead}",
    "model_type": "must be a mapping of keys to values{instead}",
    "byte_size": "must be a size like 200MB{instead}",
    "byte_size_unit": "must be a size like 200MB{instead}",
    "value_error": "{error}",
}


class Form(BaseModel):
    """Mapping in which unknown keys are errors. A key without a value counts as absent."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _drop_empty_keys(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        return {key: part for key, part in value.items() if part is not None}


@dataclass(frozen=True, slots=True)
class Problem:
    """Validation problem.

    Attributes:
        path: keys and list indices that lead to the wrong key.
        message: problem and remedy.
        is_absence: whether the key is missing.
    """

    path: KeyPath
    message: str
    is_absence: bool = False

    @property
    def field(self) -> str:
        """Path with dots, such as ``data.0.target``; long keys are cut."""
        return ".".join(str(part)[:_LONGEST_KEY] for part in self.path)


def short_for(key: str, accepted: Any) -> BeforeValidator:
    """Return a validator that converts a plain value to a mapping with the only key `key`.

    `accepted` is the type of all that a file may have, for the schema of the file.
    """

    def lengthen(value: object) -> object:
        return {key: value} if isinstance(value, str | int | float) else value

    return BeforeValidator(lengthen, json_schema_input_type=accepted)


def obeys(rule: Callable[[AnyValue, str], None]) -> AfterValidator:
    """Return a validator that applies a rule of the domain."""

    def check(value: AnyValue) -> AnyValue:
        with as_value_error():
            rule(value, "")
        return value

    return AfterValidator(check)


@contextmanager
def as_value_error() -> Iterator[None]:
    """Convert a `SpecError` of the block to the `ValueError` that pydantic expects.

    Raises:
        ValueError: the block raised a `SpecError`; the message is without its field.
    """
    try:
        yield
    except SpecError as error:
        raise ValueError(error.message) from None


def problem_of(error: SpecError) -> Problem:
    """Return an error of a domain rule as a problem of a form."""
    return Problem(tuple((error.field or "").split(".")), error.message)


def one_or_many(item: Any = str) -> BeforeValidator:
    """Return a validator that converts one text to a list of it; `item` is the type of an item."""
    return BeforeValidator(
        lambda value: [value] if isinstance(value, str) else value,
        json_schema_input_type=item | Annotated[list[item], Field(min_length=1)],
    )


def text_like(pattern: str, *examples: str) -> Any:
    """Return the type of a text in a file that a validator parses, for the schema of the file."""
    schema = {"type": "string", "pattern": pattern, "examples": list(examples)}
    return Annotated[str, WithJsonSchema(schema)]


def problems_of(error: ValidationError, form: type[Form]) -> list[Problem]:
    """Return all problems that pydantic found with a value for `form`, in plain words.

    A list whose items are all wrong is not reported as empty, although pydantic reports that.
    """
    errors = error.errors(include_url=False)
    return [
        _problem(details, form)
        for details in errors
        if not (
            details["type"] == "too_short" and any(_is_within(other, details) for other in errors)
        )
    ]


def _is_within(inner: ErrorDetails, outer: ErrorDetails) -> bool:
    path = outer["loc"]
    return len(inner["loc"]) > len(path) and inner["loc"][: len(path)] == path


def refusal(problems: Sequence[Problem], lines: Sequence[str] | None = None) -> SpecError:
    """Return an error with a line for each problem.

    Args:
        problems: the problems, at least one; the error's `field` is that of the first.
        lines: the lines; None: field and message of each problem.
    """
    if lines is None:
        lines = [
            f"{problem.field}: {problem.message}" if problem.path else problem.message
            for problem in problems
        ]
    error = SpecError("\n".join(" ".join(line.split()) for line in lines))
    error.field = problems[0].field or None
    return error


def _problem(details: ErrorDetails, form: type[Form]) -> Problem:
    path = tuple(part for part in details["loc"] if part != "[key]")
    match details["type"]:
        case "extra_forbidden":
            return Problem(path, _unknown_key_message(path, form))
        case "missing":
            return Problem(path, "is required", is_absence=True)
    return Problem(path, _wrong_value_message(details, is_secret=path[:1] == ("secrets",)))


def _wrong_value_message(details: ErrorDetails, is_secret: bool) -> str:
    context: Mapping[str, Any] = details.get("ctx", {})
    value = details["input"]
    is_shown = isinstance(value, str | int | float) and not is_secret
    instead = f', not "{value!s:.60}"' if is_shown else ""
    if details["type"] == "string_type" and value is None:
        return 'has no value: write "" for an empty text'
    message = _MESSAGES.get(details["type"])
    return details["msg"] if message is None else message.format(**context, instead=instead)


# Keys of other launchers and queues, and the key of a form here with the same meaning.
_SAME_IN_OTHER_TOOLS: Final = {
    **dict.fromkeys(("resources", "gpus", "nodes", "num_nodes", "accelerators"), "instances"),
    **dict.fromkeys(("run", "cmd", "script", "entrypoint", "commands"), "command"),
    **dict.fromkeys(("env", "envs", "env_vars"), "environment"),
    **dict.fromkeys(("workdir", "working_dir"), "working_directory"),
    **dict.fromkeys(("volumes", "file_mounts", "mounts"), "data"),
    **dict.fromkeys(("docker", "container", "image_id"), "image"),
    **dict.fromkeys(("max_restarts", "max_retries"), "retries"),
    "n_trials": "trials",
    "n_jobs": "at_once",
}
# Similarity from which a key is suggested; that of "resources" and "retries" is 0.63.
_MINIMUM_SIMILARITY: Final = 0.65


def keys_of(form: type[Form], required: bool = False) -> list[str]:
    """Return the keys of a form as a file has them; with `required`, those it must have."""
    fields = form.model_fields.items()
    return [field.alias or name for name, field in fields if field.is_required() or not required]


def _unknown_key_message(path: KeyPath, form: type[Form]) -> str:
    key = str(path[-1])
    known = keys_of(_form_at(form, path[:-1]))
    nested = [path for path in _nested_keys(form) if path.endswith(f".{key}")]
    similar = [name for name in known if name.startswith(key) or key.startswith(name)]
    same = [_SAME_IN_OTHER_TOOLS[key]] if _SAME_IN_OTHER_TOOLS.get(key) in known else []
    close = difflib.get_close_matches(key, known, n=1, cutoff=_MINIMUM_SIMILARITY)
    suggestions = nested or same or similar[:1] or close
    if suggestions:
        names = " or ".join(f'"{name}"' for name in suggestions)
        return f"unknown key {quoted(key)}: did you mean {names}?"
    return f"unknown key {quoted(key)}: valid keys are {', '.join(known)}"


def _form_at(form: type[Form], path: KeyPath) -> type[Form]:
    for part in path:
        if isinstance(part, str) and part in form.model_fields:
            form = next(_forms_in(form.model_fields[part].annotation), form)
    return form


def _nested_keys(form: type[Form]) -> Iterator[str]:
    for name, field in form.model_fields.items():
        for nested in _forms_in(field.annotation):
            yield from (f"{name}.{key}" for key in nested.model_fields)


def _forms_in(annotation: object) -> Iterator[type[Form]]:
    if isinstance(annotation, type) and issubclass(annotation, Form):
        yield annotation
    for argument in get_args(annotation):
        yield from _forms_in(argument)
