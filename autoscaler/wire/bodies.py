"""Strict parsing of request bodies.

A text or a boolean is not accepted as a number. Money may be a decimal string. A number that is
not finite is one of the words "NaN", "Infinity" and "-Infinity", as `encode` writes them.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Iterable, Iterator
from functools import cache
from typing import Any, Final, TypeVar, cast

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails, SchemaValidator, core_schema, from_json

from autoscaler.domain.errors import SpecError
from autoscaler.domain.text import printable, quoted

Value = TypeVar("Value")

# Messages by pydantic's error type.
_MESSAGES: Final = {
    "int_type": "must be a whole number, not {value}",
    "int_from_float": "must be a whole number, not {value}",
    "float_type": "must be a number, not {value}",
    "decimal_type": "must be a number, not {value}",
    "bool_type": "must be true or false, not {value}",
    "value_error": "{error}",
    "unexpected_keyword_argument": "unknown key: leave it out, or see docs/job-file.md",
}
_TOO_LONG: Final = "number out of range"  # in the message of pydantic's JSON parser
_MOST_DIGITS: Final = 4_300
_LONG_NUMBER: Final = object()
_NOT_FINITE: Final = core_schema.no_info_after_validator_function(
    float, core_schema.literal_schema(["NaN", "Infinity", "-Infinity"])
)


def read_body(kind: type[Value], body: bytes) -> Value:
    """Parse the body of a request as a value of type `kind`.

    Raises:
        SpecError: the body is not JSON of this type; the error names the first wrong field.
    """
    try:
        return cast(Value, _validator(cast(Hashable, kind)).validate_json(body))
    except ValidationError as error:
        raise _spec_error(error.errors(include_url=False)[0], body) from None


def read_json(body: bytes) -> Any:
    """Parse the body of a request as JSON: lists, mappings and scalars.

    Raises:
        SpecError: the body is not JSON, or has a number with too many digits.
    """
    try:
        return from_json(body)
    except ValueError as error:
        raise _json_error(str(error), body) from None


def _spec_error(first: ErrorDetails, body: bytes) -> SpecError:
    if first["type"] == "json_invalid":
        return _json_error(str(first.get("ctx", {}).get("error", "")), body)
    field = ".".join(printable(str(part)) for part in first["loc"])
    value = first["input"]
    shown = str(value).lower() if isinstance(value, bool) else quoted(value)
    message = _MESSAGES.get(first["type"], "{message}")
    context = {"value": shown, "message": first["msg"], **first.get("ctx", {})}
    return SpecError(message.format(**context), field or None)


def _json_error(reason: str, body: bytes) -> SpecError:
    if _TOO_LONG in reason:
        return SpecError(
            f"a number in the body has more than {_MOST_DIGITS:,} digits ({reason}): "
            "write a shorter one",
            _field_of_long_number(body),
        )
    return SpecError(f"the body is not JSON ({reason}): send one JSON value in UTF-8")


def _field_of_long_number(body: bytes) -> str | None:
    """Return the field of the first whole number that is too long; None if unknown."""
    try:
        document = json.loads(body, parse_int=_mark_long_number)
        return next((".".join(path) or None for path in _long_number_paths(document, ())), None)
    except (ValueError, RecursionError):
        return None


def _mark_long_number(digits: str) -> object:
    """Return the digits of a whole number, or `_LONG_NUMBER` if there are too many."""
    return _LONG_NUMBER if len(digits.lstrip("-")) > _MOST_DIGITS else digits


def _long_number_paths(value: object, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the paths of numbers that are too long in `value`, which is at `path` of a body."""
    if value is _LONG_NUMBER:
        yield path
    parts: Iterable[tuple[object, object]] = ()
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)
    for key, part in parts:
        yield from _long_number_paths(part, (*path, printable(str(key))))


@cache
def _validator(kind: Hashable) -> SchemaValidator:
    return SchemaValidator(_strict(TypeAdapter(cast(Any, kind)).core_schema))


def _strict(schema: Any) -> Any:
    """Return a copy of a core schema in which texts and booleans are not valid numbers."""
    if isinstance(schema, list):
        return [_strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    match schema.get("type"):
        case "int" | "bool":
            return {**schema, "strict": True}
        case "float":
            numbers = [{**schema, "strict": True}, _NOT_FINITE]
            return core_schema.union_schema(
                cast(Any, numbers), mode="left_to_right", custom_error_type="float_type"
            )
    return {key: _strict(part) for key, part in schema.items()}
