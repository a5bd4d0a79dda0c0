"""Heartbeats of agents, handled in batches whose writes are one transaction.

Under load a batch has all heartbeats that arrived while the one before was handled, so that each
needs neither a transaction nor a change of threads. An answer is sent after the commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from fastapi.concurrency import run_in_threadpool

from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError
from autoscaler.domain.heartbeats import heartbeat_seconds
from autoscaler.domain.instance import HeldInstance
from autoscaler.service.access.authentication import Authentication
from autoscaler.service.instances.nodes import Nodes, TakenReport
from autoscaler.spans import SpanOpener, no_span
from autoscaler.store.store import Store
from autoscaler.wire.messages import NodeReply, NodeReport
from autoscaler.wire.node_reports import read_node_report

# The store's writers wait for at most so many heartbeats.
_MOST_OF_BATCH: Final = 256
_SIGHTINGS_SECONDS: Final = 10.0
_COUNT_SECONDS: Final = 5.0


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """A heartbeat as it arrived: the node token, and the body with the report."""

    token: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Answered:
    """A heartbeat that is in the store, with the reply to it."""

    held: HeldInstance
    report: NodeReport
    reply: NodeReply


class HeartbeatReceiver:
    """Receiver of heartbeats. Call `handle` in the event loop of the server only."""

    def __init__(
        self,
        store: Store,
        authentication: Authentication,
        nodes: Nodes,
        clock: Clock,
        least_seconds: float,
        count: Callable[[int, int], None] = lambda stored, refused: None,
        span: SpanOpener = no_span,
    ) -> None:
        """Answer heartbeats that each agent sends every `least_seconds`, or less often.

        `count` is called with the numbers of stored and of refused heartbeats of a batch. `span`
        opens the span of a heartbeat with news.
        """
        self._count = count
        self._span = span
        self._store = store
        self._authentication = authentication
        self._nodes = nodes
        self._clock = clock
        self._least_seconds = least_seconds
        self._interval_seconds = least_seconds
        self._counted_seconds: float | None = None
        self._stored_seconds = clock.monotonic()
        self._waiting: list[tuple[Heartbeat, asyncio.Future[Answered]]] = []
        self._handling: asyncio.Task[None] | None = None

    async def handle(self, heartbeat: Heartbeat) -> Answered:
        """Store a heartbeat together with others, and return the reply to it.

        Raises:
            NotAllowed: the token is not valid, or is another instance's.
            SpecError: the body is no report.
            StoreError: the store does not answer. The agent repeats the heartbeat.
        """
        future: asyncio.Future[Answered] = asyncio.get_running_loop().create_future()
        self._waiting.append((heartbeat, future))
        if self._handling is None:
            self._handling = asyncio.create_task(self._handle_waiting())
        return await future

    async def _handle_waiting(self) -> None:
        try:
            while self._waiting:
                batch = self._waiting[:_MOST_OF_BATCH]
                del self._waiting[:_MOST_OF_BATCH]
                heartbeats = [heartbeat for heartbeat, _ in batch]
                results = await run_in_threadpool(self.answer, heartbeats)
                for (_, future), result in zip(batch, results, strict=True):
                    if future.done():  # its request was cancelled
                        continue
                    if isinstance(result, Answered):
                        future.set_result(result)
                    else:
                        future.set_exception(result)
        finally:
            self._handling = None

    def answer(self, batch: Sequence[Heartbeat]) -> list[Answered | Exception]:
        """Store heartbeats in one transaction; return the reply to each, or its error."""
        results = self._answer(batch)
        stored = sum(isinstance(result, Answered) for result in results)
        self._count(stored, len(results) - stored)
        return results

    def _answer(self, batch: Sequence[Heartbeat]) -> list[Answered | Exception]:
        try:
            with self._store.grouped():
                stored = [self._store_one(heartbeat) for heartbeat in batch]
                self._keep_sightings()
            interval_seconds = self._interval()
        except CastorError as error:
            return [error for _ in batch]
        return [
            taken if isinstance(taken, Exception) else self._reply(taken, interval_seconds)
            for taken in stored
        ]

    def _store_one(self, heartbeat: Heartbeat) -> TakenReport | Exception:
        """Store one heartbeat; return its report, or its error."""
        try:
            held = self._authentication.reporting_node(heartbeat.token)
            report, refused = read_node_report(heartbeat.body)
            return self._nodes.take_report(held, report, refused)
        except Exception as error:  # an error of one heartbeat must not affect the others
            return error

    def _reply(self, taken: TakenReport, interval_seconds: float) -> Answered | Exception:
        try:
            reply = self._reply_in_span(taken)
        except Exception as error:  # as above
            return error
        reply = replace(reply, heartbeat_seconds=interval_seconds)
        return Answered(taken.before, taken.report, reply)

    def _reply_in_span(self, taken: TakenReport) -> NodeReply:
        if not taken.is_news:
            return self._nodes.reply(taken)
        with self._span("report", job=taken.after.job, instance=taken.after.id):
            return self._nodes.reply(taken)

    def _keep_sightings(self) -> None:
        """Store times of reports that are in memory only, if that is long ago."""
        now_seconds = self._clock.monotonic()
        if now_seconds - self._stored_seconds >= _SIGHTINGS_SECONDS:
            self._stored_seconds = now_seconds
            self._store.instances.keep_sightings()
            self._store.time_uses.keep(now_seconds)

    def _interval(self) -> float:
        """Return the seconds until an agent's next heartbeat; instances are counted at times."""
        now_seconds = self._clock.monotonic()
        counted_seconds = self._counted_seconds
        if counted_seconds is None or now_seconds - counted_seconds >= _COUNT_SECONDS:
            self._counted_seconds = now_seconds
            instances = len(self._store.instances.alive())
            self._interval_seconds = heartbeat_seconds(instances, self._least_seconds)
        return self._interval_seconds
