"""Replies of clouds: one that can't be read is no answer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autoscaler.domain.errors import Unavailable


@contextmanager
def readable(what: str) -> Iterator[None]:
    """Reading `what` inside; whatever is missing or wrong in it makes it no answer.

    Raises:
        Unavailable: it can't be read.
    """
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        raise Unavailable(f"{what}: the reply can't be read: {reason}") from error
