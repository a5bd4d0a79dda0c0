"""Saved state of an agent, for its restart. It never holds the value of a secret.

The grant of the job's storage has a file of its own (`node/files/grants.py`).
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from autoscaler.domain.gang import GangPlace
from autoscaler.domain.report import Ending, Failure
from autoscaler.wire.codec import decode, encode
from autoscaler.wire.messages import Assignment, NodeReply, Wanted


@dataclass(frozen=True, slots=True)
class Prepared:
    """Interpreter, user id and image of the job's script.

    `user` None is the agent's user. `image` None is no container; otherwise `python` is the
    interpreter in the image.
    """

    python: str
    user: int | None = None
    image: str | None = None


@dataclass(frozen=True, slots=True)
class Start:
    """One start of the script. Its output is in the log from the byte `log_offset` on.

    `steps` is the known number of training steps. `is_leaving`: the script was told to leave, so
    that its end is no failure. `is_done`: its part is over, but not the job. `has_ended`: its end
    is recorded. `ending` is the kind of a successful end, `stop_reason` the reason for one before
    the total. `has_session`: the script has opened a training session. `place` is that in a gang;
    `is_generation_over`: the gang's script ended here in a way that needs another start.
    `memory_kills`: processes that the kernel had ended for lack of memory before; None: unknown.
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
    place: GangPlace | None = None
    is_generation_over: bool = False
    memory_kills: int | None = None

    @property
    def generation(self) -> int:
        """Generation of the gang's start; 0 without a gang."""
        return 0 if self.place is None else self.place.generation

    @property
    def follows(self) -> bool:
        """Whether another instance leads the gang, so that no rank here opens a session."""
        return self.place is not None and not self.place.leads

    @property
    def has_stepped(self) -> bool:
        """Whether the script has made training steps."""
        return self.steps > 0

    @property
    def has_done_its_part(self) -> bool:
        """Whether the script has ended and this instance has no more work in the attempt."""
        return self.is_done and self.has_ended


@dataclass(frozen=True, slots=True)
class AgentState:
    """State of an agent. `failure` is one that the controller has not answered yet.

    `drain_seconds` is the latest time limit of the controller for draining.
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
        """Reply that the agent acts on until the controller sends one."""
        assignment = self.assignment
        return NodeReply(
            wanted=Wanted.RUN,
            attempt=assignment.attempt,
            start_seconds=None,
            devices_used=assignment.devices_used,
            drain_seconds=self.drain_seconds,
        )

    def with_job(self, assignment: Assignment) -> AgentState:
        """Return the state after a move to another job; only the instance's fields stay."""
        return AgentState(
            self.token,
            self.heartbeat_seconds,
            self.lease_seconds,
            self.drain_seconds,
            assignment,
        )


def load_state(path: Path) -> AgentState | None:
    """Return the state in `path`; None if none was saved.

    Raises:
        SpecError: the state has another version.
    """
    try:
        return decode(AgentState, path.read_bytes())
    except FileNotFoundError:
        return None


def save_state(path: Path, state: AgentState) -> None:
    """Write the state to `path` without secrets, atomically and durably, for its owner only.

    Raises:
        OSError: the state can't be written; the earlier state stays.
    """
    clean = replace(state, assignment=replace(state.assignment, secrets={}, grant=None))
    unfinished = path.with_name(f"{path.name}.unfinished")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(encode(AgentState, clean))
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path)
