"""Training process of an instance: one start of the job's script at a time."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from autoscaler.clock import Clock
from autoscaler.domain.activity import Activity
from autoscaler.domain.gang import PEER_ENDED_STATUS
from autoscaler.domain.report import (
    Ending,
    Failure,
    FailureCategory,
    FailureReason,
    TrainingReport,
)
from autoscaler.domain.training import SOCKET_VARIABLE, TrainingDirective, TrainingSetup
from autoscaler.node.channel.line import (
    DeclaredPhase,
    DeviceLimit,
    EndedEarly,
    Line,
    Stepped,
    Word,
)
from autoscaler.node.instance import Instance
from autoscaler.node.script.activity_meter import ActivityMeter, use_of_devices
from autoscaler.node.script.orders import Orders
from autoscaler.node.script.post_mortem import post_mortem
from autoscaler.node.shims.process import kill_marked
from autoscaler.node.state import Prepared, Start
from autoscaler.node.time_meter import StartTimes
from autoscaler.wire.messages import Assignment

STEPS_NOTED_GROWTH: Final = 1.1
_REASONS: Final = {
    Word.DIVERGED: FailureReason.DIVERGED,
    Word.OUT_OF_MEMORY: FailureReason.OUT_OF_MEMORY,
}


class Trainer:
    """Owner of the training process: starts, directs and ends it, and reports its end."""

    def __init__(self, instance: Instance, line: Line, clock: Clock) -> None:
        self._instance = instance
        socket = str(instance.disk.socket())
        self._meter = ActivityMeter(clock, lambda: use_of_devices(SOCKET_VARIABLE, socket, clock))
        self._line = line
        self._process = instance.process(instance.disk.training)
        self._signals: set[Word] = set()
        self._early_end: EndedEarly | None = None
        self._device_kind = ""
        self._example_limit: int | None = None
        self._has_no_total = False
        self.steps = 0
        self._halts = Stepped(0)

    @property
    def on_end(self) -> Callable[[], None]:
        """Callback for the end of a process that this object started, from another thread."""
        return self._process.on_end

    @on_end.setter
    def on_end(self, callback: Callable[[], None]) -> None:
        self._process.on_end = callback

    @property
    def is_alive(self) -> bool:
        """Whether the training process, or a process that it left, is running."""
        return self._process.is_alive

    def forget(self) -> None:
        """Delete the record of the last process, before a new start is saved."""
        self._process.forget()

    def start(self, assignment: Assignment, prepared: Prepared, start: Start) -> None:
        """Start the script.

        Raises:
            Conflict: the last process is still running.
            NotFound: the job names an image, and no container engine is installed.
            OSError: the process can't be started.
        """
        self._signals.clear()
        self._early_end = None
        self._example_limit = None
        self._line.forget_caller()
        self._line.direct(TrainingDirective())
        self.answer(assignment, prepared, start)
        orders = Orders(self._instance, assignment, prepared)
        self._process.start(orders.training(start.devices_used, start.place))

    def answer(self, assignment: Assignment, prepared: Prepared, start: Start) -> None:
        """Set the answer to a training process that connects, also one of an earlier agent."""
        self.steps = start.steps
        self._halts = Stepped(0)
        self._meter.begin()
        spec = assignment.spec
        self._has_no_total = spec.study is not None or spec.restart is not None
        self._device_kind = assignment.offer.device_kind
        setup = _training_setup(self._instance, assignment, start)
        self._line.open_to(setup, prepared.user)

    def hear(self) -> list[TrainingReport]:
        """Return the new training reports, and record all other messages."""
        reports = []
        for message in self._line.hear():
            match message:
                case Stepped():
                    self.steps, self._halts = message.steps, message
                    self._meter.stepped(message.steps)
                case DeclaredPhase(name, seconds):
                    self._meter.declare(name, seconds)
                case Word.WAITS:
                    self._meter.wait_for_others()
                case EndedEarly():
                    self._early_end = message
                case DeviceLimit(examples):
                    self._example_limit = examples
                case Word():
                    self._signals.add(message)
                case _:
                    reports.append(message)
        return reports

    def direct(self, directive: TrainingDirective) -> None:
        """Send `directive` to the training process, if it is new."""
        self._line.direct(directive)

    def stop(self) -> None:
        """End the training process with SIGTERM and its grace period."""
        self._process.stop()

    def kill(self) -> None:
        """Kill the training process at once."""
        self._process.kill()

    @property
    def has_settled(self) -> bool:
        """Whether the training process has ended and all its messages have arrived."""
        if self.is_alive:
            return False
        if self._process.exit_code == -signal.SIGKILL:
            # The shim may have been killed before it ended all processes.
            kill_marked(SOCKET_VARIABLE, str(self._instance.disk.socket()))
        return self._line.is_quiet

    @property
    def exit_code(self) -> int | None:
        """Exit code of the last process; None if it is running or never ran."""
        return self._process.exit_code

    def activity(self, start: Start | None) -> Activity | None:
        """Return the activity of a script without steps for a while; None if it makes steps.

        None too while the script leaves, and on instances that follow another one of their gang.
        """
        if start is None or start.has_ended or start.is_leaving or start.follows:
            return None
        return self._meter.activity(start.has_session) if self.is_alive else None

    def times(self, start: Start) -> StartTimes:
        """Return the times of the present start in which it made no progress."""
        return StartTimes(
            start.started_seconds,
            start.attempt,
            self._halts.paused_seconds,
            self._halts.lost_seconds,
            self._meter.idle_seconds if self.is_alive else 0.0,
        )

    @property
    def lost_its_gang(self) -> bool:
        """Whether the ranks ended because those of another instance of the gang did."""
        return self.exit_code == PEER_ENDED_STATUS

    def learnt(self, start: Start) -> Start:
        """Return `start` with the messages since: its session, its steps, and its end.

        Steps change only after a growth by `STEPS_NOTED_GROWTH`, to save writes.
        """
        has_session = start.has_session or self._line.has_caller
        steps = self.steps if self.steps > start.steps * STEPS_NOTED_GROWTH else start.steps
        is_done = start.is_done or Word.DONE in self._signals
        return replace(start, has_session=has_session, steps=steps, is_done=is_done)

    def completed(self, start: Start) -> Start:
        """Return `start` with the ending of its script, which exited with status 0."""
        reason = None if self._early_end is None else self._early_end.reason
        return replace(start, ending=self.ending(start), stop_reason=reason)

    def ending(self, start: Start) -> Ending:
        """Return the kind of ending of a script that exited with status 0.

        The status alone states that a trial or a restartable command is complete.
        """
        if self._has_no_total or Word.FINISHED in self._signals:
            return Ending.COMPLETE
        return Ending.EARLY if start.has_session else Ending.WITHOUT_SESSION

    def has_completed(self, start: Start) -> bool:
        """Return whether the script ended successfully and by itself, which ends the job."""
        if self.exit_code != 0 or Word.LEFT in self._signals or start.is_done:
            return False
        if start.follows:  # the gang's leader reports the end
            return False
        has_ended = Word.FINISHED in self._signals or self._early_end is not None
        return has_ended or not start.is_leaving

    def failure(self, start: Start) -> Failure:
        """Return the failure of the script, which has ended."""
        exit_code = self.exit_code
        assert exit_code is not None
        reason = next((_REASONS[word] for word in self._signals if word in _REASONS), None)
        failure = post_mortem(
            *(self._instance, start.attempt, start.log_offset, exit_code, reason),
            start.memory_kills,
        )
        failure = replace(failure, steps=self.steps)
        limit = self._example_limit
        if limit is None:
            return failure
        cause = (
            f"{failure.cause}; the next start takes at most {limit} examples at once on a device"
        )
        return replace(
            failure,
            cause=cause,
            device_limit=(self._device_kind, limit),
            category=FailureCategory.DEVICE_MEMORY,
        )


def _training_setup(instance: Instance, assignment: Assignment, start: Start) -> TrainingSetup:
    spec = assignment.spec
    return TrainingSetup(
        job=assignment.job,
        replica=instance.name,
        attempt=start.attempt,
        device_kind=assignment.offer.device_kind,
        lighthouse=assignment.lighthouse,
        bind_address=instance.metadata.bind_address,
        peer_token=assignment.peer_token,
        checkpoint_directory=assignment.checkpoint_directory,
        checkpoint_interval_seconds=assignment.checkpoint_interval_seconds,
        checkpoints_kept=spec.checkpoint.keep,
        batch=spec.batch,
        total_examples=spec.total_examples,
        heartbeat_timeout_seconds=assignment.heartbeat_timeout_seconds,
        collective_timeout_seconds=assignment.collective_timeout_seconds,
        depot=assignment.depot,
        grant_file=None if assignment.depot is None else str(instance.disk.grant),
        checkpoint_owner=assignment.checkpoint_owner,
        adopts=assignment.adopts,
    )
