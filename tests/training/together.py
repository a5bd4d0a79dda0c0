"""Members of one world in this process, each in its own thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from datetime import timedelta
from itertools import count
from threading import Thread
from typing import Any, TypeVar

import torch

from autoscaler.clock import Clock, SystemClock
from autoscaler.training.collectives.gradient_groups import FormGradients, gradients_of
from autoscaler.training.collectives.ports import bound_store
from autoscaler.training.collectives.sums import Sums, SumSettings
from autoscaler.training.collectives.world import Meeting

Result = TypeVar("Result")
TIMEOUT_SECONDS = 8.0
GLOO: FormGradients = gradients_of(torch.device("cpu"), "nccl", timedelta(seconds=TIMEOUT_SECONDS))


def at_once(functions: list[Callable[[], Result]]) -> list[Result]:
    """Return the results of all functions, each of which runs in its own thread.

    A thread that hangs ends with the process: the test's time-out is an error, and no wait for it.
    """
    futures: list[Future[Result]] = [Future() for _ in functions]
    for function, future in zip(functions, futures, strict=True):
        Thread(target=_run, args=(function, future), daemon=True).start()
    return [future.result() for future in futures]


def _run(function: Callable[[], Result], future: Future[Result]) -> None:
    try:
        future.set_result(function())
    except BaseException as error:
        future.set_exception(error)


class Members:
    """Sums of several members, who form a world at one store, repeatedly.

    `lost` holds the indices of members that the lighthouse misses.
    """

    def __init__(
        self,
        members: int,
        form_gradients: FormGradients = GLOO,
        clock: Clock | None = None,
        forming_seconds: float = 10.0,
    ) -> None:
        self._store, self._port = bound_store("127.0.0.1")
        self._meetings = count()
        self.lost: set[int] = set()
        settings = SumSettings(form_gradients, forming_seconds, TIMEOUT_SECONDS)
        self.sums = [
            Sums(settings, lambda: bool(self.lost), clock or SystemClock()) for _ in range(members)
        ]

    def meet(self, numbers: Sequence[int] | None = None) -> None:
        """Form a world of all members, or of those with these numbers, in their order."""
        chosen = range(len(self.sums)) if numbers is None else numbers
        at_once(
            [
                lambda sums=self.sums[member], place=place: sums.enter(place)
                for member, place in zip(chosen, self.places(len(chosen)), strict=True)
            ]
        )

    def places(self, members: int) -> list[Meeting]:
        """Return the places of a new meeting."""
        number = next(self._meetings)
        return [
            Meeting(f"127.0.0.1:{self._port}", f"world{number}", index, members)
            for index in range(members)
        ]

    def on_each(self, function: Callable[[Sums], Any]) -> list[Any]:
        return at_once([lambda sums=sums: function(sums) for sums in self.sums])

    def close(self) -> None:
        for sums in self.sums:
            sums.close()
