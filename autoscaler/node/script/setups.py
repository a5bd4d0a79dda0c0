"""Cache of the results of jobs' `setup:`, one entry for each set of inputs.

An entry is a directory `<key>/` with the job's files after set-up (`tree/`), a virtual environment
(`venv/`) and, once both are complete, the file `complete`. A virtual environment can't be moved.
Therefore an entry is made in its final place, under a lock, and is valid once it is complete.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
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

_POLL_SECONDS = 0.25


class Stopped(Exception):
    """Error of work that was stopped on request."""


class SetupEntry:
    """Cache entry of a job's set-up, below `directory`."""

    def __init__(self, directory: Path, spec: JobSpec) -> None:
        key = setup_key(spec)
        self.image = f"castor-setup:{key[:32]}"
        self.path = directory / key
        self.tree = self.path / "tree"
        self.venv = self.path / "venv"
        self.python = self.venv / "bin" / "python"
        self._lock = directory / f"{key}.lock"
        self._complete = self.path / "complete"

    @property
    def is_complete(self) -> bool:
        """Whether the entry is complete."""
        return self._complete.exists()

    def complete(self) -> None:
        """Mark the entry as complete."""
        self._complete.touch()

    def discard(self) -> None:
        """Delete the entry, complete or not."""
        if self.path.exists():
            shutil.rmtree(self.path)

    @contextmanager
    def locked(self, stopped: Event) -> Iterator[int]:
        """Hold the lock of the entry, and yield the file descriptor that holds it.

        Raises:
            Stopped: `stopped` was set while another process held the lock.
        """
        self._lock.parent.mkdir(parents=True, exist_ok=True)
        with self._lock.open("a") as file:
            while not _try_lock(file.fileno()):
                if stopped.wait(_POLL_SECONDS):
                    raise Stopped
            yield file.fileno()


def setup_key(spec: JobSpec) -> str:
    """Return the cache key of a job's set-up: the SHA-256 of all its inputs."""
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
    """Return a shell script that prints and runs each command, until a command fails.

    Each command starts in the same directory.
    """
    headings = (f"echo {shlex.quote(f'castor: setup: {command}')}" for command in commands)
    return "\n".join(
        f"{heading}\n(\n{command}\n) || exit"
        for heading, command in zip(headings, commands, strict=True)
    )


def venv_script(entry: SetupEntry, packages: Sequence[Path]) -> str:
    """Return a shell script that makes the entry's virtual environment, which sees `packages` too.

    The environment's own packages precede `packages`, so that set-up can install other versions.
    The agent's pip is reused, if there is one, which saves some seconds.
    """
    lines = "".join(f"import site; site.addsitedir({str(path)!r})\n" for path in packages)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    link = entry.venv / "lib" / version / "site-packages" / "castor-agent.pth"
    make = [sys.executable, "-P", "-m", "venv", str(entry.venv)]
    script = [f"printf %s {shlex.quote(lines)} > {shlex.quote(str(link))} || exit"]
    if importlib.util.find_spec("pip") is not None:
        make.append("--without-pip")
        pip = shlex.quote(str(entry.python.with_name("pip")))
        text = shlex.quote(f'#!/bin/sh\nexec {shlex.quote(str(entry.python))} -m pip "$@"\n')
        script.append(f"printf %s {text} > {pip} && chmod +x {pip} || exit")
    return "\n".join((f"{shlex.join(make)} || exit", *script))


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
