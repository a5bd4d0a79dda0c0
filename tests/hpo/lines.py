"""Channels from workers to a driver in the same process."""

from __future__ import annotations

from collections.abc import Callable

import optuna
from optuna.trial import FrozenTrial

from hpo.driver.trial_server import TrialServer, begin_new_trial
from hpo.protocol.requests import answer_text, error_text, parse_request
from hpo.worker.process import run_trial

Objective = Callable[[optuna.trial.BaseTrial], object]


class WorkerDied(BaseException):
    """Death of a worker's process."""


class DirectChannel:
    """Channel that answers at once. The worker dies after `calls` calls; None means never."""

    def __init__(self, server: TrialServer, calls: int | None = None) -> None:
        self.server = server
        self._left = calls

    def tell(self, text: str) -> None:
        self.ask(text)

    def ask(self, text: str) -> str:
        if self._left == 0:
            raise WorkerDied
        if self._left is not None:
            self._left -= 1
        try:
            return answer_text(self.server.answer(parse_request(text)))
        except Exception as error:
            return error_text(error)


def record(trial: FrozenTrial) -> dict[str, object]:
    """Return a study's record of a trial without times, artifact ids and Castor's attributes."""
    attributes = {
        key: value for key, value in trial.user_attrs.items() if not key.startswith("castor:")
    }
    return {
        "number": trial.number,
        "state": trial.state.name,
        "values": trial.values,
        "params": trial.params,
        "distributions": trial.distributions,
        "reports": trial.intermediate_values,
        "user_attrs": attributes,
        "system_attrs": {
            key: value
            for key, value in trial.system_attrs.items()
            if not key.startswith("artifacts:")
        },
    }


def records(study: optuna.Study) -> list[dict[str, object]]:
    return [record(trial) for trial in study.trials]


def run_all(study: optuna.Study, objective: Objective, trials: int) -> None:
    """Run trials one after another over a channel, as `study.optimize` does without one."""
    for _ in range(trials):
        run_trial(objective, DirectChannel(begin_new_trial(study)))
