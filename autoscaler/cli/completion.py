"""Completion of jobs' names in a shell: from the controller, within a second, or from a cache."""

from __future__ import annotations

import json
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

_FRESH_SECONDS: Final = 10.0
_LONGEST_SECONDS: Final = 1.0


def job_names(incomplete: str) -> list[str]:
    """Return the ids of jobs that begin with a text; those of the cache if nothing answers.

    It never raises: a shell would print the error into the line that the user types.
    """
    try:
        names = _recent_names()
    except Exception:
        names = []
    return [name for name in names if name.startswith(incomplete)]


def _recent_names() -> list[str]:
    from autoscaler.clock import SystemClock
    from autoscaler.wire.connection import address_and_token

    address, now_seconds = address_and_token(), SystemClock().now()
    saved = _saved(address.url)
    if 0.0 <= now_seconds - float(saved.get("at", 0.0)) < _FRESH_SECONDS:
        return list(saved["names"])
    answers: list[list[str]] = []

    def ask() -> None:
        with suppress(Exception):
            answers.append([job.id for job in address.client().jobs()])

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(_LONGEST_SECONDS)
    if not answers:
        return list(saved.get("names", []))
    _save({"url": address.url, "at": now_seconds, "names": answers[0]})
    return answers[0]


def cache_file() -> Path:
    """Return the file of the names that were completed last."""
    directory = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(directory) / "castor" / "jobs.json"


def _saved(url: str) -> dict[str, Any]:
    """Return what was saved of this controller; empty if nothing was."""
    with suppress(OSError, ValueError):
        saved = json.loads(cache_file().read_text())
        if isinstance(saved, dict) and saved.get("url") == url:
            return saved
    return {}


def _save(document: dict[str, Any]) -> None:
    """Save names for this user alone. A directory that can't be written leaves them out."""
    path = cache_file()
    with suppress(OSError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = path.with_name(f".{path.name}.{os.getpid()}")
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            json.dump(document, file)
        partial.replace(path)
