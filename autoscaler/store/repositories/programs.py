"""Repository of program memories: measurements of a program for the next job that runs it."""

from __future__ import annotations

from abc import ABC, abstractmethod

from autoscaler.domain.program import ProgramMemory


class Programs(ABC):
    """Memories of programs in one store, by name of the program."""

    @abstractmethod
    def remember(self, memory: ProgramMemory) -> None:
        """Store the memory of a program, in place of the earlier memory."""

    @abstractmethod
    def recall(self, program: str) -> ProgramMemory | None:
        """Return the memory of a program; None if there is none."""

    @abstractmethod
    def all(self) -> tuple[ProgramMemory, ...]:
        """Return all memories, sorted by name of the program."""

    @abstractmethod
    def forget(self, program: str) -> bool:
        """Delete the memory of a program; return False if there was none."""
