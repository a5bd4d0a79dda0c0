"""Profiles of measured applications: step times, and statistical efficiency over a run."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autoscaler.domain.errors import SpecError
from autoscaler.simulator.profiles.gradients import GradientStatistics
from autoscaler.simulator.profiles.measurements import read_gradients, read_steps
from autoscaler.simulator.profiles.step_times import (
    MeasuredSteps,
    Placement,
    ProfiledStepTimes,
    Unprofiled,
)


@dataclass(frozen=True)
class Profile:
    """One application: step times by kind of device, and gradient statistics over its run.

    A placement is the devices on each node, such as ``(4, 4, 2)``. Progress counts useful
    examples: examples at the initial batch size.
    """

    name: str
    steps: Mapping[str, MeasuredSteps]
    statistics: GradientStatistics

    @property
    def kinds(self) -> frozenset[str]:
        """Kinds of device with measured step times."""
        return frozenset(self.steps)

    @property
    def initial_batch(self) -> int:
        """Smallest batch of a measured run, to which progress and noise refer."""
        return self.statistics.batches[0]

    @property
    def maximum_batch(self) -> int:
        """Largest batch of a measured run."""
        return self.statistics.batches[-1]

    @property
    def epochs(self) -> int:
        """Number of epochs of the run."""
        return len(self.statistics.epoch_end_examples)

    @cached_property
    def epoch_end_examples(self) -> NDArray[np.float64]:
        """Progress at the end of each epoch, increasing; a read-only array."""
        ends = np.array(self.statistics.epoch_end_examples)
        ends.flags.writeable = False
        return ends

    @property
    def total_examples(self) -> float:
        """Progress at the end of the run."""
        return self.statistics.epoch_end_examples[-1]

    def device_batches(self, kind: str, devices_on_nodes: Placement) -> tuple[float, float]:
        """Return the smallest and the largest measured device batch.

        Raises:
            Unprofiled: this kind, or anything near this placement, was not measured.
        """
        return self._steps_on(kind).table(devices_on_nodes).bounds

    def step_times(
        self, kind: str, devices_on_nodes: Placement, device_batch: float
    ) -> ProfiledStepTimes:
        """Return the times of a synchronised micro-step of `device_batch` examples per device.

        Below the smallest measured device batch they are those of the smallest.

        Raises:
            Unprofiled: as `device_batches`, or the device batch exceeds the largest.
        """
        return self._steps_on(kind).at(devices_on_nodes, device_batch)

    def gradients(self, progress_examples: float, batch: float) -> tuple[float, float]:
        """Return |G|^2, above 0, and tr(Sigma)/initial batch, at `batch` in the current epoch."""
        return self.statistics.at(progress_examples, batch)

    def noise_scale(self, progress_examples: float, batch: float) -> float:
        """Return the gradient noise scale at `batch` in the current epoch, in examples."""
        square, variance = self.gradients(progress_examples, batch)
        return self.initial_batch * variance / square

    def efficiency(self, progress_examples: float, batch: float) -> float:
        """Return useful examples per example at `batch`, at least the initial batch.

        Source: Pollux (OSDI'21) section 3.1.
        """
        noise = self.noise_scale(progress_examples, batch)
        return (noise + self.initial_batch) / (noise + batch)

    def _steps_on(self, kind: str) -> MeasuredSteps:
        steps = self.steps.get(kind)
        if steps is None:
            known = ", ".join(sorted(self.steps))
            raise Unprofiled(f"{self.name} has no step times on {kind!r}: it has them on {known}")
        return steps


def read_profiles(*directories: Path) -> dict[str, Profile]:
    """Read every application with step times in a sub-folder of its name, by name.

    An application's files may be spread over sub-folders of several directories.

    Raises:
        SpecError: there is no application, or a file is invalid; it names file, line and field.
    """
    folders: dict[str, list[Path]] = defaultdict(list)
    for directory in directories:
        if not directory.is_dir():
            raise SpecError("is not a directory", field=str(directory))
        for folder in sorted(directory.iterdir()):
            folders[folder.name].append(folder)
    profiles = {
        name: _read_profile(name, app_folders)
        for name, app_folders in sorted(folders.items())
        if any(any(app_folder.glob("placements*.csv")) for app_folder in app_folders)
    }
    if not profiles:
        names = ", ".join(str(directory) for directory in directories)
        raise SpecError(f"no sub-folder of {names} has a placements.csv", field="--profiles")
    return profiles


def _read_profile(name: str, folders: list[Path]) -> Profile:
    steps: dict[str, MeasuredSteps] = {}
    for folder in folders:
        for measured in read_steps(folder, name):
            if measured.kind in steps:
                message = f"repeats step times of {name} on {measured.kind!r}"
                raise SpecError(message, field=str(folder))
            steps[measured.kind] = measured
    return Profile(name, steps, read_gradients(folders, name))
