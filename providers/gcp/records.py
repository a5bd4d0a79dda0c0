"""What Compute Engine forgets: it lists what has ended no more, and tells of a preemption once.

In a file, so that the next controller knows it. Without the file nothing is lost but that: what
exists is found again by its labels.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from autoscaler.domain import errors
from autoscaler.domain.errors import SpecError
from autoscaler.domain.instance import CloudInstance, CloudState, Interruption

_log = logging.getLogger(__name__)

_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS kept "
    "(controller TEXT, kind TEXT, id TEXT, text TEXT, PRIMARY KEY (controller, kind, id))"
)
_INSTANCE: Final = "instance"
_NOTICE: Final = "notice"


class Records:
    """The instances and notices of one controller, in a file of SQLite. Thread-safe.

    Raises:
        SpecError: the file can't be used.
    """

    def __init__(self, path: Path, controller: str) -> None:
        self._path = path
        self._controller = controller
        self._lock = threading.Lock()
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with closing(self._connect()) as database, database:
                database.execute(_TABLE)
            self._known = {kind: self._read(kind) for kind in (_INSTANCE, _NOTICE)}
        except (OSError, sqlite3.Error) as error:
            raise SpecError(f"{path}: can't be used: {error}: move it away") from error

    def instances(self) -> list[CloudInstance]:
        """As they were when they were last written down."""
        return [_instance(json.loads(text)) for text in self._known[_INSTANCE].values()]

    def notices(self) -> list[Interruption]:
        """Every announcement of a reclaim that is not forgotten."""
        return [Interruption(**json.loads(text)) for text in self._known[_NOTICE].values()]

    def keep_instances(self, instances: Iterable[CloudInstance]) -> None:
        """These and no others, from now on. What can't be written is told in the log."""
        told = {one.id: _text(one) for one in instances}
        self._keep(_INSTANCE, told)

    def keep_notices(self, notices: Iterable[Interruption]) -> None:
        """These and no others, from now on."""
        told = {one.instance: json.dumps(asdict(one), sort_keys=True) for one in notices}
        self._keep(_NOTICE, told)

    def _keep(self, kind: str, told: Mapping[str, str]) -> None:
        """Only what has changed is written."""
        with self._lock:
            known = self._known[kind]
            changed = [(one, text) for one, text in told.items() if known.get(one) != text]
            gone = [one for one in known if one not in told]
            if not changed and not gone:
                return
            try:
                self._write(kind, changed, gone)
            except sqlite3.Error as error:
                _log.warning("%s: can't be written, and is tried again: %s", self._path, error)
                return
            self._known[kind] = dict(told)

    def _write(self, kind: str, changed: Iterable[tuple[str, str]], gone: Iterable[str]) -> None:
        with closing(self._connect()) as database, database:
            database.executemany(
                "INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?)",
                [(self._controller, kind, one, text) for one, text in changed],
            )
            database.executemany(
                "DELETE FROM kept WHERE controller = ? AND kind = ? AND id = ?",
                [(self._controller, kind, one) for one in gone],
            )

    def _read(self, kind: str) -> dict[str, str]:
        with closing(self._connect()) as database:
            rows = database.execute(
                "SELECT id, text FROM kept WHERE controller = ? AND kind = ?",
                (self._controller, kind),
            )
            return {str(one): str(text) for one, text in rows}

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=10.0)


def _text(instance: CloudInstance) -> str:
    refusal = instance.refusal
    told = asdict(replace(instance, refusal=None))
    if refusal is not None:
        told["refusal"] = [type(refusal).__name__, str(refusal)]
    return json.dumps(told, sort_keys=True)


def _instance(told: Mapping[str, Any]) -> CloudInstance:
    kind, message = told.get("refusal") or ("", "")
    refusal = getattr(errors, kind)(message) if kind else None
    return CloudInstance(**{**told, "state": CloudState(told["state"]), "refusal": refusal})
