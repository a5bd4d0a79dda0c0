"""Messages between today's code and that of the releases before; see docs/keeping.md."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import pytest

from autoscaler.wire.codec import decode, encode
from tests.wire.frozen_messages import example, message_types, release, releases

TYPES: Final = message_types()
# Bodies of people's requests: unknown keys are errors there, so `castor` must not be newer than
# its controller.
FROM_PEOPLE: Final = frozenset(
    {"Submission", "Change", "Resumption"}
    | {"StudyAnswers", "StudyBudget", "StudyLease", "StudyStatement"}
)
# Messages of people that today's code no longer reads, by the command that replaces them.
WITHDRAWN: Final = {"Invitation": "castor token"}


def of_releases() -> list[Any]:
    """Return (message, what a release said of it) for all messages of all frozen releases."""
    return [
        pytest.param(name, frozen, id=f"{path.stem}-{name}")
        for path in releases()
        for name, frozen in release(path).items()
        if name not in WITHDRAWN
    ]


def test_there_is_a_release_to_compare_with() -> None:
    assert [path.stem for path in releases()] == ["0.1"]


def missing(part: Any, whole: Any, place: str = "") -> list[str]:
    """Return the places at which a JSON value lacks, or changes, what another one holds."""
    if isinstance(part, Mapping) and isinstance(whole, Mapping):
        return [
            problem
            for key, value in part.items()
            for problem in missing(value, whole.get(key), f"{place}.{key}")
        ]
    if isinstance(part, list) and isinstance(whole, list) and len(part) == len(whole):
        pairs = zip(part, whole, strict=True)
        return [p for value, other in pairs for p in missing(value, other, f"{place}[]")]
    return [] if part == whole else [f"{place}: {part!r} became {whole!r}"]


@pytest.mark.parametrize(("name", "frozen"), of_releases())
def test_today_s_code_reads_the_message(name: str, frozen: Mapping[str, Any]) -> None:
    value = decode(TYPES[name], json.dumps(frozen["example"]))
    assert missing(frozen["example"], json.loads(encode(TYPES[name], value))) == []


@pytest.mark.parametrize(("name", "frozen"), of_releases())
def test_a_message_without_the_optional_fields_is_read(
    name: str, frozen: Mapping[str, Any]
) -> None:
    required = frozen["fields"].get(name, {}).get("required", [])
    least = {key: frozen["example"][key] for key in required}
    decode(TYPES[name], json.dumps(least))


@pytest.mark.parametrize(("name", "frozen"), of_releases())
def test_the_earlier_code_reads_today_s_message(name: str, frozen: Mapping[str, Any]) -> None:
    """Each field that it requires is there, with the same type; it ignores fields it lacks."""
    today = json.loads(encode(TYPES[name], example(TYPES[name])))
    fields, earlier = frozen["fields"].get(name), frozen["example"]
    if fields is None:
        return
    assert set(fields["required"]) <= today.keys()
    assert fields["refuses_others"] is (name in FROM_PEOPLE)
    shared = today.keys() & earlier.keys()
    assert {key: type(today[key]) for key in shared} == {key: type(earlier[key]) for key in shared}


@pytest.mark.parametrize("change", ["remove", "rename", "retype"])
def test_a_change_that_breaks_the_earlier_code_is_noticed(change: str) -> None:
    (path,) = releases()
    frozen = release(path)["NodeReply"]
    broken = json.loads(json.dumps(frozen["example"]))
    value = broken.pop("attempt")
    if change == "rename":
        broken["start"] = value
    elif change == "retype":
        broken["attempt"] = str(value)
    assert missing(frozen["example"], broken) != []
