"""Gangs: instances whose ranks one torchrun starts together, as one replica of the training."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from autoscaler.domain.errors import SpecError
from autoscaler.domain.rules import require_count, require_line

GANG_GIVEN_BACK: Final = "gang given back"
"""Kind of the event that a gang was released because it was not whole."""
MOST_GENERATIONS: Final = 1 << 31
PEER_ENDED_STATUS: Final = 86
"""Exit status of a launcher whose ranks ended because those of another instance did."""
_LONGEST_HOST: Final = 255
_HIGHEST_PORT: Final = 65_535


@dataclass(frozen=True, slots=True)
class GangSeat:
    """Seat of an instance for as long as it exists: `index` of the `instances` of gang `number`.

    Gangs of a job are numbered from 1, and a number is never used again.
    """

    number: int
    index: int
    instances: int

    def __str__(self) -> str:
        return f"{self.number} {self.index} {self.instances}"

    @property
    def text(self) -> str:
        """The seat for people."""
        return f"gang {self.number}, {self.index + 1} of {self.instances}"


def parse_seat(text: str) -> GangSeat:
    """Return a seat from its text.

    Raises:
        ValueError: the text is malformed.
    """
    number, index, instances = map(int, text.split())
    return GangSeat(number, index, instances)


@dataclass(frozen=True, slots=True)
class GangStart:
    """Last start of the script by a member; `is_over`: the whole gang must start again."""

    generation: int
    is_over: bool

    def __str__(self) -> str:
        return f"{self.generation} {'over' if self.is_over else 'valid'}"

    @property
    def next_generation(self) -> int:
        """Least generation that the gang can be in, as far as this member knows."""
        return self.generation + self.is_over


def parse_start(text: str) -> GangStart:
    """Return a start from its text.

    Raises:
        ValueError: the text is malformed.
    """
    generation, _, state = text.partition(" ")
    return GangStart(int(generation), state == "over")


@dataclass(frozen=True, slots=True)
class GangPlace:
    """Place of an instance in its gang.

    Member `index` 0 leads: its launcher hosts the rendezvous of the ranks at `address`, a
    `host:port` of its own, None until the leader has reported one. Each start of the gang's script
    has a new `generation`. A member that runs an older generation must stop.
    """

    gang: str
    generation: int
    index: int
    instances: int
    address: str | None

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.instances:
            raise ValueError(f"index must be below instances: {self}")

    @property
    def leads(self) -> bool:
        """Whether the instance hosts the rendezvous and its first rank opens the session."""
        return self.index == 0

    @property
    def run_id(self) -> str:
        """Name of one start of the gang's script."""
        return f"{self.gang}.{self.generation}"


def require_address(value: str, field: str) -> None:
    """Check the `host:port` of a gang's rendezvous."""
    host, _, port = value.rpartition(":")
    require_line(value, field, _LONGEST_HOST + 6)
    if not host or not port.isascii() or not port.isdecimal():
        raise SpecError("must be host:port", field)
    require_count(int(port), field, _HIGHEST_PORT)
