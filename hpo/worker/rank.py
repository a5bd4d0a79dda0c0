"""One rank of a distributed objective: which words of it count, and who says them.

Every instance asks the driver by itself. What is asked of a trial by several has one answer: what
was suggested is the trial's, what was reported of a step counts once, a step is judged once. So
there is no leader to be lost among the instances, and a joiner knows at once what the others do.
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
from hpo.protocol.requests import Call
from hpo.worker.connection import TrialLine
from hpo.worker.epochs import lasting_name, note
from hpo.worker.interfaces import Place
from hpo.worker.local_ranks import FAREWELL_SECONDS, FollowingRank, LeadingRank
from hpo.worker.process import outcome, taken_up, tell_end

_log = logging.getLogger(__name__)

_CREW_SOCKET: Final = ".castor-crew"


def be_rank(objective: Objective, agent: Path) -> None:
    """Run the objective as this rank of its instance, whose agent serves the socket `agent`."""
    rank, ranks = int(os.environ.get("LOCAL_RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    path = meeting_place(Path.cwd(), os.environ)
    if rank > 0:
        _follow(objective, FollowingRank(path, rank, SystemClock()))
        return
    line = TrialLine(agent, SystemClock())
    leading = LeadingRank(line, path, ranks)
    has_ended = lead(objective, leading, line)
    line.finished() if has_ended else line.done()
    leading.close()
    line.close()


def meeting_place(directory: Path, environment: Mapping[str, str]) -> Path:
    """Where the ranks of one instance meet, and those of no other that has the same directory.

    torchrun calls the runs of all instances alike; the port that their ranks meet at is their own.
    """
    return directory / f"{_CREW_SOCKET}-{environment.get('MASTER_PORT', 'alone')}"


def lead(objective: Objective, line: LeadingRank, place: Place | None = None) -> bool:
    """Run the objective for an instance; returns whether the trial has ended by it, or before."""
    trial = taken_up(line, place, is_shared=True)
    if trial is None:
        return True
    with watched(lasting_name(trial)) as watch:
        watch.on_epochs = lambda count: note(trial, attributes.STEPS, count)
        end = outcome(objective, trial)
    if not _has_last_word(watch):  # an end is told once; who fails alone leaves it to the others
        line.end_untold(Call(requests.END, end).text())
        return False
    if watch.session is None and not _is_failure(end):
        _log.warning("without a session each instance of the trial has done all of it by itself")
    tell_end(line, end)
    return True


def _follow(objective: Objective, line: FollowingRank) -> None:
    """Run the objective on another rank, and end as rank 0 does.

    Raises:
        RuntimeError: rank 0 does not end; an objective that fails on one rank only has its whole
            instance started again.
    """
    trial = taken_up(line, is_shared=True)
    if trial is None:
        return
    with watched(lasting_name(trial)):
        end = outcome(objective, trial)
    if _is_failure(end):
        line.give_up_soon(FAREWELL_SECONDS)
    tell_end(line, end)


def _is_failure(end: dict[str, Any]) -> bool:
    return bool(end["state"] == TrialState.FAIL.name)


def _has_last_word(watch: Watch) -> bool:
    return watch.session is None or watch.session.has_last_word
