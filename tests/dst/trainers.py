"""Agents and their scripts as state machines behind the real API of nodes.

A script trains at a known speed, saves checkpoints, takes time to leave, and can misbehave.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from autoscaler.domain.gang import GangPlace
from autoscaler.domain.goodput import Batch, BatchBounds
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.report import (
    CheckpointStatus,
    Ending,
    Failure,
    StepObservation,
    TrainingReport,
)
from autoscaler.wire.codec import decode, encode
from autoscaler.wire.messages import (
    Assignment,
    JoinReply,
    JoinRequest,
    NodeReply,
    NodeReport,
    Wanted,
)
from tests.dst.cloud import Machine
from tests.dst.identity import proof_of

BEAT_SECONDS: Final = 5
LEASE_SECONDS: Final = 900
_PREPARE_SECONDS: Final = 4
_START_SECONDS: Final = 5
_BATCH: Final = 32
_EXPONENT: Final = 0.9
_AT_WORK: Final = (InstancePhase.STARTING, InstancePhase.TRAINING)


class Vice(StrEnum):
    """Misbehaviour of an agent or its script."""

    HANGS = "hangs"  # no heartbeat and no progress any more
    LATE = "joins late"
    NEVER = "never joins"
    TWICE = "joins twice"
    LIES = "reports absurd numbers"
    NAN = "reports NaN"
    STAYS = "ignores the order to leave"
    MUTE = "trains without heartbeats"
    FORGES = "forges its identity"


@dataclass
class Training:
    """One job's training: examples done and saved, on the agents that train now.

    Of a gang of `gang` instances only the leader is a member. `starts` has the agents of each
    start of a gang's script, by its run id.
    """

    total: float
    examples_per_second: float
    save_seconds: int
    gang: int = 1
    interval_seconds: int = 60
    done: float = 0.0
    saved: float = 0.0
    step: int = 0
    members: list[Agent] = field(default_factory=list)
    starts: dict[str, list[Agent]] = field(default_factory=dict)
    advanced_seconds: int = 0
    saved_seconds: int = 0
    completed: bool = False

    def advance(self, now_seconds: int) -> None:
        """Train until now."""
        seconds = now_seconds - self.advanced_seconds
        self.advanced_seconds = now_seconds
        working = [agent for agent in self.members if Vice.HANGS not in agent.vices]
        if len(working) < len(self.members) or not working or seconds <= 0:
            return  # all wait for a member that hangs
        if self.is_over:
            return  # only the last checkpoint remains
        speed = self.examples_per_second * len(working) ** _EXPONENT
        self.done = min(self.done + speed * seconds, self.total)
        self.step = int(self.done / _BATCH)
        if now_seconds - self.saved_seconds >= self.interval_seconds:
            self.save(now_seconds)

    def save(self, now_seconds: int) -> None:
        """Write a checkpoint."""
        self.saved, self.saved_seconds = max(self.saved, self.done), now_seconds

    def leave(self, agent: Agent) -> None:
        """Lose a member; without any, training is at its last checkpoint."""
        if agent in self.members:
            self.members.remove(agent)
            if not self.members:
                self.done = self.saved
                self.step = int(self.done / _BATCH)

    @property
    def is_over(self) -> bool:
        """Whether all examples are done."""
        return self.done >= self.total - 1e-6


@dataclass(eq=False)
class Agent:
    """Agent of one machine. Times are true seconds."""

    machine: Machine
    trainings: dict[str, Training]
    vices: set[Vice] = field(default_factory=set)
    phase: InstancePhase = InstancePhase.PREPARING
    token: str | None = None
    job: str = ""
    attempt: int = 1
    ended_attempt: int = 0
    since_seconds: int = 0
    started_seconds: int = 0
    beat_seconds: int = 0
    heard_seconds: int = 0
    drain_seconds: float = 0.0
    told_to_leave_seconds: int | None = None
    is_busy: bool = False
    is_done: bool = False
    is_complete: bool = False
    has_session: bool = False
    failure: Failure | None = None
    joins: int = 0
    is_off: bool = False
    trained_until_end: bool = False
    on_second_join: Callable[[Agent], None] = lambda agent: None
    reply: NodeReply | None = None
    place: GangPlace | None = None
    is_generation_over: bool = False

    @property
    def training(self) -> Training | None:
        """Training of the agent's job; None before it has joined."""
        return self.trainings.get(self.job)

    def is_due(self, now_seconds: int) -> bool:
        """Return whether the agent sends a message now."""
        if self.is_busy or self.is_off or not self.machine.is_running(now_seconds):
            return False
        if self.vices & {Vice.HANGS, Vice.NEVER, Vice.MUTE}:
            return False
        if Vice.LATE in self.vices and self.token is None:
            return now_seconds - self.machine.running_seconds > 400
        return now_seconds - self.beat_seconds >= BEAT_SECONDS

    def advance(self, now_seconds: int) -> None:
        """Take the steps that need no message."""
        if not self.machine.is_billed:
            self.trained_until_end = self.phase is InstancePhase.TRAINING
            self._stop_training()
            self.is_off = True
            return
        if self.token is None or Vice.HANGS in self.vices or self.is_off:
            return
        seconds = now_seconds - self.since_seconds
        training = self.training
        assert training is not None
        if self._has_lost_gang(training):
            self._end_generation(now_seconds)
        elif self.phase is InstancePhase.PREPARING and seconds >= _PREPARE_SECONDS:
            self._enter(InstancePhase.READY, now_seconds)
        elif self.phase is InstancePhase.STARTING and self._follows:
            self._follow(training, now_seconds)
        elif self.phase is InstancePhase.STARTING and seconds >= _START_SECONDS:
            if self._is_gang_here(training):
                self._enter(InstancePhase.TRAINING, now_seconds)
                self.has_session = True
                training.members.append(self)
        elif self.phase is InstancePhase.TRAINING and training.is_over:
            self._finish(training, now_seconds)
        elif self.phase is InstancePhase.DRAINING:
            self._leave(training, now_seconds)

    @property
    def _follows(self) -> bool:
        """Whether the agent belongs to a gang that another one leads."""
        return self.place is not None and not self.place.leads

    @property
    def _run_id(self) -> str | None:
        return None if self.place is None else self.place.run_id

    @property
    def _is_in_start(self) -> bool:
        """Whether the agent's script runs, or saves its last state."""
        return self.phase in (*_AT_WORK, InstancePhase.DRAINING) and not self.is_off

    def _peers(self, training: Training) -> list[Agent]:
        """Return the agents of this start of the gang; none outside of a gang."""
        return [] if self.place is None else training.starts.get(self.place.run_id, [])

    def _is_gang_here(self, training: Training) -> bool:
        """Return whether all members of the gang have started the script."""
        here = [agent for agent in self._peers(training) if agent.phase in _AT_WORK]
        return self.place is None or len(here) == self.place.instances

    def _has_lost_gang(self, training: Training) -> bool:
        """Return whether another member of the gang has left this start."""
        if self.place is None or self.phase not in _AT_WORK:
            return False
        if self._follows and training.is_over:
            return False
        return any(
            not agent._is_in_start or agent._run_id != self._run_id or Vice.HANGS in agent.vices
            for agent in self._peers(training)
        )

    def _end_generation(self, now_seconds: int) -> None:
        """End the script, because those of the gang have to start again."""
        self._stop_training()
        self.is_generation_over = True
        self._enter(InstancePhase.WAITING, now_seconds)

    def _follow(self, training: Training, now_seconds: int) -> None:
        """End with the leader when all examples are done."""
        leaders = [agent for agent in self._peers(training) if not agent._follows]
        if training.is_over and all(agent.is_done or agent.is_complete for agent in leaders):
            self.is_done, self.ended_attempt = True, self.attempt
            self._enter(InstancePhase.WAITING, now_seconds)

    def is_lease_over(self, now_seconds: int) -> bool:
        """Return whether the agent powers its machine off, since no controller answers."""
        is_deaf = now_seconds - self.heard_seconds > LEASE_SECONDS
        return self.token is not None and is_deaf and Vice.HANGS not in self.vices

    def request(self, user_data: dict[str, str]) -> tuple[str, str, str | None, bytes]:
        """Return the method, path, token and body of the next message."""
        if self.token is None or (Vice.TWICE in self.vices and self.joins < 2):
            proof = "forged" if Vice.FORGES in self.vices else proof_of(self.machine)
            key = "impostor" if self.token is not None else f"start of {self.machine.id}"
            join = JoinRequest(user_data["join_token"], user_data["instance"], proof, 1, key)
            return "POST", "/v1/node/join", None, encode(JoinRequest, join)
        return "POST", "/v1/node/heartbeat", self.token, self._heartbeat()

    def take(self, path: str, status: int, body: bytes, now_seconds: int) -> bool:
        """Take the reply to a message; return whether the machine must power off."""
        self.beat_seconds = now_seconds
        if path == "/v1/node/join":
            return self._take_join(status, body, now_seconds)
        if status == 200:
            self.heard_seconds = now_seconds
            self.failure = None
            self._obey(decode(NodeReply, body), now_seconds)
        return False

    def crash(self, cause: str, now_seconds: int) -> None:
        """End the script with an error."""
        if self.phase not in (InstancePhase.STARTING, InstancePhase.TRAINING):
            return
        self._stop_training()
        self.failure = Failure(self._name, self.attempt, 1, cause, cause, steps=10)
        self.ended_attempt, self.is_generation_over = self.attempt, True
        self._enter(InstancePhase.WAITING, now_seconds)

    @property
    def _name(self) -> str:
        return self.machine.instance

    def _take_join(self, status: int, body: bytes, now_seconds: int) -> bool:
        if status == 200:
            joined = decode(JoinReply, body)
            self.joins += 1
            if self.token is not None:
                self.on_second_join(self)
            else:
                self.token = joined.token
                self.heard_seconds = now_seconds
                self._assign(joined.assignment, now_seconds)
            return False
        if self.token is not None:
            self.joins = 2  # the second join was refused, as it has to be
            return False
        return status in (401, 404, 409, 422)

    def _assign(self, assignment: Assignment, now_seconds: int) -> None:
        """Prepare the work of a job."""
        self.job, self.attempt = assignment.job, assignment.attempt
        self._enter(InstancePhase.PREPARING, now_seconds)

    def _obey(self, reply: NodeReply, now_seconds: int) -> None:
        self.reply, self.drain_seconds = reply, reply.drain_seconds
        self.token = reply.token or self.token
        if reply.wanted is Wanted.DRAIN or reply.pauses:
            if Vice.STAYS in self.vices or self.is_complete:
                return
            if self.phase is InstancePhase.TRAINING or (
                self._follows and self.phase is InstancePhase.STARTING
            ):
                self.told_to_leave_seconds = now_seconds
                self._enter(InstancePhase.DRAINING, now_seconds)
            elif self.phase not in (InstancePhase.DRAINING, InstancePhase.DRAINED):
                rests = (
                    InstancePhase.READY if reply.wanted is Wanted.RUN else InstancePhase.DRAINED
                )
                self._enter(rests, now_seconds)
            return
        if self.phase in _AT_WORK and self._generation < _generation(reply.place):
            self._end_generation(now_seconds)
        may_begin = self.phase in (InstancePhase.READY, InstancePhase.WAITING)
        has_work = reply.attempt > self.ended_attempt and not self.is_complete
        if may_begin and has_work and self._generation < max(_generation(reply.place), 1):
            if reply.may_start and (reply.place is None or reply.place.address is not None):
                self._begin(reply, now_seconds)
            else:
                self._enter(InstancePhase.READY, now_seconds)

    def _begin(self, reply: NodeReply, now_seconds: int) -> None:
        """Start the script."""
        self.attempt, self.is_done = reply.attempt, False
        self.place, self.is_generation_over = reply.place, False
        self.started_seconds = now_seconds
        self._enter(InstancePhase.STARTING, now_seconds)
        if reply.place is not None and self.training is not None:
            self.training.starts.setdefault(reply.place.run_id, []).append(self)

    @property
    def _generation(self) -> int:
        """Generation of the last start; 0 without a gang."""
        return _generation(self.place)

    def _leave(self, training: Training, now_seconds: int) -> None:
        seconds = now_seconds - self.since_seconds
        leaders = [agent for agent in self._peers(training) if not agent._follows]
        if self._follows and not any(agent._is_in_start for agent in leaders):
            self._has_left(now_seconds)
        elif self._follows and seconds < self.drain_seconds:
            return  # until the leader has saved and left
        elif seconds >= training.save_seconds:
            training.save(now_seconds)
            self._has_left(now_seconds)
        elif seconds >= self.drain_seconds:
            self._has_left(now_seconds)

    def _has_left(self, now_seconds: int) -> None:
        self._stop_training()
        is_standby = self.reply is not None and self.reply.wanted is Wanted.RUN
        self.told_to_leave_seconds = None
        self._enter(InstancePhase.READY if is_standby else InstancePhase.DRAINED, now_seconds)

    def _finish(self, training: Training, now_seconds: int) -> None:
        decider = min(training.members, key=lambda agent: agent._name)
        if decider is self:
            if now_seconds - training.saved_seconds >= training.save_seconds:
                training.save(now_seconds)
                training.completed = self.is_complete = True
                self._stop_training()
                self._enter(InstancePhase.WAITING, now_seconds)
        else:
            self.is_done, self.ended_attempt = True, self.attempt
            self._stop_training()
            self._enter(InstancePhase.WAITING, now_seconds)

    def _stop_training(self) -> None:
        if (training := self.training) is not None:
            training.leave(self)

    def _enter(self, phase: InstancePhase, now_seconds: int) -> None:
        self.phase, self.since_seconds = phase, now_seconds

    def _heartbeat(self) -> bytes:
        training = self.training
        assert training is not None
        is_decider = bool(training.members) and self is training.members[0]
        reports = (self._report(training),) if is_decider or self.is_complete else ()
        report = NodeReport(
            instance=self._name,
            phase=self.phase,
            attempt=self.attempt,
            devices_used=1,
            started_seconds=float(self.started_seconds) or None,
            reports=reports,
            failure=self.failure,
            is_done=self.is_done,
            is_complete=self.is_complete,
            job=self.job,
            has_session=self.has_session,
            ending=Ending.COMPLETE if self.is_complete else None,
            rendezvous=f"{self._name}:29500",
            generation=self._generation,
            is_generation_over=self.is_generation_over,
        )
        return encode(NodeReport, report)

    def _report(self, training: Training) -> TrainingReport:
        count = max(len(training.members), 1)
        speed = training.examples_per_second * count**_EXPONENT
        step_seconds = _BATCH / speed
        devices = count * training.gang
        observation = StepObservation(
            _DEVICES[self.machine.kind], count, devices, _BATCH // count, 0, step_seconds, 0.0, 20
        )
        report = TrainingReport(
            step=training.step,
            epoch=0,
            progress_examples=training.done,
            total_examples=training.total,
            batch=Batch(_BATCH, max(_BATCH // count, 1), 0),
            bounds=BatchBounds(_BATCH, _BATCH, _BATCH, adaptive=False),
            replicas=count,
            devices=devices,
            learning_rate=0.1,
            parameter_bytes=10_000_000,
            observations=(observation,),
            checkpoint=CheckpointStatus(
                int(training.saved / _BATCH), float(training.save_seconds), 10_000_000
            ),
        )
        return self._spoiled(report, observation)

    def _spoiled(self, report: TrainingReport, observation: StepObservation) -> TrainingReport:
        """Return the report as a liar sends it."""
        nan = float("nan")
        if Vice.NAN in self.vices:
            bad = replace(observation, step_seconds=nan)
            return replace(
                report, progress_examples=nan, goodput_measured=nan, observations=(bad,)
            )
        if Vice.LIES in self.vices:
            bad = replace(observation, step_seconds=1e-9, instances=10**9, device_batch=-3)
            status = CheckpointStatus(10**12, 1e12, 10**18)
            return replace(
                report,
                parameter_bytes=-1,
                learning_rate=1e300,
                observations=(bad,) * 3,
                checkpoint=status,
            )
        return report


def _generation(place: GangPlace | None) -> int:
    return 0 if place is None else place.generation


_DEVICES: Final = {
    "g4dn.xlarge": "t4",
    "g5.xlarge": "a10g",
    "g2-standard-4": "l4",
    "g2-standard-8": "l4",
}
