"""Learning-rate schedules of Lightning in a session, which steps all schedules by examples."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from autoscaler.integrations.lengths import TrainingLength

_STEPS: Final = "castor_steps"


class PacedSchedule:
    """Schedule that advances at some of the session's steps.

    `advances(step)`: whether it does at this step, from 1, of the script's batch size.
    """

    def __init__(self, scheduler: Any, advances: Callable[[int], bool]) -> None:
        self._scheduler = scheduler
        self._advances = advances
        self._steps = 0
        self.optimizer = scheduler.optimizer

    def step(self) -> None:
        """Count a step, and advance the schedule if it is due."""
        self._steps += 1
        if self._advances(self._steps):
            self._scheduler.step()

    def state_dict(self) -> dict[str, Any]:
        """Return the schedule's state, and the steps so far."""
        return {**self._scheduler.state_dict(), _STEPS: self._steps}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load a state of `state_dict`."""
        self._steps = int(state[_STEPS])
        inner = {name: value for name, value in state.items() if name != _STEPS}
        self._scheduler.load_state_dict(inner)


def paced(config: Any, length: TrainingLength) -> PacedSchedule:
    """Return the schedule of a Lightning `LRSchedulerConfig`, paced by epochs or steps."""
    frequency = int(config.frequency)
    if config.interval == "step":
        return PacedSchedule(config.scheduler, lambda step: step % frequency == 0)

    def epochs_at(step: int) -> int:
        """Return the epochs that are over after a step; a cut last step of a pass counts none."""
        return -(-((step + 1) * length.batch_size) // length.pass_examples) - 1

    def ends_epoch(step: int) -> bool:
        return epochs_at(step) // frequency > epochs_at(step - 1) // frequency

    return PacedSchedule(config.scheduler, ends_epoch)
