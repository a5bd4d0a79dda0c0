"""What a job's `setup:` made, kept for all who need the same: once for each content.

An entry is a directory `<key>/` with the job's files as set-up left them (`tree/`), a virtual
environment (`venv/`) and, once all of it is there, the file `complete`. A virtual environment
can't be moved, so an entry is made in its place, under a lock, and counts when it is complete.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import platform
import shlex
import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Event

from autoscaler.domain.job import JobSpec

_LOOK_SECONDS = 0.25


class Stopped(Exception):
    """What was under way was told to stop."""


class SetupEntry:
    """One content's place in the cache."""

    def __init__(self, directory: Path, key: str) -> None:
        self.path = directory / key
        self.tree = self.path / "tree"
        self.venv = self.path / "venv"
        self.python = self.venv / "bin" / "python"
        self._lock = directory / f"{key}.lock"
        self._complete = self.path / "complete"

    @property
    def is_complete(self) -> bool:
        """All of it is there."""
        return self._complete.exists()

    def complete(self) -> None:
        """All of it is there now."""
        self._complete.touch()

    def discard(self) -> None:
        """Remove what there is of it."""
        if self.path.exists():
            shutil.rmtree(self.path)

    @contextmanager
    def locked(self, stopped: Event) -> Iterator[int]:
        """Nobody else makes the entry meanwhile; yields the descriptor that holds the lock.

        Raises:
            Stopped: it was told to stop while another had the lock.
        """
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        with self._lock.open("a") as file:
            while not _try_lock(file.fileno()):
                if stopped.wait(_LOOK_SECONDS):
                    raise Stopped
            yield file.fileno()


def setup_key(spec: JobSpec) -> str:
    """Equal for jobs whose set-up makes the same: the SHA-256 of all that goes into it."""
    content = {
        "bundle": spec.bundle,
        "setup": spec.setup,
        "image": spec.image,
        "environment": sorted(spec.environment.items()),
        "secrets": sorted(spec.secrets),
        "python": [sys.executable, platform.python_version(), platform.machine()],
    }
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()


def commands_script(commands: Sequence[str]) -> str:
    """A shell script of the commands: each is told and run in the same directory, until one fails."""
    told = (f"echo {shlex.quote(f'castor: setup: {command}')}" for command in commands)
    return "\n".join(
        f"{line}\n(\n{command}\n) || exit" for line, command in zip(told, commands, strict=True)
    )


def venv_script(entry: SetupEntry, packages: Sequence[Path]) -> str:
    """A shell script that makes the entry's virtual environment, which sees `packages` too.

    They come after its own, so that set-up can install another version of anything.
    """
    lines = "".join(f"import site; site.addsitedir({str(path)!r})\n" for path in packages)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    link = entry.venv / "lib" / version / "site-packages" / "castor-agent.pth"
    return "\n".join(
        (
            f"{shlex.join([sys.executable, '-P', '-m', 'venv', str(entry.venv)])} || exit",
            f"printf %s {shlex.quote(lines)} > {shlex.quote(str(link))} || exit",
        )
    )


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
