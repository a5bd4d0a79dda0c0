"""The training process of this instance: one start of the job's script at a time."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Final

from autoscaler.domain.report import Ending, Failure, FailureReason, TrainingReport
from autoscaler.domain.training import SOCKET_VARIABLE, TrainingDirective, TrainingSetup
from autoscaler.node.instance import Instance
from autoscaler.node.line import DeviceLimit, EndedEarly, Line, Stepped, Word
from autoscaler.node.orders import Orders
from autoscaler.node.post_mortem import post_mortem
from autoscaler.node.process import kill_marked
from autoscaler.node.state import Prepared, Start
from autoscaler.wire.messages import Assignment

STEPS_NOTED_GROWTH: Final = 1.1
_REASONS: Final = {
    Word.DIVERGED: FailureReason.DIVERGED,
    Word.OUT_OF_MEMORY: FailureReason.OUT_OF_MEMORY,
}


class Trainer:
    """Starts it, speaks with it, ends it, and says how it ended."""

    def __init__(self, instance: Instance, line: Line) -> None:
        self._instance = instance
        self._line = line
        self._process = instance.process(instance.disk.training)
        self._words: set[Word] = set()
        self._early: EndedEarly | None = None
        self._device_kind = ""
        self._most_at_once: int | None = None
        self._is_trial = False
        self.steps = 0

    @property
    def on_end(self) -> Callable[[], None]:
        """Called, from another thread, as soon as what this object started has ended."""
        return self._process.on_end

    @on_end.setter
    def on_end(self, call: Callable[[], None]) -> None:
        self._process.on_end = call

    @property
    def is_alive(self) -> bool:
        """It runs, or something of it does."""
        return self._process.is_alive

    def forget(self) -> None:
        """Let there have been no process: before a start is written down."""
        self._process.forget()

    def start(self, assignment: Assignment, prepared: Prepared, start: Start) -> None:
        """Start the script.

        Raises:
            Conflict: it runs.
            NotFound: the job names an image, and there is no engine.
            OSError: no process can be started.
        """
        self._words.clear()
        self._early = None
        self._most_at_once = None
        self._line.forget_caller()
        self._line.direct(TrainingDirective())
        self.answer(assignment, prepared, start)
        orders = Orders(self._instance, assignment, prepared)
        self._process.start(orders.training(start.devices_used))

    def answer(self, assignment: Assignment, prepared: Prepared, start: Start) -> None:
        """Answer the training process when it connects, one of an earlier agent too."""
        self.steps = start.steps
        self._is_trial = assignment.spec.study is not None
        self._device_kind = assignment.offer.device_kind
        setup = _training_setup(self._instance, assignment, start)
        self._line.open_to(setup, prepared.user)

    def hear(self) -> list[TrainingReport]:
        """The reports that came in."""
        reports = []
        for message in self._line.hear():
            match message:
                case Stepped(steps):
                    self.steps = steps
                case EndedEarly():
                    self._early = message
                case DeviceLimit(examples):
                    self._most_at_once = examples
                case Word():
                    self._words.add(message)
                case _:
                    reports.append(message)
        return reports

    def direct(self, directive: TrainingDirective) -> None:
        """Let `directive` be in force."""
        self._line.direct(directive)

    def stop(self) -> None:
        """End it, by SIGTERM first."""
        self._process.stop()

    def kill(self) -> None:
        """End it at once."""
        self._process.kill()

    @property
    def has_settled(self) -> bool:
        """Nothing of it runs, and all that it said was heard."""
        if self.is_alive:
            return False
        if self._process.exit_code == -signal.SIGKILL:
            # Its shim may have been killed, which would have ended the rest.
            kill_marked(SOCKET_VARIABLE, str(self._instance.disk.socket()))
        return self._line.is_quiet

    @property
    def exit_code(self) -> int | None:
        """How it ended; None if it never ran, or runs."""
        return self._process.exit_code

    def learnt(self, start: Start) -> Start:
        """Return `start` with what was heard of it since; few changes of its steps count."""
        has_session = start.has_session or self._line.has_caller
        steps = self.steps if self.steps > start.steps * STEPS_NOTED_GROWTH else start.steps
        is_done = start.is_done or Word.DONE in self._words
        return replace(start, has_session=has_session, steps=steps, is_done=is_done)

    def completed(self, start: Start) -> Start:
        """Return `start` with how its script, which has exited with status 0, has ended."""
        reason = None if self._early is None else self._early.reason
        return replace(start, ending=self.ending(start), stop_reason=reason)

    def ending(self, start: Start) -> Ending:
        """Return how a script that has exited with status 0 has ended."""
        if self._is_trial or Word.FINISHED in self._words:
            return Ending.COMPLETE
        return Ending.EARLY if start.has_session else Ending.WITHOUT_SESSION

    def has_completed(self, start: Start) -> bool:
        """Its end, well and of its own accord, is the end of the job."""
        if self.exit_code != 0 or Word.LEFT in self._words or start.is_done:
            return False
        has_ended = Word.FINISHED in self._words or self._early is not None
        return has_ended or not start.is_leaving

    def failure(self, start: Start) -> Failure:
        """Its end, as the failure that it is."""
        exit_code = self.exit_code
        assert exit_code is not None
        failure = post_mortem(self._instance, start.attempt, start.log_offset, exit_code)
        reason = next((_REASONS[word] for word in self._words if word in _REASONS), None)
        failure = replace(failure, steps=self.steps, reason=reason)
        most = self._most_at_once
        if most is None:
            return failure
        cause = f"{failure.cause}; the next start takes at most {most} at once on a device"
        return replace(failure, cause=cause, device_limit=(self._device_kind, most))


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
