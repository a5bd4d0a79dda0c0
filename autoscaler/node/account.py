"""The user of the operating system that a job runs as, so that it can't reach other jobs."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

FIRST_USER: Final = 20_000
_LAST_USER: Final = 1_000_000
_CHECK_SECONDS = 30.0
_CHECK: Final = (
    "import os, sys\n"
    "missing = [path for path in sys.argv[1:] if not os.access(path, os.R_OK | os.X_OK)]\n"
    "sys.exit(f'{missing[0]} is closed to it' if missing else 0)"
)


def own_user(number: int) -> int | None:
    """Return the user of jobs with this number; None where the agent may not change users.

    The user needs no entry among the machine's users.
    """
    return FIRST_USER + number if os.geteuid() == 0 else None


def obstacle(user: int, python: str, directories: Sequence[Path]) -> str | None:
    """What keeps `user` from running `python` and reading `directories`; None if nothing does."""
    command = [python, "-I", "-S", "-c", _CHECK, *(str(path) for path in directories)]
    try:
        subprocess.run(
            command,
            user=user,
            group=user,
            extra_groups=[],
            capture_output=True,
            text=True,
            cwd="/",
            env={},
            timeout=_CHECK_SECONDS,
            check=True,
        )
    except OSError as error:
        return f"{python}: {error.strerror}"
    except subprocess.CalledProcessError as error:
        return str(error.stderr).strip().rpartition("\n")[2]
    except subprocess.TimeoutExpired:
        return f"{python} does not start"
    return None


def give(path: Path, user: int, only_from_jobs: bool = False) -> None:
    """Let `path`, and all below it, belong to `user`. Links are not followed.

    `only_from_jobs` leaves alone what no job's user owns: a job may have made hard links to it.
    """
    os.chown(path, user, user, follow_symlinks=False)
    for _, directories, files, descriptor in os.fwalk(path, follow_symlinks=False):
        for name in (*directories, *files):
            owner = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_uid
            if not only_from_jobs or _is_of_a_job(owner):
                os.chown(name, user, user, dir_fd=descriptor, follow_symlinks=False)


def make_writable(path: Path, user: int | None) -> None:
    """Make the directory `path`, for `user`; one that was an earlier job's is handed on.

    Raises:
        PermissionError: it is somebody else's.
    """
    is_new = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    if user is None:
        return
    found = path.stat()
    if is_new or (_is_of_a_job(found.st_uid) and found.st_uid != user):
        give(path, user, only_from_jobs=True)
    elif found.st_uid != user and not found.st_mode & stat.S_IWOTH:
        raise PermissionError(
            f"{path} belongs to user {found.st_uid} and the job runs as {user}: let it write there"
        )


def _is_of_a_job(user: int) -> bool:
    return FIRST_USER < user < _LAST_USER
