"""Logging of long-running commands to standard error, as text or as JSON."""

from __future__ import annotations

import json
import logging
import signal
from datetime import UTC, datetime
from types import FrameType
from typing import Final

from autoscaler.cli.options import LogFormat
from autoscaler.domain.text import printable, printable_lines
from autoscaler.log_fields import present_fields

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


_FIELDS: Final = ("tick", "job", "study", "instance", "intent", "trace_id")


class JsonFormatter(logging.Formatter):
    """Log formatter that makes one JSON object a line, in ASCII, so without control characters.

    Keys are time (UTC, ISO 8601), level, logger, message, the fields of the activity that are
    known (tick, job, study, instance, intent, trace_id), and traceback after an error.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record."""
        moment = datetime.fromtimestamp(record.created, UTC)
        line: dict[str, object] = {
            "time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        known = {**present_fields(), **vars(record)}
        line |= {name: known[name] for name in _FIELDS if known.get(name) is not None}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def leave_providers_unlogged() -> None:
    """Print no log of providers, for a command that prints what they report itself."""
    logging.getLogger("providers").addHandler(logging.NullHandler())


def log_sigterm(logger: logging.Logger, words: str) -> None:
    """Log `words` when SIGTERM ends this process, which it does as without this function."""

    def end(number: int, frame: FrameType | None) -> None:
        logger.info("SIGTERM: %s", words)
        signal.signal(number, signal.SIG_DFL)
        signal.raise_signal(number)

    signal.signal(signal.SIGTERM, end)


def log_to_stderr(line: str, form: LogFormat = LogFormat.TEXT) -> None:
    """Log to standard error from level INFO on; `line` is the format of a record as text."""
    handler = logging.StreamHandler()
    is_json = form is LogFormat.JSON
    handler.setFormatter(JsonFormatter() if is_json else PrintableFormatter(line))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    for library, level in _MINIMUM_LEVELS.items():
        logging.getLogger(library).setLevel(level)
