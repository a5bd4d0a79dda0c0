"""Agent of an instance: joins, prepares, keeps the job's script running, and reports.

The agent is level-triggered: each turn compares the running process with the reply of the
controller, and takes the next step. State is on disk before the agent acts on it, so that a
restarted agent continues where the killed one stopped.
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
from autoscaler.domain.gang import GangPlace
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.report import Failure
from autoscaler.domain.training import TrainingDirective
from autoscaler.node.channel.line import Line
from autoscaler.node.channel.trial_relay import TrialRelay
from autoscaler.node.files.grants import Grants
from autoscaler.node.files.log_copies import LogCopies
from autoscaler.node.files.logs import LogShipping, log_size
from autoscaler.node.files.outputs import Outputs
from autoscaler.node.files.transfers import Transfers
from autoscaler.node.heartbeats import Heartbeats
from autoscaler.node.instance import Instance
from autoscaler.node.outbox import Outbox, Standing
from autoscaler.node.restarts.command import Command
from autoscaler.node.restarts.saver import CommandEnd
from autoscaler.node.script.post_mortem import caused_failure, memory_kills
from autoscaler.node.script.preparation import Need, Preparation, Ready
from autoscaler.node.script.rendezvous_port import RendezvousPort
from autoscaler.node.script.trainer import Trainer
from autoscaler.node.state import AgentState, Prepared, Start, save_state
from autoscaler.node.time_meter import TimeMeter
from autoscaler.node.watchdog import Watchdog
from autoscaler.wire.messages import Assignment, NodeReply, Wanted
from autoscaler.wire.node_client import NodeClient
from providers.metadata import reclaim_notice

_log = logging.getLogger(__name__)

TURN_SECONDS: Final = 0.25
STOP_BEFORE_RECLAIM_SECONDS: Final = 3.0
KILL_BEFORE_RECLAIM_SECONDS: Final = 1.0


class Agent:
    """One run of the agent. `joined` is the assignment with secrets if it has just joined."""

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
        self._wakeup = threading.Event()
        self._grants = Grants(instance.disk.grant, client, clock)
        self._trial_relay = TrialRelay(client, instance.disk.trial_calls, clock)
        disk, job = instance.disk, state.assignment.job
        self._transfers = Transfers(disk.transfers, self._grants.meter, clock, job)
        line = Line(disk.socket(), self._wakeup.set, self._trial_relay.take, self._transfers.hear)
        self._trial_relay.on_answer = line.answer
        self._trainer = Trainer(instance, line, clock)
        self._trainer.on_end = self._wakeup.set
        self._port = RendezvousPort(instance.metadata.bind_address)
        self._reply: NodeReply | None = None
        self._has_reply = False
        self._preparation: Preparation | None = None
        self._ready: Ready | None = None
        self._target: tuple[str | None, int] | None = None
        self._leaving_seconds = clock.monotonic()
        self._reclaim_seconds: float | None = None
        self._is_saved = True
        self._outbox = Outbox(instance.name)
        self._outputs = Outputs(instance, self._grants, self._outbox, clock, self._wakeup.set)
        self._command = Command(
            instance, self._grants, clock, self._wakeup.set, lambda text: self._note(text)
        )
        copies = LogCopies(instance.name, client, self._grants)
        self._logs = LogShipping(disk.log, copies, clock, job)
        self._heartbeats = Heartbeats(
            client, self._outbox, self._logs, disk.answered, state.heartbeat_seconds, clock
        )
        self._heartbeats.on_reply = self._wakeup.set
        self._heartbeats.count = self._transfers.count
        self._time = TimeMeter(disk.time, clock, job)
        self._heartbeats.count_time = self._time.count

    def run(self) -> None:
        """Run turns for ever: after each event, and at least every `TURN_SECONDS`."""
        state = self._state
        if self._has_joined:
            self._save()
        self._grants.resume(state.assignment.job, state.prepared.user if state.prepared else None)
        if self._joined is not None:
            with suppress(OSError):  # a full disk: the preparation fails and reports it
                self._grants.take(state.assignment.job, self._joined.grant)
        self._grants.start()
        if state.failure is not None:
            self._outbox.add_failure(state.failure)
        if state.start is not None and state.prepared is not None:
            self._trainer.answer(state.assignment, state.prepared, state.start)
            self._command.begin(state, is_new=False)
            self._trial_relay.serve(state.assignment, state.start)
        # Heartbeats start before a turn can fail, or the controller would replace the instance.
        self._reply = self._current_reply()
        self._outbox.stand(self._standing())
        self._heartbeats.start()
        while True:
            self.turn()
            self._watchdog.feed()
            self._wakeup.wait(TURN_SECONDS)
            self._wakeup.clear()

    def turn(self) -> None:
        """Observe changes, take the next step, and report the new status."""
        if (notice_seconds := reclaim_notice(self._instance.metadata)) is not None:
            self._reclaim_seconds = notice_seconds  # kept if a later read fails
        self._reply = self._current_reply()
        if (changes := self._changes_by_controller()) or not self._is_saved:
            self._save(**changes)
        self._take_messages()
        self._outputs.turn(self._state, self._trainer.steps, self._reclaim_seconds is not None)
        self._end_preparation()
        self._end_training()
        if self._state.failure is not None and not self._outbox.holds_failure:
            self._save(failure=None)
        if self._reply is not None:
            self._reconcile(self._reply)
        self._count_time()
        if self._outbox.stand(self._standing()):
            self._heartbeats.urge()

    def _changes_by_controller(self) -> dict[str, Any]:
        """Return the fields of the state that replies of the controller have changed."""
        changes: dict[str, Any] = {}
        if self._reply is not None and self._reply.drain_seconds != self._state.drain_seconds:
            changes["drain_seconds"] = self._reply.drain_seconds
        token = self._client.token
        if token is not None and token != self._state.token:
            changes["token"] = token
        return changes

    def _current_reply(self) -> NodeReply | None:
        """Return the reply in force; None after a restart, until the first reply."""
        reply = self._heartbeats.reply
        self._has_reply = reply is not None  # a reply may arrive during a turn
        if reply is None and (self._has_joined or self._must_leave):
            reply = self._state.first_wish
        if reply is not None and self._must_leave:
            reply = replace(reply, wanted=Wanted.DRAIN)
        return reply

    @property
    def _drains(self) -> bool:
        return self._reply is not None and self._reply.wanted is Wanted.DRAIN

    @property
    def _must_leave(self) -> bool:
        """Whether to drain regardless of the reply: reclaim announced, or lease expired."""
        return self._reclaim_seconds is not None or self._is_lease_expired

    @property
    def _is_lease_expired(self) -> bool:
        return self._heartbeats.silent_seconds > self._state.lease_seconds

    @property
    def _has_left(self) -> bool:
        """Whether the instance is drained, will be reclaimed, and has sent all its reports."""
        standing = self._standing()
        is_last = standing.phase is InstancePhase.DRAINED and self._reclaim_seconds is not None
        return is_last and self._outbox.is_heard(standing)

    def _reconcile(self, reply: NodeReply) -> None:
        """Take the next step towards the state that the reply wants."""
        if self._trainer.is_alive:
            self._direct(reply)
        elif self._preparation is not None:
            if self._drains:
                self._preparation.stop()
        elif self._drains:
            if not self._outputs.is_busy and (self._is_lease_expired or self._has_left):
                self._instance.power.press()
        elif self._outputs.is_busy:
            return  # the end of the script is not recorded yet
        elif self._is_reassigned(reply):
            self._prepare(reply, self._state.prepared)
        elif self._is_due(reply):
            if self._ready is None or self._ready.attempt < reply.attempt:
                self._prepare(reply)
            else:
                self._start_if_permitted(self._ready, reply)

    def _start_if_permitted(self, ready: Ready, reply: NodeReply) -> None:
        """Start the script, or take the next step towards the start of its gang."""
        place = reply.place
        if self._has_reply and _permits_start(reply):  # only a real reply does
            if place is None or self._command.is_restored(ready.assignment, ready.prepared, place):
                self._start(ready, reply)
        elif place is not None and place.leads:
            self._reserve_port()

    def _reserve_port(self) -> None:
        """Reserve the port of the gang's next rendezvous; a failure is repeated each turn."""
        try:
            self._port.reserve()
        except OSError as error:
            _log.error("no port for the rendezvous of the gang: %s", error)

    def _is_due(self, reply: NodeReply) -> bool:
        """Return whether to prepare or start the script now."""
        start, ended_attempt = self._state.start, self._state.failed_attempt
        if start is not None and not start.has_ended:
            return False  # its end is not recorded yet
        if start is not None and _generation(reply.place) <= start.generation and start.generation:
            return False  # the other members of the gang must start again, too
        if start is not None and start.has_done_its_part:
            ended_attempt = max(ended_attempt, start.attempt)
        is_over = self._state.is_complete or reply.attempt <= ended_attempt
        return not is_over and self._clock.now() >= (reply.start_seconds or 0.0)

    def _is_reassigned(self, reply: NodeReply) -> bool:
        """Return whether the instance is to move to another job, and is free."""
        start, is_another = self._state.start, reply.job not in (None, self._state.assignment.job)
        is_free = start is None or start.has_ended
        return is_another and is_free and (reply.job, reply.attempt) != self._target

    def _prepare(self, reply: NodeReply, before: Prepared | None = None) -> None:
        """Start preparing an attempt; `before` is the result for the job that it replaces."""
        # A later attempt of the same job only fetches the assignment again.
        prepared = self._state.prepared if before is None else None
        need = Need(reply.attempt, self._joined, prepared, before)
        self._joined = None
        self._target = (reply.job or self._state.assignment.job, reply.attempt)
        self._preparation = Preparation(self._instance, self._client, self._grants, need)
        self._preparation.on_news = self._wakeup.set
        self._preparation.start()

    def _switch_job(self, assignment: Assignment) -> None:
        """Move to another job. All reports of the previous job have been sent.

        The log is deleted first: an agent that is killed after that moves once more.
        """
        _log.info("the instance moves to job %s", assignment.job)
        self._logs.begin(assignment.job)
        self._transfers.begin(assignment.job)
        self._time.begin(assignment.job)
        self._trial_relay.end()
        self._trainer.forget()
        self._ready = None
        self._state = self._state.with_job(assignment)
        self._save()

    def _start(self, ready: Ready, reply: NodeReply) -> None:
        """Start the script. The start is saved first, so that the script can't start twice."""
        self._ready = None
        start = Start(
            attempt=reply.attempt,
            devices_used=self._devices(reply),
            started_seconds=self._clock.now(),
            log_offset=log_size(self._instance.disk.log),
            place=reply.place,
            memory_kills=memory_kills(),
        )
        self._port.hand_over()
        _log.info("attempt %d starts on %d devices", start.attempt, start.devices_used)
        try:
            self._trainer.forget()
            self._persist(start=start, assignment=ready.assignment)
            self._trial_relay.serve(ready.assignment, start)
            self._command.begin(self._state)
            self._trainer.start(ready.assignment, ready.prepared, start)
        except (CastorError, OSError) as error:
            cause = f"the script can't be started: {error}"
            failure = caused_failure(self._instance, start.attempt, start.log_offset, cause)
            self._fail(failure, start=replace(start, has_ended=True, is_generation_over=True))

    def _direct(self, reply: NodeReply) -> None:
        """Send the directive to the training process; stop or kill it if it leaves too late."""
        start = self._state.start
        assert start is not None
        is_new_generation = _generation(reply.place) > start.generation
        has_other_devices = self._devices(reply) != start.devices_used
        is_restart = reply.pauses or has_other_devices or is_new_generation
        has_to_leave = (self._drains or is_restart) and not self._may_stay(reply, is_restart)
        if has_to_leave and not start.is_leaving:
            self._leaving_seconds = self._clock.monotonic()
            start = self._update_start(is_leaving=True)
        self._trainer.direct(
            TrainingDirective(
                start.is_leaving, reply.throughput, reply.checkpoint_interval_seconds
            )
        )
        if not start.is_leaving:
            return
        # The ranks here leave with those of the gang's leader, which may have stepped.
        has_nothing_to_save = not start.has_stepped and not start.follows
        has_session = self._state.assignment.spec.restart is None
        if self._stop_seconds(reply) <= 0 or has_nothing_to_save or not has_session:
            self._trainer.stop()
        if self._seconds_to_reclaim() < KILL_BEFORE_RECLAIM_SECONDS:
            self._trainer.kill()

    def _may_stay(self, reply: NodeReply, is_restart: bool) -> bool:
        """Return whether a restartable command trains on although a reclaim is announced.

        Its world is restarted without this instance after the next checkpoint.
        """
        restart = self._state.assignment.spec.restart
        if restart is None or is_restart or reply.place is None or self._is_lease_expired:
            return False
        notice_seconds = restart.grace_seconds + STOP_BEFORE_RECLAIM_SECONDS
        return notice_seconds < self._seconds_to_reclaim() < math.inf

    def _stop_seconds(self, reply: NodeReply) -> float:
        """Return the seconds until a leaving script is stopped."""
        if self._reclaim_seconds is not None:
            return self._seconds_to_reclaim() - STOP_BEFORE_RECLAIM_SECONDS
        return self._leaving_seconds + reply.drain_seconds - self._clock.monotonic()

    def _seconds_to_reclaim(self) -> float:
        if self._reclaim_seconds is None:
            return math.inf
        return self._reclaim_seconds - self._clock.now()

    def _devices(self, reply: NodeReply) -> int:
        return min(reply.devices_used, len(self._instance.metadata.devices))

    def _take_messages(self) -> None:
        for report in self._trainer.hear():
            self._outbox.add_report(report)
            self._outputs.hear(report)
        start = self._state.start
        if (news := self._command.turn(start)) is not None:
            self._outbox.add_report(news)
            self._outputs.hear(news)
        if start is None or start.has_ended:
            return
        self._trainer.steps = max(self._trainer.steps, self._command.steps)
        if (updated := self._trainer.learnt(start)) != start:
            self._save(start=updated)

    def _end_preparation(self) -> None:
        preparation = self._preparation
        if preparation is None:
            return
        is_alive, assignment = preparation.is_alive, preparation.assignment
        if assignment is not None and assignment.job != self._state.assignment.job:
            self._switch_job(assignment)
        if is_alive:
            return
        outcome, self._preparation = preparation.outcome, None
        if assignment is None and self._target and self._target[0] != self._state.assignment.job:
            return  # the controller gave no assignment of the next job
        if isinstance(outcome, Ready):
            self._ready = outcome
            if self._state.prepared is None:
                self._outbox.add_notes(outcome.notes)
                self._save(prepared=outcome.prepared)
        elif isinstance(outcome, Failure):
            self._fail(outcome)

    def _end_training(self) -> None:
        start = self._state.start
        if start is None or start.has_ended or not self._trainer.has_settled:
            return
        if not (self._trial_relay.is_told or self._must_leave):  # calls of a trial precede its end
            return
        self._take_messages()
        start, exit_code = self._state.start, self._trainer.exit_code
        assert start is not None
        if not self._outputs.is_settled(self._state, self._trainer.steps, exit_code):
            return
        if not self._command.is_settled(self._command_end(start, exit_code)):
            return
        is_given_up = start.is_leaving or exit_code != 0
        ended = replace(
            start, has_ended=True, steps=self._trainer.steps, is_generation_over=is_given_up
        )
        if exit_code is None:  # an earlier agent died before the script started
            self._save(start=None)
        elif self._trainer.has_completed(start):
            self._save(start=self._trainer.completed(ended), is_complete=True)
        elif exit_code == 0 or start.is_leaving or self._drains or self._trainer.lost_its_gang:
            self._save(start=ended)
        else:
            self._fail(self._trainer.failure(start), start=ended)

    def _command_end(self, start: Start, exit_code: int | None) -> CommandEnd:
        """Return the end of a restartable command, as far as its files depend on it."""
        restart, now_seconds = self._state.assignment.spec.restart, self._clock.now()
        if restart is None or not start.is_leaving:
            return CommandEnd(now_seconds, is_clean=exit_code == 0)
        left_seconds = self._clock.monotonic() - self._leaving_seconds
        left_in_time = left_seconds < restart.grace_seconds
        return CommandEnd(now_seconds - left_seconds, left_in_time=left_in_time)

    def _note(self, text: str) -> None:
        self._outbox.add_notes([text])

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
            rendezvous=self._rendezvous,
            generation=0 if start is None else start.generation,
            is_generation_over=start is not None and start.is_generation_over,
            saved=self._command.saved,
            activity=self._trainer.activity(start),
        )

    @property
    def _rendezvous(self) -> str | None:
        """Address at which this instance hosts the rendezvous of its gang; None if it does not."""
        start = self._state.start
        place = None if start is None or start.has_ended else start.place
        return self._port.address if place is None or not place.leads else place.address

    def _phase(self) -> InstancePhase:
        start = self._state.start
        if start is not None and not start.has_ended:
            if start.is_leaving:  # to be started again, or for good
                return InstancePhase.DRAINING if self._drains else InstancePhase.PREPARING
            return InstancePhase.TRAINING if self._is_at_work(start) else InstancePhase.STARTING
        if self._preparation is not None and self._drains:
            return InstancePhase.DRAINING
        if self._state.is_complete or self._drains:
            return InstancePhase.DRAINED
        if self._reply is None or not self._is_due(self._reply):
            return InstancePhase.WAITING
        if self._ready is not None and not _permits_start(self._reply):
            return InstancePhase.READY
        return InstancePhase.PREPARING

    def _is_at_work(self, start: Start) -> bool:
        """Return whether the running script trains, or a trial's objective runs."""
        is_at_work = start.has_stepped or self._trial_relay.is_spoken_to
        return is_at_work or self._command.is_at_work(start, self._state.assignment)

    def _count_time(self) -> None:
        """Count the time until the next turn by what the instance does now."""
        start, stands_by = self._state.start, self._reply is not None and self._reply.pauses
        if start is not None and not start.has_ended and self._is_at_work(start):
            self._time.turn_at_work(self._trainer.times(start), start.follows)
        else:
            self._time.turn_off_work(self._phase(), start, stands_by)

    def _update_start(self, **changes: Any) -> Start:
        """Save changes of the present start, and return the start."""
        assert self._state.start is not None
        start = replace(self._state.start, **changes)
        self._save(start=start)
        return start

    def _save(self, **changes: Any) -> None:
        """Save changes of the state; a failed write is repeated each turn."""
        try:
            self._persist(**changes)
        except OSError as error:
            if self._is_saved:
                note = f"the agent can't save its state, and continues: {error}"
                _log.error(note)
                self._outbox.add_notes([note])
            self._is_saved = False

    def _persist(self, **changes: Any) -> None:
        """Change the state in memory, and save it on disk.

        Raises:
            OSError: only memory has the change.
        """
        self._state = replace(self._state, **changes)
        save_state(self._instance.disk.state, self._state)
        self._is_saved = True


def _generation(place: GangPlace | None) -> int:
    """Return the generation of the gang's present start; 0 without a gang."""
    return 0 if place is None else place.generation


def _permits_start(reply: NodeReply) -> bool:
    """Return whether a reply permits the start; that of a gang needs a rendezvous."""
    return reply.may_start and (reply.place is None or reply.place.address is not None)
