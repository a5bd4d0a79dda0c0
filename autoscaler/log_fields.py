"""Fields of all log lines of one activity, such as the tick or the instance of a call.

They follow the activity into functions, and into workers that run it in a copy of its context.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

Field = str | int

_FIELDS: Final[ContextVar[Mapping[str, Field]]] = ContextVar("castor_log_fields")
_NONE: Final[Mapping[str, Field]] = {}


@contextmanager
def log_fields(**fields: Field) -> Iterator[None]:
    """Add fields to the log lines of the body."""
    token = _FIELDS.set({**present_fields(), **fields})
    try:
        yield
    finally:
        _FIELDS.reset(token)


def present_fields() -> Mapping[str, Field]:
    """Return the fields of the activity that calls this."""
    return _FIELDS.get(_NONE)
