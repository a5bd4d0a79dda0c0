"""Submission of a workload's jobs at their arrival times."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np

from autoscaler.domain.access import OWNER, Owner
from autoscaler.domain.goodput import BatchBounds
from autoscaler.domain.job import BatchSpec, InstanceBounds, JobSpec
from autoscaler.domain.report import StepObservation
from autoscaler.domain.restart import RestartSpec
from autoscaler.domain.snapshot import GroundTruth
from autoscaler.simulator.agents import Equipment
from autoscaler.simulator.profiles.coverage import bounds_on, profiled_maxima
from autoscaler.simulator.profiles.profiles import Profile
from autoscaler.simulator.scenario import Scenario
from autoscaler.simulator.training.exclusive import RigidRequest, exclusive_seconds
from autoscaler.simulator.training.profiled import Training
from autoscaler.simulator.training.regimes import RegimeTraining
from autoscaler.simulator.training.truth import MachineKind
from autoscaler.simulator.workloads.submission import SimulatedSubmission, Submit
from autoscaler.simulator.workloads.workload import Arrival

# Number of batches per kind of device, and seconds of each.
_BATCHES = 10
# Restarts of simulated commands, whose agents report progress and stop at once.
_RESTART = RestartSpec("simulated", grace_seconds=0.0, progress="step {step}")
_SECONDS = 2.0


class Arriving:
    """Submitter of the jobs of a scenario's workload."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._arrivals_left = deque(scenario.arrivals)
        self._trainings: dict[str, Training | RegimeTraining] = {}
        self._maxima_of_application: dict[str, tuple[tuple[str, int], ...]] = {}

    @property
    def is_done(self) -> bool:
        """Whether all jobs have arrived."""
        return not self._arrivals_left

    def next_seconds(self) -> float | None:
        """Return the time of the next arrival; None if there is none."""
        return self._arrivals_left[0].submitted_seconds if self._arrivals_left else None

    def act(self, now_seconds: float, submit: Submit) -> None:
        """Submit the jobs that have arrived."""
        while self._arrivals_left and self._arrivals_left[0].submitted_seconds <= now_seconds:
            arrival = self._arrivals_left.popleft()
            training = self._training(arrival, now_seconds)
            job = submit(self._submission(arrival, training, now_seconds))
            self._trainings[job] = training

    def _submission(
        self, arrival: Arrival, training: Training | RegimeTraining, now_seconds: float
    ) -> SimulatedSubmission:
        scenario = self._scenario
        owner = scenario.owners.get(arrival.name, Owner(OWNER))
        spec = JobSpec(
            name=arrival.name,
            person=owner.person,
            team=owner.team,
            command=("simulated",),
            batch=self._batch(arrival, training.bounds),
            instances=self._instances(arrival),
            objective=scenario.objective(now_seconds),
            requested_devices=arrival.devices_requested,
            program=arrival.application if scenario.remembers else None,
            parallelism=scenario.parallelism,
            restart=None if scenario.save_seconds is None else _RESTART,
        )
        has_first_look = scenario.is_profiled and arrival.name not in scenario.regimes
        observations = self._first_look(arrival) if has_first_look else ()
        return SimulatedSubmission(arrival, spec, training, observations)

    def _instances(self, arrival: Arrival) -> InstanceBounds:
        """Return the scenario's bounds, limited to what the application was profiled on."""
        scenario, name = self._scenario, arrival.application
        bounds, profile = scenario.instances, scenario.profiles.get(name)
        if profile is None:
            return bounds
        if name not in self._maxima_of_application:
            equipment = scenario.equipment.values()
            self._maxima_of_application[name] = profiled_maxima(profile, equipment, bounds.maximum)
        return replace(bounds, maxima=(*bounds.maxima, *self._maxima_of_application[name]))

    def _first_look(self, arrival: Arrival) -> tuple[StepObservation, ...]:
        scenario = self._scenario
        settings = scenario.of_application.get(arrival.application, scenario.training)
        profile = scenario.profiles[arrival.application]
        return first_look(profile, scenario.equipment.values(), settings.slowdown)

    def _training(self, arrival: Arrival, now_seconds: float) -> Training | RegimeTraining:
        """Build the training from the job's regimes, or else its application's profile."""
        scenario = self._scenario
        common = scenario.of_application.get(arrival.application, scenario.training)
        settings = replace(common, seed=common.seed + len(self._trainings))
        schedule = scenario.regimes.get(arrival.name)
        if schedule is not None:
            return RegimeTraining(schedule, arrival.batch_size, settings, now_seconds)
        profile = scenario.profiles[arrival.application]
        bounds = self._bounds(profile)
        requested = None if scenario.adapts_batch else arrival.batch_size
        training = Training(profile, bounds, settings, now_seconds, requested)
        training.exclusive_seconds = exclusive_seconds(
            profile,
            RigidRequest(arrival.devices_requested, arrival.batch_size, bounds),
            scenario.equipment,
            settings,
        )
        return training

    def _batch(self, arrival: Arrival, bounds: BatchBounds) -> BatchSpec:
        if not (self._scenario.adapts_batch and bounds.adaptive):
            batch = BatchSpec(arrival.batch_size, None, bounds.device_maximum, adaptive=False)
        else:
            batch = BatchSpec(bounds.initial, bounds.maximum, bounds.device_maximum, adaptive=True)
        return replace(batch, kind_maxima=bounds.kind_maxima)

    def truth(self, job: str) -> GroundTruth | None:
        """Return the ground truth of a job in a pool; None for other scenarios.

        None too if a kind of device has machines of several sizes.
        """
        training = self._trainings.get(job)
        if isinstance(training, RegimeTraining):
            return training.truth()
        equipment = [
            equipment_of_offer
            for equipment_of_offer in self._scenario.equipment.values()
            if equipment_of_offer.offer.shared
        ]
        machines = {
            MachineKind(shared.offer.device_kind, shared.profile_kind, shared.offer.devices)
            for shared in equipment
        }
        if training is None or not machines:
            return None
        if len({machine.device_kind for machine in machines}) < len(machines):
            return None
        most_devices = sum(shared.offer.devices for shared in equipment)
        return training.truth(sorted(machines), most_devices)

    def _bounds(self, profile: Profile) -> BatchBounds:
        """Return the batch sizes at which the kinds of device on offer were profiled."""
        caps, maxima = self._scenario.training.quirks.device_batches, dict[str, int]()
        for equipment in self._scenario.equipment.values():
            kind, largest = (
                equipment.offer.device_kind,
                profile.device_batches(equipment.profile_kind, (1,))[1],
            )
            maxima[kind] = int(
                min(largest, caps.get(profile.name, largest), maxima.get(kind, largest))
            )
        return bounds_on(maxima, profile.initial_batch, profile.maximum_batch, adaptive=True)


def first_look(
    profile: Profile, equipment: Iterable[Equipment], slowdown: float
) -> tuple[StepObservation, ...]:
    """Return step times on one device of each kind, over its profiled batches.

    Ten batches and less than 20 s on each kind, as in Sia (SOSP'23), section 3.2.
    """
    kinds = {machine.offer.device_kind: machine.profile_kind for machine in equipment}
    return tuple(
        observation
        for kind, profile_kind in sorted(kinds.items())
        for observation in _on_one_device(profile, kind, profile_kind, slowdown)
    )


def _on_one_device(
    profile: Profile, kind: str, profile_kind: str, slowdown: float
) -> Iterator[StepObservation]:
    smallest, largest = profile.device_batches(profile_kind, (1,))
    for batch in np.unique(np.geomspace(smallest, largest, _BATCHES).astype(np.int64)).tolist():
        times = profile.step_times(profile_kind, (1,), batch)
        yield StepObservation(
            device_kind=kind,
            instances=1,
            devices=1,
            device_batch=batch,
            accumulation=0,
            step_seconds=times.step_seconds * slowdown,
            sync_seconds=times.sync_seconds * slowdown,
            steps=max(int(_SECONDS / (times.step_seconds * slowdown)), 1),
        )
