"""The agent of an instance: joins, prepares, keeps the job's script running, tells how it goes.

It is level-triggered: every turn compares what runs with what is wanted and does the next thing.
What must outlive it is on disk before it is done, so that an agent that was killed and started
again goes on where it was.
"""

from __future__ import annotations

import logging
import math
import threading
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.report import Failure
from autoscaler.domain.training import TrainingDirective
from autoscaler.node.grants import Grants
from autoscaler.node.heartbeats import Heartbeats
from autoscaler.node.instance import Instance
from autoscaler.node.line import Line
from autoscaler.node.log_copies import LogCopies
from autoscaler.node.logs import LogShipping, log_size
from autoscaler.node.outbox import Outbox, Standing
from autoscaler.node.outputs import Outputs
from autoscaler.node.post_mortem import caused_failure
from autoscaler.node.preparation import Need, Preparation, Ready
from autoscaler.node.state import AgentState, Prepared, Start, save_state
from autoscaler.node.trainer import Trainer
from autoscaler.node.transfers import Transfers
from autoscaler.node.trial_relay import TrialRelay
from autoscaler.node.watchdog import Watchdog
from autoscaler.wire.client import NodeClient
from autoscaler.wire.messages import Assignment, NodeReply, Wanted
from providers.metadata import reclaim_notice

_log = logging.getLogger(__name__)

TURN_SECONDS: Final = 0.25
STOP_BEFORE_RECLAIM_SECONDS: Final = 3.0
KILL_BEFORE_RECLAIM_SECONDS: Final = 1.0


