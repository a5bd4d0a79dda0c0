"""The spec of a job, as the API and `castor spec` give it to submit the job again."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.domain.access import Role
from autoscaler.domain.errors import CastorError, Forbidden, UnknownJob
from autoscaler.domain.job import CheckpointSpec, InstanceBounds, SecretReference
from autoscaler.domain.objective import Objective, Preference
from autoscaler.spec.job_file import load_job
from autoscaler.wire.access_messages import InvitationRequest
from autoscaler.wire.messages import Change
from tests.service.agents import SPEC, packed
from tests.service.conftest import TOKEN, Api
from tests.store.test_statements import counted

WHOLE = replace(
    SPEC,
    environment={"LINES": "a\nb"},
    secrets={"KEY": SecretReference(variable="HF_TOKEN")},
    checkpoint=CheckpointSpec(interval_seconds=60.0),
)

Castor = Callable[..., str]


@pytest.fixture
def castor(api: Api, monkeypatch: pytest.MonkeyPatch) -> Castor:
    """Function that runs a command, and returns its output or the text of its error."""
    monkeypatch.setenv("CASTOR_URL", api.url)
    monkeypatch.setenv("CASTOR_TOKEN", TOKEN)

    def run(*words: str) -> str:
        done = CliRunner().invoke(app, words)
        return str(done.exception) if isinstance(done.exception, CastorError) else done.output

    return run


def test_the_spec_submits_the_job_again(api: Api, tmp_path: Path) -> None:
    archive, sha256 = packed(tmp_path)
    first = api.client.submit(replace(WHOLE, bundle=sha256), archive)
    again = api.client.spec("job").spec
    assert again == replace(WHOLE, bundle=sha256)  # neither person nor default budget
    api.client.stop("job")
    api.world.tick(2)
    second = api.client.submit(again)
    assert second.id != first.id
    stored = [api.world.store.jobs.get(job).spec for job in (first.id, second.id)]
    assert stored[0] == stored[1]


def test_the_spec_has_later_changes_and_no_default_budget(api: Api) -> None:
    api.client.submit(WHOLE)
    api.world.store.jobs.change_spec("job", objective=Objective(cap_usd=Decimal(50)))
    assert api.client.spec("job").spec.objective == Objective()
    change = Change(Objective(Preference.FASTEST), InstanceBounds(maximum=1), 4.0)
    api.client.change("job", change)
    spec = api.client.spec("job").spec
    assert (spec.objective, spec.instances, spec.priority) == (
        change.objective,
        change.instances,
        change.priority,
    )


def test_only_the_owner_the_team_and_operators_read_a_spec(api: Api) -> None:
    tokens = {
        role: api.client.invite(f"{role}-person", InvitationRequest(role)).token
        for role in (Role.VIEWER, Role.SUBMITTER, Role.OPERATOR)
    }
    api.client.submit(WHOLE)
    for role in (Role.VIEWER, Role.SUBMITTER):
        with pytest.raises(Forbidden, match="read spec"):
            api.stranger(tokens[role]).spec("job")
    assert api.stranger(tokens[Role.OPERATOR]).spec("job").spec == WHOLE
    with pytest.raises(UnknownJob):
        api.client.spec("nobody")


def test_the_command_prints_a_file_that_is_submitted_again(
    api: Api, castor: Castor, tmp_path: Path
) -> None:
    folder = tmp_path / "work"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)")
    file = folder / "job.yaml"
    file.write_text(
        "name: job\ncommand: python train.py --name 'a b'\nenvironment: {RATE: 0.10}\n"
        "instances: {min: 1, max: 2}\nobjective: {budget: 5}\nbatch: {initial: 32, max: 64}\n"
    )
    assert "pending" in castor("submit", str(file))
    before = api.world.store.jobs.get("job").spec
    castor("stop", "job")
    api.world.tick(2)
    text = castor("spec", "job")
    assert text.startswith("# Job file of job.") and "budget: 5" in text
    file.write_text(text)
    assert "pending" in castor("submit", str(file))
    after = max(api.world.store.jobs.all(), key=lambda job: job.number).spec
    assert replace(after, bundle=None) == replace(before, bundle=None)


def test_the_command_prints_what_the_api_takes(api: Api, castor: Castor) -> None:
    api.client.submit(WHOLE)
    assert json.loads(castor("spec", "job", "--json"))["spec"]["environment"] == {"LINES": "a\nb"}
    assert load_job(castor("spec", "job"), 0.0).spec == WHOLE
    api.client.submit(replace(SPEC, name="rigid", requested_devices=2))
    assert "requested_devices: a job file can't have it" in castor("spec", "rigid")
    api.client.submit(replace(SPEC, name="sweep-0", study="sweep"))
    assert "is a trial of sweep" in castor("spec", "sweep-0")


def test_a_submission_reads_no_row_of_other_jobs(api: Api) -> None:
    for number in range(3):
        api.client.submit(replace(SPEC, name=f"job-{number}"))
    with counted() as statements:
        api.client.submit(replace(SPEC, name="one-more"))
    selects = [text for text in statements if "jobs.spec" in text and text.startswith("SELECT")]
    assert selects
    assert all("WHERE jobs.name = ?" in text or "WHERE jobs.id = ?" in text for text in selects)
