"""JSON Schemas of the files that people write, with which editors complete and check them.

A schema accepts every file that the forms accept. It
refuses unknown keys, missing keys and values of another kind; rules between keys are the parser's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from autoscaler.domain.errors import NotFound
from autoscaler.domain.text import did_you_mean, quoted
from autoscaler.spec.cluster_file import ClusterForm
from autoscaler.spec.descriptions import DESCRIPTIONS
from autoscaler.spec.forms import Form
from autoscaler.spec.job_form import JobForm
from autoscaler.spec.offers_form import OffersForm
from autoscaler.spec.study_form import StudyForm

FILES: Final[Mapping[str, type[Form]]] = MappingProxyType(
    {"job": JobForm, "study": StudyForm, "offers": OffersForm, "pool": ClusterForm}
)
"""Forms by the kind of file, without that of pools, which the providers have."""
POOLS: Final = "pools"

_INTEGER: Final = r"^\s*[+-]?[0-9][0-9_]*(\.0*)?\s*$"
_NUMBER: Final = r"^\s*[+-]?([0-9][0-9_]*\.?[0-9_]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*$"
_WORDS: Final = ("yes", "no", "on", "off", "y", "n", "t", "f", "true", "false", 0, 1, "0", "1")
_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def file_schema(kind: str) -> dict[str, Any]:
    """Return the JSON Schema of a kind of file, one of `FILES`.

    Raises:
        NotFound: there is no such kind.
    """
    form = FILES.get(kind)
    if form is None:
        kinds = (*FILES, POOLS)
        hint = did_you_mean(kind, kinds, f"choose one of {', '.join(kinds)}")
        raise NotFound(f"there is no schema of {quoted(kind)}: {hint}")
    return {"$schema": _DIALECT, "title": f"Castor {kind} file", **_form_schema(form)}


def pools_schema(forms: Mapping[str, type[Form]]) -> dict[str, Any]:
    """Return the JSON Schema of a file of pools, whose form depends on its cloud.

    `forms` are the forms by cloud. Definitions have the name of their cloud before their own.
    """
    definitions: dict[str, Any] = {}
    variants = []
    for cloud, form in sorted(forms.items()):
        schema = _form_schema(form, f"#/$defs/{cloud}-{{model}}")
        for name, definition in schema.pop("$defs", {}).items():
            definitions[f"{cloud}-{name}"] = definition
        variants.append({"title": cloud, **schema})
    title = f"Castor {POOLS} file"
    return {"$schema": _DIALECT, "title": title, "anyOf": variants, "$defs": definitions}


def _form_schema(form: type[Form], references: str = "#/$defs/{model}") -> dict[str, Any]:
    """Return the schema of a form with its descriptions; `references` are those within it."""
    schema = form.model_json_schema(ref_template=references, schema_generator=_FileSchema)
    _describe(form.__name__, schema)
    for name, definition in schema.get("$defs", {}).items():
        _describe(name, definition)
    _drop_titles(schema)
    return schema


class _FileSchema(GenerateJsonSchema):
    """Schemas of values as YAML files have them: a text may look like a number."""

    def str_schema(self, schema: core_schema.StringSchema) -> JsonSchemaValue:
        """Return the schema of a text, which YAML may read as a number or a truth value."""
        return {**super().str_schema(schema), "type": ["string", "number", "boolean"]}

    def int_schema(self, schema: core_schema.IntSchema) -> JsonSchemaValue:
        """Return the schema of a whole number, which may be quoted."""
        return {"anyOf": [super().int_schema(schema), _quoted(_INTEGER)]}

    def float_schema(self, schema: core_schema.FloatSchema) -> JsonSchemaValue:
        """Return the schema of a number, which may be quoted.

        YAML 1.1 reads a number like 1e6, without a point, as a text.
        """
        return {"anyOf": [super().float_schema(schema), _quoted(_NUMBER)]}

    def bool_schema(self, schema: core_schema.BoolSchema) -> JsonSchemaValue:
        """Return the schema of a truth value, for which YAML 1.1 has several words."""
        return {"anyOf": [super().bool_schema(schema), {"enum": list(_WORDS)}]}


def _quoted(pattern: str) -> JsonSchemaValue:
    return {"type": "string", "pattern": pattern}


def _describe(form: str, schema: dict[str, Any]) -> None:
    """Add the descriptions of a form's keys, and let optional keys have no value."""
    required = schema.get("required", ())
    for key, value in schema.get("properties", {}).items():
        description = DESCRIPTIONS.get(form, {}).get(key)
        if key not in required and not _may_be_null(value):
            kept = {name: value.pop(name) for name in ("default",) if name in value}
            value = {"anyOf": [value, {"type": "null"}], **kept}
        if description is not None:
            value = {**value, "description": description}
        schema["properties"][key] = value


def _may_be_null(schema: Mapping[str, Any]) -> bool:
    return {"type": "null"} in schema.get("anyOf", ())


def _drop_titles(value: Any) -> None:
    """Remove the titles that repeat the names of keys and classes."""
    for part in _parts(value):
        if isinstance(part.get("title"), str):
            del part["title"]


def _parts(value: Any) -> Iterator[dict[str, Any]]:
    """Yield all mappings within a schema."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, dict | list):
            yield from _parts(part)
