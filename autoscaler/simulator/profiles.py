"""Measured applications: how long their steps take, and what their examples are worth."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from autoscaler.domain.errors import SpecError
from autoscaler.simulator.gradients import GradientStatistics
from autoscaler.simulator.measurements import read_gradients, read_steps
from autoscaler.simulator.step_times import MeasuredSteps, Placement, StepTimes, Unprofiled


@dataclass(frozen=True)
class Profile:
    """One application: measured step times by kind of device, and gradients over its run.

    A placement is the devices on each of the nodes, as ``(4, 4, 2)``. Progress counts useful
    examples: examples worth one each at the initial batch size.
    """

    name: str
    steps: Mapping[str, MeasuredSteps]
    statistics: GradientStatistics

    @property
    def kinds(self) -> frozenset[str]:
        """The kinds of device that step times were measured on."""
        return frozenset(self.steps)

    @property
    def initial_batch(self) -> int:
        """The least batch that a run was measured at; progress and noise refer to it."""
        return self.statistics.batches[0]

    @property
    def maximum_batch(self) -> int:
        """The largest batch that a run was measured at."""
        return self.statistics.batches[-1]

    @property
    def epochs(self) -> int:
        """The number of epochs of the run."""
        return len(self.statistics.epoch_end_examples)

    @cached_property
    def epoch_end_examples(self) -> NDArray[np.float64]:
        """The progress at the end of each epoch, rising. It can't be written to."""
        ends = np.array(self.statistics.epoch_end_examples)
        ends.flags.writeable = False
        return ends

    @property
    def total_examples(self) -> float:
        """The progress at the end of the run."""
        return self.statistics.epoch_end_examples[-1]

    def device_batches(self, kind: str, devices_on_nodes: Placement) -> tuple[float, float]:
        """The least and the largest device batch measured.

        Raises:
            Unprofiled: this kind, or anything near this placement, was not measured.
        """
        return self._steps_on(kind).table(devices_on_nodes).bounds

    def step_times(self, kind: str, devices_on_nodes: Placement, device_batch: float) -> StepTimes:
        """One synchronised micro-step of `device_batch` examples on each device.

        Below the least device batch measured it is that of the least.

        Raises:
            Unprofiled: as `device_batches`, or the device batch is above the largest.
        """
        return self._steps_on(kind).at(devices_on_nodes, device_batch)

    def gradients(self, progress_examples: float, batch: float) -> tuple[float, float]:
        """|G|^2, above 0, and tr(Sigma)/initial batch, at `batch` in the current epoch."""
        return self.statistics.at(progress_examples, batch)

    def noise_scale(self, progress_examples: float, batch: float) -> float:
        """The gradient noise scale at `batch` in the current epoch, in examples."""
        square, variance = self.gradients(progress_examples, batch)
        return self.initial_batch * variance / square

    def efficiency(self, progress_examples: float, batch: float) -> float:
        """Useful examples per example at `batch`, which is at least the initial one.

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
    """Every application that has step times in a sub-folder of its name, by name.

    An application may have its kinds of device and its gradient statistics in the sub-folders of
    several directories.

    Raises:
        SpecError: there is none, or a file is not as it should be. It names file, line and field.
    """
    folders: dict[str, list[Path]] = defaultdict(list)
    for directory in directories:
        if not directory.is_dir():
            raise SpecError("is not a directory", field=str(directory))
        for folder in sorted(directory.iterdir()):
            folders[folder.name].append(folder)
    profiles = {
        name: _read_profile(name, places)
        for name, places in sorted(folders.items())
        if any(any(place.glob("placements*.csv")) for place in places)
    }
    if not profiles:
        places = ", ".join(str(directory) for directory in directories)
        raise SpecError(f"no sub-folder of {places} has a placements.csv", field="directories")
    return profiles


def _read_profile(name: str, folders: list[Path]) -> Profile:
    steps: dict[str, MeasuredSteps] = {}
    for folder in folders:
        for measured in read_steps(folder, name):
            if measured.kind in steps:
                message = f"has step times of {name} on {measured.kind!r} once more"
                raise SpecError(message, field=str(folder))
            steps[measured.kind] = measured
    return Profile(name, steps, read_gradients(folders, name))
