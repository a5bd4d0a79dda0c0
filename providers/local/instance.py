"""State of one local instance, stored as files in its directory.

Each file is written once and never changes. A crash between any two lines therefore leaves a
readable state:

    instance.json    the request: by the provider, before anything runs
    user-data        the request's user data: by the provider
    lock             locked by the machine while it runs
    alive            touched repeatedly by the machine
    running          the boot is over: by the machine
    terminate        the instance is to end: by the provider, or the machine on SIGTERM
    reclaim          the instance is to be reclaimed: by the provider
    reclaim-notice   time of the reclaim, in seconds since the epoch: by the machine
    end.json         time and cause of the end: by the machine, or by the provider for a lost one
    console.log      output of machine and agent
    disk/            the instance's own directory

The module imports only the standard library and `providers.metadata`, as the machine imports it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from functools import cached_property
from pathlib import Path

from providers.metadata import InstanceMetadata

TERMINATED = "terminated"
RECLAIMED = "reclaimed"
LOST = "lost"


@dataclass(frozen=True, slots=True)
class InstanceRecord:
    """Request of an instance and its settings.

    The instance is reclaimed `reclaim_after_seconds` after its machine started; None means never.
    """

    id: str
    token: str
    offer: str
    usd_per_hour: Decimal
    minimum_billed_seconds: int
    devices: tuple[int, ...]
    tags: Mapping[str, str]
    launched_seconds: float
    boot_seconds: float
    reclaim_after_seconds: float | None
    notice_period_seconds: float
    grace_seconds: float
    agent: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class InstanceEnd:
    """End of an instance: its time in epoch seconds and its cause.

    The cause is `TERMINATED`, `RECLAIMED` or `LOST`.
    """

    ended_seconds: float
    cause: str


class LocalInstance:
    """Reader and writer of one instance's files. Thread-safe."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = path / "lock"
        self.console = path / "console.log"
        self.user_data = path / "user-data"
        self.disk = path / "disk"
        self._end: InstanceEnd | None = None

    @cached_property
    def record(self) -> InstanceRecord:
        """Request of the instance.

        Raises:
            ValueError: `instance.json` is not a request of this version.
        """
        file = self.path / "instance.json"
        try:
            fields = json.loads(file.read_text())
            for name, kind in (("devices", tuple), ("agent", tuple), ("usd_per_hour", Decimal)):
                fields[name] = kind(fields[name])
            return InstanceRecord(**fields)
        except (KeyError, TypeError) as error:
            raise ValueError(f"{file} is not an instance of this version: {error}") from error

    @property
    def metadata(self) -> InstanceMetadata:
        """Metadata for the instance itself. All local instances share the loopback address."""
        return InstanceMetadata(
            instance_id=self.record.id,
            devices=self.record.devices,
            directory=self.disk,
            cache_directory=self.path.parent.with_name("cache"),
            bind_address="127.0.0.1",
            reclaim_notice_file=self.path / "reclaim-notice",
        )

    @property
    def end(self) -> InstanceEnd | None:
        """End of the instance; None until it has ended."""
        if self._end is None:
            try:
                self._end = InstanceEnd(**json.loads((self.path / "end.json").read_text()))
            except FileNotFoundError:
                return None
        return self._end

    @property
    def has_machine(self) -> bool:
        """Whether a machine runs. The machine holds the lock until its process ends."""
        with self.lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    @property
    def is_unattended(self) -> bool:
        """Whether the instance has not ended and no machine runs that could end it."""
        # The second check: a machine may have recorded the end and stopped since the first.
        return self.end is None and not self.has_machine and self.end is None

    @property
    def has_started(self) -> bool:
        """Whether a machine has ever run."""
        return (self.path / "alive").exists()

    @property
    def seen_seconds(self) -> float:
        """Time when the machine last touched `alive`, in seconds since the epoch."""
        return (self.path / "alive").stat().st_mtime

    def show_alive(self) -> None:
        """Set `seen_seconds` to now."""
        (self.path / "alive").touch()

    @property
    def is_running(self) -> bool:
        """Whether the boot is over."""
        return (self.path / "running").exists()

    def set_running(self) -> None:
        """Record that the boot is over."""
        (self.path / "running").touch()

    @property
    def is_told_to_end(self) -> bool:
        """Whether the instance's end was requested."""
        return (self.path / "terminate").exists()

    def tell_to_end(self) -> None:
        """Request the end, which the machine carries out."""
        (self.path / "terminate").touch()

    @property
    def is_told_to_be_reclaimed(self) -> bool:
        """Whether a reclaim was requested."""
        return (self.path / "reclaim").exists()

    def tell_to_be_reclaimed(self) -> None:
        """Request a reclaim; the machine gives notice and carries it out."""
        (self.path / "reclaim").touch()

    def give_notice(self, reclaim_seconds: float) -> None:
        """Write the reclaim notice, with the time of the reclaim in seconds since the epoch."""
        write_durably(self.metadata.reclaim_notice_file, repr(reclaim_seconds))

    def record_end(self, end: InstanceEnd) -> None:
        """Record the end durably. The caller makes sure that no process of the instance runs."""
        write_durably(self.path / "end.json", json.dumps(asdict(end)))

    def discard(self) -> None:
        """Delete everything but the request and the end; the disk is deleted last.

        Raises:
            OSError: a file can't be deleted.
        """
        if not self.disk.exists():
            return
        for path in self.path.iterdir():
            if path.name not in ("instance.json", "end.json", "disk"):
                path.unlink()
        _make_writable(self.disk)
        shutil.rmtree(self.disk)


def create_instance(path: Path, record: InstanceRecord, user_data: str) -> LocalInstance:
    """Create the directory `path`, whole or not at all. Only one caller at a time may do so."""
    partial = path.parent.with_name("partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o711)  # a job's own user can reach the disk but not list the directory
    (partial / "disk").mkdir()
    (partial / "lock").touch()
    write_durably(partial / "user-data", user_data)
    write_durably(partial / "instance.json", json.dumps(asdict(record), default=str))
    partial.rename(path)
    _sync_directory(path.parent)
    return LocalInstance(path)


def write_durably(path: Path, text: str) -> None:
    """Write `path` atomically and durably, readable by its owner only."""
    unfinished = path.with_name(path.name + ".unfinished")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    _sync_directory(path.parent)


def _make_writable(directory: Path) -> None:
    """Make all directories below writable, whatever modes a job has set."""
    for parent, names, _ in os.walk(directory):
        for path in (os.path.join(parent, name) for name in names):
            if not os.path.islink(path):  # chmod would change the link's target
                os.chmod(path, 0o700)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
