"""Flag that all ranks of an instance see at once, without a message."""

from __future__ import annotations

import mmap
import os
import tempfile
from contextlib import suppress

from autoscaler.training.collectives.instance import InstanceRanks

_RAISED = 1


class SharedFlag:
    """Flag in memory that the processes of an instance share; once raised, it stays raised.

    All ranks must create it together. If they can't share memory, as with private directories for
    temporary files, each rank sees only its own flag.
    """

    def __init__(self, instance: InstanceRanks) -> None:
        self._memory = _shared_byte(instance) if instance.ranks > 1 else bytearray(1)

    @property
    def is_raised(self) -> bool:
        """Whether a rank of the instance has raised the flag."""
        return self._memory[0] == _RAISED

    def raise_up(self) -> None:
        """Raise the flag on all ranks of the instance."""
        self._memory[0] = _RAISED


def _shared_byte(instance: InstanceRanks) -> mmap.mmap | bytearray:
    """Return a shared byte in an unlinked file of the leader; a private byte on failure."""
    path, memory = "", None
    with suppress(OSError):
        if instance.is_leader:
            descriptor, path = tempfile.mkstemp(prefix="castor-flag-")
            memory = _map_file(descriptor, is_new=True)
    path = instance.value_from_leader(path)
    with suppress(OSError, ValueError):
        if path and not instance.is_leader:
            memory = _map_file(os.open(path, os.O_RDWR | os.O_NOFOLLOW), is_new=False)
    instance.barrier()
    if path and instance.is_leader:
        with suppress(OSError):
            os.unlink(path)
    return bytearray(1) if memory is None else memory


def _map_file(descriptor: int, is_new: bool) -> mmap.mmap:
    try:
        if is_new:
            os.ftruncate(descriptor, 1)
        return mmap.mmap(descriptor, 1)
    finally:
        os.close(descriptor)
