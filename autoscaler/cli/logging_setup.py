"""Logging of long-running commands to standard error."""

from __future__ import annotations

import logging

from autoscaler.domain.text import printable, printable_lines

_MINIMUM_LEVELS = {
    # These libraries log each call at level INFO.
    "alembic": logging.WARNING,
    "botocore": logging.WARNING,
    "httpx2": logging.WARNING,
    # It warns of each source without credentials. Castor itself reports that all sources fail.
    "google.auth": logging.ERROR,
}


class PrintableFormatter(logging.Formatter):
    """Log formatter that escapes control characters in names and messages."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line of a record. Line breaks in its message are escaped, too."""
        record.message = printable(record.message)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, followed by the lines of its traceback."""
        return printable_lines(super().format(record))


def leave_providers_unlogged() -> None:
    """Print no log of providers, for a command that prints what they report itself."""
    logging.getLogger("providers").addHandler(logging.NullHandler())


def log_to_stderr(line: str) -> None:
    """Log to standard error from level INFO on; `line` is the format of a record."""
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter(line))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for library, level in _MINIMUM_LEVELS.items():
        logging.getLogger(library).setLevel(level)
