"""What was learnt of each program, for the next job that runs it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from autoscaler.domain.program import ProgramMemory


class Programs(ABC):
    """The memories of one store, by the name of the program."""

    @abstractmethod
    def remember(self, memory: ProgramMemory) -> None:
        """Keep a memory in the place of the one before."""

    @abstractmethod
    def recall(self, program: str) -> ProgramMemory | None:
        """What is remembered of a program; None for nothing."""

    @abstractmethod
    def all(self) -> tuple[ProgramMemory, ...]:
        """All that is remembered, by name."""

    @abstractmethod
    def forget(self, program: str) -> bool:
        """Drop what is remembered of a program; False if that was nothing."""
