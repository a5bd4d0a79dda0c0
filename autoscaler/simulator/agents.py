"""Node agents of a simulation, which report to the controller as measured profiles predict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from autoscaler.controller.jobs.gangs import gangs_of
from autoscaler.domain.facts import Fact
from autoscaler.domain.instance import (
    CloudState,
    Desired,
    HeldInstance,
    InstancePhase,
)
from autoscaler.domain.offer import Offer
from autoscaler.domain.report import ReportOrigin
from autoscaler.simulator.restarting import RestartingAgents
from autoscaler.simulator.time_meters import TimeMeters
from autoscaler.simulator.training.base import JobTraining, Member
from autoscaler.simulator.training.profiled import Training
from autoscaler.store.store import Store
from providers.base import Provider


@dataclass(frozen=True, slots=True)
class Equipment:
    """An offer, and the kind of device under which its instances were profiled."""

    offer: Offer
    profile_kind: str


class SimulatedAgents:
    """All agents of one deployment; `meters` count the use of their time, None: nothing does."""

    def __init__(
        self,
        store: Store,
        provider: Provider,
        equipment: Mapping[str, Equipment],
        meters: TimeMeters | None = None,
    ) -> None:
        self._store = store
        self._provider = provider
        self._equipment = equipment
        self._meters = meters
        self._trainings: dict[str, JobTraining] = {}
        self._last_reported: dict[str, object] = {}
        self._restarting: dict[str, RestartingAgents] = {}

    def add(self, job: str, training: JobTraining, save_seconds: float | None = None) -> None:
        """Add a job; a restartable one saves a checkpoint every `save_seconds`."""
        self._trainings[job] = training
        if save_seconds is not None and isinstance(training, Training):
            agents = RestartingAgents(self._store, job, training, save_seconds)
            self._restarting[job] = agents

    def next_seconds(self) -> Iterator[float]:
        """Yield the times at which restartable jobs begin to train or save a checkpoint."""
        for agents in self._restarting.values():
            if (seconds := agents.next_seconds()) is not None:
                yield seconds

    def forget(self, job: str) -> None:
        """Remove a job that has ended."""
        del self._trainings[job]
        self._restarting.pop(job, None)
        self._last_reported.pop(job, None)

    def advance(self, to_seconds: float) -> None:
        """Advance the training of all jobs to `to_seconds`."""
        for training in self._trainings.values():
            training.advance(to_seconds)

    def speak(self, now_seconds: float) -> list[str]:
        """Report the state of every agent, and return the ids of the completed jobs."""
        running = {
            instance.id
            for instance in self._provider.instances()
            if instance.state is CloudState.RUNNING
        }
        complete = []
        for job, training in list(self._trainings.items()):
            held = [
                held_instance
                for held_instance in self._store.instances.of_job(job)
                if held_instance.cloud_id in running
            ]
            if self._meters is not None:
                self._meters.count(job, training, held, now_seconds)
            if training.is_complete:
                self._report_end(held, now_seconds)
                self.forget(job)
                complete.append(job)
            else:
                self._report_running(job, training, held, now_seconds)
        self._mark_crowded()
        return complete

    def _mark_crowded(self) -> None:
        """Mark jobs that slow each other down, which happens on shared machines only."""
        machines = {
            job: [
                member.offer
                for member in training.members
                if self._equipment[member.offer].offer.shared
            ]
            for job, training in self._trainings.items()
        }
        crowded_jobs = crowded(machines)
        for job, training in self._trainings.items():
            training.is_crowded = job in crowded_jobs

    def _report_running(
        self, job: str, training: JobTraining, held: list[HeldInstance], now_seconds: float
    ) -> None:
        restarting = self._restarting.get(job)
        apart: frozenset[str] = frozenset()
        if restarting is not None:
            staying = restarting.members(held)
        else:
            apart = _apart_from_gang(held)
            staying = [
                instance
                for instance in held
                if instance.desired is Desired.PRESENT
                and not instance.stands_by
                and instance.id not in apart
            ]
        training.train_on(tuple(self._member(instance) for instance in staying))
        if restarting is not None:
            restarting.speak(held, staying, now_seconds)
        else:
            self._record_phases(training, held, apart, now_seconds)
        state = training.now_seconds, training.members
        if not staying or self._last_reported.get(job) == state:
            return
        self._last_reported[job] = state
        decider = staying[0]
        origin = ReportOrigin(decider.id, 1, decider.joined_seconds or now_seconds)
        self._store.reports.add(job, training.report(), origin, now_seconds)
        model = self._store.measurements.models(job).get(training.members[0].device_kind)
        training.hear(None if model is None else model.point)

    def _record_phases(
        self,
        training: JobTraining,
        held: list[HeldInstance],
        apart: frozenset[str],
        now_seconds: float,
    ) -> None:
        phase_at_work = InstancePhase.STARTING if training.is_starting else InstancePhase.TRAINING
        for instance in held:
            phase = phase_at_work if instance.id not in apart else InstancePhase.READY
            phase = InstancePhase.DRAINED if instance.desired is Desired.ABSENT else phase
            phase = InstancePhase.READY if instance.stands_by else phase
            if instance.phase is not phase:
                self._store.instances.record_node(instance.id, phase, now_seconds)

    def _report_end(self, held: list[HeldInstance], now_seconds: float) -> None:
        facts: dict[str, str] = {Fact.COMPLETE: str(now_seconds)}
        for instance in held:
            self._store.instances.record_node(instance.id, instance.phase, now_seconds, facts)

    def _member(self, held: HeldInstance) -> Member:
        equipment = self._equipment[held.offer]
        return Member(
            instance=held.id,
            offer=held.offer,
            device_kind=equipment.offer.device_kind,
            profile_kind=equipment.profile_kind,
            devices=held.devices_used,
            is_warm=held.handed_over_seconds is not None,
        )


def _apart_from_gang(running: Sequence[HeldInstance]) -> frozenset[str]:
    """Return the instances whose gang is not whole: others still boot, or one was lost."""
    gangs = gangs_of(running)
    return frozenset(held.id for gang in gangs if not gang.is_whole for held in gang.members)


def crowded(machines: Mapping[str, Collection[str]]) -> frozenset[str]:
    """Return the distributed jobs that share a machine with another distributed job.

    Source: Qiao et al., Pollux (OSDI'21), sections 4.2 and 5.3.2, and the simulator published with
    it.

    Args:
        machines: job id -> ids of the machines on which it has devices.
    """
    spread = {
        job: frozenset(machine_ids)
        for job, machine_ids in machines.items()
        if len(set(machine_ids)) > 1
    }
    jobs_on_machine = Counter(
        machine for machine_ids in spread.values() for machine in machine_ids
    )
    return frozenset(
        job
        for job, machine_ids in spread.items()
        if any(jobs_on_machine[machine] > 1 for machine in machine_ids)
    )
