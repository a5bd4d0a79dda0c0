"""Process that runs trials on an instance.

A job for each trial costs half a second. A worker whose trial took less than `SHORT_SECONDS`
therefore asks for another trial as it reports the end, and the driver answers with the study's
next trial. These trials run under the same job, for at most `HOLD_SECONDS`. Then the job ends, and
the controller plans again.

The working directory holds the packed objective. `python -P` keeps the job's modules from
shadowing Castor's; the directory is added to `sys.path` after Castor's imports.
"""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Final

from optuna.trial import TrialState

from autoscaler.clock import Clock, SystemClock
from autoscaler.domain.training import SOCKET_VARIABLE
from hpo.objective.distributed import distributed_settings
from hpo.objective.packaging import OBJECTIVE_FILE, Objective
from hpo.worker.connection import TrialConnection
from hpo.worker.interfaces import DriverChannel, WorkerContext
from hpo.worker.objective_run import begin_trial, described_trial, run_objective, send_end
from hpo.worker.trial import RemoteTrial
from hpo.worker.warm import note_imports, wait_for_order

SHORT_SECONDS: Final = 2.0
HOLD_SECONDS: Final = 20.0
_DRAIN_TIMEOUT_SECONDS = 5.0  # a running driver answers within milliseconds


_CLOCK = SystemClock()


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
        trial = None if following is None else described_trial(following, channel, context)


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
