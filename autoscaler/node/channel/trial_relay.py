"""Relay of a trial worker's calls to the controller, and of the answers to the worker."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from autoscaler.back_off import BackOff
from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError, Conflict, NotAllowed, SpecError
from autoscaler.domain.trial import TrialAnswer, TrialCall, TrialFile
from autoscaler.node.state import Start
from autoscaler.wire.codec import decode, encode
from autoscaler.wire.messages import Assignment
from autoscaler.wire.node_client import NodeClient
from autoscaler.wire.study_messages import TrialCalls

_log = logging.getLogger(__name__)

_ANSWER_WAIT_SECONDS = 20.0
# Time for which a request with a question also waits for the answer, to save a request.
_QUICK_ANSWER_SECONDS = 1.0
# Time for which a report waits for the question that follows, to share its request.
_BATCHING_SECONDS = 0.003
_OVERWRITE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_TRUNC


class TrialRelay:
    """Relay for one start of the script at a time.

    A call is on disk before the worker gets the confirmation. The relay repeats a call until the
    controller has it, so that controller and driver may be absent while the worker waits.
    """

    def __init__(self, client: NodeClient, path: Path, clock: Clock) -> None:
        self._client = client
        self._path = path
        self._clock = clock
        self._served: _StartRelay | None = None
        self.on_answer: Callable[[TrialAnswer], None] = lambda answer: None

    def serve(self, assignment: Assignment, start: Start) -> None:
        """Relay for this start, if it is of a trial, and end the relay for the start before.

        Raises:
            OSError: the calls can't be stored.
        """
        self.end()
        if assignment.spec.study is not None:
            calls = KeptCalls(self._path, start.started_seconds)
            files = Path(assignment.checkpoint_directory)
            line = _TrialClient(self._client, assignment.job, start.started_seconds, files)
            self._served = _StartRelay(line, calls, self.on_answer, self._clock)

    def end(self) -> None:
        """End the relay, if one is running."""
        if self._served is not None:
            self._served.end()
            self._served = None

    @property
    def is_spoken_to(self) -> bool:
        """Whether the script has made a call."""
        return self._served is not None and self._served.is_spoken_to

    @property
    def is_told(self) -> bool:
        """Whether the controller has all calls of the script, or refuses them."""
        return self._served is None or self._served.is_told

    def take(self, call: TrialCall) -> None:
        """Store a call and send it. A repeated call gets its answer again, if there is one."""
        if self._served is not None:
            self._served.take(call)


@dataclass(frozen=True, slots=True)
class _TrialClient:
    """Requests to the controller for one start of a job's script."""

    client: NodeClient
    job: str
    started_seconds: float
    files: Path

    def begin(self) -> int:
        return self.client.begin_trial(self.started_seconds, self.job)

    def tell(
        self, incarnation: int, calls: tuple[TrialCall, ...], after: int
    ) -> tuple[TrialAnswer, ...]:
        """Send calls; return the answers with numbers above `after` that arrive soon."""
        for call in calls:
            if call.file is not None:
                self.send(call.file)
        message = TrialCalls(
            incarnation, tuple(replace(call, file=None) for call in calls), self.job
        )
        wait_seconds = _QUICK_ANSWER_SECONDS if calls[-1].is_question else 0.0
        return self.client.tell_trial(message, after, wait_seconds)

    def send(self, file: TrialFile) -> None:
        """Upload a file to the controller. An unreadable file is skipped and logged.

        The trial may have fewer permissions than the agent. Therefore the file is opened only in
        the directory of the trial's checkpoints, and not through a link.
        """
        try:
            path = self.files / Path(file.name).name
            with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), "rb") as content:
                self.client.put_trial_file(file.sha256, content)
        except (OSError, SpecError) as error:
            _log.error("file %s of the trial can't be uploaded: %s", file.name, error)

    def answers(self, incarnation: int, after: int) -> tuple[TrialAnswer, ...]:
        return self.client.trial_answers(incarnation, after, _ANSWER_WAIT_SECONDS, self.job)


