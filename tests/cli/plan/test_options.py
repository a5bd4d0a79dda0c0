from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.cli.pictures.frontier import decimals_of_ticks
from autoscaler.domain.errors import SpecError, Unavailable
from tests.cli.simulate.test_command import OFFERS
from tests.simulator import toy

JOB = "name: toy\ncommand: python train.py\nbatch: {initial: 16, max: 256}\ninstances: 4\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "job.yaml").write_text(JOB)
    (tmp_path / "offers.yaml").write_text(OFFERS)
    toy.write_profile(tmp_path / "profiles")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("CASTOR_STATE", str(tmp_path / "state"))
    return tmp_path


def plan(*options: str) -> str:
    result = CliRunner().invoke(app, ["plan", "job.yaml", *options], catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_the_frontier_is_told_in_a_table_as_json_and_in_a_picture(files: Path) -> None:
    known = ("--offers", "offers.yaml", "--profiles", "profiles")
    told = plan(*known, "--plot", "plan.svg")
    assert "from step times of toy on slow" in told
    assert "<- your objective" in told
    assert "9 in 10 such jobs take" in told
    assert "first decision: start toy on" in told
    picture = (files / "plan.svg").read_text()
    assert "toy: cost against time to finish" in picture or "<path" in picture
    view = json.loads(plan(*known, "--json"))
    assert view["frontier"][0]["from_value_of_time_usd_per_hour"] == 0.0
    assert 0 < view["chosen"]["usd_band"][0] <= view["chosen"]["usd"] <= view["chosen"]["usd_90"]


def test_what_can_not_be_kept_is_told_with_what_can(files: Path) -> None:
    (files / "job.yaml").write_text(f"{JOB}objective: {{deadline: 1m, budget: $0.01}}\n")
    told = plan("--offers", "offers.yaml", "--profiles", "profiles")
    assert "a deadline in 60 s and a budget of $0.01 can't be kept at 90 %" in told
    assert "the earliest possible finish is in" in told
    assert "<- chosen instead" in told


def test_a_plan_of_an_unknown_total_shows_prices_and_the_first_instance(files: Path) -> None:
    printed = plan("--offers", "offers.yaml")
    assert "1 x slow" in printed
    assert "/h" in printed and "not measured" in printed
    assert "first decision: start toy on" in printed
    assert "Set total_progress in the job file" in printed.replace("\n", " ")
    view = json.loads(plan("--offers", "offers.yaml", "--json"))
    assert view["chosen"] is None and view["frontier"] == []
    prices = [rate["usd_per_hour"] for rate in view["rates"]]
    assert prices == sorted(prices) and prices[0] > 0


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (
            ("--offers", "offers.yaml", "--plot", "plan.svg"),
            "total_progress: --plot needs the job's length: set total_progress in the job file",
        ),
        (("--profiles", "profiles"), "--profiles: needs --offers"),
        (
            ("--offers", "offers.yaml", "--profiles", "profiles", "--application", "bert"),
            "'bert' has no profile; profiles: toy",
        ),
        (("--offers", "offers.yaml", "--plot", "plan.doc"), "name it .png, .svg or .pdf"),
        (("--offers", "offers.yaml", "--plot", "no/plan.png"), "its folder is missing"),
    ],
)
def test_what_can_not_be_planned_is_named(
    files: Path, options: tuple[str, ...], told: str
) -> None:
    with pytest.raises(SpecError, match=told):
        plan(*options)


@pytest.mark.parametrize("key", ["offers: [nobody]", "max_of: {nobody: 1}"])
def test_an_offer_that_nobody_sells_is_named(files: Path, key: str) -> None:
    (files / "job.yaml").write_text(JOB.replace("instances: 4", f"instances: {{max: 4, {key}}}"))
    with pytest.raises(
        SpecError, match=r'instances\..*: no provider sells "nobody": there are slow'
    ):
        plan("--offers", "offers.yaml", "--profiles", "profiles")


def test_without_matplotlib_the_way_to_it_is_told_before_anything_is_done(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(SpecError, match=r"pip install 'castor-autoscaler\[plot\]'"):
        plan("--offers", "offers.yaml", "--plot", "plan.png")


@pytest.mark.parametrize(
    ("ignore", "limit", "words"),
    [
        ("*\n", "", r"no file of .* would be packed: \.gitignore ignores all of them"),
        ("", "bundle_limit: 10\n", "over the limit of 10B; largest are"),
    ],
)
def test_a_bundle_that_submit_refuses_is_refused(
    files: Path, ignore: str, limit: str, words: str
) -> None:
    (files / ".gitignore").write_text(ignore)
    (files / "job.yaml").write_text(f"{JOB}{limit}")
    with pytest.raises(SpecError, match=words):
        plan("--offers", "offers.yaml")


def test_without_offers_a_controller_is_asked(files: Path) -> None:
    with pytest.raises(Unavailable, match="or name an offers file: --offers FILE"):
        plan()


def test_the_example_that_ships_can_be_planned(tmp_path: Path) -> None:
    example = Path(__file__).parents[3] / "examples" / "simulation"
    words = ["plan", example / "words.yaml", "--offers", example / "offers.yaml"]
    words += ["--profiles", example / "profiles", "--json"]
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert result.exit_code == 0
    assert len(json.loads(result.stdout)["frontier"]) > 1
    narrow = CliRunner().invoke(app, [str(word) for word in words[:-1]], env={"COLUMNS": "80"})
    assert "1 x g4dn.12xlarge-on-demand  " in narrow.stdout, "names are whole where there is room"


@pytest.mark.parametrize(
    ("most", "decimals"), [(0.013, 3), (0.07, 3), (0.9, 2), (4.0, 2), (30.0, 0)]
)
def test_ticks_of_a_plot_tell_cents_apart(most: float, decimals: int) -> None:
    assert decimals_of_ticks(most) == decimals


def test_a_plan_compares_shards_and_names_offers_that_are_too_small(files: Path) -> None:
    offers = (files / "offers.yaml").read_text()
    assert "devices" in offers
    (files / "job.yaml").write_text(f"{JOB}total_progress: 1e6\nparallelism: {{shard: [1, 2]}}\n")
    printed = plan("--offers", "offers.yaml")
    assert "with the worth" in printed
    assert "least cost" in printed or "only one fits" in printed
