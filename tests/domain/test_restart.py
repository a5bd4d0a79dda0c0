"""Progress that a command prints, and rules for jobs with restarts."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import InstanceBounds, JobSpec
from autoscaler.domain.job_rules import require_valid_job
from autoscaler.domain.restart import RestartSpec, progress_pattern


@pytest.mark.parametrize(
    ("text", "line", "number"),
    [
        ("examples {examples}", "[rank 0] loss 0.3, examples 1,250", 1250.0),
        ("step {step} loss", "step   12   loss 0.5", 12.0),
        ("step {step}", "step 1 step 2", 2.0),
        ("[{step}/", "[17/100] 3.2 it/s", 17.0),
        ("seen={examples}", "seen=1.5e6", 1.5e6),
        ("step {step}", "step none", None),
        ("step {step}", "step -3", None),
        ("a.b {step}", "aXb 3", None),
    ],
)
def test_numbers_are_found_in_lines(text: str, line: str, number: float | None) -> None:
    assert progress_pattern(text).number_in(line) == number


@pytest.mark.parametrize(
    "text", ["", "done", "{step}", "{step} {examples}", "a\n{step}", "x" * 999]
)
def test_texts_without_one_number_are_refused(text: str) -> None:
    with pytest.raises(SpecError) as refused:
        progress_pattern(text)
    assert refused.value.field == "restart.progress"


@given(text=st.text(max_size=50), line=st.text(max_size=200))
def test_any_text_is_refused_or_searches_any_line(text: str, line: str) -> None:
    try:
        pattern = progress_pattern(f"{text}{{step}}")
    except SpecError:
        return
    number = pattern.number_in(line)
    assert number is None or number >= 0


@pytest.mark.parametrize(
    ("field", "restart"),
    [
        ("restart.checkpoint", RestartSpec("")),
        ("restart.checkpoint", RestartSpec("../a")),
        ("restart.checkpoint", RestartSpec("/a/../b")),
        ("restart.grace", RestartSpec("a/*", grace_seconds=math.nan)),
        ("restart.grace", RestartSpec("a/*", grace_seconds=1e9)),
        ("restart.wait", RestartSpec("a/*", wait_seconds=0.0)),
        ("restart.progress", RestartSpec("a/*", progress="{step}")),
        ("batch", RestartSpec("a/*", progress="step {step}")),
    ],
)
def test_invalid_restarts_of_requests_name_their_field(field: str, restart: RestartSpec) -> None:
    with pytest.raises(SpecError) as refused:
        require_valid_job(JobSpec("plain", ("python", "train.py"), restart=restart))
    assert refused.value.field == field


def test_a_job_of_one_size_needs_no_progress() -> None:
    spec = JobSpec("plain", ("true",), restart=RestartSpec("a/*"))
    require_valid_job(spec)
    bounds = InstanceBounds(1, 2)
    with pytest.raises(SpecError, match="no size can be measured"):
        require_valid_job(JobSpec("plain", ("true",), instances=bounds, restart=spec.restart))
