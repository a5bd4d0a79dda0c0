"""What the module of GCP uses of Google's provider, from the bindings that CDKTF generated of it.

    pip download --no-deps cdktf-cdktf-provider-google==16.12.1
    python -m tests.terraform.google_schema cdktf_cdktf_provider_google-16.12.1-py3-none-any.whl

writes google_provider.json anew; it is needed when the module uses another resource. The bindings
are of version 6.50.0 of the provider. Names are in the links of their documentation.
"""

from __future__ import annotations

import io
import json
import re
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

VERSION: Final = "6.50.0"
_PRIMITIVES: Final = {"string": "string", "number": "number", "boolean": "bool", "any": "string"}
# Of CDKTF itself, or of every resource.
_OTHERS: Final = frozenset(
    {
        *("connection", "count", "dependsOn", "forEach", "lifecycle", "provider"),
        *("provisioners", "timeouts"),
    }
)
# Optional ones that the provider fills in where they are not given, among those that are read.
_FILLED_IN: Final = ("address", "id", "name")

Types = dict[str, Any]


def read_types(wheel: Path) -> Types:
    """All types of the bindings by name."""
    with zipfile.ZipFile(wheel) as bindings:
        (inner,) = [name for name in bindings.namelist() if name.endswith(".jsii.tgz")]
        packed = io.BytesIO(bindings.read(inner))
    with tarfile.open(fileobj=packed) as package:
        told = package.extractfile("package/.jsii")
        assert told is not None
        types: Types = json.load(told)["types"]
    return types


def used(module: Path, kind: str) -> list[str]:
    """The types of resources, or of data, that a module has."""
    text = "".join(path.read_text() for path in sorted(module.glob("*.tf")))
    return sorted(set(re.findall(rf'^{kind} "(\w+)"', text, re.MULTILINE)))


def described(types: Types, kind: str, name: str) -> dict[str, Any]:
    """One resource's attributes and blocks."""
    bare = f"data_{name}" if kind == "data" else name.removeprefix("google_")
    wanted = f".{bare.replace('_', '')}.{bare.replace('_', '')}"
    (found,) = [one for one in types if one.partition("google")[2].lower() == wanted]
    block = _block(types, f"{found}Config", _OTHERS)
    attributes = block["attributes"]
    for one in types[found]["properties"]:
        name = _with_underscores(one["name"])
        told = _told(one["type"])
        is_known = name in attributes or name in block["blocks"] or name.endswith("_input")
        if not is_known and one["name"] not in _OTHERS and told and not one.get("static"):
            attributes[name] = [told[0], "computed"] if told[1] is None else None
    block["attributes"] = {key: value for key, value in attributes.items() if value}
    for name in _FILLED_IN:
        if attributes.get(name, ["", ""])[1] == "optional":
            attributes[name][1] = "either"
    return block


def _block(types: Types, struct: str, left_out: frozenset[str] = frozenset()) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    blocks: dict[str, Any] = {}
    for one in types[struct].get("properties", ()):
        told = _told(one["type"])
        if told is None or one["name"] in left_out:
            continue
        is_optional = one.get("optional", False)
        linked = re.search(r"#(\w+) \w+#", one["docs"].get("remarks", ""))
        name = linked[1] if linked else _with_underscores(one["name"])
        if told[1] is None:
            attributes[name] = [told[0], "optional" if is_optional else "required"]
        else:
            inner = _block(types, told[1])
            blocks[name] = inner | {"required": not is_optional, "many": told[0] == "many"}
    return {"attributes": attributes, "blocks": blocks}


def _told(of: dict[str, Any]) -> tuple[Any, str | None] | None:
    """An attribute's type; or "one" or "many", and the name of a block; None for CDKTF's own."""
    if "union" in of:
        return next((told for one in of["union"]["types"] if (told := _told(one))), None)
    if "collection" in of:
        told = _told(of["collection"]["elementtype"])
        if told is not None and told[1] is not None:
            return "many", told[1]
        kind = "map" if of["collection"]["kind"] == "map" else "list"
        return [kind, "string" if told is None else told[0]], None
    if "primitive" in of:
        return _PRIMITIVES[of["primitive"]], None
    return None if of["fqn"].startswith("cdktf.") else ("one", of["fqn"])


def _with_underscores(name: str) -> str:
    return re.sub(r"([A-Z])", lambda letter: f"_{letter[1].lower()}", name)


def _lines(schema: dict[str, Any]) -> Iterator[str]:
    """As JSON, each resource on a line of its own."""
    yield f'{{\n"version": {json.dumps(schema["version"])}'
    for kind in ("resources", "data"):
        told = [f"{json.dumps(name)}: {json.dumps(one)}" for name, one in schema[kind].items()]
        yield f',\n"{kind}": {{\n' + ",\n".join(told) + "\n}"
    yield "\n}\n"


if __name__ == "__main__":
    here = Path(__file__).parent
    module = here.parents[1] / "terraform" / "modules" / "gcp"
    known = read_types(Path(sys.argv[1]))
    schema = {
        "version": VERSION,
        "resources": {one: described(known, "resource", one) for one in used(module, "resource")},
        "data": {one: described(known, "data", one) for one in used(module, "data")},
    }
    (here / "google_provider.json").write_text("".join(_lines(schema)))
