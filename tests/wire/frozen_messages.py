"""Messages as each release sends them: ``python -m tests.wire.frozen_messages RELEASE``.

The command writes an example of each message of today's code to `frozen/RELEASE.json`, with every
field set, and the fields that its reader requires or knows. Run it when a release is tagged, and
keep the files of releases that today's code must still understand.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from pydantic import TypeAdapter

from autoscaler.domain.gang import GangPlace
from autoscaler.domain.job import ParallelismSpec
from autoscaler.domain.objective import Objective, Preference
from autoscaler.domain.offer import Offer
from autoscaler.domain.report import TrainingReport
from autoscaler.domain.trial import TrialAnswer, TrialCall
from autoscaler.wire import cost_messages, messages, plan_messages, results, study_messages
from autoscaler.wire.codec import encode

FROZEN: Final = Path(__file__).with_name("frozen")
_MODULES: Final = (messages, cost_messages, plan_messages, results, study_messages)
# Messages between the script and the agent, and of trials, which are types of the domain.
_OF_SCRIPTS: Final = (TrainingReport, TrialCall, TrialAnswer)


def message_types() -> dict[str, type[Any]]:
    """Return all dataclasses that are messages, by name."""
    known = {kind.__name__: kind for kind in _OF_SCRIPTS}
    for module in _MODULES:
        for name, kind in vars(module).items():
            if dataclasses.is_dataclass(kind) and kind.__module__ == module.__name__:
                known[name] = kind  # type: ignore[assignment]
    return known


def example(kind: Any) -> Any:
    """Return a value of a type, with all optional fields set and one item in each container."""
    origin, parts = get_origin(kind), get_args(kind)
    if dataclasses.is_dataclass(kind):
        hints = get_type_hints(kind)
        fields = (field for field in dataclasses.fields(kind) if field.init)
        values = {field.name: example(hints[field.name]) for field in fields}
        return kind(**{**values, **_VALID.get(kind, {})})  # type: ignore[operator]
    if origin in (Union, UnionType):
        return example(next(part for part in parts if part is not NoneType))
    if origin is Literal:
        return parts[0]
    if isinstance(kind, type) and issubclass(kind, Enum):
        return next(iter(kind))
    return _container(origin, parts) if origin is not None else _SIMPLE[kind]


def _container(origin: Any, parts: tuple[Any, ...]) -> Any:
    if origin is tuple:
        return tuple(example(part) for part in parts if part is not Ellipsis)
    if issubclass(origin, Mapping):
        return {example(parts[0]): example(parts[1])}
    if issubclass(origin, Sequence):
        return [example(parts[0])]
    return frozenset({example(parts[0])})


_SIMPLE: Final[Mapping[Any, Any]] = {
    bool: True,
    int: 2,
    float: 2.5,
    str: "text",
    Decimal: Decimal("2.50"),
    date: date(2026, 1, 2),
    Any: "text",
}


# Fields whose values depend on each other.
_VALID: Final[Mapping[Any, Mapping[str, Any]]] = {
    Objective: {
        "preference": Preference.VALUE_OF_TIME,
        "confidence": 0.9,
        "cap_usd": None,
        "is_uncapped": False,
    },
    Offer: {"extras_usd_per_hour": Decimal("0.10")},
    GangPlace: {"index": 1},
    ParallelismSpec: {"pipeline": 1, "near_instances": None, "shards": (), "auto_shard": False},
}


def schemas(kind: type[Any]) -> dict[str, Any]:
    """Return the names of required and of known fields of a message and of its parts."""
    schema = TypeAdapter(kind).json_schema()
    parts = {kind.__name__: schema, **schema.pop("$defs", {})}
    return {
        name: {
            "required": sorted(part.get("required", ())),
            "known": sorted(part.get("properties", ())),
            "refuses_others": part.get("additionalProperties") is False,
        }
        for name, part in sorted(parts.items())
        if "properties" in part
    }


def release(path: Path) -> dict[str, Any]:
    """Return the examples and fields of a release, by the name of the message."""
    return dict(json.loads(path.read_text()))


def releases() -> Iterator[Path]:
    """Yield the files of all frozen releases."""
    yield from sorted(FROZEN.glob("*.json"))


def _write(name: str) -> None:
    document = {
        message: {"example": json.loads(encode(kind, example(kind))), "fields": schemas(kind)}
        for message, kind in sorted(message_types().items())
    }
    (FROZEN / f"{name}.json").write_text(json.dumps(document, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    _write(sys.argv[1])
