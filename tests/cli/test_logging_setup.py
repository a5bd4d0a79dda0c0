from __future__ import annotations

import json
import logging
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

from autoscaler.cli.logging_setup import JsonFormatter, PrintableFormatter
from autoscaler.controller.workers import CallKind, ThreadWorkers
from autoscaler.log_fields import log_fields, present_fields


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


def json_of(
    message: str, *arguments: object, level: int = logging.INFO, **fields: object
) -> dict[str, object]:
    record = logging.LogRecord("castor", level, "", 1, message, arguments, None)
    record.created = 1_700_000_000.25
    vars(record).update(fields)
    line = JsonFormatter().format(record)
    assert "\n" not in line and line.isascii()
    return json.loads(line)  # type: ignore[no-any-return]


def test_a_line_of_json_has_time_level_logger_and_message() -> None:
    assert json_of("job %s stopped", "a", level=logging.WARNING) == {
        "time": "2023-11-14T22:13:20.250Z",
        "level": "WARNING",
        "logger": "castor",
        "message": "job a stopped",
    }


def test_a_line_of_json_has_the_fields_that_are_known() -> None:
    with log_fields(tick=7, instance="a-0-1"), log_fields(intent=3):
        line = json_of("text", job="a", study=None)
    assert (line["tick"], line["instance"], line["intent"], line["job"]) == (7, "a-0-1", 3, "a")
    assert "study" not in line
    assert "tick" not in json_of("text")


def test_a_name_from_outside_stays_within_its_line_of_json() -> None:
    hostile = 'a"}\n{"level": "INFO"}\x1b[2J\u2028\u202e\ud800'
    assert json_of("job %s", hostile)["message"] == f"job {hostile}"
    assert json_of("job", job=hostile)["job"] == hostile


def test_a_traceback_is_one_field() -> None:
    try:
        raise ValueError("bad\nworse")
    except ValueError:
        record = logging.LogRecord("castor", logging.ERROR, "", 1, "no", (), sys.exc_info())
    line = json.loads(JsonFormatter().format(record))
    assert line["message"] == "no"
    assert line["traceback"].endswith("ValueError: bad\nworse")


def test_fields_follow_an_activity_into_threads() -> None:
    workers = ThreadWorkers(("cloud",), ThreadPoolExecutor)
    seen: list[object] = []
    with log_fields(tick=7):
        workers.of(CallKind.LAUNCH, "cloud").submit(lambda: seen.append(present_fields()))
    workers.close()
    assert seen == [{"tick": 7}]


def test_sigterm_ends_a_process_with_a_line() -> None:
    script = (
        "import logging, signal\n"
        "from autoscaler.cli.logging_setup import log_sigterm, log_to_stderr\n"
        "log_to_stderr('%(message)s')\n"
        "log_sigterm(logging.getLogger(), 'the agent ends')\n"
        "signal.raise_signal(signal.SIGTERM)\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (-signal.SIGTERM, "SIGTERM: the agent ends\n")
