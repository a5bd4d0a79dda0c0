"""Contract of a store for lists of jobs in pages, and for what the views of a page need."""

from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.job import JobPhase
from autoscaler.domain.report import Failure
from autoscaler.store.repositories.jobs import JobFilter, JobOrder, JobPlace
from autoscaler.store.store import Store
from tests.conformance.store_examples import (
    NOW,
    add_job,
    decision,
    end,
    launch,
    plan,
    snapshot,
    spec,
)

# Name, person, team, study and phase of the jobs of `fill`, the oldest first.
JOBS = (
    ("text", "ada", "nlp", None, JobPhase.FINISHED),
    ("digits", None, None, None, JobPhase.FAILED),
    ("sweep-0", "ada", "nlp", "sweep", JobPhase.STOPPED),
    ("digits", "bob", "vision", None, JobPhase.RUNNING),
    ("sweep-1", "ada", "nlp", "sweep", JobPhase.PENDING),
)
IDS = ("text", "digits", "sweep-0", "digits.2", "sweep-1")


def fill(store: Store) -> None:
    for name, person, team, study, phase in JOBS:
        job = replace(spec(name), person=person, team=team, study=study)
        store.jobs.set_phase(store.jobs.add(job, NOW).id, phase, NOW + 1)


def pages(store: Store, wanted: JobFilter, order: JobOrder, limit: int) -> list[list[str]]:
    """Return the ids of all pages of a list."""
    listed: list[list[str]] = []
    after: JobPlace | None = None
    while page := store.jobs.page(wanted, order, limit, after):
        listed.append([job.id for job in page])
        after = JobPlace(page[-1].number, page[-1].spec.name)
    return listed


