"""Imports that need an optional extra of the package."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from autoscaler.domain.errors import SpecError

_SERVER: Final = (
    *("alembic", "cryptography", "fastapi", "jinja2", "jwt", "prometheus_client", "scipy"),
    *("sqlalchemy", "threadpoolctl", "uvicorn"),
)
EXTRA_OF: Final = dict.fromkeys(_SERVER, "server") | {
    "cloudpickle": "hpo",
    "matplotlib": "plot",
    "optuna": "hpo",
    "torch": "training",
}
"""Extra that installs a module which a command imports."""


def missing_extra(error: ModuleNotFoundError, command: str) -> SpecError | None:
    """Return an error that names the extra of a missing module; None: it belongs to no extra."""
    module = (error.name or "").partition(".")[0]
    extra = EXTRA_OF.get(module)
    if extra is None:
        return None
    return SpecError(
        f"{module} is not installed: pip install 'castor-autoscaler[{extra}]'", command
    )


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
