"""`castor study run`: what is printed, and what a refused study leaves behind."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import optuna
import pytest

from autoscaler.cli.studying import StudyMethodFailed, run_file
from autoscaler.domain.errors import SpecError, Unavailable

STUDY = """
name: fails
function: objectives:first
direction: minimize
trials: 1
"""


@pytest.fixture(autouse=True)
def log_levels() -> Iterator[None]:
    """Levels of the loggers, which a run sets, as they were."""
    loggers = [logging.getLogger(name) for name in ("hpo", "hpo.ended")]
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
        logging.getLogger("hpo.running").info("the study's storage")
        logging.getLogger("hpo.standing").info("a default budget")
        logging.getLogger("hpo.ended").info("trial 0: 1.0")
        raise Unavailable("no controller")

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("hpo.running.run_study", run_study)
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


def test_an_error_of_the_sampler_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run_study(study: optuna.Study, *arguments: object) -> None:
        study.optimize(lambda trial: trial.suggest_float("y", 0.0, 1.0), n_trials=1)

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("hpo.running.run_study", run_study)
    file = study_file(tmp_path, f"{STUDY}sampler: {{grid: {{search_space: {{x: [1]}}}}}}\n")
    with pytest.raises(StudyMethodFailed, match=r"^the study's sampler, GridSampler, failed: Val"):
        run_file(file, None)
