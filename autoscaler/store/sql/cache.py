"""Values of the store that its only writer keeps in memory.

A leader is the only process that writes its store (`fence`), so that it need not read again what
it has read or written. Each value is loaded once, dropped when a transaction that changes it has
been committed, and loaded again at its next use. Processes that do not lead keep nothing.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any, Final, Generic, Protocol, TypeVar

from sqlalchemy.orm import Session

from autoscaler.domain.errors import StoreError

_log = logging.getLogger(__name__)

Value = TypeVar("Value")
_CHANGES: Final = "castor_changes"
_MOST_AT_ONCE: Final = 1_000


class StoreCache:
    """Loaded values by key, for all repositories of one store. Threads may share it.

    Values belong to one epoch of the lease: those of an earlier one are dropped, since another
    process has led in between.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._epoch: int | None = None
        self._values: dict[Hashable, Any] = {}
        # Loads under way by key. A key that is dropped meanwhile keeps none of their values.
        self._loads: dict[Hashable, set[object]] = {}
        self._alone: set[str] = set()  # kinds of which a load of several values has failed

    def get(self, epoch: int | None, key: Hashable, load: Callable[[], Value]) -> Value:
        """Return the value of a key; `load` reads it from the database.

        Args:
            epoch: epoch in which this process leads; None if it does not.
            key: name of the value.
            load: is called without a lock, perhaps by several threads at the same time.
        """
        return self.get_of_kind(epoch, "", key, tuple, lambda _: {key: load()})

    def get_of_kind(
        self,
        epoch: int | None,
        kind: str,
        name: Hashable,
        others: Callable[[], Iterable[Hashable]],
        load: Callable[[Sequence[Any]], Mapping[Any, Value]],
    ) -> Value:
        """Return the value of one kind of a name; read it with those of other names if it is new.

        Args:
            epoch: epoch in which this process leads; None if it does not.
            kind: what the value is; `drop` has the key (kind, name), or the name if it is empty.
            name: whose value it is.
            others: names whose values are probably needed soon.
            load: reads the values of some names, and returns one for each of them. It is called
                without a lock, perhaps by several threads at the same time. Once it has failed
                for several names, each value of the kind is read on its own, so that what can't be
                read of one name does not affect the others.
        """
        if epoch is None:
            return load((name,))[name]
        key = (kind, name) if kind else name
        with self._lock:
            if self._epoch != epoch:
                self._epoch = epoch
                self._drop_all()
            if key in self._values:
                value: Value = self._values[key]
                return value
        missing = [] if kind in self._alone else self._missing(kind, name, others())
        if missing:
            try:
                return self._load(kind, (name, *missing), load)[name]
            except StoreError:
                raise
            except Exception:  # a value of another name may be the cause
                _log.exception("values can't be read together: %s", kind)
                self._alone.add(kind)
        return self._load(kind, (name,), load)[name]

    def _missing(self, kind: str, name: Hashable, others: Iterable[Hashable]) -> list[Hashable]:
        """Return some of the other names whose values are not here."""
        values = self._values
        missing = (other for other in others if other != name and (kind, other) not in values)
        return list(islice(missing, _MOST_AT_ONCE - 1))

    def _load(
        self,
        kind: str,
        names: Sequence[Hashable],
        load: Callable[[Sequence[Any]], Mapping[Any, Value]],
    ) -> Mapping[Any, Value]:
        """Load values, and keep those that no writer has dropped meanwhile."""
        mark = object()
        keys = {name: (kind, name) if kind else name for name in names}
        with self._lock:
            for key in keys.values():
                self._loads.setdefault(key, set()).add(mark)
        values: Mapping[Any, Value] = {}
        try:
            values = load(names)
        finally:
            with self._lock:
                for name, key in keys.items():
                    if self._ended(key, mark) and name in values:
                        self._values[key] = values[name]
        return values

    def drop(self, *keys: Hashable) -> None:
        """Drop the values of some keys after they have changed."""
        with self._lock:
            for key in keys:
                self._values.pop(key, None)
                self._loads.pop(key, None)

    def clear(self) -> None:
        """Drop all values."""
        with self._lock:
            self._drop_all()

    def _drop_all(self) -> None:
        self._values.clear()
        self._loads.clear()
        self._alone.clear()

    def _ended(self, key: Hashable, mark: object) -> bool:
        """End a load; return whether its value is still that of the key. The lock is held."""
        marks = self._loads.get(key, set())
        is_current = mark in marks
        marks.discard(mark)
        if not marks:
            self._loads.pop(key, None)
        return is_current