class _StartRelay:
    """Relay for one start: one thread sends calls, another waits for slow answers."""

    def __init__(
        self,
        line: _TrialClient,
        calls: KeptCalls,
        say: Callable[[TrialAnswer], None],
        clock: Clock,
    ) -> None:
        self._line = line
        self._calls = calls
        self._deliver_one = say
        self._clock = clock
        self._changed = threading.Condition()
        self._incarnation: int | None = None
        self._sent_number = 0
        self._answers: dict[int, TrialAnswer] = {}
        self._answered_number = 0  # the last answer
        self._is_over = False
        self._is_superseded = False
        for run in (self._send_calls, self._fetch_answers):
            threading.Thread(target=run, name=f"castor-trial{run.__name__}", daemon=True).start()

    def take(self, call: TrialCall) -> None:
        with self._changed:
            is_new = self._calls.keep(call)
            answer = self._answers.get(call.number)
            self._changed.notify_all()
        if not is_new and answer is not None:
            self._deliver_one(answer)

    @property
    def is_told(self) -> bool:
        with self._changed:
            return self._is_superseded or self._calls.last_number <= self._sent_number

    @property
    def is_spoken_to(self) -> bool:
        return self._calls.last_number > 0

    def end(self) -> None:
        with self._changed:
            self._is_over = True
            self._calls.close()
            self._changed.notify_all()

    def _unsent_calls(self) -> tuple[TrialCall, ...]:
        with self._changed:
            return tuple(self._calls.after(self._sent_number))

    def _send_calls(self) -> None:
        """Send the controller each new call at once; reports wait for a following question."""

        def send() -> None:
            calls = self._unsent_calls()
            if not calls[-1].is_question:
                self._clock.sleep(_BATCHING_SECONDS)
                calls = self._unsent_calls()
            if self._incarnation is None:
                self._incarnation = self._line.begin()
            answers = self._line.tell(self._incarnation, calls, self._answered_number)
            with self._changed:
                self._sent_number = calls[-1].number
                self._store_answers(answers)
                self._changed.notify_all()
            self._deliver(answers)

        self._repeat(lambda: self._calls.last_number > self._sent_number, send)

    def _fetch_answers(self) -> None:
        """Deliver each slow answer to the worker as soon as it arrives."""

        def fetch() -> None:
            assert self._incarnation is not None
            answers = self._line.answers(self._incarnation, self._answered_number)
            with self._changed:
                self._store_answers(answers)
            self._deliver(answers)

        self._repeat(lambda: self._sent_number > self._answered_number, fetch)

    def _store_answers(self, answers: Sequence[TrialAnswer]) -> None:
        """Store answers, for a worker that repeats a call. The caller holds the lock."""
        self._answers.update({answer.number: answer for answer in answers})
        self._answered_number = max(self._answers, default=0)

    def _deliver(self, answers: Sequence[TrialAnswer]) -> None:
        for answer in answers:
            self._deliver_one(answer)

    def _repeat(self, is_due: Callable[[], bool], act: Callable[[], None]) -> None:
        """Call `act` whenever `is_due`, with back-off after errors, until this start is over."""
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
                _log.warning("this start no longer holds the trial: %s", error)
                self._is_superseded = True
                return
            except CastorError as error:
                wait_seconds = back_off.next_seconds()
                _log.warning("a request failed, next try in %g s: %s", wait_seconds, error)
                self._clock.sleep(wait_seconds)


class KeptCalls:
    """Calls of one start by number, in a file that a new start overwrites.

    The calls survive the agent and the worker, but not the instance.
    """

    def __init__(self, path: Path, started_seconds: float) -> None:
        """Load the calls that an earlier agent stored for the same start.

        Raises:
            OSError: the file can't be read or written.
        """
        self._calls: list[TrialCall] = []
        head, *lines = (path.read_bytes() if path.exists() else b"").splitlines() or [b""]
        with suppress(SpecError):  # from an earlier start, or cut off when the agent was killed
            if decode(float, head) == started_seconds:
                self._calls = _valid_calls(lines)
        self._file = os.fdopen(os.open(path, _OVERWRITE_FLAGS, 0o600), "wb")
        for line in (
            encode(float, started_seconds),
            *(_encoded_line(call) for call in self._calls),
        ):
            self._file.write(line + b"\n")
        self._file.flush()

    def keep(self, call: TrialCall) -> bool:
        """Store the next call; return False if it is stored already.

        Raises:
            OSError: the call can't be written.
        """
        if self._calls and call.number <= self._calls[-1].number:
            return False
        self._file.write(_encoded_line(call) + b"\n")
        self._file.flush()
        self._calls.append(call)
        return True

    def after(self, number: int) -> Sequence[TrialCall]:
        """Return the calls with numbers above `number`."""
        return tuple(call for call in self._calls if call.number > number)

    @property
    def last_number(self) -> int:
        """Number of the last call; 0 if there is none."""
        return self._calls[-1].number if self._calls else 0

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _valid_calls(lines: Sequence[bytes]) -> list[TrialCall]:
    calls: list[TrialCall] = []
    for line in lines:
        with suppress(SpecError):
            calls.append(decode(TrialCall, line))
    return calls


def _encoded_line(call: TrialCall) -> bytes:
    return encode(TrialCall, call)
