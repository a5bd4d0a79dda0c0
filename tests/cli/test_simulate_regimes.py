"""`castor simulate` of a trace of jobs with regimes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.domain.errors import SpecError
from tests.simulator.workloads.test_regimes import JOB, ROW, with_field


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "few.trace").write_text(f"{ROW}\n{with_field(11, '90')}\n")
    (tmp_path / "few.json").write_text(json.dumps([JOB, JOB | {"job": 1}]))
    return tmp_path


def simulate(files: Path, *options: str) -> None:
    words = ["simulate", "--workload", str(files / "few.trace"), *options]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0


@pytest.mark.parametrize("policy", ["tiresias", "shockwave", "allox"])
def test_rigid_jobs_with_regimes_share_a_pool(files: Path, policy: str) -> None:
    """One after the other on 2 devices: what a third party finds in the timeline too."""
    out = files / "out.json"
    words = ["--regimes", str(files), "--cluster", "1x2", "--policy", policy]
    simulate(files, *words, "--interval", "60", "--restart-seconds", "5", "--json", str(out))
    result = json.loads(out.read_text())
    for job in result["jobs"]:
        trained = [each for each in job["timeline"] if each["batch_size"]]
        epochs = {10: 20.0, 20: 10.0}
        done = sum((e["to_s"] - e["from_s"]) / epochs[e["batch_size"]] for e in trained)
        assert done == pytest.approx(30)
        assert job["pause_s"] == 5 * (1 + job["restarts"])
    last = max(job["finished_s"] for job in result["jobs"])
    assert last >= 60 + 2 * 400 + 2 * 5
    assert result["totals"]["makespan_s"] == last - 60


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--cluster", "1x2"], "--profiles DIR, or --regimes DIR"),
        (
            ["--cluster", "1x1", "--regimes", "."],
            ":1: scale_factor: requests 2 devices, but the pool has 1",
        ),
        (["--offers", "offers.yaml", "--regimes", "."], "use --cluster"),
    ],
)
def test_what_can_not_be_is_refused_before_anything_runs(
    files: Path, options: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (files / "offers.yaml").write_text("offers: [{type: g4dn.12xlarge}]\n")
    monkeypatch.chdir(files)
    with pytest.raises(SpecError, match=message):
        simulate(files, "--policy", "fifo", *options)
