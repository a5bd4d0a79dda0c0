from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

import cloudpickle
import optuna
import pytest

from autoscaler.domain.study import ChoiceParameter, NumberParameter
from hpo.study_file.command import CommandFailed, CommandObjective
from hpo.worker.trial import RemoteTrial

SPACE = {
    "rate": NumberParameter(0.001, 0.1, log=True),
    "width": NumberParameter(8, 64, is_whole=True, step=8),
    "kind": ChoiceParameter(("a", "b")),
}


def load_objective(tmp_path: Path, program: str) -> CommandObjective:
    script = tmp_path / "program.py"
    script.write_text(textwrap.dedent(program))
    words = (sys.executable, str(script), "{rate}", "--width={width}", "{kind}")
    objective: CommandObjective = cloudpickle.loads(
        cloudpickle.dumps(CommandObjective(words, SPACE))
    )
    return objective


def test_parameters_go_in_and_reports_come_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    objective = load_objective(
        tmp_path,
        """
        import sys
        print("begin", sys.argv[2], sys.argv[3])
        for step in range(3):
            print(f"castor: step {step} value {step * 0.5 - 1e-3}")
        print(f"castor: value {float(sys.argv[1])!r}")
        """,
    )
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    study.optimize(objective, n_trials=1)
    (trial,) = study.trials
    assert trial.intermediate_values == {0: -0.001, 1: 0.499, 2: 0.999}
    assert trial.value == trial.params["rate"]
    said = capfd.readouterr().out
    assert f"begin --width={trial.params['width']} {trial.params['kind']}" in said


def test_without_a_result_the_last_report_is_it(tmp_path: Path) -> None:
    objective = load_objective(tmp_path, "print('Castor: step 4 value 2'); print('no castor: 3')")
    study = optuna.create_study()
    study.optimize(objective, n_trials=1)
    assert study.best_value == 2.0


def test_several_values(tmp_path: Path) -> None:
    study = optuna.create_study(directions=["minimize", "maximize"])
    study.optimize(load_objective(tmp_path, "print('castor: value 1.5 -inf')"), n_trials=1)
    assert study.trials[0].values == [1.5, float("-inf")]


def test_a_pruned_trial_ends_its_command(tmp_path: Path) -> None:
    objective = load_objective(
        tmp_path,
        """
        import time
        print("castor: step 0 value 1", flush=True)
        time.sleep(60)
        """,
    )
    study = optuna.create_study(pruner=optuna.pruners.ThresholdPruner(upper=0.5))
    study.optimize(objective, n_trials=1)
    assert study.trials[0].state is optuna.trial.TrialState.PRUNED


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("raise SystemExit(3)", "ended with 3$"),
        ("raise MemoryError('CUDA out of memory')", r"ended with 1: Trace.* \| MemoryError: CUDA"),
        (
            "import sys; print(*range(9), sep='\\n\\n', file=sys.stderr); sys.exit(2)",
            r"ended with 2: 4 \| 5 \| 6 \| 7 \| 8$",
        ),
        (
            "import sys; print('a' * 900, 'b' * 900, sep='\\n', file=sys.stderr); sys.exit(2)",
            r"ended with 2: a{100} \| b{300}$",
        ),
        ("print('done')", "the command printed no result"),
    ],
)
def test_what_goes_wrong_fails_the_trial(tmp_path: Path, program: str, message: str) -> None:
    with pytest.raises(CommandFailed, match=message):
        optuna.create_study().optimize(load_objective(tmp_path, program), n_trials=1)


class Keeping(RemoteTrial):
    """A trial whose study has a place for files, or has none."""

    keeps_artifacts = True  # type: ignore[assignment]

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}

    def suggest_categorical(self, name: str, choices: Any) -> Any:
        return choices[0]


def test_files_that_a_command_leaves_are_kept_with_its_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = tmp_path / "program.py"
    script.write_text(
        "import os, pathlib, sys\n"
        "place = pathlib.Path(os.environ['CASTOR_TRIAL_ARTIFACTS'])\n"
        "(place / 'best').mkdir()\n"
        "(place / 'best' / 'model.pt').write_text(sys.argv[1])\n"
        "print('castor: value 1')\n"
    )
    words = (sys.executable, str(script), "{kind}")
    objective, trial = CommandObjective(words, {"kind": SPACE["kind"]}), Keeping()

    def upload(trial: Keeping, file: Path) -> None:
        trial.kept[file.name] = file.read_text()

    monkeypatch.setattr("hpo.study_file.command.upload_artifact", upload)
    assert objective(trial) == 1.0
    assert trial.kept == {"model.pt": "a"}
    trial.keeps_artifacts, trial.kept = False, {}
    assert objective(trial) == 1.0
    assert trial.kept == {}
    assert "lost: model.pt: the study's file names no directory" in capsys.readouterr().err
