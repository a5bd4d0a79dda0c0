"""Bodies of requests as values, checked more strictly than what Castor itself has written.

A text or a truth value is no number. Money may be a decimal string, and a number that is not
finite is one of the three words that `encode` writes.
"""

from __future__ import annotations

from collections.abc import Hashable
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
        raise _refusal(error.errors(include_url=False)[0]) from None


def read_json(body: bytes) -> Any:
    """Return the lists, mappings and single values that the body of a request is.

    Raises:
        SpecError: it is not JSON, or a number in it is too long.
    """
    try:
        return from_json(body)
    except ValueError as error:
        raise _no_json(str(error)) from None


def _refusal(first: ErrorDetails) -> SpecError:
    if first["type"] == "json_invalid":
        return _no_json(str(first.get("ctx", {}).get("error", "")))
    place = ".".join(printable(str(part)) for part in first["loc"])
    value = first["input"]
    shown = str(value).lower() if isinstance(value, bool) else quoted(value)
    words = _WORDS_FOR.get(first["type"], "{message}")
    context = {"value": shown, "message": first["msg"], **first.get("ctx", {})}
    return SpecError(words.format(**context), place or None)


def _no_json(reason: str) -> SpecError:
    if _TOO_LONG in reason:
        return SpecError(
            f"a number in the body has more than 4,300 digits ({reason}): write a shorter one"
        )
    return SpecError(f"the body is no JSON ({reason}): send one JSON value in UTF-8")


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
