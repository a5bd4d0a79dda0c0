"""What is only there where its extra was installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from autoscaler.domain.errors import SpecError


@contextmanager
def from_extras(extras: str, field: str, otherwise: str = "") -> Iterator[None]:
    """What is imported in here comes with these extras, which `field` asks for.

    Raises:
        SpecError: something is not installed; `otherwise` is a way to do without it.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        raise SpecError(
            f"{error.name} is not installed: pip install 'castor-autoscaler[{extras}]'{otherwise}",
            field,
        ) from error
