"""The process that runs one trial's objective on an instance: ``python -P -m hpo.worker``.

Its directory holds the packed objective. `-P` keeps a job's own modules from shadowing ours; they
are found after ours are imported.
"""

from __future__ import annotations

import math
import os
import pickle
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import optuna

from autoscaler.clock import SystemClock
from autoscaler.domain.training import SOCKET_VARIABLE
from hpo import calls
from hpo.calls import Call, read_answer
from hpo.line import TrialLine
from hpo.objective import OBJECTIVE_FILE, Objective
from hpo.trial import Asks, Place, RemoteTrial, read_facts
from hpo.warm import await_order, note_imports, run_and_leave


def run_trial(objective: Objective, line: Asks, place: Place | None = None) -> None:
    """Run the objective on the trial at the other end of the line, and tell how it ended."""
    facts = read_facts(read_answer(line.ask(Call(calls.BEGIN, {}).text())))
    if facts.is_finished:
        return
    end = _outcome(objective, RemoteTrial(facts, line, place))
    read_answer(line.ask(Call(calls.END, end).text()))


def main() -> None:
    """Be the worker of this instance's trial.

    Raises:
        SystemExit: this is no instance of ours.
    """
    await_order()
    socket = os.environ.get(SOCKET_VARIABLE)
    if socket is None:
        raise SystemExit("hpo.worker is started by Castor, on an instance that holds a trial")
    line = TrialLine(Path(socket), SystemClock())
    sys.path.insert(0, str(Path.cwd()))
    objective = _load(Path(OBJECTIVE_FILE))
    note_imports()
    try:
        run_trial(objective, line, line)
    finally:
        line.close()
        note_imports()


def _load(path: Path) -> Objective:
    objective: Objective = pickle.loads(path.read_bytes())
    return objective


def _outcome(objective: Objective, trial: RemoteTrial) -> dict[str, Any]:
    """How the objective ends: what `Attachment` is told of it."""
    try:
        returned = objective(trial)
    except optuna.TrialPruned:
        return _end("PRUNED")
    except Exception as error:
        traceback.print_exc()
        kinds = [f"{kind.__module__}.{kind.__qualname__}" for kind in type(error).__mro__]
        return {**_end("FAIL", cause=f"{type(error).__name__}: {error}"), "error_kinds": kinds}
    try:
        return _end("COMPLETE", _values(returned, len(trial.study.directions)))
    except ValueError as error:
        print(f"trial {trial.number}: {error}", file=sys.stderr)
        return _end("FAIL", cause=str(error))


def _end(
    state: str, values: Sequence[float] | None = None, cause: str | None = None
) -> dict[str, Any]:
    return {"state": state, "values": values, "cause": cause}


def _values(returned: Any, directions: int) -> list[float]:
    """What an objective returned, as the study wants it.

    Raises:
        ValueError: it is something else.
    """
    is_several = isinstance(returned, Sequence) and not isinstance(returned, str)
    try:
        values = [float(value) for value in (returned if is_several else [returned])]
    except (TypeError, ValueError):
        raise ValueError(f"the objective returned {returned!r}, which is no number") from None
    if len(values) != directions:
        raise ValueError(
            f"the objective returned {len(values)} values, the study has {directions} directions"
        )
    if any(math.isnan(value) for value in values):
        raise ValueError("the objective returned NaN")
    return values


if __name__ == "__main__":
    run_and_leave(main)
