"""APIs of Google as their discovery documents describe them: routes, parameters, bodies, enums.

The documents are those of google-api-python-client. Unknown names are refused in calls and in
answers, so neither a client nor this fake can misspell a field.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import googleapiclient

from tests.fakes.gcp.errors import Refusal, invalid, required, unknown

Schema = Mapping[str, Any]
_DOCUMENTS: Final = Path(googleapiclient.__file__).parent / "discovery_cache" / "documents"
_PLACE: Final = re.compile(r"\{(\+?)([^}]+)\}")
_WHOLE_NUMBER: Final = re.compile(r"-?[0-9]+")
_TRUE: Final = ("true", "True")  # gcloud sends the second
# Parameters that some editions of the document leave out of v1, and that gcloud sends.
_UNLISTED: Final = frozenset({"returnPartialSuccess"})
_KINDS: Final[dict[str, type | tuple[type, ...]]] = {
    "array": list,
    "boolean": bool,
    "number": (int, float),
    "object": dict,
    "string": str,
}


@dataclass(frozen=True, slots=True)
class Method:
    """Method of an API, with the route of its calls."""

    id: str
    verb: str
    route: re.Pattern[str]
    places: int
    parameters: Schema
    request: str | None
    response: str | None


class Api:
    """Version of an API."""

    def __init__(self, name: str) -> None:
        document = json.loads((_DOCUMENTS / f"{name}.json").read_text())
        self._schemas: dict[str, Schema] = document["schemas"]
        self._shared: Schema = document["parameters"]
        self._methods: dict[str, list[Method]] = {}
        for description in _methods(document):
            method = _method(document["servicePath"], description)
            self._methods.setdefault(method.verb, []).append(method)
        for methods in self._methods.values():
            methods.sort(key=lambda method: method.places)

    def find(self, verb: str, path: str) -> tuple[Method, dict[str, str]] | None:
        """Return the method of a call and its parameters in the path; None without a method."""
        for method in self._methods.get(verb, ()):
            match = method.route.fullmatch(path)
            if match:
                return method, {_unescaped(name): text for name, text in match.groupdict().items()}
        return None

    def parameters(
        self, method: Method, path: Mapping[str, str], query: Mapping[str, list[str]]
    ) -> dict[str, Any]:
        """Return all parameters of a call, converted to their types.

        Raises:
            Refusal: a parameter is unknown, missing or invalid.
        """
        unlisted = _UNLISTED if "pageToken" in method.parameters else frozenset()
        for name in query.keys() - method.parameters.keys() - self._shared.keys() - unlisted:
            raise unknown(f'Unknown name "{name}": Cannot bind query parameter.')
        read: dict[str, Any] = {}
        for name, schema in method.parameters.items():
            texts = [path[name]] if name in path else query.get(name, [])
            if texts:
                values = [_read(schema, text, name) for text in texts]
                read[name] = values if schema.get("repeated") else values[-1]
            elif schema.get("required"):
                raise required(name)
        return read | {name: query[name][-1] in _TRUE for name in unlisted & query.keys()}

    def check_request(self, method: Method, body: object) -> dict[str, Any]:
        """Return the body of a call.

        Raises:
            Refusal: a field is unknown, missing or invalid.
        """
        if method.request is None or body is None:
            return {}
        at = "resource"
        self._check({"$ref": method.request}, body, at, method.id)
        assert isinstance(body, dict)
        return body

    def check_response(self, method: Method, body: object) -> None:
        """Check an answer of the fake against the document.

        Raises:
            AssertionError: the API would not answer like this, so the fake is wrong.
        """
        if method.response is None:
            assert body is None, method.id
            return
        try:
            self._check({"$ref": method.response}, body, "answer", "")
        except Refusal as error:
            raise AssertionError(f"the fake's answer to {method.id}: {error}") from error

    def lists_field(self, method: Method, path: str) -> bool:
        """Return whether listed items have a field at this path, with dots between names."""
        items: Schema = self._schemas[str(method.response)]["properties"]["items"]
        if "additionalProperties" in items:  # an aggregated list: items by scope
            scoped: Schema = self._whole(items["additionalProperties"])["properties"]
            items = next(
                field_schema
                for field_schema in scoped.values()
                if field_schema.get("type") == "array"
            )
        schema: Schema = items["items"]
        for name in path.split("."):
            whole = self._whole(schema)
            nested = whole.get("properties", {}).get(name) or whole.get("additionalProperties")
            if nested is None:
                return False
            schema = nested
        return True

    def _whole(self, schema: Schema) -> Schema:
        """Return the schema, or the schema that it refers to."""
        return self._schemas[schema["$ref"]] if "$ref" in schema else schema

    def _check(self, schema: Schema, value: object, at: str, call: str) -> None:
        schema = self._whole(schema)
        if value is None or schema["type"] == "any":
            return
        if schema["type"] == "integer" or schema.get("format") in ("int64", "uint64"):
            if isinstance(value, bool) or not _WHOLE_NUMBER.fullmatch(str(value)):
                raise invalid(at, value, "It must be a whole number.")
            return
        is_odd = isinstance(value, bool) and schema["type"] == "number"
        if is_odd or not isinstance(value, _KINDS[schema["type"]]):
            raise unknown(f"Invalid value at '{at}' ({schema['type']}), {json.dumps(value)}")
        if isinstance(value, dict):
            self._check_object(schema, value, at, call)
        elif isinstance(value, list):
            for number, item in enumerate(value):
                self._check(schema["items"], item, f"{at}[{number}]", call)
        elif isinstance(value, str):
            _check_text(schema, value, at)

    def _check_object(self, schema: Schema, value: dict[str, Any], at: str, call: str) -> None:
        fields: Schema = schema.get("properties", {})
        others = schema.get("additionalProperties")
        for name, held in value.items():
            if name in fields:
                self._check(fields[name], held, f"{at}.{name}", call)
            elif others is not None:
                self._check(others, held, f"{at}.{name}", call)
            else:
                raise unknown(f"Unknown name \"{name}\" at '{at}': Cannot find field.")
        for name, field_schema in fields.items():
            if call in field_schema.get("annotations", {}).get("required", ()) and not value.get(
                name
            ):
                raise required(f"{at}.{name}")


@cache
def api(name: str) -> Api:
    """Return an API such as ``compute.v1``; each document is read once."""
    return Api(name)


def _methods(resource: Schema) -> Iterator[Schema]:
    yield from resource.get("methods", {}).values()
    for nested in resource.get("resources", {}).values():
        yield from _methods(nested)


def _method(base: str, description: Schema) -> Method:
    parameters = description.get("parameters", {})

    def place(match: re.Match[str]) -> str:
        text = parameters[match[2]].get("pattern", "").strip("^$") if match[1] else "[^/]+"
        return f"(?P<{_escaped(match[2])}>{text})"

    parts = _PLACE.split(description["path"])
    route = "".join(
        re.escape(literal) + (place(match) if match else "")
        for literal, match in zip(
            parts[::3], [*_PLACE.finditer(description["path"]), None], strict=True
        )
    )
    return Method(
        description["id"],
        description["httpMethod"],
        re.compile(f"/{base}{route}"),
        len(parts) // 3,
        parameters,
        description.get("request", {}).get("$ref"),
        description.get("response", {}).get("$ref"),
    )


def _escaped(name: str) -> str:
    return name.replace(".", "__dot__")


def _unescaped(name: str) -> str:
    return name.replace("__dot__", ".")


def _read(schema: Schema, text: str, name: str) -> Any:
    """Return a parameter's text as a value of its type."""
    match schema["type"]:
        case "boolean":
            if text not in (*_TRUE, "false", "False"):
                raise invalid(name, text, "It must be true or false.")
            return text in _TRUE
        case "integer":
            if not _WHOLE_NUMBER.fullmatch(text):
                raise invalid(name, text, "It must be a whole number.")
            number = int(text)
            least = int(schema.get("minimum", number))
            most = int(schema.get("maximum", number))
            if not least <= number <= most:
                raise invalid(name, text, f"Values must be in [{least}, {most}].")
            return number
    _check_text(schema, text, name)
    return text


def _check_text(schema: Schema, text: str, at: str) -> None:
    if "enum" in schema and text not in schema["enum"]:
        raise invalid(at, text, f"It must be one of {', '.join(schema['enum'])}.")
    pattern = schema.get("pattern")
    if pattern and not re.fullmatch(pattern, text):
        raise invalid(at, text, f"Must be a match of regex '{pattern}'")
