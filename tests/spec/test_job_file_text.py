"""Job files that are written from stored jobs, and read back."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from autoscaler.domain.errors import SpecError
from autoscaler.domain.job import (
    BatchSpec,
    CheckpointSpec,
    GpuKind,
    InstanceBounds,
    JobSpec,
    ParallelismSpec,
)
from autoscaler.domain.objective import AfterDeadline, Objective, Preference
from autoscaler.spec.job_file import load_job
from autoscaler.spec.job_file_text import job_file_text
from tests.spec.test_job_file import NOW_SECONDS, examples

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
PLAIN = JobSpec("digits", ("python", "train.py"))


def again(spec: JobSpec, now_seconds: float = NOW_SECONDS) -> JobSpec:
    """Return the job of the file that is written of a job."""
    return load_job(job_file_text(spec, now_seconds), now_seconds).spec


@pytest.mark.parametrize("text", examples())
def test_every_file_of_the_reference_is_written_and_read_back(text: str) -> None:
    spec = load_job(text, NOW_SECONDS).spec
    assert again(spec) == spec


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*/job.yaml")), ids=lambda p: p.parent.name)
def test_every_example_is_written_and_read_back(path: Path) -> None:
    spec = load_job(path, NOW_SECONDS).spec
    assert again(spec) == spec


@pytest.mark.parametrize(
    "spec",
    [
        PLAIN,
        replace(PLAIN, command=("bash", "-c", "a && b | c > 'd e'\n# f")),
        replace(PLAIN, command=("python", "é\u202e\x1b[2J", "null", "0.10", "-- x")),
        replace(PLAIN, environment={"A": "null", "B": "", "C": "on", "D": "1e3", "E": "x: y #"}),
        replace(PLAIN, batch=BatchSpec(adaptive=True)),
        replace(PLAIN, batch=BatchSpec(64, None, 32)),
        replace(PLAIN, priority=2.5, retries=0, total_examples=1.25e12),
        replace(PLAIN, priority=0.25, program="other", image="repo/image:1"),
        replace(PLAIN, parallelism=ParallelismSpec(pipeline=4, microbatches=8)),
        replace(PLAIN, parallelism=ParallelismSpec(shards=(1, 2, 4))),
        replace(PLAIN, instances=InstanceBounds(2, 4, gpus=(GpuKind("h100", 8), GpuKind("l4")))),
        replace(
            PLAIN, instances=InstanceBounds(spot=False, max_usd_per_hour=Decimal("0.123456789"))
        ),
        replace(PLAIN, checkpoint=CheckpointSpec("/models", 5432.5, 7, "earlier")),
        replace(PLAIN, checkpoint=CheckpointSpec(interval_seconds=5400.0)),
        replace(PLAIN, objective=Objective(Preference.FASTEST, is_uncapped=True)),
        replace(PLAIN, objective=Objective(is_uncapped=True)),
        replace(PLAIN, objective=Objective(Preference.CHEAPEST)),
        replace(
            PLAIN,
            objective=Objective(Preference.VALUE_OF_TIME, value_of_time_usd_per_hour=0.00001),
        ),
        replace(
            PLAIN,
            objective=Objective(
                deadline_seconds=NOW_SECONDS + 100.25,
                budget_usd=Decimal("20.10"),
                confidence=0.75,
                after_deadline=AfterDeadline.STOP,
            ),
        ),
    ],
    ids=range(19),
)
def test_a_job_is_written_and_read_back(spec: JobSpec) -> None:
    text = job_file_text(spec, NOW_SECONDS)
    assert text.replace("\n", "").isprintable()
    assert load_job(text, NOW_SECONDS).spec == spec


def test_what_only_the_controller_sets_is_left_out() -> None:
    stored = replace(
        PLAIN,
        bundle="0" * 64,
        person="ada",
        team="nlp",
        resumes="digits",
        objective=Objective(cap_usd=Decimal(50)),
        batch=BatchSpec(kind_maxima=(("t4", 32),)),
        parallelism=ParallelismSpec(shard=2, has_chosen_shard=True),
    )
    assert again(stored) == replace(PLAIN, parallelism=ParallelismSpec(shard=2))


def test_a_deadline_that_has_passed_is_a_comment() -> None:
    objective = Objective(
        deadline_seconds=NOW_SECONDS, confidence=0.8, after_deadline=AfterDeadline.FASTEST
    )
    text = job_file_text(replace(PLAIN, objective=objective), NOW_SECONDS + 1)
    assert text.startswith("# Its deadline has passed and is left out: ")
    assert "deadline: 4h" in text
    assert load_job(text, NOW_SECONDS + 1).spec == PLAIN


@pytest.mark.parametrize(
    ("given_seconds", "upload_seconds", "words"),
    [(7200.0, 0.3, "2h"), (7200.0, 25.0, "2h"), (90.0, 0.2, "1m30s"), (0.7, 0.5, "1s")],
)
def test_a_duration_is_written_again_and_counts_from_the_next_submission(
    given_seconds: float, upload_seconds: float, words: str
) -> None:
    read_seconds = NOW_SECONDS + 0.123456
    objective = Objective(deadline_seconds=read_seconds + given_seconds, budget_usd=Decimal(5))
    spec, a_day_later = replace(PLAIN, objective=objective), read_seconds + 86_400.5
    text = job_file_text(spec, a_day_later, read_seconds + upload_seconds)
    assert f"\n  deadline: {words}\n" in text
    comment = text.splitlines()[0]
    assert f"{words} after its submission" in comment and comment.startswith(
        "# Its deadline was 1970-01-12T"
    )
    again = load_job(text, a_day_later + 1).spec.objective
    assert again.deadline_seconds is not None and again.budget_usd == Decimal(5)
    assert again.deadline_seconds - a_day_later == pytest.approx(given_seconds + 1, abs=1)


def test_the_rest_of_a_budget_is_written_with_nine_decimals() -> None:
    objective = Objective(budget_usd=Decimal("4.999906666666"))
    read = again(replace(PLAIN, objective=objective)).objective
    assert read == Objective(budget_usd=Decimal("4.999906666"))


def test_a_date_is_written_as_a_date() -> None:
    spec = replace(PLAIN, objective=Objective(deadline_seconds=NOW_SECONDS + 3600))
    text = job_file_text(spec, NOW_SECONDS + 1.5, NOW_SECONDS + 0.25)
    assert not text.startswith("#") and "deadline: '1970-01-12T" in text
    assert load_job(text, NOW_SECONDS + 1.5).spec == spec


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        (replace(PLAIN, requested_devices=4), "requested_devices"),
        (replace(PLAIN, distributed=True), "distributed"),
        (replace(PLAIN, study="sweep"), "study"),
        (replace(PLAIN, command=("echo", "")), "command"),
        (replace(PLAIN, name="Not a name"), "name"),
    ],
)
def test_a_job_that_no_file_can_have_is_refused_by_its_field(spec: JobSpec, field: str) -> None:
    with pytest.raises(SpecError, match=rf"{field}.*GET /v1/jobs/JOB/spec"):
        job_file_text(spec, NOW_SECONDS)


def test_a_file_is_short() -> None:
    spec = replace(PLAIN, instances=InstanceBounds(1, 4))
    assert job_file_text(spec, NOW_SECONDS) == (
        "name: digits\ncommand: python train.py\nbatch: fixed\n"
        "instances:\n  min: 1\n  max: 4\nobjective: balanced\n"
    )
