from __future__ import annotations

import logging
import sys

from autoscaler.cli.logging_setup import PrintableFormatter


def line_of(message: str, *arguments: object) -> str:
    record = logging.LogRecord("castor", logging.INFO, "", 1, message, arguments, None)
    return PrintableFormatter("%(levelname)s %(name)s: %(message)s").format(record)


def test_a_name_from_outside_can_not_forge_a_line_of_the_log() -> None:
    assert line_of("job %s stopped", "a\nINFO castor: all is well\x1b[2J") == (
        r"INFO castor: job a\x0aINFO castor: all is well\x1b[2J stopped"
    )


def test_a_traceback_keeps_its_lines() -> None:
    try:
        raise ValueError("\x1b[2J")
    except ValueError:
        record = logging.LogRecord("castor", logging.ERROR, "", 1, "no", (), sys.exc_info())
    lines = PrintableFormatter("%(message)s").format(record).splitlines()
    assert lines[0] == "no"
    assert len(lines) > 3
    assert lines[-1] == r"ValueError: \x1b[2J"
