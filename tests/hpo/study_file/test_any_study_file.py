"""Study files of any content: a study, or one error that names a field; and its methods."""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

import hpo
from autoscaler.domain.errors import SpecError
from autoscaler.domain.study import Method, StudySpec
from autoscaler.spec.study_file import load_study
from hpo.samplers_and_pruners.registry import create_pruner, create_sampler, require_packages
from hpo.study_file.command import suggest_parameter
from hpo.study_file.study_opening import check_methods

WHOLE: dict[str, Any] = {
    "name": "r50",
    "storage": "sqlite:///studies.db",
    "direction": ["maximize"],
    "sampler": {"tpe": {"seed": 3, "multivariate": True}},
    "pruner": {"hyperband": {"min_resource": 1, "max_resource": 27}},
    "command": "python train.py --lr {lr} --width={width} {kind}",
    "space": {
        "lr": {"float": [1e-4, 1e-1], "log": True},
        "width": {"int": [8, 64], "step": 8},
        "kind": {"choice": ["adam", 3, 0.5, True, None]},
    },
    "objective": {"budget": 60, "deadline": "4h", "after_deadline": "stop"},
    "trials": 200,
    "at_once": 8,
    "timeout": "4h",
    "retries": 1,
    "catch": "all",
    "max_failures": 5,
    "artifacts": "kept",
    "keep_checkpoints": False,
    "working_directory": ".",
    "job": {
        "instances": {"offers": ["g5.xlarge"], "spot": False},
        "environment": {"MODE": "fast"},
        "secrets": ["TOKEN"],
        "setup": "true",
        "objective": {"value_of_time": 3},
    },
}

WORDS = ["all", "auto", "none", "tpe", "grid", "median", "4h", "$3", "1e999", "-1", "0", "{", "}",
         "{lr}", "{0}", "{lr:d}", "{lr!z}", "[", "2024-99-99", "0b_", "=", "9" * 5000, ".nan",
         "../x", "/", "a:b", "torch.OutOfMemoryError", "name", "wrapped_pruner", "base_sampler",
         "\0", "\n", "\ud800"[:0], "é"]  # fmt: skip
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(WORDS),
)
KEYS = st.one_of(st.sampled_from([*WHOLE, *WORDS]), st.text(max_size=5))
ANY = st.recursive(
    PLAIN,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=3)),
    max_leaves=6,
)


