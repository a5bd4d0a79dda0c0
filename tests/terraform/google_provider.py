"""Stand-in for Google's provider, which is available from its registry only.

The stand-in has the schema of resources and nothing else. `terraform validate` finds misspelt and
missing arguments with it, and `terraform test` runs with mocks. google_provider.json describes the
resources of the module in version 6.50.0 (google_schema.py). It lacks the optional arguments that
the provider fills in, and the valid values.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import grpc

SOURCE: Final = "registry.terraform.io/hashicorp/google"
_SCHEMA: Final = Path(__file__).with_suffix(".json")
_SERVICE: Final = "tfplugin6.Provider"
# Calls of Terraform before it uses its mocks; an empty answer means no error.
_AGREED: Final = (
    "ValidateProviderConfig",
    "ValidateResourceConfig",
    "ValidateDataResourceConfig",
    "ConfigureProvider",
    "StopProvider",
)
# Field numbers of Terraform's plugin protocol.
_FLAGS: Final = {"required": (4,), "optional": (5,), "computed": (6,), "either": (5, 6)}
_NESTED_LIST: Final = 2
_PROVIDER: Final = {
    name: ("string", "optional") for name in ("project", "region", "impersonate_service_account")
}


@contextmanager
def serving(directory: Path) -> Iterator[dict[str, str]]:
    """Serve the provider; yield the variables by which Terraform finds it."""
    server = grpc.server(ThreadPoolExecutor(4))
    schema = _schemas(json.loads(_SCHEMA.read_text()))
    answers = {name: b"" for name in _AGREED} | {"GetProviderSchema": schema}
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(lambda request, context, answer=answer: answer)
        for name, answer in answers.items()
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
    socket = directory / "provider"
    server.add_insecure_port(f"unix:{socket}")
    server.start()
    try:
        yield {"TF_REATTACH_PROVIDERS": json.dumps({SOURCE: _reattachment(socket)})}
    finally:
        server.stop(None).wait()


def _reattachment(socket: Path) -> dict[str, Any]:
    return {
        "Protocol": "grpc",
        "ProtocolVersion": 6,
        "Pid": os.getpid(),
        "Test": True,
        "Addr": {"Network": "unix", "String": str(socket)},
    }


def _schemas(known: Mapping[str, Any]) -> bytes:
    return (
        _bytes(1, _bytes(2, _block({"attributes": _PROVIDER, "blocks": {}})))
        + _map(2, known["resources"])
        + _map(3, known["data"])
    )


def _map(number: int, blocks: Mapping[str, Any]) -> bytes:
    return b"".join(
        _bytes(number, _bytes(1, name.encode()) + _bytes(2, _bytes(2, _block(block))))
        for name, block in blocks.items()
    )


def _block(block: Mapping[str, Any]) -> bytes:
    attributes = [
        _bytes(2, _attribute(name, *type_and_flag))
        for name, type_and_flag in block["attributes"].items()
    ]
    nested = [_bytes(3, _nested(name, inner)) for name, inner in block["blocks"].items()]
    return b"".join([*attributes, *nested])


def _attribute(name: str, type_of: object, flag: str) -> bytes:
    flags = b"".join(_number(number, 1) for number in _FLAGS[flag])
    return _bytes(1, name.encode()) + _bytes(2, json.dumps(type_of).encode()) + flags


def _nested(name: str, block: Mapping[str, Any]) -> bytes:
    return (
        _bytes(1, name.encode())
        + _bytes(2, _block(block))
        + _number(3, _NESTED_LIST)
        + (_number(4, 1) if block["required"] else b"")
        + (b"" if block["many"] else _number(5, 1))
    )


def _number(field: int, value: int) -> bytes:
    return _variable(field << 3) + _variable(value)


def _bytes(field: int, value: bytes) -> bytes:
    return _variable(field << 3 | 2) + _variable(len(value)) + value


def _variable(value: int) -> bytes:
    """Encode a number as Protocol Buffers do: seven bits a byte, the lowest first."""
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + _variable(rest) if rest else bytes([low])
