"""World of a restartable job: the instances that run its command together, as facts of them.

Stores hold these values as the texts of facts.
"""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.facts import seconds_of

_NO_ADDRESS = "-"


@dataclass(frozen=True, slots=True)
class JobWorld:
    """Instances that run the command together; the first of `members` leads.

    Each start has a new `generation`. No `members`: too few instances are left, so none runs.
    """

    generation: int
    attempt: int
    formed_seconds: float
    members: tuple[str, ...]

    def __str__(self) -> str:
        members = ",".join(self.members)
        return f"{self.generation} {self.attempt} {self.formed_seconds} {members}"


@dataclass(frozen=True, slots=True)
class GenerationTime:
    """Time of an event in one generation of a world, in seconds since the epoch."""

    generation: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.generation} {self.seconds}"


@dataclass(frozen=True, slots=True)
class WorldSave:
    """Newest checkpoint of one generation, and when it was reported."""

    generation: int
    seconds: float
    name: str

    def __str__(self) -> str:
        return f"{self.generation} {self.seconds} {self.name}"


@dataclass(frozen=True, slots=True)
class WorldOpening:
    """Permission to start one generation, with the address of its leader's rendezvous."""

    generation: int
    address: str

    def __str__(self) -> str:
        return f"{self.generation} {self.address}"


@dataclass(frozen=True, slots=True)
class MemberReport:
    """Report of an agent about the last start of the command there, and since when it holds.

    `generation` 0: none was started. `is_over`: it has ended without completing the job.
    `rendezvous` is where the agent would host the next start; None if it does not.
    """

    generation: int
    is_over: bool
    rendezvous: str | None
    seconds: float

    def __str__(self) -> str:
        address = self.rendezvous or _NO_ADDRESS
        return f"{self.generation} {int(self.is_over)} {address} {self.seconds}"

    def is_same(self, other: MemberReport | None) -> bool:
        """Return whether another report says the same, at whatever time."""
        if other is None:
            return False
        values = (other.generation, other.is_over, other.rendezvous)
        return values == (self.generation, self.is_over, self.rendezvous)


def parse_world(text: str) -> JobWorld:
    """Return the world from its text.

    Raises:
        ValueError: the text is malformed.
    """
    generation, attempt, formed_seconds, members = text.split(" ")
    names = tuple(members.split(",")) if members else ()
    return JobWorld(int(generation), int(attempt), seconds_of(formed_seconds), names)


def parse_generation_time(text: str) -> GenerationTime:
    """Return the time from its text.

    Raises:
        ValueError: the text is malformed.
    """
    generation, seconds = text.split(" ")
    return GenerationTime(int(generation), seconds_of(seconds))


def parse_save(text: str) -> WorldSave:
    """Return the checkpoint from its text.

    Raises:
        ValueError: the text is malformed.
    """
    generation, seconds, name = text.split(" ", 2)
    return WorldSave(int(generation), seconds_of(seconds), name)


def parse_opening(text: str) -> WorldOpening:
    """Return the permission from its text.

    Raises:
        ValueError: the text is malformed.
    """
    generation, address = text.split(" ")
    return WorldOpening(int(generation), address)


def parse_member_report(text: str) -> MemberReport:
    """Return the report from its text.

    Raises:
        ValueError: the text is malformed.
    """
    generation, is_over, address, seconds = text.split(" ")
    rendezvous = None if address == _NO_ADDRESS else address
    return MemberReport(int(generation), is_over == "1", rendezvous, seconds_of(seconds))
