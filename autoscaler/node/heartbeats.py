"""Heartbeats to the controller, with logs, reports and replies, in a thread of their own."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random

from autoscaler.back_off import BackOff
from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError, NotAllowed, Unavailable, UnknownInstance
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.time_use import TimeCount
from autoscaler.domain.transfer import TransferCount
from autoscaler.node.files.logs import LogShipping
from autoscaler.node.outbox import Outbox
from autoscaler.node.script.gpu_meter import GpuMeter
from autoscaler.wire.messages import NodeReply, NodeReport
from autoscaler.wire.node_client import NodeClient

_log = logging.getLogger(__name__)

_LOG_LIMIT_SECONDS = 0.5
_LAST_LOG_LIMIT_SECONDS = 5.0
_LONGEST_INTERVAL_SECONDS = 300.0
_LONGEST_WAIT_SECONDS = 20.0
_SPREAD = 0.1
_UNANSWERED_ERRORS = (Unavailable, NotAllowed, UnknownInstance)
_IDLE_PHASES = (InstancePhase.DRAINED, InstancePhase.WAITING)


class Heartbeats:
    """Sender of the reports in the outbox, which keeps the last reply of the controller.

    The modification time of the file `answered` is the time of the last answer, so that a lease
    continues when the agent restarts. `count` and `count_time` return the transfers and the use of
    time for a job; None if they are not counted.
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
        self._chance = Random()
        self._is_urgent = threading.Event()
        self._answered_seconds = self._clock.monotonic() - self._silent_before()
        self.reply: NodeReply | None = None
        self.on_reply: Callable[[], None] = lambda: None
        self.count: Callable[[str | None], TransferCount | None] = lambda job: None
        self.gpus = GpuMeter(clock)
        self.count_time: Callable[[str | None], TimeCount | None] = lambda job: None

    def start(self) -> None:
        """Start the threads. Call only once."""
        self.gpus.start()
        threading.Thread(target=self._run, name="castor-heartbeats", daemon=True).start()

    def urge(self) -> None:
        """Send a heartbeat at once."""
        self._is_urgent.set()

    @property
    def silent_seconds(self) -> float:
        """Seconds since the last answer of the controller."""
        return self._clock.monotonic() - self._answered_seconds

    def _run(self) -> None:
        while True:
            self._is_urgent.clear()
            try:
                wait_seconds = self._send_report()
            except Exception:  # thread boundary: the controller replaces a silent instance
                _log.exception("a heartbeat failed; its report is dropped")
                self._outbox.refused()
                wait_seconds = self._back_off.next_seconds()
            self._is_urgent.wait(wait_seconds)

    def _send_report(self) -> float:
        """Send one report; return the seconds to wait before the next.

        Once the instance has done its part, the controller delays the reply until it has work, by
        at most the interval of heartbeats. The reply says when the next heartbeat is due.
        """
        report = self._outbox.next_report()
        self._ship_logs(report)
        begun_seconds = self._clock.monotonic()
        has_done_its_part = report.is_complete or report.is_done
        longest_seconds = min(self._interval_seconds, _LONGEST_WAIT_SECONDS)
        wait_seconds = longest_seconds if has_done_its_part else 0.0
        try:
            transfer = self.count(report.job)  # counts the log too
            counted = replace(
                report,
                transfer=transfer,
                gpu_use=self.gpus.use(),
                time=self.count_time(report.job),
            )
            self.reply = self._client.heartbeat(counted, wait_seconds)
        except CastorError as error:
            if not isinstance(error, _UNANSWERED_ERRORS):
                _log.error("the controller refused a report, which is dropped: %s", error)
                self._outbox.refused()
            wait_seconds = self._back_off.next_seconds()
            _log.warning("no reply, next try in %g s: %s", wait_seconds, error)
            return wait_seconds
        self._back_off.reset()
        self._outbox.answered()
        if self.reply.heartbeat_seconds is not None:
            self._interval_seconds = min(self.reply.heartbeat_seconds, _LONGEST_INTERVAL_SECONDS)
        self._answered_seconds = self._clock.monotonic()
        with suppress(OSError):  # a full disk
            self._answered.touch()
        self.on_reply()
        if self._outbox.has_news:
            return 0.0
        # Spread, so that the heartbeats of a fleet do not meet.
        interval_seconds = self._interval_seconds * self._chance.uniform(1 - _SPREAD, 1 + _SPREAD)
        return max(begun_seconds + interval_seconds - self._answered_seconds, 0.0)

    def _ship_logs(self, report: NodeReport) -> None:
        """Send new text of the log, within a longer limit before a start's end is reported."""
        is_last = report.phase in _IDLE_PHASES or report.failure is not None
        try:
            self._logs.ship(_LAST_LOG_LIMIT_SECONDS if is_last else _LOG_LIMIT_SECONDS, is_last)
        except (CastorError, OSError) as error:
            _log.warning("the log is not sent: %s", error)

    def _silent_before(self) -> float:
        """Return the seconds without an answer when this agent started."""
        try:
            answered_seconds = self._answered.stat().st_mtime
        except FileNotFoundError:
            return 0.0
        return max(self._clock.now() - answered_seconds, 0.0)
