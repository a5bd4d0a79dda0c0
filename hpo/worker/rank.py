"""Rank of a distributed objective.

Rank 0 of every instance sends requests to the driver. Requests of several instances about one
trial have one answer: the first suggestion, report or decision counts. No instance is special, and
an instance that joins receives the same answers.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from optuna.trial import TrialState

from autoscaler.clock import SystemClock
from autoscaler.training.watch import Watch, watched
from hpo.objective.packaging import Objective
from hpo.protocol import attributes, requests
from hpo.protocol.requests import TrialRequest
from hpo.worker.connection import TrialConnection
from hpo.worker.epochs import record_attribute, trial_state_name
from hpo.worker.interfaces import WorkerContext
from hpo.worker.local_ranks import CLOSE_TIMEOUT_SECONDS, FollowingRank, LeadingRank
from hpo.worker.objective_run import begin_trial, run_objective, send_end

_log = logging.getLogger(__name__)

_SOCKET_PREFIX: Final = ".castor-crew"


def run_rank(objective: Objective, agent: Path) -> None:
    """Run a trial's objective as this process's rank of its instance.

    Rank 0 sends requests to the driver through the socket `agent`, and the other ranks receive its
    answers. Rank 0 then reports the end of the trial, or of this instance's part.
    """
    rank, ranks = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    path = rank_socket_path(Path.cwd(), os.environ)
    if rank > 0:
        _run_following_rank(objective, FollowingRank(path, rank, SystemClock()))
        return
    channel = TrialConnection(agent, SystemClock())
    leading = LeadingRank(channel, path, ranks)
    has_ended = run_leading_rank(objective, leading, channel)
    channel.report_finished() if has_ended else channel.report_done()
    leading.close()
    channel.close()


def rank_socket_path(directory: Path, environment: Mapping[str, str]) -> Path:
    """Return the socket of the ranks of one instance.

    torchrun gives the runs of all instances one name, so the port of the run distinguishes
    instances that share a directory.
    """
    return directory / f"{_SOCKET_PREFIX}-{environment.get('MASTER_PORT', 'alone')}"


def run_leading_rank(
    objective: Objective, channel: LeadingRank, context: WorkerContext | None = None
) -> bool:
    """Run the objective as rank 0; return whether the trial has ended."""
    trial = begin_trial(channel, context, is_shared=True)
    if trial is None:
        return True
    with watched(trial_state_name(trial)) as watch:
        watch.on_epochs = lambda count: record_attribute(trial, attributes.STEPS, count)
        end = run_objective(objective, trial)
    if not _reports_end(watch):  # another instance reports the end
        channel.end_locally(TrialRequest(requests.END, end).text())
        return False
    if watch.session is None and not _is_failure(end):
        _log.warning("without a session each instance of the trial has done all of it by itself")
    send_end(channel, end)
    return True


def _run_following_rank(objective: Objective, channel: FollowingRank) -> None:
    """Run the objective as another rank, and end as rank 0 does.

    Raises:
        RuntimeError: rank 0 does not end. If only one rank fails, its instance restarts.
    """
    trial = begin_trial(channel, is_shared=True)
    if trial is None:
        return
    with watched(trial_state_name(trial)):
        end = run_objective(objective, trial)
    if _is_failure(end):
        channel.limit_answer_timeout(CLOSE_TIMEOUT_SECONDS)
    send_end(channel, end)


def _is_failure(end: dict[str, Any]) -> bool:
    return bool(end["state"] == TrialState.FAIL.name)


def _reports_end(watch: Watch) -> bool:
    return watch.session is None or watch.session.has_last_word
