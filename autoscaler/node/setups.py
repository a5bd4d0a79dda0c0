"""What a job's `setup:` made, kept for all who need the same: once for each content.

An entry is a directory `<key>/` with the job's files as set-up left them (`tree/`), a virtual
environment (`venv/`) and, once all of it is there, the file `complete`. A virtual environment
can't be moved, so an entry is made in its place, under a lock, and counts when it is complete.
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

_LOOK_SECONDS = 0.25


class Stopped(Exception):
    """What was under way was told to stop."""


class SetupEntry:
    """The place of one content below `directory`."""

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
    """A shell script that tells and runs each command from the same directory, until one fails."""
    told = (f"echo {shlex.quote(f'castor: setup: {command}')}" for command in commands)
    return "\n".join(
        f"{line}\n(\n{command}\n) || exit" for line, command in zip(told, commands, strict=True)
    )


def venv_script(entry: SetupEntry, packages: Sequence[Path]) -> str:
    """A shell script that makes the entry's virtual environment, which sees `packages` too.

    They come after its own, so that set-up can install another version of anything. A pip that is
    among them serves here too, which takes some seconds less than a new one.
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
