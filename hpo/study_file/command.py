"""Objective that runs a command line for each trial.

Parameters are inserted into the command. Output lines of the form ``castor: step 3 value 0.91``
are reports, and ``castor: value 0.93`` is the result. Without a result line the last report is the
result. Files in the directory CASTOR_TRIAL_ARTIFACTS are uploaded as artifacts of the trial.
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
_MOST_CHARACTERS = 300  # of the last line in a message
_MOST_CHARACTERS_BEFORE = 100
ARTIFACTS_VARIABLE: Final = "CASTOR_TRIAL_ARTIFACTS"


class CommandFailed(RuntimeError):
    """A trial's command exited with an error, or printed no result."""


class CommandObjective:
    """Objective that runs a command for each trial."""

    def __init__(self, command: Sequence[str], space: Mapping[str, Parameter]) -> None:
        """Set the command; it names the parameters of `space` in braces."""
        self._command = tuple(command)
        self._space = dict(space)

    def __call__(self, trial: BaseTrial) -> float | tuple[float, ...]:
        """Run the command until it exits or the trial is pruned.

        Raises:
            optuna.TrialPruned: the pruner ended the trial.
            CommandFailed: the command failed or printed no result.
        """
        values = {
            name: suggest_parameter(trial, name, parameter)
            for name, parameter in self._space.items()
        }
        command = [part.format(**values) for part in self._command]
        with tempfile.TemporaryDirectory(prefix="castor-artifacts-") as directory:
            result = self._run(command, {**os.environ, ARTIFACTS_VARIABLE: directory}, trial)
            files = sorted(Path(directory).rglob("*"))
            _upload_files(trial, [file for file in files if file.is_file()])
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
            _StderrReader(process) as stderr_reader,
        ):
            try:
                result = self._follow(process, trial)
            except BaseException:
                _terminate(process)
                raise
        if process.returncode != 0:
            exit_text = f"{command[0]} ended with {process.returncode}"
            raise CommandFailed(": ".join([exit_text, *stderr_reader.last_lines()]))
        if result is None:
            raise CommandFailed('the command printed no result: print "castor: value 0.93"')
        return result

    def _follow(
        self, process: subprocess.Popen[str], trial: BaseTrial
    ) -> float | tuple[float, ...] | None:
        """Read the command's output until it ends; return the result, None without one."""
        result: float | tuple[float, ...] | None = None
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            if report := _REPORT.match(line):
                result = float(report[2])
                trial.report(result, int(report[1]))
                if trial.should_prune():
                    raise optuna.TrialPruned
            elif result_line := _RESULT.match(line):
                values = tuple(float(word) for word in result_line[1].split())
                result = values[0] if len(values) == 1 else values
        return result


class _StderrReader:
    """Reader that forwards a command's standard error and keeps its last lines."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._last = deque[str](maxlen=_KEPT_LINES)
        self._thread = threading.Thread(target=self._forward, daemon=True)

    def __enter__(self) -> _StderrReader:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._thread.join()

    def last_lines(self) -> tuple[str, ...]:
        """Return the last non-blank lines joined as one text; empty without any."""
        if not self._last:
            return ()
        *before, last = self._last
        lines = [*(line[:_MOST_CHARACTERS_BEFORE] for line in before), last[:_MOST_CHARACTERS]]
        return (" | ".join(lines),)

    def _forward(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            sys.stderr.write(line)
            if line.strip():
                self._last.append(line.strip())


def _upload_files(trial: BaseTrial, files: Sequence[Path]) -> None:
    """Upload files as artifacts of the trial; print their names if the study has no store."""
    if isinstance(trial, RemoteTrial) and trial.keeps_artifacts:
        for file in files:
            upload_artifact(trial, file)
    elif files:
        names = ", ".join(file.name for file in files)
        print(f"lost: {names}: the study's file names no directory for artifacts", file=sys.stderr)


def suggest_parameter(trial: BaseTrial, name: str, parameter: Parameter) -> Choice:
    """Suggest a parameter of a study file for a trial."""
    if isinstance(parameter, ChoiceParameter):
        return trial.suggest_categorical(name, parameter.choices)
    if parameter.is_whole:
        step = 1 if parameter.step is None else int(parameter.step)
        low, high = int(parameter.low), int(parameter.high)
        return trial.suggest_int(name, low, high, step=step, log=parameter.log)
    return trial.suggest_float(
        name, parameter.low, parameter.high, step=parameter.step, log=parameter.log
    )


def _terminate(process: subprocess.Popen[str]) -> None:
    process.terminate()
    try:
        process.wait(_STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
