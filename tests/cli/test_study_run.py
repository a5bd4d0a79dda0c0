"""`castor study run`: what is printed, and what a refused study leaves behind."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import optuna
import pytest

from autoscaler.cli.study.run import StudyMethodFailed, run_file, set_budget
from autoscaler.domain.errors import Conflict, SpecError, Unavailable
from autoscaler.domain.objective import Objective
from autoscaler.domain.terms import StudyTerms
from autoscaler.store.opening import open_store
from autoscaler.store.sql.file_lock import hold_database
from hpo.driver.study_end import BudgetUsedUp
from hpo.runs.optimize import embedded_database

STUDY = """
name: fails
function: objectives:first
direction: minimize
trials: 1
"""


@pytest.fixture(autouse=True)
def log_levels() -> Iterator[None]:
    """Levels of the loggers, which a run sets, as they were."""
    loggers = [logging.getLogger(name) for name in ("hpo", "hpo.driver.ended_trials")]
    levels = [logger.level for logger in loggers]
    yield
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


def study_file(directory: Path, text: str = STUDY) -> Path:
    (directory / "objectives.py").write_text("def first(trial):\n    return 1.0\n")
    path = directory / "study.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("is_quiet", [True, False])
def test_a_quiet_run_prints_its_storage_and_budget(
    is_quiet: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def run_study(*arguments: object) -> None:
        logging.getLogger("hpo.runs.optimize").info("the study's storage")
        logging.getLogger("hpo.runs.status_line").info("a default budget")
        logging.getLogger("hpo.driver.ended_trials").info("trial 0: 1.0")
        raise Unavailable("no controller")

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("hpo.runs.optimize.run_study", run_study)
    with pytest.raises(Unavailable):
        run_file(study_file(tmp_path), None, is_quiet)
    at_start = ["the study's storage", "a default budget"]
    assert caplog.messages == (at_start if is_quiet else [*at_start, "trial 0: 1.0"])


@pytest.mark.parametrize(
    ("wrong", "field"),
    [
        (STUDY.replace("first", "second"), "function"),
        (f"{STUDY}catch: [os.NoSuchError]\n", "catch"),
        (f"{STUDY}sampler: magic\n", "sampler"),
        (f"{STUDY}pruner: {{median: {{patience: 3}}}}\n", "pruner"),
    ],
    ids=["function", "catch", "sampler", "pruner"],
)
def test_a_refused_study_leaves_no_storage(
    wrong: str, field: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(SpecError) as refused:
        run_file(study_file(tmp_path, wrong), None)
    assert refused.value.field is not None and field in refused.value.field
    assert not list(tmp_path.glob("*.db*"))


@pytest.mark.parametrize("ends", [True, False])
def test_a_run_that_ends_early_prints_what_it_has_found(
    ends: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def run_study(study: optuna.Study, *others: object) -> None:
        if ends:
            study.tell(study.ask(), 0.5)
        raise BudgetUsedUp("the budget is used up")

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("hpo.runs.optimize.run_study", run_study)
    with pytest.raises(BudgetUsedUp):
        run_file(study_file(tmp_path), None)
    assert ("fails: 1 trial (1 complete); best is 0.5" in capsys.readouterr().out) == ends


def test_an_error_of_the_sampler_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_study(study: optuna.Study, *arguments: object) -> None:
        study.optimize(lambda trial: trial.suggest_float("y", 0.0, 1.0), n_trials=1)

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("hpo.runs.optimize.run_study", run_study)
    file = study_file(tmp_path, f"{STUDY}sampler: {{grid: {{search_space: {{x: [1]}}}}}}\n")
    with pytest.raises(StudyMethodFailed, match=r"^the study's sampler, GridSampler, failed: Val"):
        run_file(file, None)


@pytest.mark.parametrize(
    ("asked", "ended", "begun"),
    [(None, 0, 4), (None, 3, 1), (2, 3, 2), (1, 4, 1)],
    ids=["first", "again", "more", "beyond"],
)
def test_trials_of_a_file_are_a_total(
    asked: int | None,
    ended: int,
    begun: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    efforts: list[int | None] = []

    def run_study(study: optuna.Study, *arguments: Any) -> None:
        limits = arguments[-1].limits
        efforts.append(limits.trials)
        study.tell(study.ask(), 1.0)

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("hpo.runs.optimize.run_study", run_study)
    file = study_file(tmp_path, STUDY.replace("trials: 1", "trials: 4"))
    study = optuna.create_study(study_name="fails", storage=f"sqlite:///{tmp_path}/fails.db")
    for _ in range(ended):
        study.tell(study.ask(), 1.0)
    run_file(file, asked)
    assert efforts == [begun]


def test_a_study_that_has_its_trials_is_not_run_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_study(*arguments: object) -> None:
        raise AssertionError("there is nothing to run")

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("hpo.runs.optimize.run_study", run_study)
    study = optuna.create_study(study_name="fails", storage=f"sqlite:///{tmp_path}/fails.db")
    study.tell(study.ask(), 1.0)
    file = study_file(tmp_path)
    run_file(file, None)
    printed = capsys.readouterr().out
    assert "fails: 1 trial (1 complete); best is 1" in printed
    assert f"no trial is left to run: trials is 1 in {file}" in printed


def test_a_budget_is_set_while_nobody_runs_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("CASTOR_URL", raising=False)
    monkeypatch.setenv("CASTOR_STATE", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)
    file = study_file(tmp_path, f"{STUDY}objective: {{budget: 0.05}}\n")
    with pytest.raises(Unavailable, match="study fails does not run here"):
        set_budget(file, "$0.10")
    database = embedded_database("fails")
    database.parent.mkdir(parents=True)
    store = open_store(f"sqlite:///{database}")
    store.studies.state("fails", StudyTerms(Objective(budget_usd=Decimal("0.05"))))
    set_budget(file, "$0.10")
    assert "fails: budget $0.1000, spent $0.0000" in capsys.readouterr().out
    terms = store.studies.terms("fails")
    assert terms is not None and terms.objective.budget_usd == Decimal("0.10")
    monkeypatch.chdir(database.parent)
    set_budget(Path("fails"), "$0.20")
    assert "fails: budget $0.2000, spent $0.0000" in capsys.readouterr().out
    with pytest.raises(SpecError, match="no such file: name a study file"):
        set_budget(Path("fails.yaml"), "$0.20")
    monkeypatch.chdir(tmp_path)
    set_budget(file, "0.01")
    assert f"the next run uses the larger $0.0500 of {file}" in capsys.readouterr().out
    with (
        hold_database(store.url, database.parent),
        pytest.raises(Conflict, match="another controller holds the store"),
    ):
        set_budget(file, "0.02")
    monkeypatch.setenv("CASTOR_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("CASTOR_TOKEN", "token")
    with pytest.raises(Unavailable, match="CASTOR_URL"):
        set_budget(file, "1")
    store.close()
