"""Memories of programs in a database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from sqlalchemy import select
from sqlalchemy.orm import Session

from autoscaler.domain.program import ProgramMemory
from autoscaler.store.repositories.programs import Programs
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.job_facts import FactCache
from autoscaler.store.sql.schema import ProgramRow

_MEMORY: Final = "program"


class SqlPrograms(Programs):
    """Repository on the table of programs."""

    def __init__(self, database: Database, facts: FactCache) -> None:
        self._database = database
        self._facts = facts

    def remember(self, memory: ProgramMemory) -> None:
        with self._database.write() as session:
            session.merge(ProgramRow(program=memory.program, memory=memory))
            self._drop(session, memory.program)

    def recall(self, program: str) -> ProgramMemory | None:
        def load(session: Session, programs: Sequence[str]) -> Mapping[str, ProgramMemory | None]:
            rows = session.scalars(select(ProgramRow).where(ProgramRow.program.in_(programs)))
            return dict.fromkeys(programs) | {row.program: row.memory for row in rows}

        return self._facts.of_program(_MEMORY, program, load)

    def all(self) -> tuple[ProgramMemory, ...]:
        with self._database.read() as session:
            rows = session.scalars(select(ProgramRow))
            return tuple(sorted((row.memory for row in rows), key=lambda memory: memory.program))

    def forget(self, program: str) -> bool:
        with self._database.write() as session:
            row = session.get(ProgramRow, program)
            if row is None:
                return False
            session.delete(row)
            self._drop(session, program)
            return True

    def _drop(self, session: Session, program: str) -> None:
        self._database.drop_after_commit(session, (_MEMORY, program))
