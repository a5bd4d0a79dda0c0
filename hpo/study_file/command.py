"""An objective that is a command line: parameters are written into it, reports read from it.

Of what it prints, lines count that begin with `castor:`. ``castor: step 3 value 0.91`` is a
report, ``castor: value 0.93`` the result; where there is none, the last report is it. Files that
it leaves in the directory CASTOR_TRIAL_ARTIFACTS are kept with its trial.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import optuna
from optuna.trial import BaseTrial

from autoscaler.domain.study import Choice, ChoiceParameter, Parameter
from hpo.worker.artifacts import upload_artifact
from hpo.worker.trial import RemoteTrial

_NUMBER = r"([-+]?(?:\d+\.?\d*(?:[eE][-+]?\d+)?|\.\d+(?:[eE][-+]?\d+)?|inf|nan))"
_REPORT = re.compile(rf"castor:\s+step\s+(\d+)\s+value\s+{_NUMBER}\s*", re.IGNORECASE)
_RESULT = re.compile(rf"castor:\s+value((?:\s+{_NUMBER})+)\s*", re.IGNORECASE)
_STOP_SECONDS = 30.0
_KEPT_LINES = 5
_MOST_CHARACTERS = 300  # of the last line; the lines before it have so many:
_MOST_CHARACTERS_BEFORE = 100
ARTIFACTS_VARIABLE: Final = "CASTOR_TRIAL_ARTIFACTS"


class CommandFailed(RuntimeError):
    """A trial's command ended with an error, or without a result."""


class CommandObjective:
    """Runs a command for each trial, and is called as an objective is."""

    def __init__(self, command: Sequence[str], space: Mapping[str, Parameter]) -> None:
        """`command` names the parameters of `space` in braces."""
        self._command = tuple(command)
        self._space = dict(space)

    def __call__(self, trial: BaseTrial) -> float | tuple[float, ...]:
        """Run the command to its end, or until the trial is pruned.

        Raises:
            optuna.TrialPruned: it was.
            CommandFailed: it went wrong.
        """
        values = {name: suggested(trial, name, each) for name, each in self._space.items()}
        command = [part.format(**values) for part in self._command]
        with tempfile.TemporaryDirectory(prefix="castor-artifacts-") as directory:
            result = self._run(command, {**os.environ, ARTIFACTS_VARIABLE: directory}, trial)
            _keep(trial, [each for each in sorted(Path(directory).rglob("*")) if each.is_file()])
        return result

    def _run(
        self, command: Sequence[str], environment: Mapping[str, str], trial: BaseTrial
    ) -> float | tuple[float, ...]:
        with (
            subprocess.Popen(
                command,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                errors="replace",
                env=environment,
            ) as process,
            _Complaints(process) as complaints,
        ):
            try:
                result = self._follow(process, trial)
            except BaseException:
                _end(process)
                raise
        if process.returncode != 0:
            ended = f"{command[0]} ended with {process.returncode}"
            raise CommandFailed(": ".join([ended, *complaints.last_lines()]))
        if result is None:
            raise CommandFailed('the command printed no result: print "castor: value 0.93"')
        return result

    def _follow(
        self, process: subprocess.Popen[str], trial: BaseTrial
    ) -> float | tuple[float, ...] | None:
        """Take in what it prints until it ends; returns the result."""
        result: float | tuple[float, ...] | None = None
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            if report := _REPORT.match(line):
                result = float(report[2])
                trial.report(result, int(report[1]))
                if trial.should_prune():
                    raise optuna.TrialPruned
            elif told := _RESULT.match(line):
                values = tuple(float(word) for word in told[1].split())
                result = values[0] if len(values) == 1 else values
        return result


class _Complaints:
    """Standard error of a command: passed on as it comes, and its last lines kept."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._last = deque[str](maxlen=_KEPT_LINES)
        self._thread = threading.Thread(target=self._pass_on, daemon=True)

    def __enter__(self) -> _Complaints:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.join()

    def last_lines(self) -> tuple[str, ...]:
        """Return the last lines that are not blank as one text; empty if there were none."""
        if not self._last:
            return ()
        *before, last = self._last
        lines = [*(line[:_MOST_CHARACTERS_BEFORE] for line in before), last[:_MOST_CHARACTERS]]
        return (" | ".join(lines),)

    def _pass_on(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            sys.stderr.write(line)
            if line.strip():
                self._last.append(line.strip())


def _keep(trial: BaseTrial, files: Sequence[Path]) -> None:
    """Have files kept with the trial, if its study has a place for them."""
    if isinstance(trial, RemoteTrial) and trial.keeps_artifacts:
        for file in files:
            upload_artifact(trial, file)
    elif files:
        names = ", ".join(file.name for file in files)
        print(f"lost: {names}: the study's file names no directory for artifacts", file=sys.stderr)


def suggested(trial: BaseTrial, name: str, parameter: Parameter) -> Choice:
    """Return the value of a parameter of a study file for a trial."""
    if isinstance(parameter, ChoiceParameter):
        return trial.suggest_categorical(name, parameter.choices)
    if parameter.is_whole:
        step = 1 if parameter.step is None else int(parameter.step)
        low, high = int(parameter.low), int(parameter.high)
        return trial.suggest_int(name, low, high, step=step, log=parameter.log)
    return trial.suggest_float(
        name, parameter.low, parameter.high, step=parameter.step, log=parameter.log
    )


def _end(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
