"""Agents of machines that run trials, with the real script of a worker behind them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.report import Ending, Failure
from autoscaler.node.state import Start
from autoscaler.wire.codec import decode, encode
from autoscaler.wire.messages import Assignment, NodeReply, NodeReport, Wanted
from tests.dst.scripts import Script
from tests.dst.trainers import Agent, Vice

_PREPARE_SECONDS: Final = 4
_START_SECONDS: Final = 5
_IDLE: Final = (InstancePhase.READY, InstancePhase.WAITING, InstancePhase.DRAINED)


@dataclass(eq=False)
class TrialAgent(Agent):
    """Agent of one machine that runs trials of a study, one job after another.

    `new_script` returns a script for this agent, and `end_tasks` ends the tasks of its machine.
    """

    new_script: Callable[[TrialAgent], Script] | None = None
    end_tasks: Callable[[], None] = lambda: None
    assignment: Assignment | None = None
    script: Script | None = None

    def advance(self, now_seconds: int) -> None:
        """Take the steps that need no message."""
        if not self.machine.is_billed or Vice.HANGS in self.vices:
            self.trained_until_end = self.phase is InstancePhase.TRAINING
            self.end_tasks()
            self.is_off = not self.machine.is_billed
            return
        if self.token is None or self.is_off:
            return
        seconds = now_seconds - self.since_seconds
        if self.phase is InstancePhase.PREPARING and seconds >= _PREPARE_SECONDS:
            self._enter(InstancePhase.READY, now_seconds)
        elif self.phase is InstancePhase.STARTING and seconds >= _START_SECONDS:
            self._start_script(now_seconds)
        elif self.phase in (InstancePhase.TRAINING, InstancePhase.DRAINING):
            self._watch_script(now_seconds)

    def request(self, user_data: dict[str, str]) -> tuple[str, str, str | None, bytes]:
        """Return the method, path, token and body of the next message."""
        if self.token is not None and self._is_moving:
            return "GET", "/v1/node/assignment", self.token, b""
        return super().request(user_data)

    def take(self, path: str, status: int, body: bytes, now_seconds: int) -> bool:
        """Take the reply to a message; return whether the machine must power off."""
        if path != "/v1/node/assignment":
            return super().take(path, status, body, now_seconds)
        self.beat_seconds = now_seconds
        if status == 200:
            assignment = decode(Assignment, body)
            self.reply = None
            if assignment.job != self.job:
                self._assign(assignment, now_seconds)
        return False

    def crash(self, cause: str, now_seconds: int) -> None:
        """End the script with an error."""
        if self.script is not None and self.script.exit is None:
            self.script.end("failed")
            self._fail(cause, now_seconds)

    @property
    def _is_moving(self) -> bool:
        """Whether the agent has to fetch the assignment of another job."""
        reply = self.reply
        is_other = reply is not None and reply.job not in (None, self.job)
        return is_other and self.script is None and self.phase in _IDLE

    def _assign(self, assignment: Assignment, now_seconds: int) -> None:
        super()._assign(assignment, now_seconds)
        self.assignment = assignment
        self.is_complete, self.ended_attempt, self.failure = False, 0, None
        self.started_seconds = 0

    def _obey(self, reply: NodeReply, now_seconds: int) -> None:
        self.reply, self.drain_seconds = reply, reply.drain_seconds
        self.token = reply.token or self.token
        if reply.token is not None and self.script is not None:
            self.script.client._http.use_token(reply.token)
        if reply.wanted is Wanted.DRAIN or reply.pauses:
            self._drain(now_seconds)
        elif self.phase in _IDLE and not self._is_moving:
            is_due = reply.attempt > self.ended_attempt and not self.is_complete
            if is_due and reply.may_start:
                self.attempt = reply.attempt
                self._enter(InstancePhase.STARTING, now_seconds)

    def _drain(self, now_seconds: int) -> None:
        """Let the script leave; without one the agent has left."""
        if Vice.STAYS in self.vices or self.is_complete:
            return
        if self.script is None:
            self._enter(InstancePhase.DRAINED, now_seconds)
        elif self.phase is not InstancePhase.DRAINING:
            self.told_to_leave_seconds = now_seconds
            self._enter(InstancePhase.DRAINING, now_seconds)
            self.script.drain()

    def _start_script(self, now_seconds: int) -> None:
        assert self.new_script is not None and self.assignment is not None
        self.script = self.new_script(self)
        self.started_seconds = now_seconds
        start = Start(self.attempt, 1, float(now_seconds), 0)
        self.script.start(replace(self.assignment, attempt=self.attempt), start)
        self._enter(InstancePhase.TRAINING, now_seconds)

    def _watch_script(self, now_seconds: int) -> None:
        """Take note of the end of the script; end one that leaves too late."""
        script = self.script
        assert script is not None
        since_seconds = self.told_to_leave_seconds
        if since_seconds is not None and now_seconds - since_seconds >= self.drain_seconds:
            script.end("left")
        if script.exit is None or not (script.relay.is_told or since_seconds is not None):
            return
        if script.exit == "failed":
            self._fail("RuntimeError: the study can't answer", now_seconds)
            return
        self._forget_script()
        self.is_complete = script.exit == "complete"
        self._enter(InstancePhase.DRAINED, now_seconds)

    def _fail(self, cause: str, now_seconds: int) -> None:
        self._forget_script()
        self.failure = Failure(self._name, self.attempt, 1, cause, cause, steps=10)
        self.ended_attempt = self.attempt
        self._enter(InstancePhase.WAITING, now_seconds)

    def _forget_script(self) -> None:
        assert self.script is not None
        self.script.relay.end()
        self.script, self.told_to_leave_seconds = None, None

    def _heartbeat(self) -> bytes:
        report = NodeReport(
            instance=self._name,
            phase=self.phase,
            attempt=self.attempt,
            devices_used=1,
            started_seconds=float(self.started_seconds) or None,
            failure=self.failure,
            is_complete=self.is_complete,
            job=self.job,
            ending=Ending.COMPLETE if self.is_complete else None,
        )
        return encode(NodeReport, report)
