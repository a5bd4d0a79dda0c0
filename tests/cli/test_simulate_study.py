from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.domain.errors import SpecError

EXAMPLES = Path(__file__).parents[2] / "examples" / "simulation" / "study"


def simulate(*options: str) -> str:
    words = ["simulate", *options]
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0
    return " ".join(result.stdout.split())


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for each in EXAMPLES.iterdir():
        shutil.copy(each, tmp_path)
    return tmp_path


def test_the_example_of_asha_is_simulated_written_down_and_drawn(files: Path) -> None:
    pytest.importorskip("matplotlib")
    out, picture = files / "out.json", files / "out.png"
    said = simulate(
        *("--study", str(files / "asha.yaml"), "--policy", "static"),
        *("--json", str(out), "--plot", str(picture)),
    )
    assert "study asha policy static trials 40: " in said
    study = json.loads(out.read_text())["study"]
    assert sum(study["ends"].values()) == 40
    assert study["hand_overs"] > 0
    assert study["trials"][0]["reports"][0]["epochs"] == 1.0
    assert picture.stat().st_size > 20_000


def test_another_objective_and_a_pool_may_be_named_beside_the_file(files: Path) -> None:
    study = ("--study", str(files / "halving.yaml"), "--policy", "fifo", "--cluster", "8x1")
    said = simulate(*study, "--objective", "deadline=1m")
    assert "in time no, " in said
    assert "trials 27: 3 complete, 24 pruned" in said
    assert "spent" not in said, "the pool is paid for"


@pytest.mark.parametrize(
    ("name", "before", "after", "message"),
    [
        ("curves.csv", "0,2,", "0,1,", "curves.csv:3: epoch: 1 is not above 1, the one before"),
        ("curves.csv", "0,1,", "0,zero,", 'curves.csv:2: epoch: "zero" is not a number'),
        ("halving.yaml", "[2, 6, 18]", "[2, 6, 20]", "ends at 18, before the rung at 20"),
        (
            "halving.yaml",
            "configurations: 27",
            "configurations: 41",
            "40 trials, but the search needs 41",
        ),
        (
            "halving.yaml",
            "{1: 1, 2: 1.9",
            "{1: 1, 2: 2.9",
            "speedup: 2: 2.9 is not above 0 and at most 2",
        ),
        ("halving.yaml", "offers: offers.yaml", "", "name one market to train on"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_key(
    files: Path, name: str, before: str, after: str, message: str
) -> None:
    path = files / name
    path.write_text(path.read_text().replace(before, after, 1))
    with pytest.raises(SpecError) as refused:
        simulate("--study", str(files / "halving.yaml"))
    assert message in str(refused.value)


def test_a_workload_and_a_study_do_not_go_together(files: Path) -> None:
    with pytest.raises(SpecError, match="--study: the study's file names its inputs"):
        simulate("--study", str(files / "asha.yaml"), "--workload", "jobs.csv")
    with pytest.raises(SpecError, match="--workload FILE, or --study FILE"):
        simulate("--cluster", "4x4")
