"""Invariants of a run, checked after every step and at its end against the clouds' own state."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from autoscaler.domain.errors import CastorError, StoreError
from autoscaler.domain.instance import Desired, HeldInstance, InstancePhase
from autoscaler.domain.intent import IntentKind
from autoscaler.domain.job import JobRecord
from autoscaler.ledger.ledger import Ledger
from tests.dst.cloud import Machine
from tests.dst.limit_invariants import LimitInvariants
from tests.dst.reasons import present_causes
from tests.dst.scheduler import Killed
from tests.dst.study_invariants import StudyInvariants, is_of_study
from tests.dst.trainers import Agent

if TYPE_CHECKING:
    from tests.dst.world import World

STRAY_SECONDS: Final = 900
_STUCK_SECONDS: Final = 240
_PART_SECONDS: Final = 180
_REASON_STEPS: Final = 12
_NOTICE_SECONDS: Final = 90
_EXACT_USD: Final = Decimal("1e-9")


class Violation(AssertionError):
    """Invariant that does not hold; the text before the colon names it."""

    @property
    def invariant(self) -> str:
        """Name of the invariant."""
        return str(self).partition(":")[0]


class Invariants:
    """Checks of one world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.is_healing = False
        self._broken: list[str] = []
        self._stray_seconds: defaultdict[str, int] = defaultdict(int)
        self._part_seconds: defaultdict[str, int] = defaultdict(int)
        self._idle_seconds: defaultdict[str, int] = defaultdict(int)
        self._slack_usd: defaultdict[str, Decimal] = defaultdict(Decimal)
        self._disturbed: set[str] = set()
        self._saving: dict[str, tuple[Agent, int]] = {}
        self._jumped_seconds = -(10**9)
        self._has_jumped = False
        self._hidden: set[str] = set()
        self._unhealthy_seconds = 0
        self._reclaimed: set[str] = set()
        self._steps = 0
        self._limits = LimitInvariants(world, self._break)
        self._study = (
            None if world.study is None else StudyInvariants(world, world.study, self._break)
        )

    def on_create(self, machine: Machine, is_second: bool) -> None:
        """Check a machine at its creation: its order was recorded, and its token is new."""
        if is_second:
            text = f"{machine.id} is the second machine of {machine.instance}, {machine.token}"
            self._break("no token launches twice", text)
        try:
            intents = self._world.store.intents.of_instance(machine.instance)
        except CastorError:
            intents = ()
        launches = [
            intent
            for intent in intents
            if intent.kind is IntentKind.LAUNCH and intent.token == machine.token
        ]
        if not launches or launches[0].sent_seconds is None:
            text = f"{machine.instance}: {launches or 'no order'}"
            self._break("an order is recorded before its call", text)
            return
        self._check_permitted(machine, launches[0].sent_seconds)
        self._limits.on_create(machine)

    def _check_permitted(self, machine: Machine, sent_seconds: float) -> None:
        """Check that a launch was sent neither after a freeze nor for an unwanted instance."""
        if self._has_jumped:  # times of two clocks
            return
        store = self._world.store
        frozen = store.settings.frozen()
        if frozen is not None and sent_seconds > frozen.since_seconds:
            self._break("a freeze stops launches", machine.instance)
        held = store.instances.get(machine.instance)
        released = held.draining_seconds
        if held.desired is Desired.ABSENT and released is not None and sent_seconds > released:
            self._break("an unwanted instance is not launched", machine.instance)

    def on_error(self, name: str, error: BaseException) -> None:
        """Record an error that left a task."""
        if isinstance(error, Killed | StoreError):
            return
        text = f"{name}: {type(error).__name__}: {error}"
        self._break("no error leaves a task", text)

    def on_answer(self, path: str, status: int) -> None:
        """Check the status of a reply to a user."""
        if status not in (200, 503):
            self._break("users get an answer", f"{path}: {status}")

    def on_clock_jump(self) -> None:
        """Note that the controller's clock has jumped."""
        self._has_jumped = True
        self._jumped_seconds = self._now_seconds

    def on_hidden(self, machine: Machine) -> None:
        """Note that lists omit a machine for longer than clouds promise."""
        self._hidden.add(machine.id)

    def on_second_join(self, agent: Agent) -> None:
        """Record that a join token was accepted again."""
        self._break("a join token is used once", agent.machine.instance)

    def on_agent_fault(self, agent: Agent) -> None:
        """Note that an agent misbehaves, so that its job may lose work."""
        self._disturbed.add(agent.job)

    def check(self, seconds: int) -> None:
        """Check all invariants after a step of `seconds`.

        Raises:
            Violation: one does not hold.
        """
        self._steps += 1
        held = {instance.id: instance for instance in self._world.store.instances.alive()}
        jobs = {job.id: job for job in self._world.store.jobs.all()}
        self._check_wanted(held, jobs, seconds)
        if not self._is_healthy:
            self._unhealthy_seconds = self._now_seconds
        self._check_gangs(held, seconds)
        self._check_caps()
        self._check_budgets(jobs, seconds)
        self._check_reclaims()
        self._check_saving()
        self._check_reasons(jobs, seconds)
        if not self._hidden:
            self._limits.check(held, jobs, seconds, self._is_healthy, self._slack_usd)
        if self._study is not None:
            self._check_study(self._study, held, jobs, seconds)
        if self._broken:
            raise Violation(self._broken[0])

    def is_all_over(self) -> bool:
        """Return whether all jobs have ended and nothing is left to do."""
        world = self._world
        return (
            world.leader is not None
            and not world.unsent
            and (world.study is None or world.study.is_over)
            and not world.later
            and not world.store.jobs.alive()
            and not world.store.instances.alive()
            and not any(True for _ in world.truth.billed())
            and not any(machine.is_resting for machine in world.truth.machines.values())
            and not world.lighthouses.running
            and not world.scheduler.tasks
            and all(pool.is_idle for process in world.processes for pool in process.pools)
        )

    def check_end(self) -> None:
        """Check a healed world.

        Raises:
            Violation: a job has not ended, something is left, or the ledger is not the bill.
        """
        world = self._world
        for job in world.store.jobs.alive():
            raise Violation(
                f"every job ends: {job.id} is {job.phase}: {'; '.join(self._causes(job.id))}"
            )
        if not self.is_all_over():
            raise Violation(f"zero when all is done: {self._remains()}")
        pending = world.store.intents.pending(world.clock.now() + 1e6)
        if pending:
            raise Violation(f"zero when all is done: calls are pending: {pending}")
        self._check_ledger()
        if self._study is not None:
            self._study.check_end()
        if self._broken:
            raise Violation(self._broken[0])

    @property
    def _now_seconds(self) -> int:
        return self._world.scheduler.now_seconds

    def _break(self, invariant: str, text: str) -> None:
        self._broken.append(f"{invariant}: {text}")

    @property
    def _is_healthy(self) -> bool:
        """Whether nothing keeps the controller from acting now."""
        world = self._world
        return (
            bool(world.processes)
            and world.weather.is_calm(self._now_seconds)
            and not world.is_frozen
            and self._now_seconds - self._jumped_seconds > 60
        )

    def _check_wanted(
        self, held: dict[str, HeldInstance], jobs: dict[str, JobRecord], seconds: int
    ) -> None:
        """Check that each billed machine is known and wanted, or ends soon."""
        for machine in self._world.truth.billed():
            instance = held.get(machine.instance)
            # An instance of a study may have been handed over to another trial since its launch.
            job = jobs.get(machine.job if instance is None else instance.job)
            is_wanted = (
                instance is not None
                and instance.desired is Desired.PRESENT
                and job is not None
                and not job.phase.is_final
            )
            if is_wanted:
                self._stray_seconds[machine.id] = 0
            elif self._is_healthy and not self._is_hidden(machine):
                self._stray_seconds[machine.id] += seconds
            if self._stray_seconds[machine.id] > STRAY_SECONDS:
                state = "unknown" if instance is None else f"{instance.phase}, not wanted"
                self._break(
                    "each billed instance is wanted or ending",
                    f"{machine.id} ({machine.instance}) is {state} for {STRAY_SECONDS} s",
                )

    def _is_hidden(self, machine: Machine) -> bool:
        """Return whether lists omit a machine for longer than clouds promise.

        A controller that has not listed the machine can't end it: it has no proof of its owner.
        """
        return machine.id in self._hidden and self._now_seconds < machine.visible_seconds

    def _check_gangs(self, held: dict[str, HeldInstance], seconds: int) -> None:
        """Check that each billed machine of a gang has the others, or ends soon."""
        present: defaultdict[tuple[str, int], int] = defaultdict(int)
        for instance in held.values():
            if instance.seat is not None and instance.desired is Desired.PRESENT:
                present[instance.job, instance.seat.number] += 1
        for machine in self._world.truth.billed():
            member = held.get(machine.instance)
            if member is None or member.seat is None or member.desired is Desired.ABSENT:
                continue  # `_check_wanted` expects its end
            is_whole = present[member.job, member.seat.number] == member.seat.instances
            if is_whole:
                self._part_seconds[machine.id] = 0
            elif self._is_healthy:
                self._part_seconds[machine.id] += seconds
            if self._part_seconds[machine.id] > _PART_SECONDS:
                self._break("a gang is whole or ending", f"{machine.instance}: {member.seat.text}")

    def _check_caps(self) -> None:
        """Check caps on instances and on prices per hour."""
        if self._hidden:
            return
        scenario, machines = self._world.scenario, list(self._world.truth.billed())
        for cloud in scenario.clouds:
            of_cloud = [machine for machine in machines if machine.cloud == cloud]
            if len(of_cloud) > scenario.max_instances:
                self._break(
                    "no cap is passed", f"{len(of_cloud)} machines, cap {scenario.max_instances}"
                )
            usd = sum((machine.usd_per_hour for machine in of_cloud), Decimal(0))
            if usd > Decimal(scenario.max_usd_per_hour):
                self._break("no cap is passed", f"${usd}/h of ${scenario.max_usd_per_hour}/h")
        usd = sum((machine.usd_per_hour for machine in machines), Decimal(0))
        cap = scenario.fleet_usd_per_hour
        if cap is not None and not self._world.truth.price_changes and float(usd) > cap + 1e-9:
            self._break("no cap is passed", f"${usd}/h of the fleet's ${cap}/h")

    def _check_budgets(self, jobs: dict[str, JobRecord], seconds: int) -> None:
        """Check that no budget is passed by more than the cost of leaving, and of outages."""
        if self._hidden:
            return
        if not self._is_healthy or self._world.truth.price_changes:
            for machine in self._world.truth.billed():
                self._slack_usd[machine.job] += machine.usd_per_hour * seconds / 3600
        spent: defaultdict[str, Decimal] = defaultdict(Decimal)
        leaving: defaultdict[str, Decimal] = defaultdict(Decimal)
        for machine in self._world.truth.machines.values():
            spent[machine.job] += machine.billed_usd(self._now_seconds)
            # From the decision to the end: a drain, a round of calls, and the least bill.
            leaving[machine.job] += machine.usd_per_hour * 240 / 3600
        for name, usd in spent.items():
            budget_usd = jobs[name].spec.objective.most_usd if name in jobs else None
            most_usd = leaving[name] + self._slack_usd[name]
            if budget_usd is not None and usd > budget_usd + most_usd:
                self._break("no budget is passed", f"{name}: ${usd:.4f} of ${budget_usd}")
        fleet_usd = self._world.scenario.fleet_usd
        if fleet_usd is not None:
            most_usd = sum(leaving.values(), Decimal(0)) + sum(
                self._slack_usd.values(), Decimal(0)
            )
            usd = sum(spent.values(), Decimal(0))
            if usd > Decimal(fleet_usd) + most_usd:
                self._break("no budget is passed", f"fleet: ${usd:.4f} of ${fleet_usd}")

    def _check_study(
        self,
        study: StudyInvariants,
        held: dict[str, HeldInstance],
        jobs: dict[str, JobRecord],
        seconds: int,
    ) -> None:
        """Check the invariants of the study."""
        study.check(held, jobs, seconds, self._is_healthy)
        if not self._hidden:
            slack = (usd for job, usd in self._slack_usd.items() if is_of_study(job))
            study.check_budget(held.values(), sum(slack, Decimal(0)))
        if self._steps % _REASON_STEPS == 0:
            study.check_costs()

    def _check_saving(self) -> None:
        """Check that no script is cut short while it saves within its time to leave."""
        for agent in self._world.agents.values():
            machine = agent.machine
            if agent.phase is InstancePhase.DRAINING and machine.is_billed:
                self._saving.setdefault(machine.id, (agent, agent.since_seconds))
        for name, (agent, since_seconds) in list(self._saving.items()):
            machine = agent.machine
            if agent.phase is not InstancePhase.DRAINING:
                del self._saving[name]
                continue
            if machine.is_billed:
                continue
            del self._saving[name]
            is_excused = (
                machine.reclaim_seconds is not None
                or not machine.has_known_end
                or agent.vices
                or machine.ended_by != "user"
                or machine.ended_seconds - self._jumped_seconds < 600
            )
            stored = self._world.store.instances.get(machine.instance)
            released = stored.draining_seconds
            if is_excused or released is None:
                continue
            had_seconds = machine.ended_seconds - released
            if had_seconds < agent.drain_seconds:
                self._break(
                    "a stop leaves a checkpoint",
                    f"{machine.instance} was ended {had_seconds:.0f} s after its release, "
                    f"{machine.ended_seconds - since_seconds} s into its last save; "
                    f"it had {agent.drain_seconds:.0f} s",
                )

    def _check_reclaims(self) -> None:
        """Check that no script trains on until its machine is reclaimed after a notice in time."""
        for agent in self._world.agents.values():
            machine = agent.machine
            is_new = machine.is_reclaimed and machine.id not in self._reclaimed
            if not is_new or machine.ended_seconds is None:
                continue
            self._reclaimed.add(machine.id)
            in_time_seconds = machine.ended_seconds - machine.notice_seconds
            is_excused = (
                in_time_seconds < _NOTICE_SECONDS
                or self._unhealthy_seconds >= machine.notice_seconds - _NOTICE_SECONDS
                or self._world.weather.lost_replies > 0
                or self._hidden
                or self._has_jumped
                or agent.vices
                or machine.visible_seconds > machine.notice_seconds
            )
            if agent.trained_until_end and not is_excused:
                text = f"{machine.instance} had a notice {in_time_seconds} s before its end"
                self._break("a notice of a reclaim ends training", text)

    def _check_reasons(self, jobs: dict[str, JobRecord], seconds: int) -> None:
        """Check that a job without training for a while says why."""
        for name, training in self._world.trainings.items():
            job = jobs.get(name)
            if job is None or job.phase.is_final or training.members or not self._is_healthy:
                self._idle_seconds[name] = 0
                continue
            self._idle_seconds[name] += seconds
            if self._idle_seconds[name] < _STUCK_SECONDS or self._steps % _REASON_STEPS:
                continue
            if not self._causes(name):
                self._break("a job makes progress or says why not", name)

    def _causes(self, job: str) -> list[str]:
        """Return the causes that the API names now for a job that does not train."""
        status, view = self._world.ask("GET", f"/v1/jobs/{job}")
        if status != 200:  # a controller may die meanwhile
            return [f"status {status}"]
        return present_causes(
            view, self._world.clock.now(), self._now_seconds - self._unhealthy_seconds
        )

    def _remains(self) -> str:
        world = self._world
        billed = [f"{machine.id} ({machine.instance})" for machine in world.truth.billed()]
        resting = [machine.id for machine in world.truth.machines.values() if machine.is_resting]
        alive = [f"{held.id} {held.phase}" for held in world.store.instances.alive()]
        tasks = [task.name for task in world.scheduler.tasks]
        return (
            f"billed {billed}, resting {resting}, alive {alive}, "
            f"lighthouses {world.lighthouses.running}, "
            f"tasks {tasks}, unsent {[plan.name for plan in world.unsent]}, "
            f"later {len(world.later)}, leader {world.leader is not None}"
        )

    def _check_ledger(self) -> None:
        """Check that the ledger is the bill, for each machine."""
        world = self._world
        now_seconds = max(world.clock.now(), float(self._now_seconds)) + 1
        booked = Ledger(world.store.ledger.entries()).by_instance(now_seconds)
        billed = {machine.instance: machine for machine in world.truth.machines.values()}
        for instance in booked.keys() - billed.keys():
            if booked[instance]:
                raise Violation(f"the ledger is the bill: {instance} never ran")
        for instance, machine in billed.items():
            usd = machine.billed_usd(self._now_seconds)
            place = machine.cloud, machine.kind, machine.zone
            # Without a listing, a launch and an end are booked by the controller's clock. On EC2
            # only lists have the time of an end, and a fault may hide the machine from them.
            ended_unseen = (
                machine.cloud == "aws"
                and machine.ended_seconds is not None
                and machine.visible_seconds > machine.ended_seconds
            )
            is_exact = (
                machine.has_known_end
                and not ended_unseen
                and place not in world.truth.price_changes
                and not self._has_jumped
            )
            booked_usd = booked.get(instance, Decimal(0))
            # EC2's reply to a launch has no launch time: until a list shows the machine, the time
            # at which the reply arrived counts.
            late_seconds = max(machine.answered_seconds - machine.launched_seconds, 0)
            tolerance_usd = _EXACT_USD + machine.usd_per_hour * late_seconds / 3600
            if is_exact and abs(booked_usd - usd) >= tolerance_usd:
                raise Violation(
                    f"the ledger is the bill: {instance} ({machine.id}, {machine.offer}): "
                    f"booked ${booked_usd}, billed ${usd}"
                )
            was_listed = machine.visible_seconds <= self._now_seconds
            if not is_exact and booked_usd == 0 and was_listed:
                raise Violation(f"the ledger is the bill: {instance} is not booked at all")
