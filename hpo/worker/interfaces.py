"""Interfaces through which a trial reaches its driver and its instance."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from autoscaler.domain.trial import TrialFile
from autoscaler.objects import Objects


class Asks(Protocol):
    """What a trial speaks through; `hpo.worker.connection.TrialLine` is one."""

    def tell(self, text: str) -> None:
        """Say something."""

    def ask(self, text: str, file: TrialFile | None = None) -> str:
        """Ask something, and send a file with it; returns its answer."""


class Place(Protocol):
    """What a worker's line tells of where it runs; `hpo.worker.connection.TrialLine` is one."""

    @property
    def must_leave(self) -> bool:
        """Whether the worker is to end at the next boundary."""

    def checkpoint_directory(self) -> Path:
        """Where the trial's states are kept; every instance of it sees the same, but for a
        `depot`."""

    def depot(self) -> Objects | None:
        """Where states count, if not in that directory: then that is this instance's alone."""

    def stepped(self, steps: int) -> None:
        """Tell that so many steps are done: it runs, and leaves at a boundary when asked to."""

    def left(self) -> None:
        """Tell that the worker ends because it was asked to."""

    def ask_unless_leaving(self, text: str) -> str | None:
        """Ask the driver something; None if the worker is to leave before it has answered."""
