"""Errors for clouds' replies that can't be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from autoscaler.domain.errors import Unavailable
from autoscaler.domain.text import quoted

_MOST_CHARACTERS: Final = 200


@contextmanager
def readable(description: str) -> Iterator[None]:
    """Turn an error while reading the reply `description` into `Unavailable`.

    Raises:
        Unavailable: the reply can't be read: a field is missing or has a wrong value.
    """
    try:
        yield
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {quoted(error, _MOST_CHARACTERS)}"
        raise Unavailable(f"{description}: the reply can't be read: {reason}") from error
