"""The conversation with the controller: logs, reports, replies, in a thread of its own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from autoscaler.back_off import BackOff
from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError, NotAllowed, Unavailable, UnknownInstance
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.transfer import TransferCount
from autoscaler.node.logs import LogShipping
from autoscaler.node.outbox import Outbox
from autoscaler.wire.client import NodeClient
from autoscaler.wire.messages import NodeReply, NodeReport

_log = logging.getLogger(__name__)

_LOG_SECONDS = 0.5
_LAST_LOG_SECONDS = 5.0
_NO_ANSWER = (Unavailable, NotAllowed, UnknownInstance)
_AT_REST = (InstancePhase.DRAINED, InstancePhase.WAITING)


class Heartbeats:
    """Tells the controller what is in the outbox, again and again, and keeps its last reply.

    `answered` is a file whose time is that of the last answer, so that a lease goes on when the
    agent is started again. `count` is what was sent and fetched for a job, when it is asked.
    """

    def __init__(
        self,
        client: NodeClient,
        outbox: Outbox,
        logs: LogShipping,
        answered: Path,
        interval_seconds: float,
        clock: Clock,
    ) -> None:
        self._client = client
        self._outbox = outbox
        self._logs = logs
        self._answered = answered
        self._interval_seconds = interval_seconds
        self._clock = clock
        self._back_off = BackOff()
        self._urged = threading.Event()
        self._answered_seconds = self._clock.monotonic() - self._silent_before()
        self.reply: NodeReply | None = None
        self.on_reply: Callable[[], None] = lambda: None
        self.count: Callable[[str | None], TransferCount | None] = lambda job: None

    def start(self) -> None:
        """Begin. Once only."""
        threading.Thread(target=self._run, name="castor-heartbeats", daemon=True).start()

    def urge(self) -> None:
        """Speak at once."""
        self._urged.set()

    @property
    def silent_seconds(self) -> float:
        """How long the controller has not answered."""
        return self._clock.monotonic() - self._answered_seconds

    def _run(self) -> None:
        while True:
            self._urged.clear()
            try:
                wait_seconds = self._speak()
            except Exception:  # the thread's edge: a silent instance is given up and replaced
                _log.exception("a heartbeat went wrong; its report is dropped")
                self._outbox.refused()
                wait_seconds = self._back_off.next_seconds()
            self._urged.wait(wait_seconds)

    def _speak(self) -> float:
        """One report; returns how long to wait before the next.

        Once the instance has done its part the controller holds the reply back until it has work.
        """
        report = self._outbox.next_report()
        self._ship_logs(report)
        begun_seconds = self._clock.monotonic()
        has_done_its_part = report.is_complete or report.is_done
        wait_seconds = self._interval_seconds if has_done_its_part else 0.0
        try:
            counted = replace(report, transfer=self.count(report.job))  # with the log, just sent
            self.reply = self._client.heartbeat(counted, wait_seconds)
        except CastorError as error:
            if not isinstance(error, _NO_ANSWER):
                _log.error("the controller refuses a report, which is dropped: %s", error)
                self._outbox.refused()
            wait_seconds = self._back_off.next_seconds()
            _log.warning("no reply, again in %g s: %s", wait_seconds, error)
            return wait_seconds
        self._back_off.reset()
        self._outbox.answered()
        self._answered_seconds = self._clock.monotonic()
        with suppress(OSError):  # a full disk
            self._answered.touch()
        self.on_reply()
        if self._outbox.has_news:
            return 0.0
        return max(begun_seconds + self._interval_seconds - self._answered_seconds, 0.0)

    def _ship_logs(self, report: NodeReport) -> None:
        """All of them before a start's end is told, if that is quick; else what comes first."""
        is_last = report.phase in _AT_REST or report.failure is not None
        try:
            self._logs.ship(_LAST_LOG_SECONDS if is_last else _LOG_SECONDS, is_last)
        except (CastorError, OSError) as error:
            _log.warning("the log is not handed in: %s", error)

    def _silent_before(self) -> float:
        """How long there had been no answer when this agent was started."""
        try:
            answered_seconds = self._answered.stat().st_mtime
        except FileNotFoundError:
            return 0.0
        return max(self._clock.now() - answered_seconds, 0.0)
