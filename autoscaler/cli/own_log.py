"""What long-running commands tell of themselves, on standard error."""

from __future__ import annotations

import logging

from autoscaler.domain.text import printable, printable_lines

_LEAST_LEVELS = {
    # They tell of each call.
    "httpx": logging.WARNING,
    "alembic": logging.WARNING,
    "botocore": logging.WARNING,
    # It warns of each place without credentials; that there are none at all is an error of ours.
    "google.auth": logging.ERROR,
}


class PrintableFormatter(logging.Formatter):
    """Log lines without control characters, whatever names and messages from outside hold."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line of a record; a line break in its message is escaped, too."""
        record.message = printable(record.message)
        return super().formatMessage(record)

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, and the lines of its traceback."""
        return printable_lines(super().format(record))


def log_to_stderr(line: str) -> None:
    """Log what happens in lines of this form."""
    handler = logging.StreamHandler()
    handler.setFormatter(PrintableFormatter(line))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for library, level in _LEAST_LEVELS.items():
        logging.getLogger(library).setLevel(level)
