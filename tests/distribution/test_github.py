"""Workflows and forms of GitHub: valid by their schemas, and in step with .ci/run."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

ROOT = Path(__file__).parents[2]
GITHUB = ROOT / ".github"
SCHEMAS = Path(__file__).parent / "schemas"
WORKFLOWS = sorted((GITHUB / "workflows").glob("*.yml"))
CHECKED = {
    **dict.fromkeys(WORKFLOWS, "github-workflows"),
    GITHUB / "ISSUE_TEMPLATE" / "defect.yml": "github-issue-forms",
    GITHUB / "ISSUE_TEMPLATE" / "wish.yml": "github-issue-forms",
    GITHUB / "ISSUE_TEMPLATE" / "config.yml": "github-issue-config",
    GITHUB / "dependabot.yml": "dependabot",
}


def read(path: Path) -> Any:
    """Return a YAML file of GitHub. `on` is a key there, which YAML 1.1 reads as true."""
    document = yaml.safe_load(path.read_text())
    return {"on" if key is True else key: value for key, value in document.items()}


def problems(document: object, schema: str) -> list[str]:
    rules = json.loads((SCHEMAS / f"{schema}.json").read_text())
    validator = jsonschema.validators.validator_for(rules)(rules)
    errors = validator.iter_errors(document)
    return [f"{error.json_path}: {error.message[:200]}" for error in errors]


@pytest.mark.parametrize("path", CHECKED, ids=lambda path: path.name)
def test_a_file_is_valid(path: Path) -> None:
    assert problems(read(path), CHECKED[path]) == []


def test_every_file_is_checked() -> None:
    assert {*GITHUB.rglob("*.yml"), *GITHUB.rglob("*.yaml")} == set(CHECKED)


@pytest.mark.parametrize("key", ["runs-on", "steps"])
def test_an_invalid_workflow_is_found(key: str) -> None:
    workflow = read(GITHUB / "workflows" / "audit.yml")
    del workflow["jobs"]["audit"][key]
    found = problems(workflow, "github-workflows")
    assert bool(found) == (key == "runs-on")  # the schema lets a job have no steps
    workflow["jobs"]["audit"]["no-such-key"] = 1
    assert problems(workflow, "github-workflows")


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_few_rights_and_ends(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        assert "timeout-minutes" in job
        for step in job["steps"]:
            if "checkout" in step.get("uses", ""):
                assert step["with"]["persist-credentials"] is False


def test_the_workflow_of_a_change_runs_what_ci_runs() -> None:
    of_ci = re.findall(r"^(make .*?)(?: <.*)?$", (ROOT / ".ci" / "run").read_text(), re.M)
    rows = read(GITHUB / "workflows" / "ci.yml")["jobs"]["check"]["strategy"]["matrix"]["include"]
    of_workflow = [row["run"].partition(" <")[0] for row in rows]
    assert of_workflow == of_ci


def test_the_changelog_has_the_version_and_its_date_or_none_yet() -> None:
    (version,) = re.findall(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.M)
    newest = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)[0]
    assert re.fullmatch(rf"\[{re.escape(version)}\] - (unreleased|\d{{4}}-\d\d-\d\d)", newest)


def test_no_secret_is_needed_for_a_release() -> None:
    text = (GITHUB / "workflows" / "release.yml").read_text()
    assert "secrets." not in text
    upload = read(GITHUB / "workflows" / "release.yml")["jobs"]["upload"]
    assert upload["permissions"] == {"id-token": "write"}
