"""What long-running commands tell of themselves, on standard error."""

from __future__ import annotations

import logging

_LEAST_LEVELS = {
    # They tell of each call.
    "httpx": logging.WARNING,
    "alembic": logging.WARNING,
    "botocore": logging.WARNING,
    # It warns of each place without credentials; that there are none at all is an error of ours.
    "google.auth": logging.ERROR,
}


def log_to_stderr(line: str) -> None:
    """Tell what happens in lines of this form."""
    logging.basicConfig(level=logging.INFO, format=line)
    for library, level in _LEAST_LEVELS.items():
        logging.getLogger(library).setLevel(level)
