"""Consequences of failures, by category.

The rules follow the recommendations of Jeon et al. (USENIX ATC'19), section 6: do not repeat what
will fail again, and do not blame a program for a machine.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from autoscaler.domain.report import FailureCategory as Category


class Retry(StrEnum):
    """Whether the script starts again after a failure, within the owner's `retries`."""

    NEVER = "never"
    ONCE = "once"
    BACK_OFF = "with back-off"


@dataclass(frozen=True, slots=True)
class Consequence:
    """Consequence of a failure.

    Attributes:
        retry: whether the script starts again.
        words: the reason, for users.
        is_transient: the same failure may come back at once and still pass by itself.
        is_free: it is no failure of the job and uses up none of its retries.
        is_elsewhere: the job's next instances are not of the same instance type.
        needs_device_memory: they have devices with more memory.
        ends_machine: the instance ends, and no job gets it again; its offer is left out by all
            after several programs failed so there.
    """

    retry: Retry
    words: str
    is_transient: bool = False
    is_free: bool = False
    is_elsewhere: bool = False
    needs_device_memory: bool = False
    ends_machine: bool = False


def _never(words: str) -> Consequence:
    return Consequence(Retry.NEVER, words)


_OTHER_CODE: Final = "the same code would fail again"

CONSEQUENCES: Final[Mapping[Category, Consequence]] = {
    Category.ENDED_FROM_OUTSIDE: Consequence(
        Retry.BACK_OFF, "the script was ended from outside", is_transient=True, is_free=True
    ),
    Category.BROKEN_DEVICE: Consequence(
        Retry.BACK_OFF,
        "the machine is broken",
        is_transient=True,
        is_free=True,
        ends_machine=True,
    ),
    Category.DEVICE_MEMORY: Consequence(
        Retry.BACK_OFF, "fewer examples at once or more memory may fit", needs_device_memory=True
    ),
    Category.HOST_MEMORY: Consequence(
        Retry.ONCE, "another instance type may have more memory", is_elsewhere=True
    ),
    Category.DISK_FULL: Consequence(
        Retry.ONCE, "another instance may have more space", is_elsewhere=True
    ),
    Category.CHECKPOINT: Consequence(Retry.BACK_OFF, "the storage may recover", is_transient=True),
    Category.CUDA_VERSION: Consequence(
        Retry.ONCE, "another instance type may fit the environment", is_elsewhere=True
    ),
    Category.CUDA_START: Consequence(
        Retry.BACK_OFF, "another machine may start CUDA", is_transient=True, ends_machine=True
    ),
    Category.INVALID_MEMORY_ACCESS: Consequence(Retry.ONCE, "it may be the machine"),
    Category.COMMUNICATION: Consequence(
        Retry.BACK_OFF, "the network may recover", is_transient=True
    ),
    Category.CUDA_FAILURE: Consequence(Retry.ONCE, "it may be the machine", ends_machine=True),
    Category.NETWORK: Consequence(Retry.BACK_OFF, "the service may recover", is_transient=True),
    Category.PERMISSION: _never("the same access would be refused again"),
    Category.IMPORT: _never("the same packages would be missing again"),
    Category.SYNTAX: _never(_OTHER_CODE),
    Category.DIVERGED: _never("it would diverge again"),
    Category.INPUT: _never("the same input would be wrong again"),
    Category.SEMANTIC: _never(_OTHER_CODE),
    Category.CRASH: Consequence(Retry.ONCE, "it may be the machine"),
    Category.EXCEPTION: Consequence(Retry.BACK_OFF, "its cause is not known"),
    Category.UNKNOWN: Consequence(Retry.BACK_OFF, "its cause is not known"),
}

_SYMPTOMS: Final = (Category.COMMUNICATION, Category.ENDED_FROM_OUTSIDE, Category.UNKNOWN)


def main_category(categories: tuple[Category, ...]) -> Category:
    """Return the category of one start that failed on several instances.

    A broken device comes first. The others lose contact with an instance that fails, or are ended:
    these categories count only where there is no other.
    """
    if Category.BROKEN_DEVICE in categories:
        return Category.BROKEN_DEVICE
    causes = [category for category in categories if category not in _SYMPTOMS]
    return causes[0] if causes else categories[0]
