"""Contract of a store for jobs, and for the reports and failures of jobs."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from autoscaler.domain.errors import Conflict, UnknownInstance, UnknownJob
from autoscaler.domain.job import InstanceBounds, JobPhase, StopReason
from autoscaler.domain.objective import Objective, Preference
from autoscaler.domain.report import Failure, FailureCategory, ReportOrigin
from autoscaler.store.records import samples
from autoscaler.store.repositories.reports import FailureRecord
from autoscaler.store.store import Store
from tests.conformance.store_examples import (
    NOW,
    add_job,
    end,
    full_spec,
    launch,
    report,
    spec,
)

FAILURE = Failure("digits-0-1", 1, -9, "killed", "signal 9", 7, ("last", "words"))


class JobsConformance:
    def test_a_job_comes_back_as_it_was_submitted(self, store: Store) -> None:
        record = store.jobs.add(full_spec(), NOW)
        assert (record.id, record.phase, record.attempt) == ("digits", JobPhase.PENDING, 1)
        assert store.jobs.get("digits") == record
        assert record.spec == full_spec()
        assert str(store.jobs.get("digits").spec.objective.budget_usd) == "500.10"

    def test_a_name_is_used_again_only_when_its_job_has_ended(self, store: Store) -> None:
        first = store.jobs.add(spec(), NOW)
        with pytest.raises(Conflict, match=r"job digits is pending.*castor stop digits"):
            store.jobs.add(spec(), NOW)
        store.jobs.set_phase("digits", JobPhase.FAILED, NOW)
        second = store.jobs.add(spec(), NOW + 1)
        store.jobs.set_phase("digits.2", JobPhase.FINISHED, NOW)
        third = store.jobs.add(spec(), NOW + 2)
        assert [second.id, third.id] == ["digits.2", "digits.3"]
        assert first.number < second.number < third.number

    def test_a_name_finds_the_latest_and_an_id_exactly_one(self, store: Store) -> None:
        add_job(store)
        store.jobs.set_phase("digits", JobPhase.FINISHED, NOW)
        add_job(store)
        assert store.jobs.find("digits").id == "digits.2"
        assert store.jobs.find("digits.2").id == "digits.2"
        assert store.jobs.get("digits").phase is JobPhase.FINISHED

    def test_a_name_has_all_its_jobs_and_its_first_one_a_number(self, store: Store) -> None:
        add_job(store, "letters")
        assert [job.id for job in store.jobs.named("letters.1")] == ["letters"]
        for _ in range(2):
            store.jobs.set_phase(add_job(store), JobPhase.FINISHED, NOW)
        assert [job.id for job in store.jobs.named("digits")] == ["digits", "digits.2"]
        assert [job.id for job in store.jobs.named("digits.1")] == ["digits"]
        assert [job.id for job in store.jobs.named("digits.2")] == ["digits.2"]
        with pytest.raises(UnknownJob, match=r"'numbers\.1'"):
            store.jobs.named("numbers.1")

    def test_the_error_for_an_unknown_job_names_similar_ones(self, store: Store) -> None:
        add_job(store)
        with pytest.raises(UnknownJob, match="'digit': did you mean \"digits\""):
            store.jobs.find("digit")
        with pytest.raises(UnknownJob, match="castor status"):
            store.jobs.get("resnet")

    def test_ended_jobs_are_not_listed_as_alive(self, store: Store) -> None:
        for name in ("a", "b", "c"):
            add_job(store, name)
        store.jobs.set_phase("b", JobPhase.STOPPED, NOW)
        assert [job.id for job in store.jobs.alive()] == ["a", "c"]
        assert [job.id for job in store.jobs.all()] == ["a", "b", "c"]

    def test_the_budget_that_stopped_a_job_stays(self, store: Store) -> None:
        add_job(store)
        assert store.jobs.get("digits").stop_reason is None
        reason = StopReason.STUDY_BUDGET
        store.jobs.set_phase("digits", JobPhase.STOPPING, NOW, "used up", reason)
        store.jobs.set_phase("digits", JobPhase.STOPPED, NOW + 1)
        job = store.jobs.get("digits")
        assert (job.cause, job.stop_reason) == ("used up", reason)

    def test_phases_note_their_times_once(self, store: Store) -> None:
        add_job(store)
        store.jobs.set_phase("digits", JobPhase.RUNNING, NOW + 1)
        store.jobs.set_phase("digits", JobPhase.PENDING, NOW + 2)
        store.jobs.set_phase("digits", JobPhase.RUNNING, NOW + 3)
        store.jobs.set_phase("digits", JobPhase.FINISHED, NOW + 4, cause="done")
        repeated = store.jobs.set_phase("digits", JobPhase.FINISHED, NOW + 5)
        assert (repeated.started_seconds, repeated.ended_seconds) == (NOW + 1, NOW + 4)
        assert repeated.cause == "done"

    @pytest.mark.parametrize(
        ("before", "after"),
        [
            (JobPhase.RUNNING, JobPhase.STOPPED),
            (JobPhase.STOPPING, JobPhase.RUNNING),
            (JobPhase.STOPPING, JobPhase.PENDING),
            (JobPhase.FINISHED, JobPhase.RUNNING),
            (JobPhase.FAILED, JobPhase.PENDING),
            (JobPhase.STOPPED, JobPhase.FINISHED),
        ],
    )
    def test_phases_that_do_not_follow_are_refused(
        self, store: Store, before: JobPhase, after: JobPhase
    ) -> None:
        add_job(store)
        store.jobs.set_phase("digits", before, NOW)
        with pytest.raises(Conflict, match=f"digits.*can't become {after}"):
            store.jobs.set_phase("digits", after, NOW)
        assert store.jobs.get("digits").phase is before

    def test_stop_may_be_asked_for_twice_but_not_after_the_end(self, store: Store) -> None:
        add_job(store)
        store.jobs.request_stop("digits", NOW)
        assert store.jobs.request_stop("digits", NOW).phase is JobPhase.STOPPING
        store.jobs.set_phase("digits", JobPhase.STOPPED, NOW)
        with pytest.raises(Conflict, match="has ended"):
            store.jobs.request_stop("digits", NOW)

    def test_objective_and_bounds_change_while_a_job_lives(self, store: Store) -> None:
        store.jobs.add(full_spec(), NOW)
        cheapest = Objective(Preference.CHEAPEST)
        store.jobs.change_spec("digits", objective=cheapest)
        store.jobs.change_spec("digits", instances=InstanceBounds(2, 3))
        expected = replace(full_spec(), objective=cheapest, instances=InstanceBounds(2, 3))
        assert store.jobs.get("digits").spec == expected
        store.jobs.set_phase("digits", JobPhase.FINISHED, NOW)
        with pytest.raises(Conflict, match=r"has ended \(finished\): castor submit runs"):
            store.jobs.change_spec("digits", objective=Objective())

    def test_a_job_that_stops_is_not_changed(self, store: Store) -> None:
        add_job(store)
        store.jobs.request_stop("digits", NOW)
        with pytest.raises(Conflict, match="digits is stopping: castor resume"):
            store.jobs.change_spec("digits", objective=Objective())

    def test_attempts_only_go_up(self, store: Store) -> None:
        add_job(store)
        store.jobs.start_attempt("digits", 3, NOW + 8)
        store.jobs.start_attempt("digits", 3, NOW + 8)
        with pytest.raises(Conflict, match="attempt 2"):
            store.jobs.start_attempt("digits", 2, None)
        record = store.jobs.get("digits")
        assert (record.attempt, record.retry_seconds) == (3, NOW + 8)

    def test_the_lighthouse_is_kept_and_taken_away(self, store: Store) -> None:
        add_job(store)
        store.jobs.set_lighthouse("digits", "http://127.0.0.1:29510")
        assert store.jobs.get("digits").lighthouse == "http://127.0.0.1:29510"
        store.jobs.set_lighthouse("digits", None)
        assert store.jobs.get("digits").lighthouse is None


class ReportsConformance:
    def test_the_latest_report_is_kept_without_its_measurements(self, store: Store) -> None:
        origin = self._origin(store)
        assert store.reports.add("digits", report(), origin, NOW + 5)
        record = store.jobs.get("digits")
        assert record.report == replace(report(), observations=(), pauses=())
        assert record.reported_seconds == NOW + 5

    def test_a_late_report_of_the_same_start_is_ignored(self, store: Store) -> None:
        origin = self._origin(store)
        store.reports.add("digits", report(200), origin, NOW)
        assert not store.reports.add("digits", report(100), origin, NOW + 1)
        assert self._step(store) == 200

    def test_after_a_restart_from_a_checkpoint_the_step_goes_back(self, store: Store) -> None:
        origin = self._origin(store)
        store.reports.add("digits", report(200), origin, NOW)
        restarted = replace(origin, started_seconds=origin.started_seconds + 60)
        assert store.reports.add("digits", report(100), restarted, NOW)
        assert not store.reports.add("digits", report(300), origin, NOW)
        assert self._step(store) == 100

    def test_a_new_attempt_goes_back_in_steps_at_any_clock(self, store: Store) -> None:
        origin = self._origin(store)
        store.reports.add("digits", report(200), origin, NOW)
        other = ReportOrigin(launch(store).id, 2, origin.started_seconds - 60)
        assert store.reports.add("digits", report(100), other, NOW)

    def test_any_replica_may_go_on_with_the_reports(self, store: Store) -> None:
        first = self._origin(store)
        second = ReportOrigin(launch(store).id, 1, first.started_seconds + 60)
        store.reports.add("digits", report(100), second, NOW)
        assert store.reports.add("digits", report(101), first, NOW)
        assert not store.reports.add("digits", report(100), first, NOW)

    def test_the_next_report_corrects_one_of_a_lost_instance(self, store: Store) -> None:
        lost = self._origin(store)
        store.reports.add("digits", report(200), lost, NOW)
        restarted = ReportOrigin(launch(store).id, 1, lost.started_seconds + 60)
        store.reports.add("digits", report(100), restarted, NOW)
        store.reports.add("digits", report(201), lost, NOW)
        assert store.reports.add("digits", report(101), restarted, NOW)
        assert self._step(store) == 101

    def test_reports_of_an_ended_instance_are_ignored(self, store: Store) -> None:
        origin = self._origin(store)
        end(store, origin.instance)
        assert not store.reports.add("digits", report(), origin, NOW)
        assert store.jobs.get("digits").report is None

    def test_reports_of_other_jobs_instances_are_refused(self, store: Store) -> None:
        self._origin(store)
        add_job(store, "other")
        theirs = ReportOrigin(launch(store, "other").id, 1, NOW)
        with pytest.raises(Conflict, match="belongs to job other"):
            store.reports.add("digits", report(), theirs, NOW)
        with pytest.raises(UnknownInstance):
            store.reports.add("digits", report(), ReportOrigin("digits-9-9", 1, NOW), NOW)
        with pytest.raises(UnknownJob):
            store.reports.add("unknown", report(), ReportOrigin("digits-0-1", 1, NOW), NOW)

    def test_a_repeated_report_is_measured_once(self, store: Store) -> None:
        origin = self._origin(store)
        for step in (100, 100, 50):
            store.reports.add("digits", report(step), origin, NOW)
        (observation,) = store.measurements.observations("digits")
        assert observation.steps == 100
        assert store.measurements.durations("digits")[None, "join pause"].count == 1

    def test_reports_are_sampled_over_time(self, store: Store) -> None:
        origin = self._origin(store)
        assert store.reports.samples("digits") == ()
        for turn in range(4):
            late = report(100 + turn, metrics={"loss": 1.0 / (1 + turn)}, goodput_measured=50.0)
            store.reports.add("digits", late, origin, NOW + 0.5 * turn)
        store.reports.add("digits", report(50), origin, NOW + 9)
        first, second = store.reports.samples("digits")
        assert (first.at_seconds, second.at_seconds) == (NOW, NOW + 1.0)
        assert (second.progress_examples, second.batch, second.loss) == (64.0 * 102, 64, 1.0 / 3)
        assert (second.goodput, second.learning_rate) == (50.0, 1e-3)
        assert second.noise_examples == pytest.approx(report().noise.examples)  # type: ignore[union-attr]
        store.reports.add("digits", report(200), origin, NOW + 2)
        unknown = store.reports.samples("digits")[-1]
        assert (unknown.goodput, unknown.loss) == (None, None)

    def test_a_long_run_has_a_bounded_number_of_samples(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(samples, "MOST_SAMPLES", 8)
        origin = self._origin(store)
        for turn in range(40):
            store.reports.add("digits", report(turn), origin, NOW + turn)
        times = [sample.at_seconds - NOW for sample in store.reports.samples("digits")]
        assert 4 <= len(times) <= 8
        assert times[0] == 0.0 and times[-1] >= 32.0
        assert max(later - earlier for earlier, later in pairwise(times)) <= 8.0

    def test_a_failure_is_kept_once(self, store: Store) -> None:
        add_job(store)
        first = FAILURE
        second = replace(first, attempt=2, cause="no module named foo")
        assert store.reports.add_failure("digits", first, NOW)
        assert not store.reports.add_failure("digits", first, NOW + 1)
        assert store.reports.add_failure("digits", second, NOW + 2)
        assert store.reports.failures("digits") == (first, second)
        record = store.jobs.get("digits")
        assert (record.cause, record.last_lines) == ("no module named foo", ("last", "words"))

    def test_recent_failures_are_those_since_a_time(self, store: Store) -> None:
        store.jobs.add(spec("digits"), NOW)
        store.jobs.add(spec("words"), NOW)
        early, late, other = (
            Failure(f"i-{n}", n, 1, "ended", "1", 0, category=FailureCategory.CRASH)
            for n in (1, 2, 3)
        )
        store.reports.add_failure("digits", early, 10.0)
        store.reports.add_failure("words", other, 20.0)
        store.reports.add_failure("digits", late, 30.0)
        records = [
            FailureRecord("digits", 10.0, early),
            FailureRecord("words", 20.0, other),
            FailureRecord("digits", 30.0, late),
        ]
        assert store.reports.recent_failures(0.0) == tuple(records)
        assert store.reports.recent_failures(20.0) == tuple(records[1:])
        assert store.reports.recent_failures(20.0, "digits") == (records[2],)

    def test_a_lack_of_device_memory_limits_the_next_start(self, store: Store) -> None:
        origin = self._origin(store)
        short = replace(FAILURE, device_limit=("t4", 8))
        store.reports.add_failure("digits", short, NOW)
        assert store.jobs.get("digits").spec.batch.kind_maxima == (("t4", 8),)
        store.reports.add("digits", report(), origin, NOW)
        store.reports.add_failure("digits", replace(short, device_limit=("t4", 4), attempt=2), NOW)
        record = store.jobs.get("digits")
        assert record.spec.batch.kind_maxima == (("t4", 4),)
        assert record.report is not None
        assert record.report.bounds.kind_maxima == (("t4", 4),)
        store.reports.add("digits", report(200), origin, NOW + 1)
        latest = store.jobs.get("digits").report
        assert latest is not None and latest.bounds.kind_maxima == (("t4", 4),)

    def _origin(self, store: Store) -> ReportOrigin:
        add_job(store)
        return ReportOrigin(launch(store).id, 1, NOW + 2)

    def _step(self, store: Store) -> int | None:
        latest = store.jobs.get("digits").report
        return None if latest is None else latest.step
