"""Times of what a rank does now and then, by the clock or by its GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from autoscaler.clock import Clock


class Timer:
    """Times what this rank does now and then: by the clock, or on a GPU by its own streams.

    NCCL's collectives return once they are queued, and hold the stream up until they are done.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seconds: list[float] = []
        self._spans: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    def begin(self, device: torch.device) -> Callable[[], None]:
        """Begin a span; return what ends it, on any thread and stream."""
        if device.type == "cuda":
            began = _event()
            began.record(torch.cuda.current_stream(device))
            return lambda: self._end_on_stream(began, device)
        began_seconds = self._clock.monotonic()
        return lambda: self._seconds.append(self._clock.monotonic() - began_seconds)

    @contextmanager
    def timed(self, device: torch.device) -> Iterator[None]:
        """Count the time inside."""
        end = self.begin(device)
        yield
        end()

    def take_seconds(self) -> float:
        """Return the sum since the last call, once what is under way on a GPU is done."""
        seconds, self._seconds = sum(self._seconds), []
        spans, self._spans = self._spans, []
        for began, ended in spans:
            ended.synchronize()
            seconds += began.elapsed_time(ended) / 1e3
        return seconds

    def _end_on_stream(self, began: torch.cuda.Event, device: torch.device) -> None:
        ended = _event()
        ended.record(torch.cuda.current_stream(device))
        self._spans.append((began, ended))


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
