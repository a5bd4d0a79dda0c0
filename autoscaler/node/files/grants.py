"""Grant of access to the job's storage: kept in a file for the job's user, and renewed.

The agent and the job's processes read the file each time. The grant in the file is valid unless
the controller is absent for more than half of a grant's lifetime.
"""

from __future__ import annotations

import json
import logging
import os
import threading
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path

from autoscaler.back_off import BackOff
from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError, Unavailable
from autoscaler.domain.storage import StorageGrant
from autoscaler.objects import Meter, granted
from autoscaler.wire.node_client import NodeClient

_log = logging.getLogger(__name__)

_TRAVERSABLE_MODE = 0o711
_MIN_RENEWAL_SECONDS = 1.0  # for a clock far ahead of the cloud's


class Grants:
    """Grant of one instance, in the file `path`. Threads may share this object.

    `meter` counts the agent's own transfers with the grant.
    """

    def __init__(self, path: Path, client: NodeClient, clock: Clock) -> None:
        self._path = path
        self._client = client
        self._clock = clock
        self._changed = threading.Condition()
        self._back_off = BackOff()
        self._job: str | None = None
        self._user: int | None = None
        self._due_seconds: float | None = None
        self.meter = Meter()

    @property
    def path(self) -> Path | None:
        """File of the grant; None if the job's files are not in storage."""
        return self._path if self._path.exists() else None

    def take(self, job: str, grant: StorageGrant | None) -> None:
        """Store `grant` as the grant of `job`; None removes the grant.

        Raises:
            OSError: the file can't be written.
        """
        with self._changed:
            self._job = job
            if grant is None:
                self._path.unlink(missing_ok=True)
                self._due_seconds = None
            else:
                self._write(grant)
            self._changed.notify_all()

    def resume(self, job: str, user: int | None) -> None:
        """Continue with the grant that an earlier agent left, for this job and user."""
        with self._changed:
            self._job, self._user = job, user
            if self._path.exists():
                with suppress(Unavailable):
                    grant = granted(self._path)()
                    self._due_seconds = self._half_time_seconds(grant)
            self._changed.notify_all()

    def let_in(self, user: int | None) -> None:
        """Let `user` read the grant; None is the agent's user.

        Raises:
            OSError: the owner of the file can't be changed.
        """
        with self._changed:
            self._user = user
            if user is not None and self._path.exists():
                os.chown(self._path, user, user, follow_symlinks=False)

    def start(self) -> None:
        """Start the thread that renews the grant. Call only once."""
        threading.Thread(target=self._run, name="castor-grants", daemon=True).start()

    def renew_if_due(self) -> None:
        """Renew the grant if half of its lifetime is over; retry a failure with back-off."""
        job, due_seconds = self._job, self._due_seconds
        if job is None or due_seconds is None or self._clock.now() < due_seconds:
            return
        try:
            grant = self._client.grant(job)
            with self._changed:
                if job == self._job:  # the job has not changed meanwhile
                    self._write(grant)
            self._back_off.reset()
        except (CastorError, OSError) as error:
            wait_seconds = self._back_off.next_seconds()
            _log.warning("the grant is not renewed, next try in %g s: %s", wait_seconds, error)
            with self._changed:
                if job == self._job:
                    self._due_seconds = self._clock.now() + wait_seconds

    def _run(self) -> None:
        while True:
            with self._changed:
                due_seconds = self._due_seconds
                self._changed.wait(
                    None if due_seconds is None else max(due_seconds - self._clock.now(), 0.0)
                )
            self.renew_if_due()

    def _write(self, grant: StorageGrant) -> None:
        """Write the grant. The agent owns the directory, so that no job can swap the file."""
        self._path.parent.mkdir(exist_ok=True)
        self._path.parent.chmod(_TRAVERSABLE_MODE)
        unfinished = self._path.with_name(f"{self._path.name}.unfinished")
        unfinished.unlink(missing_ok=True)
        descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o400)
        with os.fdopen(descriptor, "wb") as file:
            if self._user is not None:
                os.fchown(descriptor, self._user, self._user)
            file.write(json.dumps(asdict(grant)).encode())
            file.flush()
            os.fsync(descriptor)
        unfinished.replace(self._path)
        self._due_seconds = self._half_time_seconds(grant)

    def _half_time_seconds(self, grant: StorageGrant) -> float | None:
        if grant.expires_seconds is None:
            return None
        now_seconds = self._clock.now()
        return now_seconds + max((grant.expires_seconds - now_seconds) / 2, _MIN_RENEWAL_SECONDS)
