"""Memories of programs, in memory."""

from __future__ import annotations

from autoscaler.domain.program import ProgramMemory
from autoscaler.store.memory.tables import Tables
from autoscaler.store.repositories.programs import Programs


class MemoryPrograms(Programs):
    """Memories of programs, by name of the program."""

    def __init__(self, tables: Tables) -> None:
        self._lock = tables.lock
        self._memories: dict[str, ProgramMemory] = {}

    def remember(self, memory: ProgramMemory) -> None:
        with self._lock:
            self._memories[memory.program] = memory

    def recall(self, program: str) -> ProgramMemory | None:
        return self._memories.get(program)

    def all(self) -> tuple[ProgramMemory, ...]:
        with self._lock:
            return tuple(self._memories[program] for program in sorted(self._memories))

    def forget(self, program: str) -> bool:
        with self._lock:
            return self._memories.pop(program, None) is not None
