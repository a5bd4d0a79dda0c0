"""Timer of selected work of a rank, by the clock or by GPU events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from autoscaler.clock import Clock


class Timer:
    """Sum of the times of selected work: by the clock, or on a GPU by events on its streams.

    NCCL's collectives return once they are queued, and block the stream until they are done.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seconds: list[float] = []
        self._spans: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def begin(self, device: torch.device) -> Callable[[], None]:
        """Start a span; return a function that ends it, on any thread and stream."""
        if device.type == "cuda":
            start_event = _event()
            start_event.record(torch.cuda.current_stream(device))
            return lambda: self._end_on_stream(start_event, device)
        began_seconds = self._clock.monotonic()
        return lambda: self._seconds.append(self._clock.monotonic() - began_seconds)

    @contextmanager
    def timed(self, device: torch.device) -> Iterator[None]:
        """Count the time within the context."""
        end = self.begin(device)
        yield
        end()

    def take_seconds(self) -> float:
        """Return the total seconds since the last call, after pending GPU work is done."""
        seconds, self._seconds = sum(self._seconds), []
        spans, self._spans = self._spans, []
        for start_event, end_event in spans:
            end_event.synchronize()
            seconds += start_event.elapsed_time(end_event) / 1e3
        return seconds

    def _end_on_stream(self, start_event: torch.cuda.Event, device: torch.device) -> None:
        end_event = _event()
        end_event.record(torch.cuda.current_stream(device))
        self._spans.append((start_event, end_event))


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
