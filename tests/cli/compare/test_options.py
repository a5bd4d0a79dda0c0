from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.domain.errors import SpecError
from tests.cli.simulate.test_command import OFFERS, WORKLOAD
from tests.simulator import toy


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "workload.csv").write_text(WORKLOAD)
    (tmp_path / "offers.yaml").write_text(OFFERS)
    toy.write_profile(tmp_path / "profiles")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path


def compare(*options: str) -> str:
    words = ["compare", "--workload", "workload.csv", "--profiles", "profiles", *options]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_policies_are_told_with_intervals_and_against_the_first(files: Path) -> None:
    told = compare(
        *("--offers", "offers.yaml", "--policies", "marginal,static", "--seeds", "2"),
        *("--plot", "out.svg", "--json", "out.json", "--noise-error", "0.5"),
    )
    assert "±" in told and "x" in told
    marginal, static = json.loads((files / "out.json").read_text())["policies"]
    assert (marginal["policy"], static["policy"]) == ("marginal", "static")
    assert len(marginal["totals"]) == 2
    assert marginal["totals"][0] != marginal["totals"][1], "seeds differ"
    assert static["figures"]["avg_jct_s"]["ratio"]["mean"] > 0
    assert (files / "out.svg").stat().st_size > 1000


def test_it_takes_whatever_a_simulation_takes(files: Path) -> None:
    commands = get_command(app).commands  # type: ignore[attr-defined]
    taken = {name: {each.name for each in commands[name].params} for name in commands}
    assert taken["simulate"] - taken["compare"] == {"policy", "serve", "pace", "port"}
    (files / "pool.yaml").write_text("nodes: [{kind: slow, count: 2, devices: 2}]\n")
    words = ("--cluster", "pool.yaml", "--policies", "fifo", "--seeds", "1", "--interval", "600")
    compare(*words, "--json", "waits.json")
    compare(*words, "--json", "hears.json", "--on-news")
    waits, hears = (
        json.loads((files / name).read_text())["policies"][0]["totals"][0]["decisions"]
        for name in ("waits.json", "hears.json")
    )
    assert hears > waits


def test_several_processes_find_the_same(files: Path) -> None:
    common = ("--cluster", "cluster.yaml", "--policies", "fifo,tiresias", "--seeds", "1")
    (files / "cluster.yaml").write_text("nodes: [{kind: slow, count: 2, devices: 2}]\n")
    compare(*common, "--json", "one.json")
    compare(*common, "--json", "two.json", "--workers", "2")
    one, two = (
        [
            each["figures"]["avg_jct_s"]
            for each in json.loads((files / name).read_text())["policies"]
        ]
        for name in ("one.json", "two.json")
    )
    assert one == two


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--policies", "fifo,fifo"), "--policies: name each policy once"),
        (("--policies", " , "), "--policies: name each policy once"),
        (("--policies", "fifo", "--seeds", "0"), "--seeds: 0 must be at least 1"),
        (("--policies", "fifo", "--workers", "0"), "--workers: 0 must be at least 1"),
        (("--policies", "smart", "--cluster", "2x2"), "applications were profiled on fast, slow"),
    ],
)
def test_what_can_not_be_compared_is_named(
    files: Path, options: tuple[str, ...], told: str
) -> None:
    with pytest.raises(SpecError, match=told):
        compare(*options)
