from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.cli.pictures.simulation import GROUND_WORDS, bin_seconds
from autoscaler.domain.errors import SpecError
from autoscaler.domain.plan import ReasonCode
from autoscaler.economics.choice.demands import ChoiceReason
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


@pytest.mark.parametrize(
    ("ground", "policy", "message"),
    [
        ("offers", "fifo", "fifo shares out the machines of a pool: use --cluster"),
        ("cluster", "static", "static buys instances: use --offers"),
        ("cluster", "throughput", "throughput buys instances: use --offers"),
    ],
)
def test_a_policy_is_told_at_once_where_it_can_not_plan(
    files: Path, ground: str, policy: str, message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        simulate(files, f"--{ground}", str(files / f"{ground}.yaml"), "--policy", policy)


@pytest.mark.parametrize("policy", ["throughput", "pollux", "static", "antman"])
def test_policies_that_buy_finish_on_an_elastic_cloud(files: Path, policy: str) -> None:
    bought = ["--offers", str(files / "offers.yaml"), "--max-instances", "4"]
    told = simulate(files, *bought, "--policy", policy)
    assert "average completion time" in told


@pytest.mark.parametrize("policy", ["antman", "drf", "gandiva", "ref", "slaq", "tiresias-gittins"])
def test_policies_that_share_out_finish_on_a_pool(files: Path, policy: str) -> None:
    told = simulate(files, "--cluster", str(files / "cluster.yaml"), "--policy", policy)
    assert "average completion time" in told


def test_a_pool_is_shared_and_costs_nothing_more(files: Path) -> None:
    out = files / "out.json"
    cluster = ["--cluster", str(files / "cluster.yaml")]
    simulate(files, *cluster, "--policy", "fifo", "--json", str(out))
    result = json.loads(out.read_text())
    assert result["totals"]["cost_usd"] == 0
    assert [job["timeline"][0]["gpus"] for job in result["jobs"]] == [2, 1]
    assert [job["pause_s"] for job in result["jobs"]] == [10, 10]
    for job in result["jobs"]:
        waited = job["started_s"] - job["submitted_s"]
        took = job["finished_s"] - job["submitted_s"]
        assert took - waited == pytest.approx(job["exclusive_s"]), "alone on what it requested"
        assert job["ftf_rho"] == pytest.approx(took / job["exclusive_s"])
    assert result["totals"]["worst_ftf_rho"] == max(job["ftf_rho"] for job in result["jobs"])


def test_a_run_is_drawn_and_its_decisions_are_kept(files: Path) -> None:
    out, picture = files / "out.json", files / "run.svg"
    simulate(
        *(files, "--offers", str(files / "offers.yaml")),
        *("--json", str(out), "--plot", str(picture)),
    )
    assert "<svg" in picture.read_text()
    first = json.loads(out.read_text())["decisions"][0]
    assert (first["job"], first["action"], first["ground"]) == ("a", "start", "first start")
    pool = files / "pool.png"
    simulate(files, "--cluster", str(files / "cluster.yaml"), "--plot", str(pool))
    assert pool.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ((), "name one market to train on"),
        (("--cluster", "2x2"), r"profiled on fast, slow: .* --cluster FILE.yaml with nodes: "),
        (("--cluster", "other.yaml"), "other.yaml: nodes: node-000: toy was not profiled on zorg"),
        (("--offers", "other-offers.yaml"), "other-offers.yaml: offers: slow: toy was not prof"),
        (("--offers", "offers.yaml", "--objective", "deadline=2099-01-01T00:00Z"), "as 2h"),
        (("--offers", "offers.yaml", "--fleet-usd-per-hour", "0"), "0.0 must be above 0"),
        (("--offers", "offers.yaml", "--workload", "far.csv"), "far.csv:2: time: 1e.12 s is more"),
        (("--offers", "offers.yaml", "--workload", "big.csv"), "big.csv:2: batch_size: 9999 is"),
        (("--offers", "offers.yaml", "--workload", "no.csv"), 'no.csv:2: application: "b" has no'),
        (("--offers", "offers.yaml", "--workload", "jobs.trace"), "jobs.trace: .* --regimes DIR"),
        (("--cluster", "2by2"), "is not a cluster"),
        (("--offers", "offers.yaml", "--interval", "0"), "--interval: 0.0 must be at least 1"),
        (
            ("--offers", "offers.yaml", "--device-batch", "x"),
            "must be application=number, as yolov3=8",
        ),
        (("--offers", "offers.yaml", "--policy", "smart"), "is no policy"),
        (("--offers", "offers.yaml", "--json", "no/such/place"), "can't be written"),
    ],
)
def test_what_can_not_be_simulated_is_named(
    files: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], told: str
) -> None:
    monkeypatch.chdir(files)
    header = WORKLOAD.splitlines()[0]
    for name, row in (("far", "a,1e12,toy,1,16"), ("big", "a,0,toy,1,9999"), ("no", "a,0,b,1,16")):
        Path(f"{name}.csv").write_text(f"{header}\n{row}\n")
    Path("other.yaml").write_text(CLUSTER.replace("slow", "zorg"))
    Path("other-offers.yaml").write_text(OFFERS.replace("device_kind: slow", "device_kind: zorg"))
    with pytest.raises(SpecError, match=told):
        simulate(files, *options)


