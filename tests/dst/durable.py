"""Stores: of one controller process, whose writes are counted, fail, or are its last; on disk."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Final

from autoscaler.domain.errors import StoreError
from autoscaler.store.opening import open_store
from autoscaler.store.store import Store
from tests.dst.line import Life, Weather
from tests.dst.scheduler import Scheduler

WRITE_PAUSES: Final = 0.05  # probability of a pause before a write
_REPOSITORIES: Final = (
    *("jobs", "reports", "instances", "intents", "capacity", "measurements", "programs"),
    *("journal", "events", "ledger", "tokens", "settings", "people", "owners", "audit"),
    *("trials", "leases", "studies", "answers"),
)
# Methods that change the store; each is one transaction.
_WRITES: Final = frozenset(
    {
        *("order_up_to", "order", "hand_over", "release", "request_termination", "begin_launch"),
        *("observe_cloud", "reprice", "bill_again", "launch_failed", "give_up_launch"),
        *("record_node", "note", "use_devices", "take_back", "done", "failed"),
        *("add", "set_phase", "request_stop", "change_spec", "set_lighthouse", "start_attempt"),
        *("add_failure", "refused", "amend", "accepted", "prune", "add_observations"),
        *("add_duration", "save_models", "save_all_models", "remember", "forget", "issue"),
        *("burn", "set_person", "freeze", "unfreeze", "put", "add_token", "revoke", "put_node"),
        *("claim", "share"),
        *("begin", "tell", "answer", "take", "leave", "state", "set_budget", "stop_study"),
        *("forget_stop", "keep"),
    }
)


class _Repository:
    """One repository, each of whose writes passes marks."""

    def __init__(self, inner: Any, write: Callable[[Callable[[], Any]], Any]) -> None:
        self._inner = inner
        self._write = write

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in _WRITES:
            return method

        def counted(*arguments: Any, **options: Any) -> Any:
            return self._write(lambda: method(*arguments, **options))

        self.__dict__[name] = counted
        return counted


def durable_store(store: Store, life: Life, weather: Weather, scheduler: Scheduler) -> Store:
    """Return the store as one controller process sees it."""

    def write(method: Callable[[], Any]) -> Any:
        life.mark()
        scheduler.pause(WRITE_PAUSES)
        life.mark()
        if scheduler.now_seconds < weather.disk_full_until_seconds:
            raise StoreError("store: the disk is full; free some space on its disk")
        if weather.failing_writes > 0:
            weather.failing_writes -= 1
            raise StoreError("store: disk I/O error")
        result = method()
        life.mark()
        return result

    # Writes of a group are transactions of their own, so that a controller dies between any two.
    names = {field.name for field in fields(Store)} & set(_REPOSITORIES)
    repositories = {name: _Repository(getattr(store, name), write) for name in sorted(names)}
    return replace(
        store,
        **repositories,  # type: ignore[arg-type]
        grouped=nullcontext,
        close=lambda: None,
    )


def fast_directory() -> str | None:
    """Return a directory in memory; None if this machine has none."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


_TEMPLATES: list[Path] = []


def empty_database() -> Path:
    """Return an empty database, made once by this process, because migrations are slow."""
    if not _TEMPLATES:
        directory = Path(tempfile.mkdtemp(prefix="castor-dst-", dir=fast_directory()))
        open_store(f"sqlite:///{directory / 'castor.db'}").close()
        _TEMPLATES.append(directory / "castor.db")
    return _TEMPLATES[0]
