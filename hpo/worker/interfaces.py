"""Interfaces through which a trial reaches its driver and its instance."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from autoscaler.domain.trial import TrialFile
from autoscaler.objects import Objects


class DriverChannel(Protocol):
    """Channel of a trial's worker to its driver."""

    def tell(self, text: str) -> None:
        """Send a request without an answer."""

    def ask(self, text: str, file: TrialFile | None = None) -> str:
        """Send a request, and a file with it; return the answer."""


class WorkerContext(Protocol):
    """State and storage of the instance that a worker runs on."""

    @property
    def must_drain(self) -> bool:
        """Whether the worker is to end at the next step boundary."""

    def checkpoint_directory(self) -> Path:
        """Return the directory of the trial's checkpoints.

        It is shared by all instances, unless there is a remote store.
        """

    def remote_checkpoints(self) -> Objects | None:
        """Return the remote store of the trial's checkpoints; None if the directory is shared."""

    def report_steps(self, steps: int) -> None:
        """Report the number of completed steps; from then on the worker drains by itself."""

    def report_left(self) -> None:
        """Report that the worker ends because it was asked to drain."""

    def ask_unless_draining(self, text: str) -> str | None:
        """Ask the driver; return None if the worker has to drain before there is an answer."""
