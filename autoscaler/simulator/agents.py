"""The node agents of a simulation: they tell the controller what its profiles say happens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from autoscaler.controller.finishing import COMPLETE_FACT
from autoscaler.domain.instance import (
    HANDED_OVER_FACT,
    CloudState,
    Desired,
    HeldInstance,
    InstancePhase,
)
from autoscaler.domain.offer import Offer
from autoscaler.domain.report import ReportOrigin
from autoscaler.simulator.interference import crowded
from autoscaler.simulator.job_training import JobTraining, Member
from autoscaler.store.store import Store
from providers.base import Provider


@dataclass(frozen=True, slots=True)
class Equipment:
    """What an instance of an offer is: its offer, and the kind of device that was profiled."""

    offer: Offer
    profile_kind: str


class SimulatedAgents:
    """All agents of one deployment."""

    def __init__(
        self, store: Store, provider: Provider, equipment: Mapping[str, Equipment]
    ) -> None:
        self._store = store
        self._provider = provider
        self._equipment = equipment
        self._trainings: dict[str, JobTraining] = {}
        self._told: dict[str, object] = {}

    def add(self, job: str, training: JobTraining) -> None:
        """Let there be a job."""
        self._trainings[job] = training

    def forget(self, job: str) -> None:
        """The job has ended."""
        del self._trainings[job]
        self._told.pop(job, None)

    def advance(self, to_seconds: float) -> None:
        """Let all jobs train."""
        for training in self._trainings.values():
            training.advance(to_seconds)

    def speak(self, now_seconds: float) -> list[str]:
        """Every agent tells how things stand; returns the jobs that are complete."""
        running = {
            seen.id for seen in self._provider.instances() if seen.state is CloudState.RUNNING
        }
        complete = []
        for job, training in list(self._trainings.items()):
            held = [each for each in self._store.instances.of_job(job) if each.cloud_id in running]
            if training.is_complete:
                self._tell_end(held, now_seconds)
                self.forget(job)
                complete.append(job)
            else:
                self._go_on(job, training, held, now_seconds)
        self._note_crowds()
        return complete

    def _note_crowds(self) -> None:
        """Which jobs are in each other's way: only machines that jobs share have two on them."""
        machines = {
            job: [
                each.offer for each in training.members if self._equipment[each.offer].offer.shared
            ]
            for job, training in self._trainings.items()
        }
        others = crowded(machines)
        for job, training in self._trainings.items():
            training.is_crowded = job in others

    def _go_on(
        self, job: str, training: JobTraining, held: list[HeldInstance], now_seconds: float
    ) -> None:
        staying = [each for each in held if each.desired is Desired.PRESENT and not each.stands_by]
        training.train_on(tuple(self._member(each) for each in staying))
        works = InstancePhase.STARTING if training.is_starting else InstancePhase.TRAINING
        for each in held:
            leaves = each.desired is Desired.ABSENT
            phase = InstancePhase.DRAINED if leaves else works
            phase = InstancePhase.READY if each.stands_by else phase
            if each.phase is not phase:
                self._store.instances.record_node(each.id, phase, now_seconds)
        told = training.now_seconds, training.members
        if not staying or self._told.get(job) == told:
            return
        self._told[job] = told
        decider = staying[0]
        origin = ReportOrigin(decider.id, 1, decider.joined_seconds or now_seconds)
        self._store.reports.add(job, training.report(), origin, now_seconds)
        model = self._store.measurements.models(job).get(training.members[0].device_kind)
        training.hear(None if model is None else model.point)

    def _tell_end(self, held: list[HeldInstance], now_seconds: float) -> None:
        facts = {COMPLETE_FACT: str(now_seconds)}
        for each in held:
            self._store.instances.record_node(each.id, each.phase, now_seconds, facts)

    def _member(self, held: HeldInstance) -> Member:
        equipment = self._equipment[held.offer]
        return Member(
            instance=held.id,
            offer=held.offer,
            device_kind=equipment.offer.device_kind,
            profile_kind=equipment.profile_kind,
            devices=held.devices_used,
            is_warm=HANDED_OVER_FACT in held.facts,
        )
