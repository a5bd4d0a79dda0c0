"""What long-running commands tell of themselves, on standard error."""

from __future__ import annotations

import logging

# Libraries that tell of each call.
_CHATTY = ("httpx", "alembic", "botocore")


def log_to_stderr(line: str) -> None:
    """Tell what happens in lines of this form."""
    logging.basicConfig(level=logging.INFO, format=line)
    for library in _CHATTY:
        logging.getLogger(library).setLevel(logging.WARNING)
