"""Bodies of requests as values, checked more strictly than what Castor itself has written.

A text or a truth value is no number. Money may be a decimal string, and a number that is not
finite is one of the three words that `encode` writes.
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

_WORDS_FOR: Final = {
    "int_type": "must be a whole number, not {value}",
    "int_from_float": "must be a whole number, not {value}",
    "float_type": "must be a number, not {value}",
    "decimal_type": "must be a number, not {value}",
    "bool_type": "must be true or false, not {value}",
    "value_error": "{error}",
    "unexpected_keyword_argument": "unknown key: leave it out, or see docs/job-file.md",
}
_TOO_LONG: Final = "number out of range"
_MOST_DIGITS: Final = 4_300
_LONG_NUMBER: Final = object()
_NOT_FINITE: Final = core_schema.no_info_after_validator_function(
    float, core_schema.literal_schema(["NaN", "Infinity", "-Infinity"])
)


def read_body(kind: type[Value], body: bytes) -> Value:
    """Return the value that the body of a request is.

    Raises:
        SpecError: it is not JSON of that kind; the error names the first field at fault.
    """
    try:
        return cast(Value, _validator(cast(Hashable, kind)).validate_json(body))
    except ValidationError as error:
        raise _refusal(error.errors(include_url=False)[0], body) from None


def read_json(body: bytes) -> Any:
    """Return the lists, mappings and single values that the body of a request is.

    Raises:
        SpecError: it is not JSON, or a number in it is too long.
    """
    try:
        return from_json(body)
    except ValueError as error:
        raise _no_json(str(error), body) from None


def _refusal(first: ErrorDetails, body: bytes) -> SpecError:
    if first["type"] == "json_invalid":
        return _no_json(str(first.get("ctx", {}).get("error", "")), body)
    place = ".".join(printable(str(part)) for part in first["loc"])
    value = first["input"]
    shown = str(value).lower() if isinstance(value, bool) else quoted(value)
    words = _WORDS_FOR.get(first["type"], "{message}")
    context = {"value": shown, "message": first["msg"], **first.get("ctx", {})}
    return SpecError(words.format(**context), place or None)


def _no_json(reason: str, body: bytes) -> SpecError:
    if _TOO_LONG in reason:
        return SpecError(
            f"a number in the body has more than {_MOST_DIGITS:,} digits ({reason}): "
            "write a shorter one",
            _long_number(body),
        )
    return SpecError(f"the body is no JSON ({reason}): send one JSON value in UTF-8")


def _long_number(body: bytes) -> str | None:
    """Return the place of the first whole number that is too long; None if it can't be told."""
    try:
        document = json.loads(body, parse_int=_digits)
        return next((".".join(place) or None for place in _places(document, ())), None)
    except (ValueError, RecursionError):
        return None


def _digits(digits: str) -> object:
    """Return the digits of a whole number, or `_LONG_NUMBER`."""
    return _LONG_NUMBER if len(digits.lstrip("-")) > _MOST_DIGITS else digits


def _places(value: object, place: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    """Yield the places of numbers that are too long, below a place of a body."""
    if value is _LONG_NUMBER:
        yield place
    parts: Iterable[tuple[object, object]] = ()
    if isinstance(value, dict):
        parts = value.items()
    elif isinstance(value, list):
        parts = enumerate(value)
    for key, part in parts:
        yield from _places(part, (*place, printable(str(key))))


@cache
def _validator(kind: Hashable) -> SchemaValidator:
    return SchemaValidator(_strict(TypeAdapter(cast(Any, kind)).core_schema))


def _strict(schema: Any) -> Any:
    """Return a copy of a core schema in which only numbers are numbers."""
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
