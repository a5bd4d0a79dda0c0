"""Phases without steps that an integration declares: evaluations, predictions and saves."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from autoscaler.domain.activity import phase_name
from autoscaler.training import TrainingSession

EVALUATION: Final = "evaluation"
PREDICTION: Final = "prediction"
SAVING: Final = "saving"
LONGEST_PHASE_SECONDS: Final = 3600.0
"""Default of the longest time that one evaluation, prediction or save may take."""


class DeclaredPhases:
    """Phases of one rank that have begun; one may contain others.

    Args:
        seconds: the longest time of a phase; after it the job may count as stalled.

    Raises:
        ValueError: the time is not above 0.
    """

    def __init__(self, seconds: float = LONGEST_PHASE_SECONDS) -> None:
        _, self._seconds = phase_name(EVALUATION, seconds)
        self._begun: list[ExitStack] = []

    def begin(self, job: TrainingSession | None, name: str) -> None:
        """Begin a phase; without a session none is declared."""
        declared = ExitStack()
        if job is not None:
            declared.enter_context(job.phase(name, self._seconds))
        self._begun.append(declared)

    def end(self) -> None:
        """End the phase that began last; without one do nothing."""
        if self._begun:
            self._begun.pop().close()

    def end_all(self) -> None:
        """End all phases, such as those that an error or a `break` has left."""
        while self._begun:
            self.end()

    @contextmanager
    def phase(self, job: TrainingSession | None, name: str) -> Iterator[None]:
        """Declare a phase for the time of the context."""
        self.begin(job, name)
        try:
            yield
        finally:
            self.end()
