"""Sums over the instances that train together, for either engine."""

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

_POLL_SECONDS: Final = 0.1


@dataclass(frozen=True, slots=True)
class SumSettings:
    """Settings of sums: the constructor of the gradient group, and timeouts in seconds.

    `forming_seconds` applies to the groups of a new world, `timeout_seconds` to one sum.
    """

    form_gradients: FormGradients
    forming_seconds: float
    timeout_seconds: float


class Sums:
    """Sums over the members of the last entered world; alone, a sum is the tensor itself.

    A failure lasts until the next `enter`. A thread ends sums without a waiting thread when a
    member is lost. That thread and long waits call `has_lost_member`.

    Attributes:
        meeting: meeting point of the last world; None before the first.
        worlds: number of worlds entered so far.
    """

    def __init__(
        self, settings: SumSettings, has_lost_member: Callable[[], bool], clock: Clock
    ) -> None:
        self._settings = settings
        self._has_lost_member = has_lost_member
        self._clock = clock
        self._world: World | None = None
        self._has_failed = False
        self.meeting: Meeting | None = None
        self.worlds = 0
        self._closed = threading.Event()
        self._watcher: threading.Thread | None = None

    @property
    def has_failed(self) -> bool:
        """Whether a sum has failed since `enter`, or the last `enter` has."""
        return self._has_failed or (self._world is not None and self._world.error is not None)

    def enter(self, meeting: Meeting, is_incomplete: Callable[[], bool] = lambda: False) -> None:
        """Leave the present world and join the one that meets at `meeting`.

        `is_incomplete` is called while the world forms: whether one of its members is missed.

        Raises:
            RuntimeError: a member does not join.
        """
        self.abandon()
        self._has_failed = True
        self.meeting = meeting
        self.worlds += 1
        if meeting.members > 1:
            self._world = self._form(meeting, is_incomplete)
            if self._world.is_watched and self._watcher is None:
                self._watcher = threading.Thread(
                    target=self._watch, name="castor-sums", daemon=True
                )
                self._watcher.start()
        self._has_failed = False

    def gather(self) -> None:
        """Wait until all members have called this as often as this one; record a failure."""
        if self._world is not None:
            self._world.gather()
            self._give_up_if_failed()

    def wait_until(self, is_so: Callable[[Store], bool], description: str) -> bool:
        """Wait until `is_so` returns True for the world's store; see `World.wait_until`.

        Returns:
            Whether it did. If not, `has_failed` is set.
        """
        if self._world is not None:
            self._world.wait_until(is_so, description)
            self._give_up_if_failed()
        return not self.has_failed

    def numbers(self, tensor: torch.Tensor) -> bool:
        """Sum a CPU tensor over the members, in place. Blocks.

        Returns:
            Whether the tensor holds the sum. If not, `has_failed` is set: the step can't be
            committed.
        """
        if self._world is not None:
            self._world.sum_numbers(tensor)
            self._give_up_if_failed()
        return not self.has_failed

    def gradients(self, tensor: torch.Tensor) -> PendingSum:
        """Start the sum of `tensor` over the members, in place; `are_whole` reports its success.

        After a failure nothing is summed, and the content of `tensor` is undefined.
        """
        return self._world.sum_gradients(tensor) if self._world is not None else PendingSum()

    def are_whole(self) -> bool:
        """Return whether all sums since `enter` have succeeded, after the device has done them."""
        if self._world is not None and not self._has_failed:
            self._world.verdict()
            self._give_up_if_failed()
        return not self.has_failed

    def abandon(self) -> None:
        """Leave the present world; until `enter`, sums fail."""
        world, self._world = self._world, None
        if world is not None:
            self._has_failed = True
            world.abandon()

    def close(self) -> None:
        """Abandon the world for good, and wait until no sum waits for a peer any more."""
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
        """Close the connections of a failed world, so that its other members notice at once."""
        if self._world is not None and self._world.error is not None:
            self.abandon()

    def _watch(self) -> None:
        while not self._closed.wait(_POLL_SECONDS):
            world = self._world
            if world is not None:
                world.look()
