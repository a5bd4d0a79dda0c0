"""`castor reconcile --table`: the ledger beside what a fake Google Cloud has exported."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

pytest.importorskip("google.cloud.compute_v1", reason="the extra gcp is not installed")
pytest.importorskip("googleapiclient", reason="google-api-python-client is not installed")
pytest.importorskip("duckdb", reason="duckdb is not installed")
pytest.importorskip("sqlglot", reason="sqlglot is not installed")

from click.testing import Result
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.clock import SystemClock
from autoscaler.domain.errors import (
    NotFound,
    PermissionDenied,
    ProviderError,
    SpecError,
    Unavailable,
)
from tests.cli.ledger_stub import LedgerStub
from tests.fakes.faults import Fault
from tests.fakes.gcp.billing import Billed, Table
from tests.fakes.gcp.project import Project
from tests.fakes.gcp.server import FakeGcp

PROJECT = "my-project"
TABLE = f"{PROJECT}.billing.gcp_billing_export_v1_0123AB_4567CD_89EF01"
FIRST = date(2025, 3, 1)
NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)
DAYS = ("--from", "2025-03-01", "--to", "2025-03-02", "--table", TABLE)
OWN = {"castor-deployment": "prod"}
SPOT = "gpu/g2-standard-4/us-central1-a/spot"
OF_AWS = ("castor:", "AWS", "EC2", "Cost Explorer", "tag", "volumes")


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeGcp]:
    server = FakeGcp(SystemClock())
    yield server
    server.close()


@pytest.fixture
def project(fake: FakeGcp, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Project:
    """Set the command's environment, without this machine's own, and return its project."""
    told = {
        "BIGQUERY_EMULATOR_HOST": fake.url,
        "GOOGLE_APPLICATION_CREDENTIALS": "",
        "CLOUDSDK_CONFIG": str(tmp_path),
        "NO_GCE_CHECK": "true",
        "COLUMNS": "160",
    }
    for name, value in told.items():
        monkeypatch.setenv(name, value)
    found = fake.front.renew(PROJECT, SystemClock())
    found.tables[TABLE] = Table()
    return found


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> LedgerStub:
    found = LedgerStub(SPOT, FIRST)
    found.connect(monkeypatch)
    return found


def bill(
    project: Project,
    cost: float,
    sku: str = "Spot Preemptible G2 Instance Core running in Iowa",
    start: datetime = NOON,
) -> None:
    project.tables[TABLE].rows.append(Billed(start, sku, cost, OWN).row())


def reconcile(*words: str) -> Result:
    return CliRunner().invoke(app, ["reconcile", "prod", *words])


def printed(*words: str) -> str:
    result = reconcile(*DAYS, *words)
    assert result.exit_code == 0, result
    said = " ".join(result.stdout.split())
    assert not [word for word in OF_AWS if word in said]
    return said


def test_days_are_compared_and_what_is_beside_is_shown(
    project: Project, ledger: LedgerStub
) -> None:
    ledger.spend("12.40", extras_usd="1.50", transfer_usd="0.90")
    ledger.spend("3", offer="local-small")
    ledger.spend("7", offer="gpu/g5.xlarge/us-east-1a/spot")
    bill(project, 10.20)
    bill(project, 1.44, "Balanced PD Capacity in Iowa")
    bill(project, 1.08, "Network Inter Zone Data Transfer Out")
    said = printed()
    assert "2025-03-01 10.00 10.20 +2.0% 1.50 1.44 1.08" in said
    assert "settled 10.00 10.20 +2.0% 1.50 1.44 1.08" in said
    assert (
        "Extras are disks and addresses; beside are costs that the ledger does not track." in said
    )
    assert "Beside: transfer $1.08. The ledger has $0.9000 for transfers of jobs' files" in said
    assert "Instances agree within 3 % or $0.01" in said
    assert "The query to BigQuery cost $0.0001; a month's first TiB of queries is free." in said


def test_a_leak_is_told_with_what_to_look_for(project: Project, ledger: LedgerStub) -> None:
    ledger.spend("10")
    bill(project, 34.14)
    said = printed()
    assert "The account has more (+$24.14). Look for instances with castor-deployment=prod" in said


def test_costs_that_are_missing_are_told_with_why_that_may_be(
    project: Project, ledger: LedgerStub
) -> None:
    ledger.spend("10")
    bill(project, 4)
    said = printed()
    assert "The ledger has more (-$6.00). Look for instances without castor-deployment=" in said
    assert "discounts for sustained or committed use." in said
    project.tables[TABLE].rows.clear()
    said = printed()
    assert (
        "has no cost with castor-deployment=prod: billing lines are exported up to a day late"
        in said
    )


def test_the_same_for_scripts(project: Project, ledger: LedgerStub) -> None:
    ledger.spend("10")
    bill(project, 11, start=NOON + timedelta(days=1))
    found = json.loads(reconcile(*DAYS, "--json").stdout)
    assert found["verdict"] == "account has more"
    assert [day["day"] for day in found["days"]] == ["2025-03-01", "2025-03-02"]
    assert Decimal(found["instances"]["difference_usd"]) == 1


def test_another_project_may_pay(project: Project, fake: FakeGcp, ledger: LedgerStub) -> None:
    ledger.spend("10")
    bill(project, 10)
    payer = fake.front.renew("other-project", SystemClock())
    payer.tables = project.tables
    assert "Instances agree" in printed("--project", "other-project")
    assert payer.calls["bigquery.jobs.query"] == 1 and not project.calls


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--table", "billing.export"], "--table: 'billing.export' is not a table: write it like"),
        (
            ["--table", ""],
            "--table: '' is not a table: write it like my-project.billing.gcp_billing",
        ),
        (["--project", PROJECT], "--project: is for Google Cloud only: name the export with"),
        (["--table", TABLE, "--project", "x"], "--project: 'x' is not a project id: write it"),
    ],
)
def test_what_names_no_export_is_refused_before_anybody_is_asked(
    project: Project, ledger: LedgerStub, words: list[str], said: str
) -> None:
    error = reconcile(*words).exception
    assert isinstance(error, SpecError)
    assert said in str(error) and "\n" not in str(error)
    assert not project.calls


@pytest.mark.parametrize(
    ("cloud", "words", "otherwise"),
    [
        ("aws", [], "or name Google Cloud's export with --table"),
        ("gcp", ["--table", TABLE], "or leave it out to compare with AWS"),
    ],
)
def test_an_extra_that_is_missing_is_named(
    ledger: LedgerStub,
    monkeypatch: pytest.MonkeyPatch,
    cloud: str,
    words: list[str],
    otherwise: str,
) -> None:
    monkeypatch.setitem(sys.modules, f"providers.{cloud}.cost_report", None)
    error = reconcile(*words).exception
    assert isinstance(error, SpecError)
    assert f"castor-autoscaler[{cloud}]', {otherwise}" in str(error)


def test_a_google_that_is_away_is_not_a_controller_that_is(
    project: Project, ledger: LedgerStub
) -> None:
    """Exit statuses differ, and so does what to do."""
    project.faults.add(Fault("bigquery.jobs.query", code="backendError", status=503))
    error = reconcile(*DAYS).exception
    assert isinstance(error, ProviderError) and not isinstance(error, Unavailable)
    project.faults.add(Fault("bigquery.jobs.query", code="accessDenied", status=403))
    assert isinstance(reconcile(*DAYS).exception, PermissionDenied)
    project.tables.clear()
    assert isinstance(reconcile(*DAYS).exception, NotFound)