class Identified(Protocol):
    """Record with an id."""

    @property
    def id(self) -> str:
        """Name of the record, unique in its table."""
        ...


Record = TypeVar("Record", bound=Identified)


class LiveRecords(Generic[Record]):
    """Records of a table that have not ended, kept up to date by their writers.

    Records are replaced and never changed, so that readers need no lock. A reader that began
    before `clear` still finds all records of then.
    """

    def __init__(
        self,
        is_live: Callable[[Record], bool],
        order: Callable[[Record], Any],
        group: Callable[[Record], str],
    ) -> None:
        """Prepare an empty table of records, in groups by the name that `group` returns."""
        self._is_live = is_live
        self._order = order
        self._group = group
        self._changing = threading.Lock()
        self._epoch: int | None = None
        self._by_id: dict[str, Record] = {}
        self._groups: dict[str, dict[str, Record]] = {}
        self._version = 0
        self._sorted: tuple[int, tuple[Record, ...]] = (-1, ())

    def is_loaded(self, epoch: int | None) -> bool:
        """Return whether the records of an epoch are here."""
        return epoch is not None and epoch == self._epoch

    def load(self, epoch: int, records: Iterable[Record]) -> None:
        """Keep the live records of an epoch; nobody may write them meanwhile."""
        by_id: dict[str, Record] = {}
        groups: dict[str, dict[str, Record]] = {}
        for record in records:
            by_id[record.id] = record
            groups.setdefault(self._group(record), {})[record.id] = record
        with self._changing:
            self._by_id, self._groups = by_id, groups
            self._version += 1
            self._epoch = epoch

    def put(self, record: Record) -> None:
        """Replace a record, or remove it if it has ended."""
        with self._changing:
            if self._epoch is None:
                return
            before = self._by_id.get(record.id)
            is_live = self._is_live(record)
            if before is not None and not (is_live and self._group(before) == self._group(record)):
                self._leave_group(before)
            if is_live:
                self._insert(record)
            else:
                self._by_id.pop(record.id, None)
            self._version += 1

    def replace_if(
        self, record_id: str, replacement: Callable[[Record], Record | None]
    ) -> Record | None:
        """Replace a live record by what `replacement` returns, and return that.

        It must have the same group. None, without a change: there is no such record in memory, or
        `replacement` has returned None.
        """
        with self._changing:
            before = None if self._epoch is None else self._by_id.get(record_id)
            after = None if before is None else replacement(before)
            if after is not None:
                self._insert(after)
                self._version += 1
            return after

    def clear(self) -> None:
        """Note that the records may be wrong; they must be loaded again."""
        self._epoch = None

    def get(self, record_id: str) -> Record | None:
        """Return a record; None if it has ended or does not exist."""
        return self._by_id.get(record_id)

    def of_group(self, name: str) -> tuple[Record, ...]:
        """Return the records of a group, sorted."""
        records = list(self._groups.get(name, {}).values())
        return tuple(sorted(records, key=self._order))

    def all(self) -> tuple[Record, ...]:
        """Return all records, sorted."""
        version, records = self._sorted
        if version != self._version:
            version = self._version
            records = tuple(sorted(list(self._by_id.values()), key=self._order))
            self._sorted = version, records
        return records

    def _leave_group(self, record: Record) -> None:
        name = self._group(record)
        self._groups[name].pop(record.id)
        if not self._groups[name]:
            del self._groups[name]

    def _insert(self, record: Record) -> None:
        self._by_id[record.id] = record
        self._groups.setdefault(self._group(record), {})[record.id] = record


def after_commit(session: Session, act: Callable[[], None]) -> None:
    """Call `act` once the session's transaction has been committed, before the next writer."""
    session.info.setdefault(_CHANGES, []).append(act)


def committed(session: Session) -> None:
    """Call what waits for the commit of a session's transaction."""
    for act in session.info.pop(_CHANGES, ()):
        act()


@contextmanager
def undone_on_error(session: Session) -> Iterator[None]:
    """Drop what the context adds to `after_commit` if it ends with an error."""
    waiting = session.info.setdefault(_CHANGES, [])
    count = len(waiting)
    try:
        yield
    except BaseException:
        del waiting[count:]
        raise
