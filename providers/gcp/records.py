"""Records of launches, instances and notices that Compute Engine does not keep.

Compute Engine drops ended instances from its lists and delivers a preemption notice once. A launch
is recorded before it is sent, because its instance may end before a list shows it. The records are
in a file, for the next controller. Without the file only this history is lost:
existing instances are found by their labels.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from autoscaler.domain import errors
from autoscaler.domain.errors import SpecError
from autoscaler.domain.instance import CloudInstance, CloudState, Interruption

_log = logging.getLogger(__name__)

_CREATE_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS kept "
    "(controller TEXT, kind TEXT, id TEXT, text TEXT, PRIMARY KEY (controller, kind, id))"
)
_INSTANCE: Final = "instance"
_NOTICE: Final = "notice"
_LAUNCH: Final = "launch"


class Records:
    """Launches, instances and notices of one controller, in an SQLite file. Thread-safe.

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
                database.execute(_CREATE_TABLE)
            self._recorded = {kind: self._read(kind) for kind in (_INSTANCE, _NOTICE, _LAUNCH)}
        except (OSError, sqlite3.Error) as error:
            raise SpecError(
                f"{path}: the file can't be used: {error}: move the file away"
            ) from error

    def instances(self) -> list[CloudInstance]:
        """Return the instances as last recorded."""
        return [_parse_instance(json.loads(text)) for text in self._recorded[_INSTANCE].values()]

    def notices(self) -> list[Interruption]:
        """Return the recorded reclaim notices."""
        return [Interruption(**json.loads(text)) for text in self._recorded[_NOTICE].values()]

    def launches(self) -> list[tuple[CloudInstance, float]]:
        """Return the recorded launches of unknown outcome, with the time of the last try."""
        entries = [json.loads(text) for text in self._recorded[_LAUNCH].values()]
        return [(_parse_instance(entry["instance"]), entry["sent_seconds"]) for entry in entries]

    def keep_launch(self, instance: CloudInstance, sent_seconds: float) -> None:
        """Record a launch that is about to be sent. A failed write is logged."""
        entry = {"instance": _instance_fields(instance), "sent_seconds": sent_seconds}
        self._keep_one(_LAUNCH, instance.id, json.dumps(entry, sort_keys=True))

    def drop_launch(self, instance_id: str) -> None:
        """Drop a launch whose outcome is known.

        A failed write is logged; the next controller looks the launch up once more.
        """
        with self._lock:
            if self._recorded[_LAUNCH].pop(instance_id, None) is None:
                return
            try:
                self._write(_LAUNCH, (), [instance_id])
            except sqlite3.Error as error:
                _log.warning("%s: the launch of %s stays: %s", self._path, instance_id, error)

    def keep_launched(self, instance: CloudInstance) -> None:
        """Record a launched instance in place of its launch.

        The next controller can then look its end up, also if no list has shown it. A failed write
        is logged.
        """
        self._keep_one(_INSTANCE, instance.id, _instance_text(instance))
        self.drop_launch(instance.id)

    def keep_instances(self, registered: Callable[[], Iterable[CloudInstance]]) -> None:
        """Replace the recorded instances by all that `registered` returns.

        It is called where no launch can be recorded meanwhile, so that none is dropped. A failed
        write is logged, and the next call repeats it.
        """
        with self._lock:
            texts = {instance.id: _instance_text(instance) for instance in registered()}
            self._replace(_INSTANCE, texts)

    def keep_notices(self, notices: Iterable[Interruption]) -> None:
        """Replace the recorded notices."""
        texts = {notice.instance: json.dumps(asdict(notice), sort_keys=True) for notice in notices}
        with self._lock:
            self._replace(_NOTICE, texts)

    def _keep_one(self, kind: str, entry_id: str, text: str) -> None:
        """Write one entry, beside the others."""
        with self._lock:
            try:
                self._write(kind, [(entry_id, text)], ())
            except sqlite3.Error as error:
                _log.warning(
                    "%s: the %s %s is not recorded: %s", self._path, kind, entry_id, error
                )
                return
            self._recorded[kind][entry_id] = text

    def _replace(self, kind: str, texts: Mapping[str, str]) -> None:
        """Write the changed entries, while the lock is held."""
        recorded = self._recorded[kind]
        changed = [
            (entry_id, text) for entry_id, text in texts.items() if recorded.get(entry_id) != text
        ]
        gone = [entry_id for entry_id in recorded if entry_id not in texts]
        if not changed and not gone:
            return
        try:
            self._write(kind, changed, gone)
        except sqlite3.Error as error:
            _log.warning("%s: the write failed and will be repeated: %s", self._path, error)
            return
        self._recorded[kind] = dict(texts)

    def _write(self, kind: str, changed: Iterable[tuple[str, str]], gone: Iterable[str]) -> None:
        with closing(self._connect()) as database, database:
            database.executemany(
                "INSERT OR REPLACE INTO kept VALUES (?, ?, ?, ?)",
                [(self._controller, kind, entry_id, text) for entry_id, text in changed],
            )
            database.executemany(
                "DELETE FROM kept WHERE controller = ? AND kind = ? AND id = ?",
                [(self._controller, kind, entry_id) for entry_id in gone],
            )

    def _read(self, kind: str) -> dict[str, str]:
        with closing(self._connect()) as database:
            rows = database.execute(
                "SELECT id, text FROM kept WHERE controller = ? AND kind = ?",
                (self._controller, kind),
            )
            return {str(entry_id): str(text) for entry_id, text in rows}

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, timeout=10.0)


def _instance_text(instance: CloudInstance) -> str:
    return json.dumps(_instance_fields(instance), sort_keys=True)


def _instance_fields(instance: CloudInstance) -> dict[str, Any]:
    refusal = instance.refusal
    fields = asdict(replace(instance, refusal=None))
    if refusal is not None:
        fields["refusal"] = [type(refusal).__name__, str(refusal)]
    return fields


def _parse_instance(fields: Mapping[str, Any]) -> CloudInstance:
    kind, message = fields.get("refusal") or ("", "")
    refusal = getattr(errors, kind)(message) if kind else None
    return CloudInstance(**{**fields, "state": CloudState(fields["state"]), "refusal": refusal})
