"""One run of an objective: the trial's begin, the run itself, and the report of its end."""

from __future__ import annotations

import math
import sys
import traceback
from collections.abc import Sequence
from typing import Any

import optuna

from autoscaler.failures.causes import caught_words
from hpo.objective.closure import closure_study
from hpo.objective.packaging import Objective
from hpo.protocol import requests
from hpo.protocol.requests import TrialRequest, parse_answer
from hpo.worker.interfaces import DriverChannel, WorkerContext
from hpo.worker.trial import RemoteTrial, parse_description


class ObjectiveExited(RuntimeError):
    """The objective called `sys.exit` with an error status."""


def begin_trial(
    channel: DriverChannel, context: WorkerContext | None = None, is_shared: bool = False
) -> RemoteTrial | None:
    """Return the trial of the channel; None if it has ended."""
    facts = parse_answer(channel.ask(TrialRequest(requests.BEGIN, {}).text()))
    return described_trial(facts, channel, context, is_shared)


def described_trial(
    value: dict[str, Any],
    channel: DriverChannel,
    context: WorkerContext | None,
    is_shared: bool = False,
) -> RemoteTrial | None:
    """Return the trial that an answer of the driver describes; None if it has ended."""
    facts = parse_description(value)
    return None if facts.is_finished else RemoteTrial(facts, channel, context, is_shared)


def send_end(channel: DriverChannel, end: dict[str, Any], trial: int | None = None) -> Any:
    """Report the end of the trial; return the driver's answer.

    The answer is None, or the description of the next trial for this process.
    """
    return parse_answer(channel.ask(TrialRequest(requests.END, end, trial).text()))


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
