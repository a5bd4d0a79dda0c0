from __future__ import annotations

import sqlite3
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import optuna
import pytest
from optuna.exceptions import StorageInternalError

from autoscaler.domain.errors import NotFound, SpecError, StoreError
from autoscaler.domain.job import JobSpec
from autoscaler.domain.study import Method, StudySpec
from hpo.study_file.command import CommandObjective
from hpo.study_file.study_opening import (
    load_objective,
    load_recorded_study,
    open_artifact_store,
    open_study,
)


@pytest.fixture
def spec(tmp_path: Path) -> StudySpec:
    return StudySpec(
        "sweep",
        JobSpec("trial", ()),
        function="module_of_a_study:Objectives.first",
        directions=("maximize",),
        storage=f"sqlite:///{tmp_path}/study.db",
        sampler=Method("random", {"seed": 3}),
        pruner=Method("successive_halving", {"reduction_factor": 3}),
    )


def test_a_study_is_made_once(spec: StudySpec) -> None:
    study = open_study(spec)
    study.ask()
    assert isinstance(study.sampler, optuna.samplers.RandomSampler)
    assert isinstance(study.pruner, optuna.pruners.SuccessiveHalvingPruner)
    again = open_study(replace(spec, sampler=None))
    assert len(again.trials) == 1
    assert again.direction is optuna.study.StudyDirection.MAXIMIZE


def test_a_seed_does_not_draw_the_first_trials_again(spec: StudySpec) -> None:
    """Each run makes its sampler anew."""
    drawn = []
    for _ in range(3):
        study = open_study(spec)
        for trial in (study.ask(), study.ask()):
            drawn.append(trial.suggest_float("rate", 0.0, 1.0))
    assert len(set(drawn)) == 6
    other = open_study(replace(spec, name="other")).ask()
    assert other.suggest_float("rate", 0.0, 1.0) == drawn[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"sampler": Method("magic")}, "sampler: 'magic' is none of tpe, random"),
        ({"pruner": Method("medain")}, r"pruner: 'medain' \(did you mean 'median'\?\) is none"),
        ({"sampler": Method("tpe", {"sed": 1})}, r"tpe takes no 'sed' \(did you mean 'seed'\?\)"),
        ({"pruner": Method("none", {"x": 1})}, "none takes no 'x': it takes no options"),
        ({"sampler": Method("cma_es")}, "sampler: cma_es needs a package: pip install cmaes"),
        ({"pruner": Method("median", {"patience": 3})}, "pruner: median takes no 'patience'"),
        ({"pruner": Method("percentile", {"percentile": 400})}, "pruner: percentile: Percentile"),
        ({"pruner": Method("percentile")}, "pruner: percentile: .* missing"),
        ({"directions": ("minimize",)}, "direction: the study 'sweep' .* is there to maximize"),
    ],
)
def test_what_is_not_so_is_refused(
    spec: StudySpec, change: dict[str, object], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpo.samplers_and_pruners.registry.find_spec", lambda name: None)
    open_study(spec)
    with pytest.raises(SpecError, match=message):
        open_study(replace(spec, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "change", [{"sampler": Method("magic")}, {"pruner": Method("median", {"patience": 3})}]
)
def test_a_refused_method_leaves_no_storage(
    spec: StudySpec,
    change: dict[str, object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SpecError):
        open_study(replace(spec, storage=None, **change))  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


def test_a_storage_that_can_not_be_opened_is_named(spec: StudySpec, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"is no URL of a database, such as sqlite:///sweep\.db"):
        open_study(replace(spec, storage="journal.log"))
    for storage in (f"sqlite:///{tmp_path}/no/where.db", "nonsense", "no://where"):
        with pytest.raises(StoreError, match=r"storage: .* can't be opened"):
            open_study(replace(spec, storage=storage))


def test_reading_makes_and_changes_nothing(
    spec: StudySpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(NotFound, match="has no study 'sweep': castor study run begins it"):
        load_recorded_study(spec)
    assert list(tmp_path.iterdir()) == []
    open_study(spec).ask()
    before = (tmp_path / "study.db").read_bytes()
    read = load_recorded_study(replace(spec, sampler=None, pruner=None))
    assert len(read.trials) == 1
    with pytest.raises(NotFound, match="has no study 'other'"):
        load_recorded_study(replace(spec, name="other"))
    with pytest.raises(StorageInternalError):
        read.set_user_attr("by", "a reader")
    assert (tmp_path / "study.db").read_bytes() == before


def test_a_file_of_our_own_is_read_while_it_is_written_to(
    spec: StudySpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = replace(spec, storage=None)
    open_study(spec).ask()
    with closing(sqlite3.connect("sweep.db", isolation_level=None)) as writing:
        assert writing.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        writing.execute("BEGIN EXCLUSIVE")
        assert len(load_recorded_study(spec).trials) == 1


def test_reading_a_file_that_nobody_has_open_leaves_nothing_beside_it(
    spec: StudySpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    spec = replace(spec, storage=None)
    writer = open_study(spec)
    writer.ask()
    writer._storage._backend.engine.dispose()  # type: ignore[attr-defined]
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.db"]
    assert len(load_recorded_study(spec).trials) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.db"]


def test_files_of_trials_have_a_place_if_one_is_named(spec: StudySpec, tmp_path: Path) -> None:
    assert open_artifact_store(spec) is None
    assert open_artifact_store(replace(spec, artifacts=f"{tmp_path}/kept")) is not None
    assert (tmp_path / "kept").is_dir()
    with pytest.raises(SpecError, match=r"artifacts: .*study\.db/kept can't be made"):
        open_study(spec)
        open_artifact_store(replace(spec, artifacts=f"{tmp_path}/study.db/kept"))


def test_a_password_comes_from_the_environment_and_is_not_told(
    spec: StudySpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORAGE_PASSWORD", "hidden-value")
    storage = "postgresql+psycopg://me:$STORAGE_PASSWORD@127.0.0.1:1/studies"
    with pytest.raises(
        StoreError, match=r"storage: .*//me:\*\*\*@127\.0\.0\.1:1/studies"
    ) as error:
        open_study(replace(spec, storage=storage))
    assert "hidden-value" not in str(error.value)


def test_a_function_is_found_in_the_working_directory(
    spec: StudySpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "module_of_a_study.py").write_text(
        "class Objectives:\n    @staticmethod\n    def first(trial):\n        return 7\n"
    )
    assert load_objective(spec, tmp_path)(None) == 7
    for wrong in ("module_of_a_study:none", "no_such_module:first"):
        with pytest.raises(SpecError, match=f"function: {wrong} can't be imported"):
            load_objective(replace(spec, function=wrong), tmp_path)
    faults = {
        "raise KeyError('no\\nkey')": r"can't be imported: KeyError: .*no.*key",
        "raise SystemExit(2)": "can't be imported: SystemExit: 2",
        "objective = 3": "fails_0:objective is 3, which no trial can call",
    }
    for number, (text, message) in enumerate(faults.items()):
        (tmp_path / f"fails_{number}.py").write_text(text)
        with pytest.raises(
            SpecError, match=message.replace("fails_0", f"fails_{number}")
        ) as refused:
            load_objective(replace(spec, function=f"fails_{number}:objective"), tmp_path)
        assert "\n" not in str(refused.value) and refused.value.field == "function"
    command = replace(spec, function=None, command=("run",))
    assert isinstance(load_objective(command, tmp_path), CommandObjective)
