"""The process that runs a trial's objective on an instance: ``python -P -m hpo.worker``.

A job of its own for each trial costs half a second. So where a trial took less than
`SHORT_SECONDS`, its worker asks for another one as it reports the end, and the driver's answer is
the study's next trial. The job and the instance stay what they are: the next trials are run under
them, for at most `HOLD_SECONDS`. Then the job ends, and the controller plans the next one anew.

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
from typing import Any, Final

import optuna
from optuna.trial import TrialState

from autoscaler.clock import Clock, SystemClock
from autoscaler.domain.training import SOCKET_VARIABLE
from autoscaler.failures.classify import caught_words
from hpo.objective.closure import closure_study
from hpo.objective.distributed import terms_of
from hpo.objective.packaging import OBJECTIVE_FILE, Objective
from hpo.protocol import requests
from hpo.protocol.requests import Call, read_answer
from hpo.worker.connection import TrialLine
from hpo.worker.interfaces import Asks, Place
from hpo.worker.trial import RemoteTrial, read_facts
from hpo.worker.warm import await_order, note_imports

SHORT_SECONDS: Final = 2.0
HOLD_SECONDS: Final = 20.0
_LEAVES_AFTER_SECONDS = 5.0  # drivers answer within milliseconds, if there is one


_CLOCK = SystemClock()


class ObjectiveExited(RuntimeError):
    """A call of `sys.exit` with an error status in an objective."""


def run_trial(
    objective: Objective, line: Asks, place: Place | None = None, clock: Clock = _CLOCK
) -> None:
    """Run the objective on the trial at the other end of the line, and tell how it ended.

    After a short trial, run the next ones that the driver gives.
    """
    turns = _Turns(clock)
    trial = taken_up(line, place)
    while trial is not None:
        turns.begin()
        end = outcome(objective, trial)
        if turns.takes_more(trial) and end["state"] != TrialState.FAIL.name:
            end = {**end, "takes_more": True}
        following = tell_end(line, end, trial.number)
        trial = None if following is None else _trial_of(following, line, place)


class _Turns:
    """Decides whether a worker asks for another trial after one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._hold_begun = self._trial_begun = clock.monotonic()

    def begin(self) -> None:
        """Note that a trial begins now."""
        self._trial_begun = self._clock.monotonic()

    def takes_more(self, trial: RemoteTrial) -> bool:
        """Return whether to ask for another trial, as the objective of this one has returned.

        A process that kept states of its trial, or is to leave its instance, runs no other.
        """
        now = self._clock.monotonic()
        is_short = now - self._trial_begun < SHORT_SECONDS
        is_free = trial.place is not None and not trial.place.must_leave
        is_held_long = now - self._hold_begun >= HOLD_SECONDS
        return is_short and is_free and not (trial.keeps_states or is_held_long)


def taken_up(
    line: Asks, place: Place | None = None, is_shared: bool = False
) -> RemoteTrial | None:
    """The trial at the other end of the line; None if it has ended."""
    facts = read_answer(line.ask(Call(requests.BEGIN, {}).text()))
    return _trial_of(facts, line, place, is_shared)


def _trial_of(
    value: dict[str, Any], line: Asks, place: Place | None, is_shared: bool = False
) -> RemoteTrial | None:
    facts = read_facts(value)
    return None if facts.is_finished else RemoteTrial(facts, line, place, is_shared)


def tell_end(line: Asks, end: dict[str, Any], trial: int | None = None) -> Any:
    """Tell how the trial ended, and return the answer once the driver has it.

    The answer is None, or what the driver tells of the next trial that this process is to run.
    """
    return read_answer(line.ask(Call(requests.END, end, trial).text()))


def main() -> None:
    """Be the worker of this instance's trial.

    Raises:
        SystemExit: this is no instance of ours.
    """
    await_order()
    socket = os.environ.get(SOCKET_VARIABLE)
    if socket is None:
        raise SystemExit("hpo.worker is started by Castor, on an instance that holds a trial")
    sys.path.insert(0, str(Path.cwd()))
    objective = _load(Path(OBJECTIVE_FILE))
    note_imports()
    try:
        _work(objective, Path(socket))
    finally:
        note_imports()


def _work(objective: Objective, socket: Path) -> None:
    if terms_of(objective) is not None:
        from hpo.worker.rank import be_rank  # what trains on one instance needs none of it

        be_rank(objective, socket)
        return
    line = TrialLine(socket, SystemClock(), _LEAVES_AFTER_SECONDS)
    try:
        run_trial(objective, line, line)
    finally:
        line.close()


def _load(path: Path) -> Objective:
    objective: Objective = pickle.loads(path.read_bytes())
    return objective


def outcome(objective: Objective, trial: RemoteTrial) -> dict[str, Any]:
    """Return how an objective ends on a trial, as the arguments of its call `end`.

    Raises:
        SystemExit: the objective ends its process with status 0, as a worker does that leaves.
    """
    closure_study().bind(trial.study)
    try:
        returned = objective(trial)
    except optuna.TrialPruned:
        return _end("PRUNED")
    except SystemExit as error:
        if not error.code:  # the worker leaves the instance; the trial goes on elsewhere
            raise
        traceback.print_exc()
        cause = f"the objective called sys.exit({error.code!r})"
        return requests.failure(cause, ObjectiveExited(cause)).arguments
    except Exception as error:
        traceback.print_exc()
        return requests.failure(caught_words(error), error).arguments
    try:
        return _end("COMPLETE", _values(returned, len(trial.study.directions)))
    except ValueError as error:
        print(f"trial {trial.number}: {error}", file=sys.stderr)
        return requests.failure(str(error)).arguments


def _end(state: str, values: Sequence[float] | None = None) -> dict[str, Any]:
    return {"state": state, "values": values}


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
