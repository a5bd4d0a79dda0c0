from __future__ import annotations

import json
from pathlib import Path

import optuna
import pytest
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.cli.study.estimate import _chances
from autoscaler.cli.study.search import search_of_file, steps_by_pruner
from autoscaler.domain.errors import SpecError
from autoscaler.simulator.studies.forecast import Band, Outlook
from autoscaler.simulator.studies.searches import AsynchronousHalving
from autoscaler.spec.study_file import load_study

STUDY = """
name: brackets
command: train {rate}
space: {rate: {float: [0, 1]}}
pruner: {successive_halving: {min_resource: 1, reduction_factor: 3}}
trials: 4
job: {instances: {spot: false}}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CASTOR_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("CASTOR_URL", raising=False)
    path = tmp_path / "study.yaml"
    path.write_text(STUDY)
    return path


def plan(file: Path, *words: str) -> str:
    words = ("study", "plan", str(file), "--runs", "1", "--steps", "3", *words)
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0
    return result.stdout


def test_bands_rungs_the_best_pool_and_what_is_assumed(file: Path) -> None:
    found = json.loads(plan(file, "--step-seconds", "60", "--json"))
    assert [rung["step"] for rung in found["rungs"]] == [1.0, 3.0]
    assert found["rungs"][0]["trials"] == {"low": 4.0, "median": 4.0, "high": 4.0}
    assert 0 < found["elastic"]["usd"]["median"] < 0.02
    assert found["static"]["offer"].startswith("local-")
    assert any(words.startswith("a step takes 1m on one device") for words in found["assumed"])
    assert found["stopped"] == 0.0


@pytest.mark.parametrize(
    ("objective", "message"),
    [
        ("{budget: 0.0001}", r"objective.budget: \$0.0001 can't pay one trial: on local-small"),
        ("{budget: 0.003}", r"objective.budget: no plan keeps to \$0.003"),
        ("{deadline: 20s}", "objective.deadline: no plan meets 20s: the study takes"),
    ],
)
def test_what_can_not_be_kept_is_refused(file: Path, objective: str, message: str) -> None:
    file.write_text(f"{STUDY}\nobjective: {objective}\n")
    with pytest.raises(SpecError, match=message):
        plan(file, "--step-seconds", "60")


@pytest.mark.parametrize("objective", ["{budget: 0.0001}", "{deadline: 20s}"])
def test_no_limit_is_out_of_reach_on_an_assumed_pace(file: Path, objective: str) -> None:
    file.write_text(f"{STUDY}\nobjective: {objective}\n")
    printed = " ".join(plan(file).split())
    assert "deadline and budget are not checked" in printed


def test_limits_that_few_runs_keep_are_called_unlikely() -> None:
    seconds, usd = Band(10.0, 20.0, 30.0), Band(1.0, 2.0, 3.0)
    assert _chances(Outlook(usd, seconds, 0.4, None)) == "in time 40%, unlikely"
    assert _chances(Outlook(usd, seconds, 0.9, 0.2)) == "in time 90%, in budget 20%, unlikely"
    assert _chances(Outlook(usd, seconds, 0.6, None)) == "in time 60%"
    assert _chances(Outlook(usd, seconds, None, None)) == ""


def test_trials_without_number_and_offers_that_are_not_there(file: Path) -> None:
    file.write_text(STUDY.replace("trials: 4", ""))
    with pytest.raises(SpecError, match="trials: the file sets no number of trials: give"):
        plan(file)
    file.write_text(STUDY.replace("spot: false", "offers: [p5]"))
    with pytest.raises(
        SpecError, match=r"job.instances.offers: p5: not offered; offers are local-small, "
    ):
        plan(file)


def test_trials_are_in_the_brackets_that_optuna_puts_them_into(file: Path) -> None:
    file.write_text(STUDY.replace("successive_halving: {", "hyperband: {max_resource: 27, "))
    spec, _ = load_study(file, 0.0)
    assert steps_by_pruner(spec) == 27
    search = search_of_file(spec, 30, 27)
    assert search.rungs == (1.0, 3.0, 9.0, 27.0)
    pruner = optuna.pruners.HyperbandPruner(1, 27, 3)
    study = optuna.create_study(study_name=spec.name, pruner=pruner)
    trials = [study.ask() for _ in range(30)]
    trials[0].report(1.0, 0)
    trials[0].should_prune()
    frozen = study.get_trials()
    theirs = tuple(pruner._get_bracket_id(study, trial) for trial in frozen)
    assert isinstance(search.rule, AsynchronousHalving)
    assert search.rule.brackets == theirs


def test_who_prunes_by_values_is_taken_to_prune_nobody(file: Path) -> None:
    file.write_text(
        STUDY.replace("pruner: {successive_halving: {min_resource: 1, reduction_factor: 3}}", "")
    )
    search = search_of_file(load_study(file, 0.0)[0], 4, 9)
    assert search.rungs == (9.0,)
    assert "median prunes by values" in search.remarks[0]
    file.write_text(
        STUDY.replace("successive_halving", "synchronous_halving").replace(
            "{min_resource: 1, ", "{trials: 4, min_resource: 2, max_resource: 9, "
        )
    )
    search = search_of_file(load_study(file, 0.0)[0], 8, 9)
    assert search.rungs == (2.0, 6.0, 9.0)
    assert search.remarks == ("groups of 4 are simulated as one of 8",)
