"""Schema of the resources that GCP's module uses, from the bindings that CDKTF generated.

    pip download --no-deps cdktf-cdktf-provider-google==16.12.1
    python -m tests.terraform.google_schema cdktf_cdktf_provider_google-16.12.1-py3-none-any.whl

These commands rewrite google_provider.json, which is necessary when the module uses another
resource. The bindings are of version 6.50.0 of the provider. The links of their documentation
contain the names.
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
# Properties of CDKTF itself, or of every resource.
_OTHERS: Final = frozenset(
    {
        *("connection", "count", "dependsOn", "forEach", "lifecycle", "provider"),
        *("provisioners", "timeouts"),
    }
)
# Optional attributes that the provider fills in, among those that the module reads.
_FILLED_IN: Final = ("address", "id", "name")

Types = dict[str, Any]


def read_types(wheel: Path) -> Types:
    """Return all types of the bindings by name."""
    with zipfile.ZipFile(wheel) as bindings:
        (inner,) = [name for name in bindings.namelist() if name.endswith(".jsii.tgz")]
        packed = io.BytesIO(bindings.read(inner))
    with tarfile.open(fileobj=packed) as package:
        assembly = package.extractfile("package/.jsii")
        assert assembly is not None
        types: Types = json.load(assembly)["types"]
    return types


def used(module: Path, kind: str) -> list[str]:
    """Return the types of resources, or of data, in a module."""
    text = "".join(path.read_text() for path in sorted(module.glob("*.tf")))
    return sorted(set(re.findall(rf'^{kind} "(\w+)"', text, re.MULTILINE)))


def described(types: Types, kind: str, name: str) -> dict[str, Any]:
    """Return the attributes and blocks of a resource."""
    bare = f"data_{name}" if kind == "data" else name.removeprefix("google_")
    suffix = f".{bare.replace('_', '')}.{bare.replace('_', '')}"
    (type_name,) = [known for known in types if known.partition("google")[2].lower() == suffix]
    block = _block(types, f"{type_name}Config", _OTHERS)
    attributes = block["attributes"]
    for member in types[type_name]["properties"]:
        name = _with_underscores(member["name"])
        member_type = _told(member["type"])
        is_known = name in attributes or name in block["blocks"] or name.endswith("_input")
        if (
            not is_known
            and member["name"] not in _OTHERS
            and member_type
            and not member.get("static")
        ):
            attributes[name] = [member_type[0], "computed"] if member_type[1] is None else None
    block["attributes"] = {key: value for key, value in attributes.items() if value}
    for name in _FILLED_IN:
        if attributes.get(name, ["", ""])[1] == "optional":
            attributes[name][1] = "either"
    return block


def _block(types: Types, struct: str, left_out: frozenset[str] = frozenset()) -> dict[str, Any]:
    attributes: dict[str, Any] = {}
    blocks: dict[str, Any] = {}
    for member in types[struct].get("properties", ()):
        member_type = _told(member["type"])
        if member_type is None or member["name"] in left_out:
            continue
        is_optional = member.get("optional", False)
        link = re.search(r"#(\w+) \w+#", member["docs"].get("remarks", ""))
        name = link[1] if link else _with_underscores(member["name"])
        if member_type[1] is None:
            attributes[name] = [member_type[0], "optional" if is_optional else "required"]
        else:
            inner = _block(types, member_type[1])
            blocks[name] = inner | {"required": not is_optional, "many": member_type[0] == "many"}
    return {"attributes": attributes, "blocks": blocks}


def _told(declaration: dict[str, Any]) -> tuple[Any, str | None] | None:
    """Return an attribute's type; or "one" or "many" and a block's name; None for CDKTF's own."""
    if "union" in declaration:
        return next(
            (nested for choice in declaration["union"]["types"] if (nested := _told(choice))), None
        )
    if "collection" in declaration:
        nested = _told(declaration["collection"]["elementtype"])
        if nested is not None and nested[1] is not None:
            return "many", nested[1]
        kind = "map" if declaration["collection"]["kind"] == "map" else "list"
        return [kind, "string" if nested is None else nested[0]], None
    if "primitive" in declaration:
        return _PRIMITIVES[declaration["primitive"]], None
    return None if declaration["fqn"].startswith("cdktf.") else ("one", declaration["fqn"])


def _with_underscores(name: str) -> str:
    return re.sub(r"([A-Z])", lambda letter: f"_{letter[1].lower()}", name)


def _lines(schema: dict[str, Any]) -> Iterator[str]:
    """Yield JSON with each resource on one line."""
    yield f'{{\n"version": {json.dumps(schema["version"])}'
    for kind in ("resources", "data"):
        lines = [
            f"{json.dumps(name)}: {json.dumps(resource)}"
            for name, resource in schema[kind].items()
        ]
        yield f',\n"{kind}": {{\n' + ",\n".join(lines) + "\n}"
    yield "\n}\n"


if __name__ == "__main__":
    here = Path(__file__).parent
    module = here.parents[1] / "terraform" / "modules" / "gcp"
    known = read_types(Path(sys.argv[1]))
    schema = {
        "version": VERSION,
        "resources": {
            name: described(known, "resource", name) for name in used(module, "resource")
        },
        "data": {name: described(known, "data", name) for name in used(module, "data")},
    }
    (here / "google_provider.json").write_text("".join(_lines(schema)))
