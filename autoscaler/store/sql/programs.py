"""Memories of programs in a database."""

from __future__ import annotations

from sqlalchemy import select
from sqlalchemy.orm import Session

from autoscaler.domain.program import ProgramMemory
from autoscaler.store.repositories.programs import Programs
from autoscaler.store.sql.database import Database
from autoscaler.store.sql.schema import ProgramRow


class SqlPrograms(Programs):
    """Repository on the table of programs."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def remember(self, memory: ProgramMemory) -> None:
        with self._database.write() as session:
            session.merge(ProgramRow(program=memory.program, memory=memory))
            self._drop(session, memory.program)

    def recall(self, program: str) -> ProgramMemory | None:
        def load(session: Session) -> ProgramMemory | None:
            row = session.get(ProgramRow, program)
            return None if row is None else row.memory

        return self._database.cached(("program", program), load)

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
        self._database.drop_after_commit(session, ("program", program))
