"""Process that runs trials on an instance.

A job for each trial costs half a second. A worker whose trial took less than `SHORT_SECONDS`
therefore asks for another trial as it reports the end, and the driver answers with the study's
next trial. These trials run under the same job, for at most `HOLD_SECONDS`. Then the job ends, and
the controller plans again.

The working directory holds the packed objective. `python -P` keeps the job's modules from
shadowing Castor's; the directory is added to `sys.path` after Castor's imports.
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
from autoscaler.failures.causes import caught_words
from hpo.objective.closure import closure_study
from hpo.objective.distributed import distributed_settings
from hpo.objective.packaging import OBJECTIVE_FILE, Objective
from hpo.protocol import requests
from hpo.protocol.requests import TrialRequest, parse_answer
from hpo.worker.connection import TrialConnection
from hpo.worker.interfaces import DriverChannel, WorkerContext
from hpo.worker.trial import RemoteTrial, parse_description
from hpo.worker.warm import note_imports, wait_for_order

SHORT_SECONDS: Final = 2.0
HOLD_SECONDS: Final = 20.0
_DRAIN_TIMEOUT_SECONDS = 5.0  # a running driver answers within milliseconds


_CLOCK = SystemClock()


class ObjectiveExited(RuntimeError):
    """The objective called `sys.exit` with an error status."""


def run_trial(
    objective: Objective,
    channel: DriverChannel,
    context: WorkerContext | None = None,
    clock: Clock = _CLOCK,
) -> None:
    """Run the objective on the channel's trial and report the end.

    Then run the following short trials.
    """
    sequence = _TrialSequence(clock)
    trial = begin_trial(channel, context)
    while trial is not None:
        sequence.begin()
        end = run_objective(objective, trial)
        if sequence.takes_more(trial) and end["state"] != TrialState.FAIL.name:
            end = {**end, "takes_more": True}
        following = send_end(channel, end, trial.number)
        trial = None if following is None else _trial_of(following, channel, context)


class _TrialSequence:
    """Durations of a worker's short trials; decides whether the worker asks for another one."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._hold_begun = self._trial_begun = clock.monotonic()

    def begin(self) -> None:
        """Record that a trial begins now."""
        self._trial_begun = self._clock.monotonic()

    def takes_more(self, trial: RemoteTrial) -> bool:
        """Return whether to ask for another trial after this one.

        A process that saved a state of its trial, or has to drain, runs no other trial.
        """
        now = self._clock.monotonic()
        is_short = now - self._trial_begun < SHORT_SECONDS
        is_free = trial.context is not None and not trial.context.must_drain
        is_held_long = now - self._hold_begun >= HOLD_SECONDS
        return is_short and is_free and not (trial.keeps_states or is_held_long)


def begin_trial(
    channel: DriverChannel, context: WorkerContext | None = None, is_shared: bool = False
) -> RemoteTrial | None:
    """Return the trial of the channel; None if it has ended."""
    facts = parse_answer(channel.ask(TrialRequest(requests.BEGIN, {}).text()))
    return _trial_of(facts, channel, context, is_shared)


def _trial_of(
    value: dict[str, Any],
    channel: DriverChannel,
    context: WorkerContext | None,
    is_shared: bool = False,
) -> RemoteTrial | None:
    facts = parse_description(value)
    return None if facts.is_finished else RemoteTrial(facts, channel, context, is_shared)


def send_end(channel: DriverChannel, end: dict[str, Any], trial: int | None = None) -> Any:
    """Report the end of the trial; return the driver's answer.

    The answer is None, or the description of the next trial for this process.
    """
    return parse_answer(channel.ask(TrialRequest(requests.END, end, trial).text()))


def main() -> None:
    """Run the worker of this instance's trial.

    Raises:
        SystemExit: the process is not on an instance of Castor.
    """
    wait_for_order()
    socket = os.environ.get(SOCKET_VARIABLE)
    if socket is None:
        raise SystemExit("hpo.worker is started by Castor, on an instance that holds a trial")
    sys.path.insert(0, str(Path.cwd()))
    objective = _load(Path(OBJECTIVE_FILE))
    note_imports()
    try:
        _run_worker(objective, Path(socket))
    finally:
        note_imports()


def _run_worker(objective: Objective, socket: Path) -> None:
    if distributed_settings(objective) is not None:
        from hpo.worker.rank import run_rank  # imported for distributed objectives only

        run_rank(objective, socket)
        return
    channel = TrialConnection(socket, SystemClock(), _DRAIN_TIMEOUT_SECONDS)
    try:
        run_trial(objective, channel, channel)
    finally:
        channel.close()


def _load(path: Path) -> Objective:
    objective: Objective = pickle.loads(path.read_bytes())
    return objective


def run_objective(objective: Objective, trial: RemoteTrial) -> dict[str, Any]:
    """Run an objective on a trial; return the arguments of its `end` request.

    Raises:
        SystemExit: the objective exits with status 0, as a draining worker does.
    """
    closure_study().bind(trial.study)
    try:
        returned = objective(trial)
    except optuna.TrialPruned:
        return _end("PRUNED")
    except SystemExit as error:
        if not error.code:  # the worker drains; the trial continues on another instance
            raise
        traceback.print_exc()
        cause = f"the objective called sys.exit({error.code!r})"
        return requests.failure_request(cause, ObjectiveExited(cause)).arguments
    except Exception as error:
        traceback.print_exc()
        return requests.failure_request(caught_words(error), error).arguments
    try:
        return _end("COMPLETE", _values(returned, len(trial.study.directions)))
    except ValueError as error:
        print(f"trial {trial.number}: {error}", file=sys.stderr)
        return requests.failure_request(str(error)).arguments


def _end(state: str, values: Sequence[float] | None = None) -> dict[str, Any]:
    return {"state": state, "values": values}


def _values(returned: Any, directions: int) -> list[float]:
    """Return an objective's result as a list of floats, one for each direction.

    Raises:
        ValueError: the result has another form.
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
