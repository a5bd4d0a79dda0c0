"""Sums over the instances that train together now, whatever the engine."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import torch
from torch._C._distributed_c10d import Store

from autoscaler.clock import Clock
from autoscaler.training.collectives.forming import formed
from autoscaler.training.collectives.gradient_groups import FormGradients
from autoscaler.training.collectives.world import (
    Meeting,
    PendingSum,
    World,
    first_line,
    parking,
)

_LOOK_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class SumSettings:
    """How sums are made: the kind of gradient group, and how long to wait for other members.

    `forming_seconds` is for the groups of a new world, `timeout_seconds` for one sum.
    """

    form_gradients: FormGradients
    forming_seconds: float
    timeout_seconds: float


class Sums:
    """Sums over the members of the world that was entered last; alone, each sum is there already.

    A failure lasts until the next `enter`. A thread ends sums that nobody waits for when a member
    is lost; `has_lost_member` is asked by it, and by those who wait long. `meeting` is where the
    last world met, and `worlds` how many there were.
    """

    def __init__(
        self, settings: SumSettings, has_lost_member: Callable[[], bool], clock: Clock
    ) -> None:
        self._settings = settings
        self._has_lost_member = has_lost_member
        self._clock = clock
        self._world: World | None = None
        self._failed = False
        self.meeting: Meeting | None = None
        self.worlds = 0
        self._closed = threading.Event()
        self._watching: threading.Thread | None = None

    @property
    def has_failed(self) -> bool:
        """A sum has failed since `enter`, or the last `enter` has."""
        return self._failed or (self._world is not None and self._world.error is not None)

    def enter(self, meeting: Meeting, is_incomplete: Callable[[], bool] = lambda: False) -> None:
        """Be a member of the world that meets at `meeting`, and of no other any more.

        `is_incomplete` is asked while it forms: whether one of its members is missed.

        Raises:
            RuntimeError: a member does not come.
        """
        self.abandon()
        self._failed = True
        self.meeting = meeting
        self.worlds += 1
        if meeting.members > 1:
            self._world = self._form(meeting, is_incomplete)
            if self._world.is_watched and self._watching is None:
                self._watching = threading.Thread(
                    target=self._watch, name="castor-sums", daemon=True
                )
                self._watching.start()
        self._failed = False

    def gather(self) -> None:
        """Wait until all members have called this as often as we have; a failure is noted."""
        if self._world is not None:
            self._world.gather()
            self._give_up_if_failed()

    def wait_until(self, is_so: Callable[[Store], bool], what: str) -> bool:
        """Wait until `is_so` of the store of this world; see `World.wait_until`.

        Returns:
            Whether it is so. If not, `has_failed`.
        """
        if self._world is not None:
            self._world.wait_until(is_so, what)
            self._give_up_if_failed()
        return not self.has_failed

    def numbers(self, tensor: torch.Tensor) -> bool:
        """Sum a CPU tensor over the members, in place. Blocks.

        Returns:
            Whether it holds the sum. If not, `has_failed`: the step can't be committed.
        """
        if self._world is not None:
            self._world.sum_numbers(tensor)
            self._give_up_if_failed()
        return not self.has_failed

    def gradients(self, tensor: torch.Tensor) -> PendingSum:
        """Begin to sum `tensor` over the members, in place; `are_whole` says whether it was.

        After a failure nothing is summed, and what `tensor` holds is of no use.
        """
        return self._world.sum_gradients(tensor) if self._world is not None else PendingSum()

    def are_whole(self) -> bool:
        """Whether all sums since `enter` hold. Returns once the device has done them."""
        if self._world is not None and not self._failed:
            self._world.verdict()
            self._give_up_if_failed()
        return not self.has_failed

    def abandon(self) -> None:
        """Be a member of no world: until `enter`, sums fail."""
        world, self._world = self._world, None
        if world is not None:
            self._failed = True
            world.abandon()

    def close(self) -> None:
        """Abandon, for good. Returns when no sum waits for a peer any more."""
        self._closed.set()
        self.abandon()
        parking.clear()

    def _form(self, meeting: Meeting, is_incomplete: Callable[[], bool]) -> World:
        settings = self._settings

        def form() -> World:
            return World(
                meeting,
                settings.form_gradients,
                self._has_lost_member,
                timedelta(seconds=settings.forming_seconds),
                timedelta(seconds=settings.timeout_seconds),
                self._clock,
            )

        try:
            return formed(form, meeting.store, is_incomplete, self._clock)
        except Exception as error:
            raise RuntimeError(first_line(error)) from None

    def _give_up_if_failed(self) -> None:
        """Close the connections of a world that has failed: its other members notice at once."""
        if self._world is not None and self._world.error is not None:
            self.abandon()

    def _watch(self) -> None:
        while not self._closed.wait(_LOOK_SECONDS):
            world = self._world
            if world is not None:
                world.look()
