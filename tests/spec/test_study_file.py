from __future__ import annotations

from pathlib import Path

import pytest

from autoscaler.domain.errors import SpecError
from autoscaler.domain.study import ChoiceParameter, Method, NumberParameter
from autoscaler.spec.study_file import load_study

WHOLE = """
name: r50
storage: postgresql://me@host/studies
direction: maximize
sampler: tpe
pruner: {hyperband: {min_resource: 1, max_resource: 27, reduction_factor: 3}}
command: python train.py --lr {lr} --width={width} --kind {kind}
space:
  lr: {float: [1e-4, 1e-1], log: true}
  width: {int: [8, 64], step: 8}
  kind: {choice: [adam, 3, 0.5, true, null, "1"]}
trials: 200
at_once: 8
timeout: 4h
job:
  objective: {value_of_time: 3}
  instances: {offers: [g5.xlarge], spot: false}
  environment: {MODE: fast}
"""


def write(tmp_path: Path, text: str) -> Path:
    file = tmp_path / "study.yaml"
    file.write_text(text)
    return file


def test_a_whole_file(tmp_path: Path) -> None:
    spec, directory = load_study(write(tmp_path, WHOLE), 0.0)
    assert directory == tmp_path.resolve()
    assert spec.name == "r50" and spec.directions == ("maximize",)
    assert spec.sampler == Method("tpe")
    options = {"min_resource": 1, "max_resource": 27, "reduction_factor": 3}
    assert spec.pruner == Method("hyperband", options)
    assert spec.command[-3:] == ("--width={width}", "--kind", "{kind}")
    assert dict(spec.space) == {
        "lr": NumberParameter(1e-4, 1e-1, log=True),
        "width": NumberParameter(8, 64, is_whole=True, step=8),
        "kind": ChoiceParameter(("adam", 3, 0.5, True, None, 1)),
    }
    assert (spec.trials, spec.at_once, spec.timeout_seconds) == (200, 8, 14400.0)
    assert spec.job.objective.value_of_time_usd_per_hour == 3.0
    assert spec.job.instances.offers == ("g5.xlarge",) and not spec.job.instances.spot
    assert spec.job.environment == {"MODE": "fast"}


@pytest.mark.parametrize(
    ("keys", "catch", "max_failures"),
    [
        ("", (), None),
        ("catch: all\n", ("builtins.Exception",), None),
        ("catch: [ValueError, torch.OutOfMemoryError]\nmax_failures: 3\n",
         ("ValueError", "torch.OutOfMemoryError"), 3),
        ("max_failures: 0\n", (), 0),
    ],
)  # fmt: skip
def test_failing_trials_can_be_tolerated(
    tmp_path: Path, keys: str, catch: tuple[str, ...], max_failures: int | None
) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(f"name: s\nfunction: train:objective\n{keys}")
    spec, _ = load_study(file, 0.0)
    assert (spec.catch, spec.max_failures) == (catch, max_failures)


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        (
            "function: train:objective\ncatch: [KeyError, ValueEror]",
            r'catch.*"ValueEror" is not a built-in error \(did you mean "ValueError"\?\)',
        ),
        (
            "function: train:objective\ncatch: OutOfMemoryError",
            r"catch.*is not a built-in error.* with their module, as torch\.OutOfMemoryError",
        ),
        ("function: train:objective\ncatch: print", 'catch.*"print" is not a built-in error'),
        (
            "command: python train.py {x}\nspace: {x: {int: [0, 1]}}\ncatch: ValueError",
            "catch: errors of a command have no class: write catch: all",
        ),
    ],
)
def test_an_error_that_does_not_exist_is_refused(tmp_path: Path, keys: str, words: str) -> None:
    file = tmp_path / "study.yaml"
    file.write_text(f"name: s\n{keys}\n")
    with pytest.raises(SpecError, match=words):
        load_study(file, 0.0)


def test_a_function_instead(tmp_path: Path) -> None:
    spec, _ = load_study(write(tmp_path, "{name: a, function: 'train:objective'}"), 0.0)
    assert spec.function == "train:objective" and spec.command == ()
    assert spec.directions == ("minimize",) and spec.trials is None


FAULTS = {
    "{name: a}": "write one of command and function",
    "{name: a, objective: 'train:objective'}": "is a function: write function: train:objective",
    "{name: a, function: train}": 'function: "train" is not a function: write module:name',
    "{name: a, function: 'a:b', space: {x: {int: [1, 2]}}}": "space needs a command",
    "{name: a, command: run}": "space is missing",
    "{name: a, command: 'run {y}', space: {x: {int: [1, 2]}}}": r"command: \{y\} is not in space",
    "{name: a, command: 'run', space: {x: {int: [1, 2]}}}": "x is not in the command",
    "{name: a, command: 'run {x', space: {x: {int: [1, 2]}}}": 'braces without a name in "{x"',
    "{name: a, command: 'run {}', space: {x: {int: [1, 2]}}}": "command: braces without a name",
    "{name: a, command: 'run {x}', space: {x: {int: [2, 1]}}}": "space.x: 2 is above 1",
    "{name: a, command: 'run {x}', space: {x: {int: [1, 2.5]}}}": "space.x: int: write whole",
    "{name: a, command: 'run {x}', space: {x: {float: [0, 1], log: true}}}": "log: 0 must be more",
    "{name: a, command: 'run {x}', space: {x: {float: [1]}}}": "space.x.float",
    "{name: a, command: 'run {x}', space: {x: {}}}": r"space.x: write one of float",
    "{name: a, command: 'run {x}', space: {x: {choice: []}}}": "space.x.choice",
    "{name: a, command: 'run {x}', space: {x: {choice: [1], log: true}}}": "step and log need",
    "{name: a, function: 'a:b', direction: up}": "direction",
    "{name: a, function: 'a:b', sampler: [tpe, gp]}": "sampler: write one name, or a name with",
    "{name: a, function: 'a:b', pruner: {median: , none: }}": "pruner: write one name, or a name",
    "{name: a, command: 'run {x:d}', space: {x: {float: [1, 2]}}}": "x=1.0 can't be written into",
    "{name: a, command: 'run {x}', space: {x: {int: [1, 9], step: 0.5}}}": "bounds and step",
    "{name: a, function: 'a:b', job: {instances: 4}}": "a trial runs on one instance",
    "{name: a, function: 'a:b', job: {command: x}}": "job.command",
    "{name: a, function: 'a:b', at_once: 1000000}": "at_once: must be at most 10000",
    "{name: a, function: 'a:b', retries: 1000}": "retries: must be at most 100",
    "{name: a, function: 'a:b', job: {checkpoint: ../x}}": "job.checkpoint: .* a path inside",
    "{name: a, function: 'a:b', trails: 3}": 'did you mean "trials"',
    "{name: a, function: 'a:b', working_directory: nowhere}": "is not a directory",
}


@pytest.mark.parametrize("text", FAULTS)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str) -> None:
    with pytest.raises(SpecError, match=FAULTS[text]) as refused:
        load_study(write(tmp_path, text), 0.0)
    assert "study.yaml:1" in str(refused.value)
