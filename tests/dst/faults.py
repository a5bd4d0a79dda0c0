"""Faults of a run, by the kind that a scenario names."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import TYPE_CHECKING

from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import InstanceBounds
from autoscaler.wire.messages import Change
from autoscaler.wire.study_messages import StudyBudget
from tests.dst import aws, gcp, studies
from tests.dst.cloud import ON_DEMAND, ZONES, Machine
from tests.dst.line import Disturbance
from tests.dst.scenario import Fault
from tests.dst.trainers import Agent, Vice

if TYPE_CHECKING:
    from tests.dst.world import World


class Faults:
    """Injection of faults into one world."""

    def __init__(self, world: World) -> None:
        self._world = world

    def apply(self, fault: Fault) -> None:
        """Let a fault happen now."""
        getattr(self, "_" + fault.kind.replace(" ", "_"))(*fault.arguments)

    def _call(self, action: str, way: str, times: int, seconds: int) -> None:
        until_seconds = self._world.scheduler.now_seconds + seconds
        self._world.weather.calls.append(Disturbance(action, way, times, until_seconds))

    def _kill(self, marks: int, down_seconds: int) -> None:
        if self._world.leader is not None:
            self._world.leader.life.marks_left = marks
            self._world.starts_at_seconds = self._world.scheduler.now_seconds + down_seconds
            if len(self._world.processes) == 1:
                self._world.later.append((self._world.starts_at_seconds - 1, self._kill_all))

    def _kill_all(self) -> None:
        for process in self._world.processes:
            process.life.is_dead = True

    def _usurp(self, steps: int) -> None:
        if self._world.leader is None:
            return
        former = self._world.leader
        self._world.start_controller()

        def end() -> None:
            former.life.is_dead = True

        self._world.later.append((self._world.scheduler.now_seconds + 5 * steps, end))

    def _writes_fail(self, writes: int) -> None:
        self._world.weather.failing_writes += writes

    def _disk_full(self, seconds: int) -> None:
        self._world.weather.disk_full_until_seconds = self._world.scheduler.now_seconds + seconds

    def _replies_lost(self, replies: int) -> None:
        self._world.weather.lost_replies += replies

    def _clock_jumps(self, offset_seconds: int, seconds: int) -> None:
        self._world.clock.offset_seconds += offset_seconds
        self._world.invariants.on_clock_jump()

        def correct() -> None:
            self._world.clock.offset_seconds -= offset_seconds
            self._world.invariants.on_clock_jump()

        self._world.later.append((self._world.scheduler.now_seconds + seconds, correct))

    def _reclaim(self, count: int, notice_delay_seconds: int) -> None:
        spot = [
            m for m in self._world.truth.billed() if m.purchase == "spot" and not m.reclaim_seconds
        ]
        for machine in self._world.chance.sample(spot, min(count, len(spot))):
            self._announce(machine, notice_delay_seconds)

    def _announce(self, machine: Machine, notice_delay_seconds: int) -> None:
        machine.notice_seconds = self._world.scheduler.now_seconds + notice_delay_seconds
        if machine.cloud == "aws":
            machine.reclaim_seconds = self._world.scheduler.now_seconds + aws.NOTICE_SECONDS
            machine.has_known_end = False
            aws.announce(self._world.truth, machine, notice_delay_seconds)
        else:
            gcp.preempt(self._world.truth, machine, notice_delay_seconds)

    def _hidden(self, seconds: int) -> None:
        """Let lists omit one machine for longer than clouds promise."""
        machines = list(self._world.truth.billed())
        if machines:
            machine = self._world.chance.choice(machines)
            machine.visible_seconds = self._world.scheduler.now_seconds + seconds
            self._world.invariants.on_hidden(machine)

    def _machine_dies(self, count: int) -> None:
        machines = list(self._world.truth.billed())
        for machine in self._world.chance.sample(machines, min(count, len(machines))):
            self._world.lose(machine)

    def _zone_fails(self, cloud: str, number: int, seconds: int) -> None:
        zone = ZONES[cloud][number]
        self._world.truth.closed[cloud, zone] = self._world.scheduler.now_seconds + seconds
        for machine in list(self._world.truth.billed()):
            if machine.zone == zone:
                self._world.lose(machine)

    def _no_capacity(self, cloud: str, number: int | None, seconds: int) -> None:
        zones = ZONES[cloud] if number is None else (ZONES[cloud][number],)
        for zone in zones:
            self._world.truth.closed[cloud, zone] = self._world.scheduler.now_seconds + seconds

    def _price(self, cloud: str, number: int, text: str) -> None:
        places = [place for place in self._world.truth.spot if place[0] == cloud]
        place = places[number]
        # A price of Google's is a sum of parts that all its machines share.
        self._world.truth.price_changes.update([place] if cloud == "aws" else places)
        if text == "rises":
            self._world.truth.spot[place] *= Decimal("1.7")
        elif text == "tenth":
            self._world.truth.spot_text[place] = str(ON_DEMAND[place[:2]] / 10)
        else:
            self._world.truth.spot_text[place] = text

    def _poison(self) -> None:
        for cloud in self._world.scenario.clouds:
            seconds = self._world.scheduler.now_seconds
            self._world.truth.messages[cloud].append(
                (seconds, f"poison{seconds}", '{"nonsense": [')
            )

    def _vice(self, name: str, number: int) -> None:
        if agents := self._working():
            agent = agents[number % len(agents)]
            agent.vices.add(Vice[name])
            self._world.invariants.on_agent_fault(agent)

    def _script_fails(self, number: int) -> None:
        if agents := self._working():
            agent = agents[number % len(agents)]
            agent.crash("RuntimeError: boom", self._world.scheduler.now_seconds)

    def _stop(self, number: int) -> None:
        if jobs := sorted(self._world.plans):
            self._world.ask("POST", f"/v1/jobs/{jobs[number % len(jobs)]}/stop")

    def _change(self, number: int, maximum: int) -> None:
        if jobs := sorted(self._world.plans):
            change = Change(instances=InstanceBounds(1, maximum))
            self._world.ask("PATCH", f"/v1/jobs/{jobs[number % len(jobs)]}", Change, change)

    def _freeze(self, steps: int) -> None:
        status, _ = self._world.ask("POST", "/v1/freeze")
        self._world.is_frozen = self._world.is_frozen or status == 204
        # A freeze whose reply is lost may be in force, too.
        self._world.later.append((self._world.scheduler.now_seconds + 6 * steps, self._unfreeze))

    def _unfreeze(self) -> None:
        status, _ = self._world.ask("POST", "/v1/unfreeze")
        if status == 204:
            self._world.is_frozen = False
        else:
            self._world.later.append((self._world.scheduler.now_seconds + 5, self._unfreeze))

    def _drain(self) -> None:
        self._world.ask("POST", "/v1/drain")

    def _driver_dies(self, marks: int, down_seconds: int) -> None:
        """Let the driver of the study die after some requests and writes, and another start."""
        study = self._world.study
        run = None if study is None else study.driver
        if study is None or run is None:
            return
        run.life.marks_left = marks
        study.starts_at_seconds = self._world.scheduler.now_seconds + down_seconds
        self._later(down_seconds - 1, lambda: study.end_driver(run))

    def _driver_sleeps(self, seconds: int) -> None:
        """Let the driver of the study do nothing for a time in which its user starts another."""
        study = self._world.study
        run = None if study is None else study.driver
        if study is None or run is None or run.task.has_ended:
            return
        run.task.due_seconds = self._world.scheduler.now_seconds + seconds
        study.starts_at_seconds = self._world.scheduler.now_seconds + max(seconds - 20, 1)

    def _driver_freezes(self, seconds: int) -> None:
        """Let the driver of the study freeze as it submits its next job."""
        study = self._world.study
        run = None if study is None else study.driver
        if run is not None:
            run.freeze_seconds = seconds

    def _driver_is_interrupted(self, down_seconds: int) -> None:
        study = self._world.study
        run = None if study is None else study.driver
        if study is not None and run is not None:
            study.starts_at_seconds = self._world.scheduler.now_seconds + down_seconds
            self._world.scheduler.interrupt(run.task, KeyboardInterrupt())

    def _study_stops(self, at_once: bool) -> None:
        query = f"at_once={str(at_once).lower()}"
        self._world.ask("POST", f"/v1/studies/{studies.NAME}/stop?{query}")

    def _study_budget(self, usd: str) -> None:
        budget = StudyBudget(Decimal(usd))
        self._world.ask("POST", f"/v1/studies/{studies.NAME}/budget", StudyBudget, budget)

    def _requests_doubled(self, requests: int) -> None:
        self._world.weather.doubled_requests += requests

    def _later(self, seconds: int, act: Callable[[], None]) -> None:
        self._world.later.append((self._world.scheduler.now_seconds + seconds, act))

    def _working(self) -> list[Agent]:
        """Return the agents that train; if there are none, all that run."""
        running = [agent for agent in self._world.agents.values() if not agent.is_off]
        training = [agent for agent in running if agent.phase is InstancePhase.TRAINING]
        return training or running
