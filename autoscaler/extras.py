"""Imports that need an optional extra of the package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autoscaler.domain.errors import SpecError


@contextmanager
def from_extras(extras: str, field: str, otherwise: str = "") -> Iterator[None]:
    """Raise `SpecError` for imports in this context whose extra is not installed.

    Args:
        extras: the extras to install, separated by commas.
        field: the option or field that needs the extras.
        otherwise: text appended to the error: how to do without the extras.

    Raises:
        SpecError: a module is not installed.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise SpecError(
            f"{error.name} is not installed: pip install 'castor-autoscaler[{extras}]'{otherwise}",
            field,
        ) from error
