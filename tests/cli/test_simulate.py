from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.domain.errors import SpecError
from tests.simulator import toy

WORKLOAD = "name,time,application,num_replicas,batch_size\na,0,toy,2,32\nb,50,toy,1,16\n"
OFFERS = """
offers:
  - {id: slow, type: slow, provider: toys, zone: here, devices: 2, device_kind: slow,
     usd_per_hour: 1.2, boot: 30s, network: 1GB/s}
"""
CLUSTER = "nodes: [{kind: slow, count: 2, devices: 2}]\nrestart_seconds: {toy: 10}\n"


@pytest.fixture
def files(tmp_path: Path) -> Path:
    (tmp_path / "workload.csv").write_text(WORKLOAD)
    (tmp_path / "offers.yaml").write_text(OFFERS)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    toy.write_profile(tmp_path / "profiles")
    return tmp_path


def simulate(files: Path, *options: str) -> str:
    words = ["simulate", "--workload", str(files / "workload.csv")]
    words += ["--profiles", str(files / "profiles"), *options]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_an_elastic_cloud_is_simulated_and_written_down(files: Path) -> None:
    out = files / "out.json"
    told = simulate(files, "--offers", str(files / "offers.yaml"), "--json", str(out))
    assert "average completion time" in told
    result = json.loads(out.read_text())
    assert [job["name"] for job in result["jobs"]] == ["a", "b"]
    assert result["totals"]["cost_usd"] == pytest.approx(
        sum(job["cost_usd"] for job in result["jobs"])
    )
    assert result["jobs"][0]["timeline"][0]["offer"] == "slow"


def test_a_pool_is_shared_and_costs_nothing_more(files: Path) -> None:
    out = files / "out.json"
    cluster = ["--cluster", str(files / "cluster.yaml")]
    simulate(files, *cluster, "--policy", "fifo", "--json", str(out))
    result = json.loads(out.read_text())
    assert result["totals"]["cost_usd"] == 0
    assert [job["timeline"][0]["gpus"] for job in result["jobs"]] == [2, 1]
    assert [job["pause_s"] for job in result["jobs"]] == [10, 10]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "say what there is to train on"),
        (("--cluster", "2x2"), "toy was not profiled on default, but on fast, slow"),
        (("--cluster", "2by2"), "is no cluster"),
        (("--offers", "offers.yaml", "--interval", "0"), "--interval: 0.0 must be at least 1"),
        (("--offers", "offers.yaml", "--device-batch", "x"), "is not like yolov3=8"),
        (("--offers", "offers.yaml", "--policy", "smart"), "is no policy"),
        (("--offers", "offers.yaml", "--json", "no/such/place"), "can't be written"),
    ],
)
def test_what_can_not_be_simulated_is_named(
    files: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(files)
    with pytest.raises(SpecError, match=told):
        simulate(files, *options)
