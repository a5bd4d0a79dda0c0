"""Contract of a store for trials, for the drivers of studies and for terms of studies."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

import pytest

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.errors import Conflict, NotFound, UnknownJob
from autoscaler.domain.job import JobPhase
from autoscaler.domain.objective import Objective
from autoscaler.domain.terms import LaterRung, StudyTerms, TrialProgress, TrialSpeed
from autoscaler.domain.trial import (
    GivenAnswer,
    StopRequest,
    StudyStop,
    TrialAnswer,
    TrialCall,
    WaitingCall,
)
from autoscaler.store.store import Store
from tests.conformance.store_examples import NOW, spec

ONE = Allocation("small", 1, 1)
TWO = Allocation("small", 2, 1)


def add_trial(store: Store, name: str, study: str = "sweep") -> str:
    return store.jobs.add(replace(spec(name), study=study), NOW).id


def calls(*numbers: int) -> list[TrialCall]:
    return [TrialCall(number, f"call {number}") for number in numbers]


def given(job: str, incarnation: int, number: int, text: str = "yes") -> GivenAnswer:
    return GivenAnswer(job, incarnation, TrialAnswer(number, text))


def waiting_numbers(store: Store, study: str = "sweep") -> list[tuple[str, int, int]]:
    waiting = store.trials.waiting(study)
    return [(call.job, call.incarnation, call.call.number) for call in waiting]


class TrialsConformance:
    def test_studies_are_listed_by_name(self, store: Store) -> None:
        assert store.studies.names() == ()
        for study in ("b", "a", "a-2"):
            store.studies.state(study, StudyTerms())
        store.studies.state("b", StudyTerms(to_begin=1))
        assert store.studies.names() == ("a", "a-2", "b")

    @pytest.fixture
    def trial(self, store: Store) -> str:
        return add_trial(store, "sweep-0")

    def test_each_start_is_an_incarnation(self, store: Store, trial: str) -> None:
        assert store.trials.begin(trial, "a", NOW) == 1
        assert store.trials.begin(trial, "a", NOW) == 1
        assert store.trials.begin(trial, "a", NOW + 1.0) == 2
        assert store.trials.begin(trial, "b", NOW + 1.0) == 3
        with pytest.raises(Conflict, match="incarnation 2 of trial sweep-0 is over: 3 holds it"):
            store.trials.begin(trial, "a", NOW + 1.0)
        with pytest.raises(UnknownJob):
            store.trials.begin("none", "a", NOW)

    def test_calls_wait_in_order_until_they_are_answered(self, store: Store, trial: str) -> None:
        other = add_trial(store, "sweep-1")
        foreign = add_trial(store, "alone", "another")
        for job in (trial, other, foreign):
            store.trials.begin(job, job, NOW)
        store.trials.tell(trial, 1, calls(1, 2))
        store.trials.tell(foreign, 1, calls(1))
        store.trials.tell(other, 1, calls(1))
        assert store.trials.tell(trial, 1, calls(2, 3)) == "sweep"
        expected = [(trial, 1, 1), (trial, 1, 2), (other, 1, 1), (trial, 1, 3)]
        assert waiting_numbers(store) == expected
        assert store.trials.waiting("sweep")[1] == WaitingCall(trial, 1, TrialCall(2, "call 2"))
        assert len(store.trials.waiting("sweep", limit=2)) == 2
        store.trials.answer("sweep", [given(trial, 1, 2), given(other, 1, 1)])
        assert waiting_numbers(store) == [(trial, 1, 1), (trial, 1, 3)]
        assert waiting_numbers(store, "another") == [(foreign, 1, 1)]
        store.trials.answer("sweep", [given(foreign, 1, 1)])
        assert waiting_numbers(store, "another") == [(foreign, 1, 1)], "no trial of this study"
        assert store.trials.answers(foreign, 1, after=0) == ()

    def test_the_first_answer_stays(self, store: Store, trial: str) -> None:
        store.trials.begin(trial, "a", NOW)
        store.trials.tell(trial, 1, calls(1, 2, 3))
        store.trials.answer("sweep", [given(trial, 1, 3), given(trial, 1, 1), given(trial, 1, 9)])
        store.trials.answer("sweep", [given(trial, 1, 1, "no")])
        yes = (TrialAnswer(1, "yes"), TrialAnswer(3, "yes"))
        assert store.trials.answers(trial, 1, after=0) == yes
        assert store.trials.answers(trial, 1, after=1) == yes[1:]
        assert store.trials.answers(trial, 2, after=0) == ()

    def test_calls_of_an_ended_incarnation_are_refused(self, store: Store, trial: str) -> None:
        store.trials.begin(trial, "a", NOW)
        store.trials.tell(trial, 1, calls(1))
        store.trials.begin(trial, "b", NOW)
        with pytest.raises(Conflict, match="incarnation 1 of trial sweep-0 is over"):
            store.trials.tell(trial, 1, calls(2))
        with pytest.raises(Conflict):
            store.trials.tell(trial, 3, calls(1))
        store.trials.tell(trial, 2, calls(1))
        assert waiting_numbers(store) == [(trial, 1, 1), (trial, 2, 1)]

    def test_instances_hold_a_distributed_trial_together(self, store: Store) -> None:
        shared = replace(spec("sweep-0"), study="sweep", distributed=True)
        trial = store.jobs.add(shared, NOW).id
        assert store.trials.begin(trial, "a", NOW) == 1
        assert store.trials.begin(trial, "b", NOW) == 2
        store.trials.tell(trial, 1, calls(1))
        store.trials.tell(trial, 2, calls(1))
        assert store.trials.begin(trial, "a", NOW + 1.0) == 3
        with pytest.raises(Conflict, match="incarnation 1 of trial sweep-0 is over: 3 holds it"):
            store.trials.tell(trial, 1, calls(2))
        with pytest.raises(Conflict):
            store.trials.begin(trial, "a", NOW)
        with pytest.raises(Conflict):
            store.trials.tell(trial, 4, calls(1))
        store.trials.tell(trial, 2, calls(2))
        assert waiting_numbers(store) == [(trial, 1, 1), (trial, 2, 1), (trial, 2, 2)]

    def test_a_study_has_one_driver(self, store: Store) -> None:
        store.leases.take("sweep", "one", NOW, 10.0)
        store.leases.take("another", "two", NOW, 10.0)
        with pytest.raises(Conflict, match=r"sweep is driven by one: wait .* lease ends in 6 s"):
            store.leases.take("sweep", "two", NOW + 4.0, 10.0)
        store.leases.take("sweep", "one", NOW + 5.0, 10.0)
        assert store.leases.holder("sweep", NOW + 14.0) == "one"
        assert store.leases.holder("sweep", NOW + 15.0) is None
        store.leases.take("sweep", "two", NOW + 15.0, 10.0)
        store.leases.leave("sweep", "one")
        assert store.leases.holder("sweep", NOW + 16.0) == "two"
        store.leases.leave("sweep", "two")
        assert store.leases.holder("sweep", NOW + 16.0) is None

    def test_a_driver_that_was_overtaken_writes_nothing(self, store: Store) -> None:
        store.leases.take("sweep", "one", NOW, 10.0)
        trial = store.jobs.add(replace(spec("sweep-0"), study="sweep"), NOW, "one").id
        store.trials.begin(trial, "a", NOW)
        store.trials.tell(trial, 1, calls(1))
        store.studies.state("sweep", StudyTerms(to_begin=3), "one")
        store.leases.take("sweep", "two", NOW + 10.0, 10.0)
        refused = "study sweep is driven by two, not by one"
        with pytest.raises(Conflict, match=refused):
            store.jobs.add(replace(spec("sweep-1"), study="sweep"), NOW, "one")
        with pytest.raises(Conflict, match=refused):
            store.jobs.request_stop(trial, NOW, driver="one")
        with pytest.raises(Conflict, match=refused):
            store.trials.answer("sweep", [given(trial, 1, 1)], "one")
        with pytest.raises(Conflict, match=refused):
            store.studies.state("sweep", StudyTerms(to_begin=2), "one")
        with pytest.raises(Conflict, match=refused):
            store.studies.tell("sweep", [(TrialProgress(trial), None)], NOW, "one")
        assert [job.id for job in store.jobs.all()] == [trial]
        assert store.jobs.get(trial).phase is JobPhase.PENDING
        assert waiting_numbers(store) == [(trial, 1, 1)]
        assert store.studies.terms("sweep") == StudyTerms(to_begin=3)
        assert store.studies.trials("sweep") == ()

    def test_a_driver_writes_until_another_takes_its_study(self, store: Store) -> None:
        trial = replace(spec("sweep-0"), study="sweep")
        with pytest.raises(Conflict, match="driven by nobody, not by one"):
            store.jobs.add(trial, NOW, "one")
        store.leases.take("sweep", "one", NOW, 10.0)
        store.jobs.add(trial, NOW + 20.0, "one")
        assert store.jobs.request_stop("sweep-0", NOW + 20.0, driver="one").id == "sweep-0"
        with pytest.raises(Conflict, match="study another is driven by nobody"):
            store.jobs.add(replace(spec("another-0"), study="another"), NOW, "one")

    @pytest.mark.parametrize("has_left", [False, True])
    def test_a_lease_is_renewed_unless_another_driver_had_it_since(
        self, store: Store, has_left: bool
    ) -> None:
        store.leases.take("sweep", "one", NOW, 10.0)
        store.leases.take("sweep", "one", NOW + 20.0, 10.0, renews=True)
        store.leases.take("sweep", "two", NOW + 40.0, 10.0)
        if has_left:
            store.leases.leave("sweep", "two")
        leader = "nobody" if has_left else "two"
        with pytest.raises(Conflict, match=f"driven by {leader}, not by one"):
            store.leases.take("sweep", "one", NOW + 60.0, 10.0, renews=True)
        assert store.leases.holder("sweep", NOW + 60.0) is None
        store.leases.take("sweep", "one", NOW + 60.0, 10.0)

    def test_the_last_stated_terms_of_a_study_hold(self, store: Store) -> None:
        assert store.studies.terms("sweep") is None
        store.studies.state("sweep", StudyTerms(to_begin=3))
        stated = StudyTerms(
            objective=Objective(deadline_seconds=NOW + 60.0),
            directions=("maximize", "minimize"),
            synchronous=True,
            later=(LaterRung(3, 9.0), LaterRung(1, 18.0)),
            best=0.5,
        )
        store.studies.state("sweep", stated)
        store.studies.state("another", StudyTerms())
        assert store.studies.terms("sweep") == stated

    def test_a_budget_that_was_set_holds_until_another_is_stated(self, store: Store) -> None:
        def stated(usd: str) -> Decimal | None:
            objective = Objective(budget_usd=Decimal(usd))
            store.studies.state("sweep", StudyTerms(objective=objective))
            terms = store.studies.terms("sweep")
            return None if terms is None else terms.objective.budget_usd

        with pytest.raises(NotFound, match="study sweep has no terms"):
            store.studies.set_budget("sweep", Decimal("7.5"))
        stated("5")
        store.studies.set_budget("sweep", Decimal("7.5"))
        assert stated("5") == Decimal("7.5")
        assert stated("6") == Decimal("6")

    def test_progress_on_one_size_is_a_speed(self, store: Store, trial: str) -> None:
        def tell(progress: float, size: Allocation | None, seconds: float) -> None:
            stands = TrialProgress(trial, progress, 9.0, {"lr": 0.1}, ((progress, 0.5),))
            store.studies.tell("sweep", [(stands, size)], NOW + seconds)

        for progress, size, seconds in [
            (1.0, ONE, 40.0),
            (1.0, ONE, 45.0),  # unchanged progress
            (2.0, ONE, 50.0),
            (4.0, ONE, 70.0),
            (5.0, TWO, 80.0),  # on both sizes since the last report
            (7.0, TWO, 88.0),
            (6.0, TWO, 90.0),  # restored from a checkpoint
            (8.0, None, 95.0),
        ]:
            tell(progress, size, seconds)
        (record,) = store.studies.trials("sweep")
        assert record.stands.progress == 8.0
        assert record.stands.features == {"lr": 0.1}
        assert record.speeds == (TrialSpeed(TWO, 2.0, 8.0), TrialSpeed(ONE, 3.0, 30.0))

    def test_time_until_the_first_report_counts_until_more_is_known(
        self, store: Store, trial: str
    ) -> None:
        def tell(progress: float, seconds: float) -> tuple[TrialSpeed, ...]:
            reports = ((progress, 0.5),) if progress else ()
            stands = TrialProgress(trial, progress, reports=reports)
            store.studies.tell("sweep", [(stands, ONE)], NOW + seconds)
            return store.studies.trials("sweep")[0].speeds

        assert tell(0.0, 10.0) == ()
        assert tell(1.0, 40.0) == (TrialSpeed(ONE, 1.0, 30.0, has_start=True),)
        assert tell(2.0, 60.0) == (TrialSpeed(ONE, 1.0, 20.0),)

    def test_waiting_at_a_barrier_does_not_lower_the_speed(self, store: Store, trial: str) -> None:
        def tell(progress: float, decided_at: float, seconds: float) -> None:
            stands = TrialProgress(trial, progress, decided_at, reports=((progress, 0.5),))
            store.studies.tell("sweep", [(stands, ONE)], NOW + seconds)

        for progress, decided_at, seconds in [
            (1.0, 2.0, 10.0),
            (2.0, 2.0, 20.0),
            (2.0, 6.0, 500.0),  # the trial waited at the barrier and held its instances
            (3.0, 6.0, 510.0),
        ]:
            tell(progress, decided_at, seconds)
        (record,) = store.studies.trials("sweep")
        assert record.speeds == (TrialSpeed(ONE, 2.0, 20.0),)

    def test_a_study_reports_the_progress_of_its_trials(self, store: Store, trial: str) -> None:
        other, foreign = add_trial(store, "sweep-1"), add_trial(store, "x-0", "another")
        reports = [(TrialProgress(job), None) for job in (other, trial)]
        store.studies.tell("sweep", reports, NOW)
        store.studies.tell("another", [(TrialProgress(foreign, has_ended=True), None)], NOW)
        store.studies.tell("sweep", reports[::-1], NOW + 1.0)
        assert [record.stands.job for record in store.studies.trials("sweep")] == [other, trial]
        assert [record.stands.has_ended for record in store.studies.trials("another")] == [True]
        assert store.studies.trials("nothing") == ()

    def test_progress_of_an_unknown_job_is_refused(self, store: Store, trial: str) -> None:
        with pytest.raises(UnknownJob):
            store.studies.tell("sweep", [(TrialProgress("nobody"), None)], NOW)
        assert store.studies.trials("sweep") == ()

    def test_a_stop_is_for_one_driver(self, store: Store) -> None:
        gently = StopRequest(StudyStop.WITH_ITS_TRIALS, NOW, "ada")
        at_once = StopRequest(StudyStop.AT_ONCE, NOW + 1.5, "ada lovelace")
        store.settings.stop_study("sweep", "one", gently)
        assert store.settings.study_stop("sweep", "one") is StudyStop.WITH_ITS_TRIALS
        store.settings.stop_study("sweep", "one", StopRequest(gently.stop, NOW + 9.0, "bob"))
        assert store.settings.stop_request("sweep", "one") == gently, "the first one stays"
        store.settings.stop_study("sweep", "one", at_once)
        store.settings.stop_study("sweep", "one", gently)
        assert store.settings.study_stop("sweep", "one") is StudyStop.AT_ONCE
        assert store.settings.stop_request("sweep", "one") == at_once
        assert store.settings.study_stop("sweep", "two") is StudyStop.NOT
        assert store.settings.study_stop("another", "one") is StudyStop.NOT
        store.settings.forget_stop("sweep", "one")
        assert store.settings.study_stop("sweep", "one") is StudyStop.NOT
        assert store.settings.stop_request("sweep", "one") is None
        store.settings.once("stop sweep of old", lambda: "stop")
        assert store.settings.stop_request("sweep", "old") == StopRequest(gently.stop), "version 0"
