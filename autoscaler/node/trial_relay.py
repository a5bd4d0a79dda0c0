"""Between a trial's worker and the controller: its calls go on, its answers come back."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autoscaler.back_off import BackOff
from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError, Conflict, NotAllowed, SpecError
from autoscaler.domain.trial import TrialAnswer, TrialCall, TrialFile
from autoscaler.node.state import Start
from autoscaler.node.trial_calls import KeptCalls
from autoscaler.wire.client import NodeClient
from autoscaler.wire.messages import Assignment
from autoscaler.wire.study_messages import TrialCalls

_log = logging.getLogger(__name__)

_WAIT_SECONDS = 20.0
# So long the request that hands a question in waits for its answer, which saves a request.
_QUICK_SECONDS = 1.0
# So long a report waits for the question that follows it, to go with it.
_TOGETHER_SECONDS = 0.003


class TrialRelay:
    """Relays for one start of the script after the other.

    A call is kept on disk before its worker is told so, and told again until the controller has
    it: controller and driver may be away for as long as the worker waits.
    """

    def __init__(self, client: NodeClient, path: Path, clock: Clock) -> None:
        self._client = client
        self._path = path
        self._clock = clock
        self._served: _Start | None = None
        self.on_answer: Callable[[TrialAnswer], None] = lambda answer: None

    def serve(self, assignment: Assignment, start: Start) -> None:
        """Relay for this start, if it is one of a trial, and for none before it.

        Raises:
            OSError: what it says can't be kept.
        """
        self.end()
        if assignment.spec.study is not None:
            calls = KeptCalls(self._path, start.started_seconds)
            files = Path(assignment.checkpoint_directory)
            line = _Line(self._client, assignment.job, start.started_seconds, files)
            self._served = _Start(line, calls, self.on_answer, self._clock)

    def end(self) -> None:
        """Relay for none any more."""
        if self._served is not None:
            self._served.end()
            self._served = None

    @property
    def is_spoken_to(self) -> bool:
        """The script that is served has said something."""
        return self._served is not None and self._served.is_spoken_to

    @property
    def is_told(self) -> bool:
        """The controller has all that the script said, or does not want it any more."""
        return self._served is None or self._served.is_told

    def take(self, call: TrialCall) -> None:
        """Keep a call and send it on. One that came before is answered again, if it was."""
        if self._served is not None:
            self._served.take(call)


@dataclass(frozen=True, slots=True)
class _Line:
    """The way from one start of a job's script to the controller."""

    client: NodeClient
    job: str
    started_seconds: float
    files: Path

    def begin(self) -> int:
        return self.client.begin_trial(self.started_seconds, self.job)

    def tell(
        self, incarnation: int, calls: tuple[TrialCall, ...], after: int
    ) -> tuple[TrialAnswer, ...]:
        """Tell calls; return the answers beyond number `after` if they are there soon."""
        for call in calls:
            if call.file is not None:
                self.send(call.file)
        told = TrialCalls(incarnation, tuple(replace(call, file=None) for call in calls), self.job)
        wait_seconds = _QUICK_SECONDS if calls[-1].is_question else 0.0
        return self.client.tell_trial(told, after, wait_seconds)

    def send(self, file: TrialFile) -> None:
        """Have the controller keep a file. One that can't be read is missed by the driver.

        What the trial names is opened only where its checkpoints are, and through no link: it may
        read less than we may.
        """
        try:
            path = self.files / Path(file.name).name
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as content:
                self.client.put_trial_file(file.sha256, content)
        except (OSError, SpecError) as error:
            _log.error("file %s of the trial can't be handed in: %s", file.name, error)

    def answers(self, incarnation: int, after: int) -> tuple[TrialAnswer, ...]:
        return self.client.trial_answers(incarnation, after, _WAIT_SECONDS, self.job)


class _Start:
    """Relays for one start: one thread tells, another waits for answers that take long."""

    def __init__(
        self,
        line: _Line,
        calls: KeptCalls,
        say: Callable[[TrialAnswer], None],
        clock: Clock,
    ) -> None:
        self._line = line
        self._calls = calls
        self._say = say
        self._clock = clock
        self._changed = threading.Condition()
        self._incarnation: int | None = None
        self._told = 0
        self._answers: dict[int, TrialAnswer] = {}
        self._answered = 0  # number of the last answer
        self._is_over = False
        self._is_superseded = False
        for run in (self._tell, self._listen):
            threading.Thread(target=run, name=f"castor-trial{run.__name__}", daemon=True).start()

    def take(self, call: TrialCall) -> None:
        with self._changed:
            is_new = self._calls.keep(call)
            answer = self._answers.get(call.number)
            self._changed.notify_all()
        if not is_new and answer is not None:
            self._say(answer)

    @property
    def is_told(self) -> bool:
        with self._changed:
            return self._is_superseded or self._calls.last_number <= self._told

    @property
    def is_spoken_to(self) -> bool:
        return self._calls.last_number > 0

    def end(self) -> None:
        with self._changed:
            self._is_over = True
            self._calls.close()
            self._changed.notify_all()

    def _untold(self) -> tuple[TrialCall, ...]:
        with self._changed:
            return tuple(self._calls.after(self._told))

    def _tell(self) -> None:
        """Tell the controller what it has not heard, as soon as there is something."""

        def tell() -> None:
            calls = self._untold()
            if not calls[-1].is_question:
                self._clock.sleep(_TOGETHER_SECONDS)
                calls = self._untold()
            if self._incarnation is None:
                self._incarnation = self._line.begin()
            heard = self._line.tell(self._incarnation, calls, self._answered)
            with self._changed:
                self._told = calls[-1].number
                self._note(heard)
                self._changed.notify_all()
            self._pass_on(heard)

        self._repeat(lambda: self._calls.last_number > self._told, tell)

    def _listen(self) -> None:
        """Hand the worker each answer, as soon as it is there."""

        def listen() -> None:
            assert self._incarnation is not None
            heard = self._line.answers(self._incarnation, self._answered)
            with self._changed:
                self._note(heard)
            self._pass_on(heard)

        self._repeat(lambda: self._told > self._answered, listen)

    def _note(self, heard: Sequence[TrialAnswer]) -> None:
        """Keep answers, for a worker that asks again. The caller holds the lock."""
        self._answers.update({answer.number: answer for answer in heard})
        self._answered = max(self._answers, default=0)

    def _pass_on(self, heard: Sequence[TrialAnswer]) -> None:
        for answer in heard:
            self._say(answer)

    def _repeat(self, is_due: Callable[[], bool], act: Callable[[], None]) -> None:
        """Act whenever it is due, until this start is over."""
        back_off = BackOff()
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._is_over or is_due())
                if self._is_over:
                    return
            try:
                act()
                back_off.reset()
            except (Conflict, NotAllowed) as error:
                _log.warning("this start holds the trial no more: %s", error)
                self._is_superseded = True
                return
            except CastorError as error:
                wait_seconds = back_off.next_seconds()
                _log.warning("the trial is not heard, again in %g s: %s", wait_seconds, error)
                self._clock.sleep(wait_seconds)
