"""What all parts of a job file have in common, and how their problems are told to a person."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, TypeVar, get_args

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from autoscaler.domain.errors import SpecError

KeyPath = tuple[str | int, ...]
AnyValue = TypeVar("AnyValue")

_WORDS_FOR: Final = {
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
    "string_too_short": "is empty: fill it in or leave the key out",
    "too_short": "is empty: fill it in or leave the key out",
    "tuple_type": "must be a list{instead}",
    "dict_type": "must be a mapping of keys to values{instead}",
    "model_type": "must be a mapping of keys to values{instead}",
    "byte_size": "must be a size like 200MB{instead}",
    "byte_size_unit": "must be a size like 200MB{instead}",
    "value_error": "{error}",
}


class Form(BaseModel):
    """A mapping whose keys are all known. A key without a value counts as absent."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _leave_out_absent(cls, value: object) -> object:
        if not isinstance(value, Mapping):
            return value
        return {key: part for key, part in value.items() if part is not None}


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong. `message` names what is meant; `path` leads to the key at fault."""

    path: KeyPath
    message: str
    is_absence: bool = False

    @property
    def field(self) -> str:
        """The path as people write it: ``data.0.target``."""
        return ".".join(map(str, self.path))


def short_for(key: str) -> BeforeValidator:
    """Lets a plain value stand for a mapping that holds it as `key`."""

    def lengthen(value: object) -> object:
        return {key: value} if isinstance(value, str | int | float) else value

    return BeforeValidator(lengthen)


def obeys(rule: Callable[[AnyValue, str], None]) -> AfterValidator:
    """Return a validator that refuses what a rule of the domain refuses."""

    def check(value: AnyValue) -> AnyValue:
        with as_value_error():
            rule(value, "")
        return value

    return AfterValidator(check)


@contextmanager
def as_value_error() -> Iterator[None]:
    """Raise a refusal by a rule of the domain as pydantic expects it.

    Raises:
        ValueError: the rule's message, without the field.
    """
    try:
        yield
    except SpecError as error:
        raise ValueError(error.message) from None


def problem_of(error: SpecError) -> Problem:
    """Return a refusal by a rule of the domain as a problem of a form."""
    return Problem(tuple((error.field or "").split(".")), error.message)


def one_or_many() -> BeforeValidator:
    """Lets one text stand for a list of it."""
    return BeforeValidator(lambda value: [value] if isinstance(value, str) else value)


def problems_of(error: ValidationError, form: type[Form]) -> list[Problem]:
    """All that pydantic found wrong with a value for `form`, in plain words.

    Not that a list is empty where what it holds is wrong: pydantic counts only what is right.
    """
    found = error.errors(include_url=False)
    return [
        _problem(details, form)
        for details in found
        if not (details["type"] == "too_short" and any(_is_within(o, details) for o in found))
    ]


def _is_within(inner: ErrorDetails, outer: ErrorDetails) -> bool:
    place = outer["loc"]
    return len(inner["loc"]) > len(place) and inner["loc"][: len(place)] == place


def refusal(problems: Sequence[Problem], lines: Sequence[str] | None = None) -> SpecError:
    """The error that tells all `problems`, one a line; its `field` is the first one's."""
    if lines is None:
        lines = [f"{p.field}: {p.message}" if p.path else p.message for p in problems]
    error = SpecError("\n".join(" ".join(line.split()) for line in lines))
    error.field = problems[0].field or None
    return error


def _problem(details: ErrorDetails, form: type[Form]) -> Problem:
    path = tuple(part for part in details["loc"] if part != "[key]")
    match details["type"]:
        case "extra_forbidden":
            return Problem(path, _unknown_key(path, form))
        case "missing":
            return Problem(path, "has to be given", is_absence=True)
    return Problem(path, _wrong_value(details, is_secret=path[:1] == ("secrets",)))


def _wrong_value(details: ErrorDetails, is_secret: bool) -> str:
    context: Mapping[str, Any] = details.get("ctx", {})
    value = details["input"]
    is_shown = isinstance(value, str | int | float) and not is_secret
    instead = f', not "{value!s:.60}"' if is_shown else ""
    if details["type"] == "string_type" and value is None:
        return 'has no value: write "" for an empty one'
    words = _WORDS_FOR.get(details["type"])
    return details["msg"] if words is None else words.format(**context, instead=instead)


# Keys of launchers and queues, and the key of a form here that means the same.
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
# Below it two keys are not alike: "resources" is no slip for "retries" (0.63).
_LEAST_LIKENESS: Final = 0.65


def _unknown_key(path: KeyPath, form: type[Form]) -> str:
    key = str(path[-1])
    known = _form_at(form, path[:-1]).model_fields
    places = [place for place in _nested_places(form) if place.endswith(f".{key}")]
    similar = [name for name in known if name.startswith(key) or key.startswith(name)]
    same = [_SAME_IN_OTHER_TOOLS[key]] if _SAME_IN_OTHER_TOOLS.get(key) in known else []
    close = difflib.get_close_matches(key, known, n=1, cutoff=_LEAST_LIKENESS)
    meant = places or same or similar[:1] or close
    if meant:
        either = " or ".join(f'"{name}"' for name in meant)
        return f'unknown key "{key}": did you mean {either}?'
    return f'unknown key "{key}": known are {", ".join(known)}'


def _form_at(form: type[Form], path: KeyPath) -> type[Form]:
    for part in path:
        if isinstance(part, str) and part in form.model_fields:
            form = next(_forms_in(form.model_fields[part].annotation), form)
    return form


def _nested_places(form: type[Form]) -> Iterator[str]:
    for name, field in form.model_fields.items():
        for nested in _forms_in(field.annotation):
            yield from (f"{name}.{key}" for key in nested.model_fields)


def _forms_in(annotation: object) -> Iterator[type[Form]]:
    if isinstance(annotation, type) and issubclass(annotation, Form):
        yield annotation
    for argument in get_args(annotation):
        yield from _forms_in(argument)
