"""Training reports of the deciding replica to its node agent."""

from __future__ import annotations

from collections import deque

from autoscaler.clock import Clock
from autoscaler.domain.report import TrainingReport
from autoscaler.domain.training import Engine
from autoscaler.training.channel import AgentConnection
from autoscaler.training.collectives.gradient_reducer import GradientReducer
from autoscaler.training.memory_peaks import MemoryPeaks
from autoscaler.training.replica import Replica
from autoscaler.training.state.checkpoint import Checkpoints
from autoscaler.training.state.training_state import TrainingState
from autoscaler.training.steps.stepper import Stepper

_REPORT_SECONDS = 1.0
_GOODPUT_WINDOW_SECONDS = 10.0


class Reporter:
    """Sender of a training report about once a second, from the deciding replica."""

    def __init__(
        self,
        channel: AgentConnection,
        replica: Replica,
        stepper: Stepper,
        reducer: GradientReducer,
        state: TrainingState,
        checkpoints: Checkpoints,
        clock: Clock,
    ) -> None:
        self._channel = channel
        self._replica = replica
        self._stepper = stepper
        self._reducer = reducer
        self._state = state
        self._checkpoints = checkpoints
        self._clock = clock
        self._reported_seconds = -_REPORT_SECONDS
        self._window: deque[tuple[float, float, tuple[int, int, int]]] = deque()
        self.metrics: dict[str, float] = {}
        self.total_examples: float | None = None
        self.engine = Engine.QUORUM
        self.memory: MemoryPeaks | None = None

    def report(self, is_due: bool = False) -> None:
        """Send a report if the last one is long enough ago or `is_due`."""
        if not self._replica.has_begun:
            return
        self._measure()
        now_seconds = self._clock.monotonic()
        if now_seconds - self._reported_seconds < _REPORT_SECONDS and not is_due:
            return
        self._reported_seconds = now_seconds
        self.report_steps()
        if self._replica.decides:
            self._channel.report(self._compose())

    def report_steps(self) -> None:
        """Send the count of steps, and of the time without steps."""
        halts = self._replica.halts
        self._channel.stepped(
            self._replica.steps,
            self._state.counters.step,
            halts.paused_seconds,
            halts.lost_seconds,
        )

    def _compose(self) -> TrainingReport:
        replica, counters = self._replica, self._state.counters
        observations, replica.observations = tuple(replica.observations), []
        pauses, replica.pauses = tuple(replica.pauses), []
        if self.memory is not None:
            self.memory.note(replica.batch.device)
        return TrainingReport(
            step=counters.step,
            epoch=counters.pass_index,
            progress_examples=counters.progress_examples,
            total_examples=self.total_examples,
            batch=replica.batch,
            bounds=replica.limits.reported,
            replicas=replica.agreement.replicas,
            devices=replica.agreement.ranks,
            learning_rate=self._stepper.learning_rate(),
            parameter_bytes=self._reducer.synchronised_bytes,
            state_bytes=self._state.carried_bytes,
            noise=replica.noise,
            goodput_measured=self._goodput(),
            observations=observations,
            pauses=pauses,
            checkpoint=self._checkpoints.status,
            metrics=dict(self.metrics),
            engine=self.engine,
            skipped_steps=counters.skipped_steps,
            memory=() if self.memory is None else self.memory.reported,
            steps=replica.steps,
            trained_seconds=replica.training_seconds,
        )

    def _measure(self) -> None:
        agreement = self._replica.agreement
        setting = (agreement.replicas, agreement.ranks, agreement.batch_total)
        now = (self._replica.training_seconds, self._state.counters.progress_examples, setting)
        if self._window and self._window[-1][2] != setting:
            self._window.clear()
        self._window.append(now)
        while now[0] - self._window[0][0] > _GOODPUT_WINDOW_SECONDS:
            self._window.popleft()

    def _goodput(self) -> float | None:
        """Return useful examples per second of training, at unchanged membership and batch.

        None until these have been unchanged for `_REPORT_SECONDS`.
        """
        (since_seconds, before, _), (now_seconds, after, _) = self._window[0], self._window[-1]
        if now_seconds - since_seconds < _REPORT_SECONDS:
            return None
        return (after - before) / (now_seconds - since_seconds)
