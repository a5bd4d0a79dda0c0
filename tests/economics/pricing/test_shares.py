"""Weights of jobs by users' shares and jobs' priorities."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.domain.job import JobPhase, JobRecord, JobSpec
from autoscaler.economics.pricing.shares import weights

PEOPLE = ("ada", "bob", "cy", None)
shares = st.dictionaries(st.sampled_from(["ada", "bob"]), st.floats(0.1, 10.0), min_size=1)
owners = st.lists(st.sampled_from(PEOPLE), min_size=1, max_size=8)


def record(number: int, person: str | None, priority: float = 1.0) -> JobRecord:
    spec = JobSpec(f"job-{number}", ("true",), priority=priority, person=person)
    return JobRecord(spec.name, number, spec, JobPhase.RUNNING, 0.0)


def of_each(people: list[str | None]) -> list[JobRecord]:
    return [record(number, person) for number, person in enumerate(people)]


@given(owners, shares)
def test_a_user_s_jobs_weigh_together_what_the_share_is(
    people: list[str | None], given_shares: Mapping[str, float]
) -> None:
    jobs = of_each(people)
    job_weights = weights(jobs, given_shares)
    together: dict[str | None, float] = defaultdict(float)
    for job in jobs:
        together[job.spec.person] += job_weights[job.id]
    per_share = {
        person: weight / given_shares.get(person or "", 1.0) for person, weight in together.items()
    }
    assert per_share == pytest.approx(dict.fromkeys(per_share, fmean(per_share.values())))
    assert fmean(job_weights.values()) == pytest.approx(1.0)


@given(owners, shares, st.floats(0.5, 8.0))
def test_only_the_ratio_of_shares_counts(
    people: list[str | None], given_shares: Mapping[str, float], factor: float
) -> None:
    jobs = of_each(["ada" if person is None or person == "cy" else person for person in people])
    both = {"ada": 1.0, "bob": 1.0, **given_shares}
    scaled = {person: factor * share for person, share in both.items()}
    assert weights(jobs, scaled) == pytest.approx(weights(jobs, both))


@given(owners)
def test_equal_users_with_a_job_each_weigh_one(people: list[str | None]) -> None:
    jobs = of_each(sorted(set(people), key=str))
    assert weights(jobs, {"ada": 1.0}) == pytest.approx({job.id: 1.0 for job in jobs})


def test_priorities_multiply_and_alone_they_are_the_weight() -> None:
    jobs = [record(0, "ada", 4.0), record(1, "ada"), record(2, "bob")]
    assert weights(jobs, {}) == {"job-0": 4.0, "job-1": 1.0, "job-2": 1.0}
    assert weights(jobs, {"ada": 2.0}) == pytest.approx({"job-0": 4.0, "job-1": 1.0, "job-2": 1.0})
    assert weights([], {"ada": 2.0}) == {}
