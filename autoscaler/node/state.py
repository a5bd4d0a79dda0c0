"""What an agent that was killed and started again must know. Never a secret's value.

The grant of the job's storage is none of it: it has a file of its own (`node/grants.py`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from autoscaler.domain.report import Ending, Failure
from autoscaler.wire.codec import decode, encode
from autoscaler.wire.messages import Assignment, NodeReply, Wanted


@dataclass(frozen=True, slots=True)
class Prepared:
    """Where the job's script runs: by which interpreter, as which user, in which image.

    `user` None is the agent's own; `python` is the interpreter in the image if there is one.
    """

    python: str
    user: int | None = None
    image: str | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """One start of the script. What it printed is in the log from `log_offset` on.

    `steps` are those it is known to have made. `is_leaving`: it was told to, so that no end is a
    failure. `is_done`: its part is over, and not the job. `has_ended`: its end was taken note of,
    and `ending` says how, where it ended well, `stop_reason` why before its total. `has_session`:
    it has opened a session.
    """

    attempt: int
    devices_used: int
    started_seconds: float
    log_offset: int
    steps: int = 0
    is_leaving: bool = False
    is_done: bool = False
    has_ended: bool = False
    has_session: bool = False
    ending: Ending | None = None
    stop_reason: str | None = None

    @property
    def has_stepped(self) -> bool:
        """It trains."""
        return self.steps > 0

    @property
    def has_done_its_part(self) -> bool:
        """It ended, and nothing is left for this instance to do in the attempt."""
        return self.is_done and self.has_ended


@dataclass(frozen=True, slots=True)
class AgentState:
    """All of it. `failure` is one that the controller has not answered yet.

    `drain_seconds` is what the controller said last of how long leaving may take.
    """

    token: str
    heartbeat_seconds: float
    lease_seconds: float
    drain_seconds: float
    assignment: Assignment
    prepared: Prepared | None = None
    start: Start | None = None
    failed_attempt: int = 0
    failure: Failure | None = None
    is_complete: bool = False

    @property
    def first_wish(self) -> NodeReply:
        """Reply that an agent acts on while the controller has sent it none."""
        assignment = self.assignment
        return NodeReply(
            wanted=Wanted.RUN,
            attempt=assignment.attempt,
            start_seconds=None,
            devices_used=assignment.devices_used,
            drain_seconds=self.drain_seconds,
        )

    def with_job(self, assignment: Assignment) -> AgentState:
        """As it is when the instance becomes another job's: what is of the instance stays."""
        return AgentState(
            self.token,
            self.heartbeat_seconds,
            self.lease_seconds,
            self.drain_seconds,
            assignment,
        )


def load_state(path: Path) -> AgentState | None:
    """The state in `path`; None where none was saved.

    Raises:
        SpecError: it is not of this version.
    """
    try:
        return decode(AgentState, path.read_bytes())
    except FileNotFoundError:
        return None


def save_state(path: Path, state: AgentState) -> None:
    """Let `path` hold the state without secrets, wholly and durably, for its owner only.

    Raises:
        OSError: it can't be written; what was there still is.
    """
    clean = replace(state, assignment=replace(state.assignment, secrets={}, grant=None))
    unfinished = path.with_name(f"{path.name}.unfinished")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(encode(AgentState, clean))
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
