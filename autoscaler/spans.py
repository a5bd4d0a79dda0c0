"""Spans of traces, as the code that opens them sees them. Without traces they do nothing."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol


class TraceSpan(Protocol):
    """Part of a trace: an activity with its begin, end and attributes."""

    def rename(self, name: str) -> None:
        """Give the span another name."""
        ...

    def put(self, key: str, value: str | int) -> None:
        """Add an attribute."""
        ...


class SpanOpener(Protocol):
    """Function that opens a span for a body, within the span that is open now."""

    def __call__(self, name: str, **attributes: str | int) -> AbstractContextManager[TraceSpan]:
        """Open a span."""
        ...


class _NoSpan:
    """TraceSpan that is recorded nowhere."""

    def rename(self, name: str) -> None:
        pass

    def put(self, key: str, value: str | int) -> None:
        pass


_NOTHING: Final = nullcontext(_NoSpan())


def no_span(name: str, **attributes: str | int) -> AbstractContextManager[TraceSpan]:
    """Open nothing, at no cost."""
    return _NOTHING
