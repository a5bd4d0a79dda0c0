"""Heartbeats as they come in: what can't be used is left out, and the rest stands.

An instance whose training reports nonsense is alive, so its heartbeat counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, get_type_hints

from pydantic_core import to_json

from autoscaler.domain.errors import SpecError
from autoscaler.domain.report import TrainingReport
from autoscaler.domain.report_rules import Refusals, sound_failure, sound_report
from autoscaler.domain.rules import LATEST_SECONDS, require_count, require_number
from autoscaler.wire.bodies import read_body, read_json
from autoscaler.wire.messages import NodeReport

_MOST_NOTES: Final = 20
_LONGEST_NOTE: Final = 500
_MOST_REPORTS: Final = 10
_MOST_ATTEMPTS: Final = 1 << 31
_MOST_DEVICES: Final = 1 << 20
_ESSENTIAL: Final = ("instance", "phase", "attempt", "devices_used", "job")
_KINDS: Final = get_type_hints(NodeReport)


def read_node_report(body: bytes) -> tuple[NodeReport, tuple[str, ...]]:
    """Return a heartbeat, and why parts of it were left out.

    Raises:
        SpecError: the body is no heartbeat: whose it is, or how its instance is, can't be read.
    """
    values, refusals = _mapping(body), Refusals()
    essential = {name: values[name] for name in _ESSENTIAL if name in values}
    report = read_body(NodeReport, to_json(essential))
    require_count(report.attempt, "attempt", _MOST_ATTEMPTS)
    require_count(report.devices_used, "devices_used", _MOST_DEVICES, least=0)
    others = {
        name: value
        for name, kind in _KINDS.items()
        if name in values and name not in (*_ESSENTIAL, "reports")
        for value in _read(kind, values[name], name, refusals)
    }
    reports = _reports(values.get("reports"), refusals)
    return _sound(replace(report, **others, reports=reports), refusals), tuple(refusals.texts)


def _mapping(body: bytes) -> Mapping[str, Any]:
    values = read_json(body)
    if not isinstance(values, dict):
        raise SpecError("a heartbeat is one JSON object: this is none")
    return values


def _read(kind: Any, value: object, name: str, refusals: Refusals) -> tuple[Any, ...]:
    """Return the value as a `kind`, alone; nothing where it is none."""
    try:
        return (read_body(kind, to_json(value, inf_nan_mode="strings")),)
    except SpecError as error:
        place = name if error.field is None else f"{name}.{error.field}"
        refusals.add(SpecError(error.message, place))
        return ()


def _reports(values: object, refusals: Refusals) -> tuple[TrainingReport, ...]:
    parts = values if isinstance(values, list) else []
    read = (
        report
        for part in parts[-_MOST_REPORTS:]
        for report in _read(TrainingReport, part, "reports", refusals)
    )
    return tuple(sound for report in read if (sound := sound_report(report, refusals)) is not None)


def _sound(report: NodeReport, refusals: Refusals) -> NodeReport:
    """Return a heartbeat of the right types with values that can be used."""
    failure, transfer = report.failure, report.transfer
    if transfer is not None and _moment(transfer.begun_seconds, "transfer", refusals) is None:
        transfer = None
    return replace(
        report,
        started_seconds=_moment(report.started_seconds, "started_seconds", refusals),
        reclaim_seconds=_moment(report.reclaim_seconds, "reclaim_seconds", refusals),
        transfer=transfer,
        notes=tuple(note[:_LONGEST_NOTE] for note in report.notes[:_MOST_NOTES]),
        failure=None if failure is None else sound_failure(failure, report.instance),
    )


def _moment(seconds: float | None, name: str, refusals: Refusals) -> float | None:
    """Return seconds since the epoch, or None where they can't be."""
    if seconds is None or not refusals.allows(require_number, seconds, name, 0.0, LATEST_SECONDS):
        return None
    return seconds
