"""One local instance as the files of its directory.

Each fact is a file that appears once and never changes, so that a crash between any two lines
leaves a state that can be read:

    instance.json    what was ordered: by the provider, before anything runs
    user-data        what the order brought along: by the provider, with it
    lock             locked by the machine as long as it lives
    alive            touched by the machine again and again
    running          the boot is over: by the machine
    terminate        the instance is to end: by the provider, or the machine on SIGTERM
    reclaim          the instance is to be reclaimed: by the provider
    reclaim-notice   when it will be, in seconds since the epoch: by the machine
    end.json         when and why it ended: by the machine, or by the provider for a lost one
    console.log      what machine and agent print
    disk/            the instance's own directory

Only the standard library: the machine starts with it.
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
    """What was ordered. `reclaim_after_seconds` of life the hazard strikes; None is never."""

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
    """When an instance ended, and why: `TERMINATED`, `RECLAIMED` or `LOST`."""

    ended_seconds: float
    cause: str


class LocalInstance:
    """Reads and writes the facts of one instance. Safe to share between threads."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lock = path / "lock"
        self.console = path / "console.log"
        self.user_data = path / "user-data"
        self.disk = path / "disk"
        self._end: InstanceEnd | None = None

    @cached_property
    def record(self) -> InstanceRecord:
        """The order.

        Raises:
            ValueError: `instance.json` is not an order of this version.
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
        """What the instance can learn of itself. All of them share the loopback address."""
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
        """How it ended, or None while it has not."""
        if self._end is None:
            try:
                self._end = InstanceEnd(**json.loads((self.path / "end.json").read_text()))
            except FileNotFoundError:
                return None
        return self._end

    @property
    def has_machine(self) -> bool:
        """A machine lives: it holds the lock, which nothing but its death gives free."""
        with self.lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return True
            return False

    @property
    def is_unattended(self) -> bool:
        """It has not ended, and no machine is there to end it."""
        # The second look: a machine may have ended it, and died, since the first.
        return self.end is None and not self.has_machine and self.end is None

    @property
    def has_started(self) -> bool:
        """A machine has lived."""
        return (self.path / "alive").exists()

    @property
    def seen_seconds(self) -> float:
        """When its machine last showed that it lived."""
        return (self.path / "alive").stat().st_mtime

    def show_alive(self) -> None:
        """Let `seen_seconds` be now."""
        (self.path / "alive").touch()

    @property
    def is_running(self) -> bool:
        """The boot is over."""
        return (self.path / "running").exists()

    def set_running(self) -> None:
        """The boot is over."""
        (self.path / "running").touch()

    @property
    def is_told_to_end(self) -> bool:
        """Somebody ordered the end."""
        return (self.path / "terminate").exists()

    def tell_to_end(self) -> None:
        """Order the end; the machine carries it out."""
        (self.path / "terminate").touch()

    @property
    def is_told_to_be_reclaimed(self) -> bool:
        """Somebody ordered a reclaim."""
        return (self.path / "reclaim").exists()

    def tell_to_be_reclaimed(self) -> None:
        """Order a reclaim; the machine gives notice and carries it out."""
        (self.path / "reclaim").touch()

    def give_notice(self, reclaim_seconds: float) -> None:
        """Say when the instance will be taken back, where `reclaim_notice` reads it."""
        write_durably(self.metadata.reclaim_notice_file, repr(reclaim_seconds))

    def record_end(self, end: InstanceEnd) -> None:
        """Nothing of the instance runs any more. Durable on return."""
        write_durably(self.path / "end.json", json.dumps(asdict(end)))

    def discard(self) -> None:
        """Delete all but the order and the end; the disk goes last.

        Raises:
            OSError: something can't be deleted.
        """
        if not self.disk.exists():
            return
        for path in self.path.iterdir():
            if path.name not in ("instance.json", "end.json", "disk"):
                path.unlink()
        _open_all(self.disk)
        shutil.rmtree(self.disk)


def create_instance(path: Path, record: InstanceRecord, user_data: str) -> LocalInstance:
    """Make the directory `path`, whole or not at all. One caller at a time under one parent."""
    partial = path.parent.with_name("partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(mode=0o711)  # a job's own user gets through to the disk, and sees nothing
    (partial / "disk").mkdir()
    (partial / "lock").touch()
    write_durably(partial / "user-data", user_data)
    write_durably(partial / "instance.json", json.dumps(asdict(record), default=str))
    partial.rename(path)
    _flush(path.parent)
    return LocalInstance(path)


def write_durably(path: Path, text: str) -> None:
    """Let `path` appear with all of `text`, also through a loss of power, for its owner only."""
    unfinished = path.with_name(path.name + ".unfinished")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    _flush(path.parent)


def _open_all(directory: Path) -> None:
    """Let the directories in here be written to, whatever a job has made of them."""
    for parent, names, _ in os.walk(directory):
        for path in (os.path.join(parent, name) for name in names):
            if not os.path.islink(path):  # of which chmod would change the target
                os.chmod(path, 0o700)


def _flush(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