# Of errors that are of no key: of the whole document, or of several keys together.
OF_THE_WHOLE = (
    'unknown key ""',
    "must be a mapping",
    "not valid YAML",
    "UTF-8",
    "command",
    "space",
    "job.instances",
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all parts of a document."""
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    nested = [(key, part) for key, part in parts if isinstance(part, dict | list)]
    here = [(*path, key) for key in (value if isinstance(value, dict) else range(len(value)))]
    return here + [place for key, part in nested for place in places(part, (*path, key))]


@st.composite
def changed(draw: st.DrawFn) -> Any:
    """Draw the whole file with some parts replaced, removed or added."""
    document = copy.deepcopy(WHOLE)
    for _ in range(draw(st.integers(1, 3))):
        *path, last = draw(st.sampled_from(places(document)))
        holder: Any = document
        for key in path:
            holder = holder[key]
        match draw(st.sampled_from(["replace", "remove", "add"])):
            case "replace":
                holder[last] = draw(ANY)
            case "remove" if len(document) > 1:
                del holder[last]
            case "add" if isinstance(holder, dict):
                holder[draw(KEYS)] = draw(ANY)
    return document


def studied(text: str) -> StudySpec | None:
    """Return the study of a file; None where it is refused as it is to be."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "study.yaml"
        file.write_bytes(text.encode(errors="surrogatepass"))
        try:
            return load_study(file, 1e9)[0]
        except SpecError as error:
            assert str(file) in str(error)
            assert error.field is not None or any(words in str(error) for words in OF_THE_WHOLE)
            return None


def check_whole(spec: StudySpec) -> None:
    """See that a study that was read can begin, or is refused by its sampler or pruner."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            check_methods(spec)
    except SpecError as error:
        assert error.field is not None and error.field.split(".")[0] in ("sampler", "pruner")
    trial = optuna.create_study(sampler=optuna.samplers.RandomSampler()).ask()
    values = {name: suggest_parameter(trial, name, each) for name, each in spec.space.items()}
    for part in spec.command:
        part.format(**values)


SETTINGS = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])


@SETTINGS
@given(st.one_of(changed(), ANY))
@example({**WHOLE, "space": {**WHOLE["space"], "kind": {"choice": ["2024-99-99"]}}})
@example({**WHOLE, "space": {**WHOLE["space"], "kind": {"choice": ["["]}}})
@example({**WHOLE, "": 3})
@example({**WHOLE, "command": "train {lr:d} {width} {kind}"})
def test_any_document_is_a_study_or_one_error(document: object) -> None:
    spec = studied(yaml.safe_dump(document, allow_unicode=True))
    if spec is not None:
        check_whole(spec)


@SETTINGS
@given(st.text(alphabet=st.characters(), max_size=60))
def test_any_text_is_a_study_or_one_error(text: str) -> None:
    spec = studied(text)
    if spec is not None:
        check_whole(spec)


def test_a_grid_and_samplers_that_hold_others_come_from_files() -> None:
    text = """
        name: grid
        function: train:objective
        sampler: {grid: {search_space: {rate: [0.1, 1], kind: [adam, null, true]}}}
        pruner: {patient: {wrapped_pruner: {percentile: {percentile: 25}}, patience: 2}}
    """
    spec = studied(text)
    assert spec is not None and spec.sampler is not None
    wanted = {"rate": [0.1, 1], "kind": ["adam", None, True]}
    assert spec.sampler.options == {"search_space": wanted}
    study = optuna.create_study(
        sampler=create_sampler(spec.sampler), pruner=create_pruner(spec.pruner)
    )
    assert isinstance(study.pruner, optuna.pruners.PatientPruner)
    study.optimize(
        lambda trial: (
            trial.suggest_float("rate", 0.0, 1.0)
            + len(str(trial.suggest_categorical("kind", ["adam", None, True])))
        )
    )
    assert len(study.trials) == 6
    inner = {"base_sampler": {"random": {"seed": 1}}, "fixed_params": {"rate": 0.5}}
    fixed = optuna.create_study(sampler=create_sampler(Method("partial_fixed", inner)))
    assert fixed.ask().suggest_float("rate", 0.0, 1.0) == 0.5


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (Method("grid"), "sampler: grid: .*missing.*search_space"),
        (Method("grid", {"search_space": 3}), "sampler.grid.search_space: must be a mapping of"),
        (Method("grid", {"search_space": {"rate": 3}}), "sampler: grid: 'int' object is not"),
        (Method("tpe", {"gamma": 3}), "sampler.tpe.gamma: is a Python object: .* hpo.optimize"),
        (
            Method("tpe", {"seed": "x"}),
            'sampler.tpe.seed: must be a whole number or null, not "x"',
        ),
        (Method("tpe", {"seed": True}), "sampler.tpe.seed: must be a whole number .*, not True"),
        (Method("tpe", {"multivariate": 1}), "sampler.tpe.multivariate: must be true or false"),
        (Method("qmc", {"independent_sampler": "magic"}), "'magic' is none of tpe"),
        (Method("qmc", {"independent_sampler": 3}), "independent_sampler: must be a name, or"),
    ],
)
def test_an_option_that_can_not_be_used_is_named(method: Method, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        create_sampler(method)


class OnTopOf(optuna.samplers.RandomSampler):
    """A sampler of a user's that asks another one."""

    def __init__(self, inner: optuna.samplers.BaseSampler) -> None:
        super().__init__()
        self.inner = inner


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: {"sampler": optuna.samplers.CmaEsSampler()}, "CmaEsSampler needs .* cmaes"),
        (lambda: {"sampler": OnTopOf(optuna.samplers.QMCSampler())}, "QMCSampler needs .* scipy"),
        (lambda: {"pruner": optuna.pruners.WilcoxonPruner()}, "pruner: WilcoxonPruner needs"),
    ],
)
def test_a_missing_package_of_a_python_study_is_named(
    make: Callable[[], dict[str, Any]], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = optuna.create_study(**make())
    monkeypatch.setattr("hpo.samplers_and_pruners.registry.find_spec", lambda name: object())
    require_packages(study)
    monkeypatch.setattr("hpo.samplers_and_pruners.registry.find_spec", lambda name: None)
    with pytest.raises(SpecError, match=message):
        require_packages(study)


def test_a_missing_package_is_refused_before_anything_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CASTOR_STATE", str(tmp_path / "state"))
    monkeypatch.setattr("hpo.samplers_and_pruners.registry.find_spec", lambda name: None)
    study = optuna.create_study(sampler=optuna.samplers.CmaEsSampler())
    with pytest.raises(SpecError, match="pip install cmaes"):
        hpo.optimize(study, lambda trial: 1.0, n_trials=1)
    assert study.trials == [] and not (tmp_path / "state").exists()
