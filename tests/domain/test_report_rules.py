from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.errors import SpecError
from autoscaler.domain.goodput import Batch, BatchBounds, NoiseScale
from autoscaler.domain.report import (
    CheckpointStatus,
    Failure,
    MembershipPause,
    MemoryPeak,
    Quality,
    StepObservation,
    TrainingReport,
)
from autoscaler.domain.report_rules import MOST_OBSERVATIONS, Refusals, sound_failure, sound_report

OBSERVED = StepObservation("core", 1, 1, 32, 0, 0.1, 0.0, 50)
PAUSE = MembershipPause("join", 1.5, 1, 2)
REPORT = TrainingReport(
    step=10,
    epoch=0,
    progress_examples=320.0,
    total_examples=3200.0,
    batch=Batch(32, 32, 0),
    bounds=BatchBounds(32, 64, 32, adaptive=True, kind_maxima=(("a100", 64),)),
    replicas=1,
    devices=1,
    learning_rate=0.1,
    parameter_bytes=1000,
    noise=NoiseScale(32, 1e-3, 2e-3, 0.1),
    goodput_measured=320.0,
    state_bytes=3000,
    observations=(OBSERVED,),
    pauses=(PAUSE,),
    checkpoint=CheckpointStatus(8, 0.5, 1000, None, 0.1),
    metrics={"loss": 0.5},
    quality=(Quality(320.0, 0.9),),
    memory=(MemoryPeak("t4", 8, 10**9),),
)


def sound(**changes: Any) -> tuple[TrainingReport | None, list[str]]:
    refusals = Refusals()
    return sound_report(replace(REPORT, **changes), refusals), refusals.texts


def test_a_sound_report_stays_as_it_is() -> None:
    assert sound() == (REPORT, [])


@pytest.mark.parametrize(
    "peak", [MemoryPeak("t4", 0, 1), MemoryPeak("t4", 8, -1), MemoryPeak("\x1b", 8, 1)]
)
def test_a_peak_of_memory_that_can_not_be_is_left_out(peak: MemoryPeak) -> None:
    report, texts = sound(memory=(peak, *REPORT.memory))
    assert report is not None
    assert report.memory == REPORT.memory
    assert len(texts) == 1
    assert "memory." in texts[0]


@pytest.mark.parametrize(
    ("field", "changes"),
    [
        ("step", {"step": -1}),
        ("step", {"step": 10**30}),
        ("progress_examples", {"progress_examples": math.nan}),
        ("progress_examples", {"progress_examples": -1.0}),
        ("total_examples", {"total_examples": math.inf}),
        ("total_examples", {"total_examples": 0.0}),
        ("batch.total", {"batch": Batch(-1, 1, 0)}),
        ("bounds.maximum", {"bounds": BatchBounds(1, 10**21, 1, adaptive=True)}),
        ("replicas", {"replicas": 10**9}),
        ("learning_rate", {"learning_rate": math.nan}),
        ("parameter_bytes", {"parameter_bytes": -1}),
        ("engine", {"engine": "\x1b[2J"}),
        ("engine", {"engine": "restart"}),
    ],
)
def test_a_report_without_a_usable_state_is_refused_by_its_field(
    field: str, changes: dict[str, Any]
) -> None:
    report, texts = sound(**changes)
    assert report is None
    assert [text.partition(":")[0] for text in texts] == [field]


@pytest.mark.parametrize(
    ("field", "changes", "kept"),
    [
        ("noise.gradient_square", {"noise": NoiseScale(32, 0.0, 1.0, 0.1)}, {"noise": None}),
        ("noise", {"noise": NoiseScale(32, 1e-300, 1e300, 0.1)}, {"noise": None}),
        ("goodput_measured", {"goodput_measured": -1.0}, {"goodput_measured": None}),
        ("state_bytes", {"state_bytes": -1}, {"state_bytes": None}),
        (
            "observations.step_seconds",
            {"observations": (OBSERVED, replace(OBSERVED, step_seconds=math.nan))},
            {"observations": (OBSERVED,)},
        ),
        (
            "observations.sync_seconds",
            {"observations": (replace(OBSERVED, sync_seconds=0.1), OBSERVED)},
            {"observations": (OBSERVED,)},
        ),
        (
            "observations.devices",
            {"observations": (replace(OBSERVED, instances=2), OBSERVED)},
            {"observations": (OBSERVED,)},
        ),
        (
            "observations.devices",
            {"observations": (replace(OBSERVED, devices=10**9), OBSERVED)},
            {"observations": (OBSERVED,)},
        ),
        ("pauses.seconds", {"pauses": (replace(PAUSE, seconds=-1.0),)}, {"pauses": ()}),
        ("quality.metric", {"quality": (Quality(1.0, math.nan),)}, {"quality": ()}),
        (
            "metrics.loss",
            {"metrics": {"loss": math.inf, "accuracy": 0.5}},
            {"metrics": {"accuracy": 0.5}},
        ),
        (
            "checkpoint.seconds",
            {"checkpoint": CheckpointStatus(8, math.nan)},
            {"checkpoint": CheckpointStatus(8)},
        ),
    ],
)
def test_a_part_that_can_not_be_used_is_left_out_and_the_rest_stands(
    field: str, changes: dict[str, Any], kept: dict[str, Any]
) -> None:
    report, texts = sound(**changes)
    assert report == replace(REPORT, **kept)
    assert [text.partition(":")[0] for text in texts] == [field]


def test_lists_and_what_is_told_of_them_are_bounded() -> None:
    report, _ = sound(observations=(OBSERVED,) * 5000)
    assert report is not None and len(report.observations) == MOST_OBSERVATIONS
    broken = replace(OBSERVED, step_seconds=-1.0)
    report, texts = sound(observations=(broken,) * 5000)
    assert report is not None and report.observations == ()
    assert len(texts) == 5


def test_a_failure_is_bounded_and_of_the_instance_that_tells_it() -> None:
    reported = Failure(
        "other", 10**30, -(10**30), "x" * 10**6, "y" * 10**6, -1, ("z" * 10**6,) * 500
    )
    failure = sound_failure(reported, "job-0-1")
    assert failure.instance == "job-0-1"
    assert (failure.attempt, failure.exit_code, failure.steps) == (1 << 31, -(1 << 31), 0)
    assert len(failure.cause) == len(failure.signature) == 2000
    assert len(failure.last_lines) == 100 and len(failure.last_lines[0]) == 2000
    for limit, kept in ((("t4", 8), ("t4", 8)), (("t4", -1), None), (("\x1b[2J", 8), None)):
        assert sound_failure(replace(reported, device_limit=limit), "job-0-1").device_limit == kept


numbers = st.one_of(st.floats(), st.integers(-(10**30), 10**30))


@given(name=st.sampled_from([*asdict(OBSERVED)][1:]), value=numbers)
def test_whatever_a_number_of_an_observation_is_the_report_stands(name: str, value: Any) -> None:
    report, _ = sound(observations=(replace(OBSERVED, **{name: value}),))
    assert report is not None
    for observed in report.observations:
        assert 0 < observed.step_seconds < math.inf
        assert 0 <= observed.sync_seconds < math.inf


def test_refusals_are_errors_of_the_domain() -> None:
    assert not Refusals().allows(_refuse)
    with pytest.raises(ZeroDivisionError):
        Refusals().allows(lambda: 1 / 0)  # type: ignore[arg-type, return-value]


def _refuse() -> None:
    raise SpecError("no", "field")