def test_a_pool_of_a_shape_has_the_one_kind_that_was_profiled(files: Path) -> None:
    (files / "profiles" / "toy" / "placements-fast.csv").unlink()
    told = simulate(files, "--cluster", "2x2", "--policy", "gandiva_fair")
    assert "average completion time" in told and "device hours held" in told


def test_what_an_objective_ends_and_what_a_deadline_keeps_are_told(files: Path) -> None:
    bought = ("--offers", str(files / "offers.yaml"))
    told = simulate(files, *bought, "--objective", "budget=$0.01")
    assert "a was stopped: " in told and "stopped before their end    2" in told
    told = simulate(files, *bought, "--objective", "deadline=10h")
    assert "finished in time            2 of 2" in told and "stopped" not in told


RESERVED = """
  - {id: own, type: slow, provider: toys, zone: here, devices: 2, device_kind: slow,
     purchase: reserved, max_instances: 1, boot: 30s, network: 1GB/s}
"""


@pytest.mark.parametrize("policy", ["marginal", "throughput", "pollux", "static", "antman"])
def test_what_is_reserved_is_used_first_and_costs_nothing(files: Path, policy: str) -> None:
    (files / "offers.yaml").write_text(OFFERS + RESERVED)
    out = files / "out.json"
    bought = ["--offers", str(files / "offers.yaml"), "--max-instances", "4"]
    simulate(files, *bought, "--policy", policy, "--json", str(out))
    jobs = json.loads(out.read_text())["jobs"]
    parts = [part for job in jobs for part in job["timeline"] if part["offer"] == "own"]
    assert parts and all(part["instances"] <= 1 for part in parts)
    for job in jobs:
        if {part["offer"] for part in job["timeline"]} == {"own"}:
            assert job["cost_usd"] == 0


def test_pictures_have_a_word_of_their_own_for_every_ground() -> None:
    named = {why.value for why in ChoiceReason} | {ReasonCode.OUTBID, ReasonCode.SLOWED}
    assert set(GROUND_WORDS) == named


@pytest.mark.parametrize(
    ("seconds", "width"), [(40.0, 1.0), (4 * 3600.0, 300.0), (100 * 86400.0, 3 * 86400.0)]
)
def test_decisions_are_counted_in_round_lengths_of_time(seconds: float, width: float) -> None:
    assert bin_seconds(seconds) == width


def test_a_reservation_that_ends_is_left_in_time(files: Path) -> None:
    ends = RESERVED.replace("max_instances: 1", "max_instances: 1, until: 4m")
    (files / "offers.yaml").write_text(OFFERS + ends)
    out = files / "out.json"
    simulate(files, "--offers", str(files / "offers.yaml"), "--json", str(out))
    timeline = json.loads(out.read_text())["jobs"][0]["timeline"]
    assert timeline[0]["offer"] == "own" and timeline[-1]["offer"] == "slow"
    assert max(part["to_s"] for part in timeline if part["offer"] == "own") <= 240


def test_no_more_instances_are_bought_than_were_profiled(files: Path) -> None:
    """Up to 4 nodes were, which a quarter more of is answered; the owner does not care."""
    out = files / "out.json"
    options = ("--offers", str(files / "offers.yaml"), "--objective", "fastest")
    words = ["simulate", "--workload", str(files / "workload.csv")]
    words += ["--profiles", str(files / "profiles"), *options, "--json", str(out)]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert "at most 5 x slow for a job of toy: larger sizes have no profile" in result.stderr
    jobs = json.loads(out.read_text())["jobs"]
    assert max(part["instances"] for job in jobs for part in job["timeline"]) <= 5


def test_spot_comes_and_goes_by_a_trace(files: Path) -> None:
    """Two instances for ten minutes of each twenty; on-demand costs ten times as much."""
    spot = OFFERS.replace("id: slow", "id: spot").replace("1.2,", "0.12, trace: there.json,")
    spot = spot.replace("zone: here", "zone: here, purchase: spot")
    (files / "offers.yaml").write_text(OFFERS + spot.replace("\noffers:\n", ""))
    (files / "there.json").write_text('{"metadata": {"gap_seconds": 600}, "data": [2, 0]}')
    out = files / "out.json"
    bought = ("--offers", str(files / "offers.yaml"), "--objective", "cheapest")
    simulate(files, *bought, "--json", str(out))
    jobs = json.loads(out.read_text())["jobs"]
    parts = [part for job in jobs for part in job["timeline"] if part["offer"] == "spot"]
    assert parts
    for part in parts:
        assert part["from_s"] // 1200 == (part["to_s"] - 1e-6) // 1200
        assert part["from_s"] % 1200 < 600 and (part["to_s"] - 1e-6) % 1200 < 600
    (files / "there.json").write_text("[]")
    with pytest.raises(SpecError, match=r"in .*there\.json"):
        simulate(files, *bought)
