"""Scripts of trials: the real worker and relay, as tasks of the machine that they run on."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from unittest import mock

from autoscaler.domain.trial import TrialAnswer, TrialCall, TrialFile
from autoscaler.node.channel import trial_relay
from autoscaler.node.channel.trial_relay import TrialRelay
from autoscaler.node.state import Start
from autoscaler.wire.messages import Assignment
from autoscaler.wire.node_client import NodeClient
from hpo.worker.process import run_trial
from tests.dst.scheduler import CooperativeCondition, Killed, Scheduler, Task

Objective = Callable[[Any], object]

_DRAIN_TIMEOUT_SECONDS: Final = 5  # as `hpo.worker.process`


class TaskClock:
    """Clock of a client or a script on the true time; short sleeps are only pauses."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler

    def now(self) -> float:
        """Return the seconds since the Unix epoch."""
        return float(self._scheduler.now_seconds)

    def monotonic(self) -> float:
        """Return the same seconds, which never jump here."""
        return float(self._scheduler.now_seconds)

    def sleep(self, seconds: float) -> None:
        """Pause the current task."""
        if seconds < 0.1:
            self._scheduler.pause()
        else:
            self._scheduler.sleep(seconds)


class Script:
    """One start of a trial's script, and the relay of its calls.

    `exit` is "complete", "left" or "failed" after its end; None while it runs.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        owner: int,
        files: Path,
        client: NodeClient,
        objective: Objective,
    ) -> None:
        """Set up the script of a machine, whose tasks are those of `owner`."""
        self._scheduler = scheduler
        self._owner = owner
        self._files = files
        self.client = client
        self._objective = objective
        self._numbers = itertools.count(1)
        self._answers: dict[int, str] = {}
        self._changed = CooperativeCondition(scheduler)
        self._task: Task | None = None
        self.relay = self._new_relay()
        self.must_drain = False
        self.has_stepped = False
        self.exit: str | None = None
        self.on_failure: Callable[[str], None] = lambda cause: None

    def start(self, assignment: Assignment, start: Start) -> None:
        """Start the worker, and the relay of its calls."""
        with self._threads():
            self.relay.serve(assignment, start)
        self._task = self._scheduler.spawn("worker", self._owner, self._run)

    def drain(self) -> None:
        """Tell the worker to leave; one that has not stepped ends at once."""
        self.must_drain = True
        self._changed.notify_all()
        if not self.has_stepped:
            self.end("left")

    def end(self, how: str) -> None:
        """End the worker where it is, unless it has ended."""
        if self.exit is None and self._task is not None:
            self.exit = how
            self._scheduler.interrupt(self._task, Killed())

    # `DriverChannel` and `WorkerContext`

    def tell(self, text: str) -> None:
        """Send a request without an answer."""
        self._send(text, is_question=False)

    def ask(self, text: str, file: TrialFile | None = None) -> str:
        """Send a request; return the answer, for which a draining worker waits a short time.

        Raises:
            SystemExit: the worker drains, and no answer arrives.
        """
        number = self._send(text, is_question=True)
        self._changed.wait_for(lambda: number in self._answers or self.must_drain)
        if not self._changed.wait_for(lambda: number in self._answers, _DRAIN_TIMEOUT_SECONDS):
            self.report_left()
            raise SystemExit(0)
        return self._answers.pop(number)

    def ask_unless_draining(self, text: str) -> str | None:
        """Send a request; return the answer, or None if the worker drains before."""
        number = self._send(text, is_question=True)
        self._changed.wait_for(lambda: number in self._answers or self.must_drain)
        return self._answers.pop(number, None)

    def checkpoint_directory(self) -> Path:
        """Return the directory of checkpoints, which all machines share."""
        return self._files / "checkpoints"

    def remote_checkpoints(self) -> None:
        """Return None: there is no other storage."""

    def report_steps(self, steps: int) -> None:
        """Note that the worker has stepped, so that it leaves by itself."""
        self.has_stepped = True

    def report_left(self) -> None:
        """Note that the worker leaves."""
        self.exit = "left"

    def _send(self, text: str, is_question: bool) -> int:
        number = next(self._numbers)
        self.relay.take(TrialCall(number, text, is_question=is_question))
        return number

    def _hear(self, answer: TrialAnswer) -> None:
        self._answers[answer.number] = answer.text
        self._changed.notify_all()

    def _run(self) -> None:
        try:
            run_trial(self._objective, self, self, TaskClock(self._scheduler))
            self.exit = "complete"
        except SystemExit:
            self.exit = self.exit or "left"
        except Exception as error:  # such as an answer that is an error of the study
            self.exit = "failed"
            self.on_failure(f"{type(error).__name__}: {error}")

    def _new_relay(self) -> TrialRelay:
        clock = TaskClock(self._scheduler)
        relay = TrialRelay(self.client, self._files / f"calls-{-self._owner}", clock)
        relay.on_answer = self._hear
        return relay

    def _threads(self) -> Any:
        """Replace the threads of the relay by tasks of the machine."""

        def thread(target: Callable[[], None], name: str, daemon: bool) -> Any:
            def start() -> None:
                self._scheduler.spawn(name, self._owner, target)

            return SimpleNamespace(start=start)

        return mock.patch.object(
            trial_relay,
            "threading",
            SimpleNamespace(
                Thread=thread, Condition=lambda: CooperativeCondition(self._scheduler)
            ),
        )
