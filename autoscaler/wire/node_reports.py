"""Parsing of heartbeats: invalid parts are left out, and the rest is used.

The heartbeat of an instance counts even if its training report is invalid.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, get_type_hints

from pydantic_core import to_json

from autoscaler.domain.activity import require_activity
from autoscaler.domain.errors import SpecError
from autoscaler.domain.gang import MOST_GENERATIONS, require_address
from autoscaler.domain.gpu_use import require_gpu_use
from autoscaler.domain.report import TrainingReport
from autoscaler.domain.report_rules import Refusals, sound_failure, sound_report
from autoscaler.domain.rules import LATEST_SECONDS, require_count, require_number
from autoscaler.domain.text import printable
from autoscaler.domain.time_use import require_time_count
from autoscaler.wire.bodies import read_body, read_json
from autoscaler.wire.messages import NodeReport

_MOST_NOTES: Final = 20
_LONGEST_NOTE: Final = 500
_LONGEST_NAME: Final = 1_000
_MOST_REPORTS: Final = 10
_MOST_ATTEMPTS: Final = 1 << 31
_MOST_DEVICES: Final = 1 << 20
_ESSENTIAL: Final = ("instance", "phase", "attempt", "devices_used", "job")
_KINDS: Final = get_type_hints(NodeReport)


def read_node_report(body: bytes) -> tuple[NodeReport, tuple[str, ...]]:
    """Return a heartbeat, and the reasons why parts of it were left out.

    Raises:
        SpecError: the body is not JSON, or an essential field is invalid: instance, phase,
            attempt, devices_used or job.
    """
    refusals = Refusals()
    try:
        report = read_body(NodeReport, body)
    except SpecError:
        return _read_parts(body)
    reports = _sound(report.reports[-_MOST_REPORTS:], refusals)
    return _checked(replace(report, reports=reports), refusals), tuple(refusals.texts)


def _read_parts(body: bytes) -> tuple[NodeReport, tuple[str, ...]]:
    """Return a heartbeat of which some parts are invalid, as `read_node_report` does."""
    values, refusals = _read_mapping(body), Refusals()
    essential = {name: values[name] for name in _ESSENTIAL if name in values}
    report = read_body(NodeReport, to_json(essential))
    others = {
        name: value
        for name, kind in _KINDS.items()
        if name in values and name not in (*_ESSENTIAL, "reports")
        for value in _read_value(kind, values[name], name, refusals)
    }
    reports = _read_reports(values.get("reports"), refusals)
    return _checked(replace(report, **others, reports=reports), refusals), tuple(refusals.texts)


def _read_mapping(body: bytes) -> Mapping[str, Any]:
    values = read_json(body)
    if not isinstance(values, dict):
        raise SpecError("a heartbeat must be a JSON object")
    return values


def _read_value(kind: Any, value: object, name: str, refusals: Refusals) -> tuple[Any, ...]:
    """Return a tuple with the value as type `kind`; empty, with a refusal, if it is invalid."""
    try:
        return (read_body(kind, to_json(value, inf_nan_mode="strings")),)
    except SpecError as error:
        field = name if error.field is None else f"{name}.{error.field}"
        refusals.add(SpecError(error.message, field))
        return ()


def _read_reports(values: object, refusals: Refusals) -> tuple[TrainingReport, ...]:
    parts = values if isinstance(values, list) else []
    read = (
        report
        for part in parts[-_MOST_REPORTS:]
        for report in _read_value(TrainingReport, part, "reports", refusals)
    )
    return _sound(read, refusals)


def _sound(reports: Iterable[TrainingReport], refusals: Refusals) -> tuple[TrainingReport, ...]:
    return tuple(
        sound for report in reports if (sound := sound_report(report, refusals)) is not None
    )


def _checked(report: NodeReport, refusals: Refusals) -> NodeReport:
    """Return a heartbeat without values out of range; too long texts and lists are cut.

    Raises:
        SpecError: a count is out of range.
    """
    require_count(report.attempt, "attempt", _MOST_ATTEMPTS)
    require_count(report.devices_used, "devices_used", _MOST_DEVICES, least=0)
    failure, transfer = report.failure, report.transfer
    if transfer is not None and _valid_time(transfer.begun_seconds, "transfer", refusals) is None:
        transfer = None
    address, generation = report.rendezvous, report.generation
    if address is not None and not refusals.allows(require_address, address, "rendezvous"):
        address = None
    if not refusals.allows(require_count, generation, "generation", MOST_GENERATIONS, 0):
        generation = 0
    activity = report.activity
    if activity is not None and not refusals.allows(require_activity, activity):
        activity = None
    use = report.gpu_use
    if use is not None and not refusals.allows(require_gpu_use, use):
        use = None
    time = report.time
    if time is not None and not refusals.allows(require_time_count, time):
        time = None
    return replace(
        report,
        gpu_use=use,
        activity=activity,
        time=time,
        rendezvous=address,
        generation=generation,
        saved=None if report.saved is None else printable(report.saved)[:_LONGEST_NAME],
        started_seconds=_valid_time(report.started_seconds, "started_seconds", refusals),
        reclaim_seconds=_valid_time(report.reclaim_seconds, "reclaim_seconds", refusals),
        transfer=transfer,
        notes=tuple(note[:_LONGEST_NOTE] for note in report.notes[:_MOST_NOTES]),
        failure=None if failure is None else sound_failure(failure, report.instance),
    )


def _valid_time(seconds: float | None, name: str, refusals: Refusals) -> float | None:
    """Return seconds since the epoch; None, with a refusal, if they are out of range."""
    if seconds is None or not refusals.allows(require_number, seconds, name, 0.0, LATEST_SECONDS):
        return None
    return seconds
