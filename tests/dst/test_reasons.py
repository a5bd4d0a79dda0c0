"""Causes by which the simulation takes a job for one that says why it waits."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dst.reasons import PLANNED_SECONDS, START_SECONDS, present_causes

_NOW = 10_000.0


def _view(**changes: Any) -> dict[str, Any]:
    view = {
        "phase": "pending",
        "trouble": None,
        "hands_off": None,
        "stall": None,
        "false_starts": [],
        "instances": [],
        "decision": None,
        "events": [{"at_seconds": _NOW, "kind": "submitted", "text": "submitted"}],
    }
    return view | changes


def _decision(at_seconds: float, planned_seconds: float | None, target: Any = None) -> Any:
    return {
        "at_seconds": at_seconds,
        "planned_seconds": planned_seconds,
        "target": target,
        "reason": "wait job: outbid",
    }


def _instance(phase: str, age_seconds: float) -> dict[str, Any]:
    return {"id": "job-0-1", "phase": phase, "requested_seconds": _NOW - age_seconds}


@pytest.mark.parametrize(
    "view",
    [
        _view(trouble="can't be planned: OverflowError"),
        _view(hands_off="frozen"),
        _view(stall="no step for 20 min"),
        _view(false_starts=["g5.xlarge: 3 starts in a row"]),
        _view(phase="stopping"),
        _view(instances=[_instance("booting", 100)]),
        _view(decision=_decision(0.0, _NOW - 10)),
        _view(decision=_decision(_NOW - 100, _NOW - 10, {"offer": "a"})),
    ],
)
def test_present_causes_count(view: dict[str, Any]) -> None:
    assert present_causes(view, _NOW)


@pytest.mark.parametrize(
    "view",
    [
        _view(),
        _view(instances=[_instance("booting", START_SECONDS)]),
        _view(instances=[_instance("training", 100)]),
        _view(decision=_decision(_NOW - PLANNED_SECONDS - 1, None)),
        _view(decision=_decision(0.0, _NOW - PLANNED_SECONDS - 1)),
        _view(decision=_decision(_NOW - 1000, _NOW - 10, {"offer": "a"})),
    ],
)
def test_events_and_what_no_plan_keeps_are_no_causes(view: dict[str, Any]) -> None:
    assert present_causes(view, _NOW) == []