class JobListsConformance:
    @pytest.mark.parametrize("limit", [1, 2, 3, 5, 9])
    @pytest.mark.parametrize(
        ("order", "ids"),
        [
            (JobOrder.OLDEST, IDS),
            (JobOrder.NEWEST, IDS[::-1]),
            (JobOrder.NAME, ("digits", "digits.2", "sweep-0", "sweep-1", "text")),
        ],
    )
    def test_pages_have_all_jobs_once_in_order(
        self, store: Store, order: JobOrder, ids: tuple[str, ...], limit: int
    ) -> None:
        fill(store)
        listed = pages(store, JobFilter(), order, limit)
        assert [job for page in listed for job in page] == list(ids)
        assert {len(page) for page in listed[:-1]} <= {limit}
        assert tuple(job.id for job in store.jobs.page(JobFilter(), order, None)) == ids

    @pytest.mark.parametrize(
        ("wanted", "ids"),
        [
            (JobFilter(phases=(JobPhase.RUNNING, JobPhase.PENDING)), IDS[3:]),
            (JobFilter(phases=()), ()),
            (JobFilter(person="ada"), ("text", "sweep-0", "sweep-1")),
            (JobFilter(person="owner"), ("digits",)),
            (JobFilter(team="vision"), ("digits.2",)),
            (JobFilter(study="sweep"), ("sweep-0", "sweep-1")),
            (JobFilter(text="igit"), ("digits", "digits.2")),
            (JobFilter(text="s.2"), ("digits.2",)),
            (JobFilter(text="%"), ()),
            (JobFilter(text="_"), ()),
            (JobFilter((JobPhase.STOPPED,), "ada", "nlp", "sweep", "sweep"), ("sweep-0",)),
            (JobFilter(person="nobody"), ()),
            (JobFilter(ended_since_seconds=NOW + 1), IDS[:3]),
            (JobFilter((JobPhase.FAILED,), ended_since_seconds=NOW), ("digits",)),
            (JobFilter(ended_since_seconds=NOW + 2), ()),
        ],
    )
    def test_filters_are_those_of_the_whole_list(
        self, store: Store, wanted: JobFilter, ids: tuple[str, ...]
    ) -> None:
        fill(store)
        listed = pages(store, wanted, JobOrder.OLDEST, 2)
        assert [job for page in listed for job in page] == list(ids)
        assert sum(store.jobs.phase_counts(wanted).values()) == len(ids)

    def test_a_job_that_a_later_one_of_its_owner_follows_is_not_the_latest(
        self, store: Store
    ) -> None:
        owners = (("a", "ada"), ("a", "ada"), ("a", "bob"), ("c", None), ("c", None))
        specs = [replace(spec(name), person=person) for name, person in owners]
        ids: list[str] = []
        for number, job in enumerate(specs):
            ids.append(store.jobs.add(job, NOW).id)
            if number < len(specs) - 1:
                store.jobs.set_phase(ids[-1], JobPhase.FAILED, NOW + 1)
        latest = JobFilter(is_latest=True)
        listed = pages(store, latest, JobOrder.OLDEST, 1)
        assert [job for page in listed for job in page] == [ids[1], ids[2], ids[4]]
        assert dict(store.jobs.phase_counts(latest)) == {
            JobPhase.FAILED: 2,
            JobPhase.PENDING: 1,
        }
        failed = JobFilter((JobPhase.FAILED,), is_latest=True)
        assert sum(store.jobs.phase_counts(failed).values()) == 2

    def test_jobs_are_counted_by_phase(self, store: Store) -> None:
        assert dict(store.jobs.phase_counts(JobFilter())) == {}
        fill(store)
        counts = store.jobs.phase_counts(JobFilter(person="ada"))
        phases = (JobPhase.FINISHED, JobPhase.STOPPED, JobPhase.PENDING)
        assert dict(counts) == dict.fromkeys(phases, 1)

    def test_a_page_begins_where_the_one_before_ended_though_jobs_come_and_end(
        self, store: Store
    ) -> None:
        fill(store)
        alive = JobFilter(phases=(JobPhase.RUNNING, JobPhase.PENDING))
        (newest,) = store.jobs.page(alive, JobOrder.NEWEST, 1)
        add_job(store, "later")
        store.jobs.set_phase(newest.id, JobPhase.FAILED, NOW + 2)
        place = JobPlace(newest.number, newest.spec.name)
        assert [j.id for j in store.jobs.page(alive, JobOrder.NEWEST, 9, place)] == ["digits.2"]

    def test_the_latest_decision_of_each_job_is_read_at_once(self, store: Store) -> None:
        for job in ("text", "digits", "quiet"):
            add_job(store, job)
        for tick, job in enumerate(("text", "digits", "text"), 1):
            made = decision(job, f"grow {tick}")
            store.journal.add(tick, NOW + tick, snapshot(), plan(made), (made,))
        latest = store.journal.latest(["text", "digits", "quiet"])
        assert {job: entry.decision.reason for job, entry in latest.items()} == {
            "text": "grow 3",
            "digits": "grow 2",
        }
        assert latest["text"] == store.journal.decisions("text", 1)[0]
        assert store.journal.latest([]) == {}

    def test_lines_failures_and_ended_instances_of_several_jobs(self, store: Store) -> None:
        for job in ("text", "digits", "quiet"):
            add_job(store, job)
        first, second = launch(store, "text"), launch(store, "digits")
        ended = end(store, first.id)
        failures = [Failure(first.id, n, 1, f"cause {n}", "s", 0) for n in (1, 2)]
        for failure in failures:
            store.reports.add_failure("text", failure, NOW)
        jobs = ["text", "quiet"]
        assert store.ledger.of_jobs(jobs) == store.ledger.entries("text")
        assert store.ledger.of_jobs(["text", "digits"]) == store.ledger.entries()
        assert dict(store.reports.last_failures(jobs)) == {"text": failures[1]}
        assert dict(store.instances.ended_of_jobs(jobs)) == {"text": (ended,)}
        assert dict(store.instances.ended_of_jobs([second.job])) == {}
