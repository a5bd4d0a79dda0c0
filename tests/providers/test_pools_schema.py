"""JSON Schema of files of pools: current, complete, and in step with the parsers of the clouds.

``python -m tests.providers.test_pools_schema`` writes it to `docs/schemas`.
"""

from __future__ import annotations

import copy
import json
import re
from typing import Any, Final

import pytest
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.clouds import pools_forms
from autoscaler.domain.errors import SpecError
from autoscaler.spec.form_file import validated
from autoscaler.spec.located_yaml import read_yaml
from autoscaler.spec.schemas import pools_schema
from tests.spec.test_schemas import FOLDER, ROOT, WRONG, places

PATH: Final = FOLDER / "pools.schema.json"
FORMS: Final = pools_forms()
SCHEMA: Final = pools_schema(FORMS)
VALIDATOR: Final = Draft202012Validator(SCHEMA)


def documented(cloud: str) -> dict[str, Any]:
    """Return the example of the cloud's page."""
    text = (ROOT / "docs" / f"{cloud}.md").read_text().split("## Pool settings")[1]
    found = re.search(r"```json\n(.*?)```", text, re.DOTALL)
    assert found is not None
    example: dict[str, Any] = json.loads(found[1])
    return example


def is_parsed(cloud: str, document: object) -> bool:
    """Return whether the form of a cloud takes a document."""
    try:
        validated(read_yaml(json.dumps(document), "pools"), FORMS[cloud])
    except SpecError:
        return False
    return True


def test_the_file_of_the_schema_is_current() -> None:
    assert json.loads(PATH.read_text()) == SCHEMA, (
        "run: python -m tests.providers.test_pools_schema"
    )
    printed = CliRunner().invoke(app, ["schema", "pools"])
    assert json.loads(printed.stdout) == SCHEMA


def test_it_is_a_schema_and_describes_every_key() -> None:
    Draft202012Validator.check_schema(SCHEMA)
    assert [form["title"] for form in SCHEMA["anyOf"]] == ["aws", "gcp"]
    forms = [*SCHEMA["anyOf"], *SCHEMA["$defs"].values()]
    for form in (form for form in forms if "properties" in form):
        assert form["additionalProperties"] is False
        for key, value in form["properties"].items():
            assert value.get("description"), key


@pytest.mark.parametrize("cloud", FORMS)
def test_the_example_of_a_cloud_is_valid(cloud: str) -> None:
    assert is_parsed(cloud, documented(cloud))
    assert VALIDATOR.is_valid(documented(cloud))


@pytest.mark.parametrize("cloud", FORMS)
def test_what_a_cloud_takes_is_valid(cloud: str) -> None:
    example, taken = documented(cloud), 0
    for *parents, key in (place for place in places(example) if place):
        for wrong in (*WRONG, "$0.5", 0):
            changed = copy.deepcopy(example)
            holder: Any = changed
            for parent in parents:
                holder = holder[parent]
            holder[key] = wrong
            if is_parsed(cloud, changed):
                taken += 1
                assert VALIDATOR.is_valid(changed), (*parents, key, wrong)
    assert taken > 10


@pytest.mark.parametrize(
    "change",
    [
        {"pools": None},
        {"pools": {}},
        {"pools": {"gpu": {"region": "us-east-1"}}},
        {"regions": []},
        {"cloud": "azure"},
        {"max_usd_per_hour": "a lot"},
        {"max_usd_per_hour": 0},
        {"launches_per_minute": 0},
        {"maximum": 5},
    ],
)
@pytest.mark.parametrize("cloud", FORMS)
def test_a_file_with_another_structure_is_refused(cloud: str, change: dict[str, Any]) -> None:
    changed = {**documented(cloud), **change}
    assert not is_parsed(cloud, changed)
    assert not VALIDATOR.is_valid(changed)


if __name__ == "__main__":
    PATH.write_text(json.dumps(SCHEMA, indent=2) + "\n")
