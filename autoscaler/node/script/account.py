"""Operating-system users of jobs, which isolate jobs from each other."""

from __future__ import annotations

import os
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

FIRST_USER: Final = 20_000
_LAST_USER: Final = 1_000_000
_CHECK_TIMEOUT_SECONDS = 30.0
_CHECK_SCRIPT: Final = (
    "import os, sys\n"
    "missing = [path for path in sys.argv[1:] if not os.access(path, os.R_OK | os.X_OK)]\n"
    "sys.exit(f'{missing[0]} is not readable' if missing else 0)"
)


def own_user(number: int) -> int | None:
    """Return the user id for jobs with this number; None if the agent may not change users.

    The id needs no entry in the user database of the machine.
    """
    return FIRST_USER + number if os.geteuid() == 0 else None


def obstacle(user: int, python: str, directories: Sequence[Path]) -> str | None:
    """Return why `user` can't run `python` or read `directories`; None if `user` can."""
    command = [python, "-I", "-S", "-c", _CHECK_SCRIPT, *(str(path) for path in directories)]
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
            timeout=_CHECK_TIMEOUT_SECONDS,
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
    """Make `user` the owner of `path` and of everything below it. Links are not followed.

    With `only_from_jobs`, files below `path` that no job's user owns keep their owner, because a
    job may have made hard links to them.
    """
    os.chown(path, user, user, follow_symlinks=False)
    for _, directories, files, descriptor in os.fwalk(path, follow_symlinks=False):
        for name in (*directories, *files):
            owner = os.stat(name, dir_fd=descriptor, follow_symlinks=False).st_uid
            if not only_from_jobs or _is_job_user(owner):
                os.chown(name, user, user, dir_fd=descriptor, follow_symlinks=False)


def make_writable(path: Path, user: int | None) -> None:
    """Create the directory `path` for `user`, or take it over from the user of another job.

    Raises:
        PermissionError: the directory belongs to another user, and `user` can't write to it.
    """
    is_new = not path.exists()
    path.mkdir(parents=True, exist_ok=True)
    if user is None:
        return
    status = path.stat()
    if is_new or (_is_job_user(status.st_uid) and status.st_uid != user):
        give(path, user, only_from_jobs=True)
    elif status.st_uid != user and not status.st_mode & stat.S_IWOTH:
        raise PermissionError(
            f"{path} belongs to user {status.st_uid} and the job runs as {user}: let {user} write "
            "there"
        )


def _is_job_user(user: int) -> bool:
    return FIRST_USER < user < _LAST_USER
