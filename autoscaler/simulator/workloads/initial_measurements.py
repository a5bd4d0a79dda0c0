"""Measurements of a job before its submission: one device of each kind, at several batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from autoscaler.domain.report import StepObservation
from autoscaler.simulator.agents import Equipment
from autoscaler.simulator.profiles.profiles import Profile

# Number of batches per kind of device, and seconds of each.
_BATCHES = 10
_SECONDS = 2.0


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