class Agent:
    """One life of the agent. `joined` is the assignment with its secrets, if it just joined."""

    def __init__(
        self,
        instance: Instance,
        client: NodeClient,
        state: AgentState,
        joined: Assignment | None,
        clock: Clock,
        watchdog: Watchdog,
    ) -> None:
        self._instance = instance
        self._client = client
        self._state = state
        self._joined = joined
        self._has_joined = joined is not None
        self._clock = clock
        self._watchdog = watchdog
        self._news = threading.Event()
        self._grants = Grants(instance.disk.grant, client, clock)
        self._relay = TrialRelay(client, instance.disk.trial_calls, clock)
        disk, job = instance.disk, state.assignment.job
        self._transfers = Transfers(disk.transfers, self._grants.meter, clock, job)
        line = Line(disk.socket(), self._news.set, self._relay.take, self._transfers.hear)
        self._relay.on_answer = line.answer
        self._trainer = Trainer(instance, line)
        self._trainer.on_end = self._news.set
        self._wish: NodeReply | None = None
        self._is_answered = False
        self._preparation: Preparation | None = None
        self._ready: Ready | None = None
        self._refused: tuple[str | None, int] | None = None
        self._leaving_seconds = clock.monotonic()
        self._reclaim_seconds: float | None = None
        self._is_saved = True
        self._outbox = Outbox(instance.name)
        self._outputs = Outputs(instance, self._grants, self._outbox, clock, self._news.set)
        copies = LogCopies(instance.name, client, self._grants)
        self._logs = LogShipping(disk.log, copies, clock, job)
        self._heartbeats = Heartbeats(
            client, self._outbox, self._logs, disk.answered, state.heartbeat_seconds, clock
        )
        self._heartbeats.on_reply = self._news.set
        self._heartbeats.count = self._transfers.count

    def run(self) -> None:
        """Take turns for ever: when there is news, and regularly."""
        state = self._state
        if self._has_joined:
            self._save()
        self._grants.resume(state.assignment.job, state.prepared.user if state.prepared else None)
        if self._joined is not None:
            with suppress(OSError):  # a full disk: the preparation fails for it, and tells
                self._grants.take(state.assignment.job, self._joined.grant)
        self._grants.start()
        if state.failure is not None:
            self._outbox.add_failure(state.failure)
        if state.start is not None and state.prepared is not None:
            self._trainer.answer(state.assignment, state.prepared, state.start)
            self._relay.serve(state.assignment, state.start)
        # It is heard before a turn can go wrong, or it would be given up and replaced.
        self._wish = self._new_wish()
        self._outbox.stand(self._standing())
        self._heartbeats.start()
        while True:
            self.turn()
            self._watchdog.feed()
            self._news.wait(TURN_SECONDS)
            self._news.clear()

    def turn(self) -> None:
        """See what has happened, do what is next, and have it told."""
        if (notice_seconds := reclaim_notice(self._instance.metadata)) is not None:
            self._reclaim_seconds = notice_seconds  # it stays, also where it can't be read again
        self._wish = self._new_wish()
        if self._wish is not None and self._wish.drain_seconds != self._state.drain_seconds:
            self._save(drain_seconds=self._wish.drain_seconds)
        elif not self._is_saved:
            self._save()
        self._hear()
        self._outputs.turn(self._state, self._trainer.steps, self._reclaim_seconds is not None)
        self._see_end_of_preparation()
        self._see_end_of_training()
        if self._state.failure is not None and not self._outbox.holds_failure:
            self._save(failure=None)
        if self._wish is not None:
            self._act(self._wish)
        if self._outbox.stand(self._standing()):
            self._heartbeats.urge()

    def _new_wish(self) -> NodeReply | None:
        """What is wanted now; None if an earlier agent heard it and we have not yet."""
        wish = self._heartbeats.reply
        self._is_answered = wish is not None  # a reply may come at any moment of a turn
        if wish is None and (self._has_joined or self._must_leave):
            wish = self._state.first_wish
        if wish is not None and self._must_leave:
            wish = replace(wish, wanted=Wanted.DRAIN)
        return wish

    @property
    def _drains(self) -> bool:
        return self._wish is not None and self._wish.wanted is Wanted.DRAIN

    @property
    def _must_leave(self) -> bool:
        """Whatever the controller says: nobody pays for us, or we will soon be gone."""
        return self._reclaim_seconds is not None or self._is_forsaken

    @property
    def _is_forsaken(self) -> bool:
        return self._heartbeats.silent_seconds > self._state.lease_seconds

    @property
    def _has_left(self) -> bool:
        """We will be gone anyway, and all is told: a cloud may be waiting for the machine."""
        standing = self._standing()
        is_last = standing.phase is InstancePhase.DRAINED and self._reclaim_seconds is not None
        return is_last and self._outbox.is_heard(standing)

    def _act(self, wish: NodeReply) -> None:
        """The next thing to do."""
        if self._trainer.is_alive:
            self._steer(wish)
        elif self._preparation is not None:
            if self._drains:
                self._preparation.stop()
        elif self._drains:
            if not self._outputs.is_busy and (self._is_forsaken or self._has_left):
                self._instance.power.press()
        elif self._outputs.is_busy:
            return  # the end of the script is not taken note of yet
        elif self._is_another_s(wish):
            self._prepare(wish, self._state.prepared)
        elif self._is_due(wish):
            if self._ready is None or self._ready.attempt < wish.attempt:
                self._prepare(wish)
            elif self._is_answered and wish.may_start:  # only a reply says so
                self._start(self._ready, wish)

    def _is_due(self, wish: NodeReply) -> bool:
        """The script is to be started, or prepared for, now."""
        start, over = self._state.start, self._state.failed_attempt
        if start is not None and not start.has_ended:
            return False  # its end is not taken note of yet
        if start is not None and start.has_done_its_part:
            over = max(over, start.attempt)
        is_over = self._state.is_complete or wish.attempt <= over
        return not is_over and self._clock.now() >= (wish.start_seconds or 0.0)

    def _is_another_s(self, wish: NodeReply) -> bool:
        """The instance is to go on with another job, and is free to."""
        start, is_another = self._state.start, wish.job not in (None, self._state.assignment.job)
        is_free = start is None or start.has_ended
        return is_another and is_free and (wish.job, wish.attempt) != self._refused

    def _prepare(self, wish: NodeReply, before: Prepared | None = None) -> None:
        """Have all there that a start needs; before a later start only the assignment anew.

        `before` is what was prepared for the job that the instance leaves for that of the wish.
        """
        prepared = self._state.prepared if before is None else None
        need = Need(wish.attempt, self._joined, prepared, before)
        self._joined = None
        self._refused = (wish.job or self._state.assignment.job, wish.attempt)
        self._preparation = Preparation(self._instance, self._client, self._grants, need)
        self._preparation.on_news = self._news.set
        self._preparation.start()

    def _change_over(self, assignment: Assignment) -> None:
        """Be another job's from now on. All that the last one said has been told.

        The log goes first: an agent that dies after it changes over once more.
        """
        _log.info("the instance goes on with %s", assignment.job)
        self._logs.begin(assignment.job)
        self._transfers.begin(assignment.job)
        self._relay.end()
        self._trainer.forget()
        self._ready = None
        self._state = self._state.with_job(assignment)
        self._save()

    def _start(self, ready: Ready, wish: NodeReply) -> None:
        """Start the script. It is written down first, so that it can't be started twice."""
        self._ready = None
        start = Start(
            attempt=wish.attempt,
            devices_used=self._devices(wish),
            started_seconds=self._clock.now(),
            log_offset=log_size(self._instance.disk.log),
        )
        _log.info("attempt %d starts on %d devices", start.attempt, start.devices_used)
        try:
            self._trainer.forget()
            self._write_down(start=start, assignment=ready.assignment)
            self._relay.serve(ready.assignment, start)
            self._trainer.start(ready.assignment, ready.prepared, start)
        except (CastorError, OSError) as error:
            cause = f"the script can't be started: {error}"
            failure = caused_failure(self._instance, start.attempt, start.log_offset, cause)
            self._fail(failure, start=replace(start, has_ended=True))

    def _steer(self, wish: NodeReply) -> None:
        """Tell the training process what is in force, or have it leave, and in time."""
        start = self._state.start
        assert start is not None
        starts_again = wish.pauses or self._devices(wish) != start.devices_used
        if (self._drains or starts_again) and not start.is_leaving:
            self._leaving_seconds = self._clock.monotonic()
            start = self._note(is_leaving=True)
        self._trainer.direct(
            TrainingDirective(start.is_leaving, wish.throughput, wish.checkpoint_interval_seconds)
        )
        if not start.is_leaving:
            return
        if self._stop_seconds(wish) <= 0 or not start.has_stepped:
            self._trainer.stop()
        if self._seconds_to_reclaim() < KILL_BEFORE_RECLAIM_SECONDS:
            self._trainer.kill()

    def _stop_seconds(self, wish: NodeReply) -> float:
        """In how long a script that leaves is stopped: it may use all of a reclaim's notice."""
        if self._reclaim_seconds is not None:
            return self._seconds_to_reclaim() - STOP_BEFORE_RECLAIM_SECONDS
        return self._leaving_seconds + wish.drain_seconds - self._clock.monotonic()

    def _seconds_to_reclaim(self) -> float:
        if self._reclaim_seconds is None:
            return math.inf
        return self._reclaim_seconds - self._clock.now()

    def _devices(self, wish: NodeReply) -> int:
        return min(wish.devices_used, len(self._instance.metadata.devices))

    def _hear(self) -> None:
        for report in self._trainer.hear():
            self._outbox.add_report(report)
            self._outputs.hear(report)
        start = self._state.start
        if start is None or start.has_ended:
            return
        if (learnt := self._trainer.learnt(start)) != start:
            self._save(start=learnt)

    def _see_end_of_preparation(self) -> None:
        preparation = self._preparation
        if preparation is None:
            return
        is_alive, found = preparation.is_alive, preparation.assignment
        if found is not None and found.job != self._state.assignment.job:
            self._change_over(found)
        if is_alive:
            return
        outcome, self._preparation = preparation.outcome, None
        if found is None and self._refused and self._refused[0] != self._state.assignment.job:
            return  # the job that was to come has no work for us; its owner was told why
        if isinstance(outcome, Ready):
            self._ready = outcome
            if self._state.prepared is None:
                self._outbox.add_notes(outcome.notes)
                self._save(prepared=outcome.prepared)
        elif isinstance(outcome, Failure):
            self._fail(outcome)

    def _see_end_of_training(self) -> None:
        start = self._state.start
        if start is None or start.has_ended or not self._trainer.has_settled:
            return
        if not (self._relay.is_told or self._must_leave):  # what a trial said comes before its end
            return
        self._hear()
        start, exit_code = self._state.start, self._trainer.exit_code
        assert start is not None
        if not self._outputs.is_settled(self._state, self._trainer.steps, exit_code):
            return
        ended = replace(start, has_ended=True, steps=self._trainer.steps)
        if exit_code is None:  # an earlier agent died before it could start it
            self._save(start=None)
        elif self._trainer.has_completed(start):
            self._save(start=self._trainer.completed(ended), is_complete=True)
        elif exit_code == 0 or start.is_leaving or self._drains:
            self._save(start=ended)
        else:
            self._fail(self._trainer.failure(start), start=ended)

    def _fail(self, failure: Failure, **changes: Any) -> None:
        _log.info("attempt %d failed: %s", failure.attempt, failure.cause)
        self._save(failure=failure, failed_attempt=failure.attempt, **changes)
        self._outbox.add_failure(failure)
        self._heartbeats.urge()

    def _standing(self) -> Standing:
        start, assignment = self._state.start, self._state.assignment
        return Standing(
            phase=self._phase(),
            attempt=assignment.attempt if start is None else start.attempt,
            devices_used=assignment.devices_used if start is None else start.devices_used,
            started_seconds=None if start is None else start.started_seconds,
            is_done=start is not None and start.has_done_its_part,
            is_complete=self._state.is_complete,
            reclaim_seconds=self._reclaim_seconds,
            job=assignment.job,
            has_session=start is not None and start.has_session,
            ending=None if start is None else start.ending,
            stop_reason=None if start is None else start.stop_reason,
        )

    def _phase(self) -> InstancePhase:
        start = self._state.start
        if start is not None and not start.has_ended:
            if start.is_leaving:  # until it is started again, or for good
                return InstancePhase.DRAINING if self._drains else InstancePhase.PREPARING
            is_at_work = start.has_stepped or self._relay.is_spoken_to
            return InstancePhase.TRAINING if is_at_work else InstancePhase.STARTING
        if self._preparation is not None and self._drains:
            return InstancePhase.DRAINING
        if self._state.is_complete or self._drains:
            return InstancePhase.DRAINED
        if self._wish is None or not self._is_due(self._wish):
            return InstancePhase.WAITING
        if self._ready is not None and not self._wish.may_start:
            return InstancePhase.READY
        return InstancePhase.PREPARING

    def _note(self, **changes: Any) -> Start:
        """Write down what is new of the present start."""
        assert self._state.start is not None
        start = replace(self._state.start, **changes)
        self._save(start=start)
        return start

    def _save(self, **changes: Any) -> None:
        """Keep what is new; what the disk does not take is written again each turn."""
        try:
            self._write_down(**changes)
        except OSError as error:
            if self._is_saved:
                note = f"the agent can't write down how things stand, and goes on: {error}"
                _log.error(note)
                self._outbox.add_notes([note])
            self._is_saved = False

    def _write_down(self, **changes: Any) -> None:
        """Keep what is new, in memory in any case.

        Raises:
            OSError: it is not on the disk.
        """
        self._state = replace(self._state, **changes)
        save_state(self._instance.disk.state, self._state)
        self._is_saved = True
