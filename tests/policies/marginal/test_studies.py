from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autoscaler.domain.allocation import Allocation
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.objective import AfterDeadline, Objective, Preference
from autoscaler.domain.plan import Action, ReasonCode
from autoscaler.domain.snapshot import FreeInstance
from autoscaler.domain.terms import LaterRung
from autoscaler.policies.base import Policy
from autoscaler.policies.marginal.policy import MarginalPolicy
from tests.conformance.policy import StudiesConformance
from tests.economics.cases import NOW, job, offer, valued
from tests.policies.searches import GPU, ONE, ended, held_in, moment, planned, trial, worth

LATER = (LaterRung(1, 50.0),)
THREE = Allocation("gpu", 3, 1)


class TestMarginalConforms(StudiesConformance):
    @pytest.fixture
    def policy(self) -> Policy:
        return MarginalPolicy()


def running(count: int, progress: float = 10.0) -> list[object]:
    return [trial(number, progress, ONE) for number in range(count)]


class TestSynchronous:
    def test_at_its_barrier_a_trial_holds_nothing_and_another_begins(self) -> None:
        trials = [
            trial(0, 50.0, ONE, decided_at=50.0),
            trial(1, 10.0, ONE, decided_at=50.0),
            trial(2, decided_at=50.0),
        ]
        found = planned(
            moment(trials, quota=2, synchronous=True, later=LATER, objective=worth(hours=1.5))
        )
        assert found["trial-00"].target is None
        assert found["trial-00"].reason.startswith("wait trial-00 for the barrier")
        assert found["trial-01"].action is Action.HOLD
        assert found["trial-02"].target == ONE
        assert found["trial-02"].release_first

    def test_what_one_at_its_barrier_can_not_give_back_is_nobody_elses(self) -> None:
        waits, told = trial(0, 50.0, ONE, decided_at=50.0)
        stuck = replace(waits, progress_examples=0.0), told
        trials = [stuck, trial(1, 10.0, ONE, decided_at=50.0), trial(2, decided_at=50.0)]
        search = {"synchronous": True, "later": LATER, "objective": worth(hours=20)}
        found = planned(moment(trials, quota=2, **search))
        assert "it would begin anew elsewhere" in found["trial-00"].reason
        assert [found[name].target for name in sorted(found)] == [ONE, ONE, None]
        assert "of trial-01" in found["trial-02"].reason

    def test_who_holds_all_there_is_gives_way_to_those_that_it_waits_for(self) -> None:
        waits, told = trial(0, 50.0, ONE, decided_at=50.0)
        trials = [(replace(waits, progress_examples=0.0), told), trial(1, 10.0, decided_at=50.0)]
        search = {"synchronous": True, "later": LATER, "objective": worth(hours=20)}
        found = planned(moment(trials, quota=1, **search))
        assert [found[name].target for name in sorted(found)] == [None, ONE]

    def test_the_slow_one_grows_for_a_deadline_and_the_fast_one_does_not(self) -> None:
        trials = [
            trial(0, 5.0, ONE, decided_at=50.0, unit_seconds=200.0, most=8),
            trial(1, 5.0, ONE, decided_at=50.0, unit_seconds=20.0, most=8),
        ]
        search = {"synchronous": True, "later": LATER}
        slow, fast = held_in(moment(trials, objective=worth(hours=2.5), **search))
        assert slow > fast == 1
        assert held_in(moment(trials, objective=worth(hours=200), **search)) == [1, 1]

    def test_where_a_deadline_seems_lost_one_trial_grows_to_measure_how_trials_scale(self) -> None:
        trials = [
            trial(number, 5.0, ONE, decided_at=50.0, unit_seconds=200.0, most=8)
            for number in range(3)
        ]
        later = LaterRung(3, 150.0), LaterRung(1, 450.0)
        search = {"synchronous": True, "later": later, "objective": worth(hours=3)}
        found = planned(moment(trials, **search))
        grown = [one for one in found.values() if one.action is Action.GROW]
        assert len(grown) == 1
        assert "how trials scale is not known yet" in grown[0].reason
        assert 1 < grown[0].target.instances <= 4
        one_has = [trial(0, 5.0, THREE, decided_at=50.0, unit_seconds=200.0, most=8), *trials[1:]]
        again = planned(moment(one_has, **search))
        assert all("how trials scale" not in one.reason for one in again.values())

    def test_when_all_are_there_what_the_next_rung_wants_is_kept_for_a_moment(self) -> None:
        trials = [trial(number, 50.0, ONE, decided_at=50.0) for number in range(3)]
        there = moment(trials, synchronous=True, later=LATER, objective=worth(hours=3))
        assert sum(held_in(there)) == 1
        assert held_in(replace(there, now_seconds=NOW + 500.0)) == [0, 0, 0]

    def test_what_cannot_be_kept_is_said_with_what_can(self) -> None:
        trials = [trial(0, 5.0, ONE, decided_at=50.0)]
        found = planned(moment(trials, synchronous=True, later=LATER, objective=worth(hours=0.2)))
        assert "a deadline in 12 min: in reach is" in found["trial-00"].reason

    def test_nobody_pauses_who_would_begin_anew(self) -> None:
        """Do not pause, though two trials could share an instance with time to spare."""
        paused = [
            trial(number, 1.0 if number else 40.0, ONE, decided_at=50.0, progress_examples=0.0)
            for number in range(4)
        ]
        late = trial(4, decided_at=50.0)
        found = moment([*paused, late], quota=4, synchronous=True, objective=worth(hours=90))
        assert held_in(found) == [1, 1, 1, 1, 0]

    def test_one_that_is_silent_for_long_is_slow(self) -> None:
        """Grow a trial without a report, or another one."""
        told = [trial(number, 25.0, ONE, decided_at=50.0, most=8) for number in range(2)]
        own, record = trial(2, 0.0, ONE, decided_at=50.0, most=8)
        search = {"synchronous": True, "later": LATER, "objective": worth(hours=2)}
        at_once = planned(moment([*told, (own, record)], **search))["trial-02"]
        record = replace(record, told_seconds=NOW - 400.0)
        silent = planned(moment([*told, (own, record)], **search))["trial-02"]
        assert silent.figures["barrier_seconds"] > 5.0 * at_once.figures["barrier_seconds"] or (
            silent.target is not None and silent.target.instances > 1
        )


class TestAsynchronous:
    def at_once(self, objective: Objective, to_begin: int = 40, **terms: object) -> int:
        """Return the number of trials that train before the next one has to wait."""

        def waits(count: int) -> bool:
            trials = [*running(count), trial(count)]
            found = moment(trials, to_begin=to_begin, objective=objective, **terms)
            return planned(found)[f"trial-{count:02d}"].target is None

        return 1 + bisect_left(range(1, 60), True, key=waits)

    def test_time_is_worth_boots(self) -> None:
        """Run about sqrt(80 h of work / 138 s of boot) trials: time is worth a device an hour."""
        assert 40 <= self.at_once(worth()) <= 50
        assert self.at_once(Objective(Preference.CHEAPEST)) == 1
        assert self.at_once(Objective(Preference.FASTEST)) > 40

    def test_a_deadline_asks_for_as_many_as_keep_it(self) -> None:
        tight, loose = (self.at_once(worth(hours=hours), 20) for hours in (4.0, 16.0))
        assert 6 <= tight <= 12
        assert 1 <= loose <= 3
        said = planned(moment([*running(12), trial(12)], objective=worth(hours=8)))
        assert "at once are enough for the deadline in 8 h" in said["trial-12"].reason

    def test_pruned_siblings_make_less_of_what_is_to_come(self) -> None:
        pruned = [ended(100 + number, 3.0) for number in range(20)]
        trials = [*running(4), trial(4)]
        terms = {"to_begin": 20, "objective": worth(hours=4)}
        assert planned(moment(trials, **terms))["trial-04"].target == ONE
        assert planned(moment(trials, pruned, **terms))["trial-04"].target is None

    def test_no_trial_begins_that_the_budget_cannot_bear_beside_those_that_train(self) -> None:
        """Each that trains has $3.24 before it, a new one $3.74 with its boot."""
        trials = [*running(2), trial(2)]
        rich = moment(trials, to_begin=9, objective=worth(budget=20), spent_usd=9.0)
        poor = moment(trials, to_begin=9, objective=worth(budget=20), spent_usd=11.0)
        assert held_in(rich) == [1, 1, 1]
        assert held_in(poor) == [1, 1, 0]
        assert "beside those that train $2.5" in planned(poor)["trial-02"].reason

    def test_where_not_all_can_be_paid_those_next_to_their_ends_go_on(self) -> None:
        trials = [trial(0, 10.0, ONE), trial(1, 90.0, ONE), trial(2, 20.0, ONE)]
        found = moment(trials, objective=worth(budget=20), spent_usd=16.5)
        assert held_in(found) == [0, 1, 1]
        assert "goes on when there is more" in planned(found)["trial-00"].reason

    def test_no_trial_pauses_that_the_budget_brings_to_its_next_decision(self) -> None:
        """Most are pruned there: $3.24 for the end of each is kept from trials to begin only."""
        trials = [*(trial(number, 10.0, ONE, decided_at=20.0) for number in range(4)), trial(4)]
        found = moment(trials, to_begin=9, objective=worth(budget=20), spent_usd=18.0)
        assert held_in(found) == [1, 1, 1, 1, 0]
        poor = moment(trials, to_begin=9, objective=worth(budget=20), spent_usd=19.0)
        assert sum(held_in(poor)) == 2

    def test_after_a_deadline_that_was_missed_it_goes_on_as_stated(self) -> None:
        trials = [*running(2), trial(2)]
        stops = worth(hours=-1, after_deadline=AfterDeadline.STOP)
        assert held_in(moment(trials, to_begin=9, objective=stops)) == [1, 1, 0]
        goes_on = moment(trials, to_begin=9, objective=worth(hours=-1))
        assert held_in(goes_on) == [1, 1, 1]
        decision = planned(goes_on)["trial-02"]
        assert decision.note == "deadline missed by 60 min, now balanced"
        assert decision.reason.endswith(decision.note)

    @pytest.mark.parametrize("minutes", [3.0, 4.0, 30.0, 50.0])
    @pytest.mark.parametrize("synchronous", [False, True])
    def test_a_new_study_starts_and_measures_before_a_deadline_is_out_of_reach(
        self, minutes: float, synchronous: bool
    ) -> None:
        terms = {"objective": worth(hours=minutes / 60), "synchronous": synchronous}
        unknown = moment([trial(0, decided_at=3.0)], to_begin=9, **terms)
        first = planned(unknown)["trial-00"]
        assert first.target == ONE
        assert first.note == ""
        measured = moment([trial(0, 2.0, ONE, decided_at=50.0), trial(1)], to_begin=9, **terms)
        assert "out of reach" in planned(measured)["trial-00"].note or synchronous

    def test_a_new_study_starts_and_measures_before_a_budget_is_too_small(self) -> None:
        unknown = moment([trial(0), trial(1)], to_begin=9, objective=worth(budget=0.05))
        assert held_in(unknown) == [1, 0]
        running_first = moment([trial(0, 1.0, ONE)], to_begin=9, objective=worth(budget=0.05))
        assert planned(running_first)["trial-00"].note == ""

    def test_what_is_kept_for_a_trial_ends_with_the_deadline(self) -> None:
        """Keep at most $0.36 for each of four trials, the cost of the 6 min that are left."""
        trials = [*running(4), trial(4, decided_at=5.0)]
        tight = worth(hours=0.1, budget=1.90)
        assert held_in(moment(trials, to_begin=9, objective=tight)) == [1, 1, 1, 1, 1]
        poor = moment(trials, to_begin=9, objective=worth(hours=0.1, budget=1.75))
        assert held_in(poor) == [1, 1, 1, 1, 0]
        assert "beside those that train $0.31 is left" in planned(poor)["trial-04"].reason

    def test_a_trial_begins_on_the_cheapest_size_that_is_in_time(self) -> None:
        known = [ended(number, 100.0) for number in range(10, 13)]
        first = trial(0, decided_at=50.0, most=4)
        soon = moment([first], known, to_begin=None, objective=worth(hours=0.5))
        assert held_in(soon)[0] > 1
        later = moment([first], known, to_begin=None, objective=worth(hours=5))
        assert held_in(later) == [1]
        never = moment([first], known, to_begin=None, objective=worth(hours=0.1))
        assert "its first rung takes" in planned(never)["trial-00"].reason

    def test_a_reason_says_what_changes_also_where_bounds_have_changed(self) -> None:
        """Report a move, not a start, for a trial whose allocation is no longer permitted."""
        other = offer("dear", "4", boot_seconds=120.0)
        own, record = trial(0, 20.0, ONE)
        bounds = replace(own.instances, offers=("dear",))
        found = planned(
            moment([(replace(own, instances=bounds), record)], offers=(GPU, other), to_begin=9)
        )
        decision = found["trial-00"]
        assert decision.action is Action.MOVE
        assert decision.reason.startswith("move trial-00")
        assert "bounds or limits changed" in decision.reason

    def test_a_free_instance_is_taken_before_the_limits_are_asked(self) -> None:
        trials = [*running(1), trial(1), trial(2)]
        cramped = moment(trials, quota=2, to_begin=9)
        free = (FreeInstance(GPU.id),)
        study = replace(cramped.studies[0], free=free)
        assert held_in(replace(cramped, studies=(study,))) == [1, 1, 0]

    def test_a_trial_goes_where_there_is_room(self) -> None:
        other = offer("dear", "4", boot_seconds=120.0)
        cramped = moment([*running(1), trial(1)], quota=1, offers=(GPU, other), to_begin=9)
        quota = replace(cramped.limits[0], offers=frozenset({"gpu"}))
        found = planned(replace(cramped, limits=(quota,)))
        assert found["trial-01"].target == Allocation("dear", 1, 1)

    def test_what_has_ended_is_left_alone(self) -> None:
        own, record = trial(0, 50.0, ONE)
        over = replace(record, stands=replace(record.stands, has_ended=True))
        assert planned(moment([(own, over)]))["trial-00"].action is Action.HOLD

    def test_figures_for_a_person(self) -> None:
        figures = planned(moment(running(1), objective=valued(7.2)))["trial-00"].figures
        assert figures["study_usd_per_hour"] == pytest.approx(7.2)
        assert figures["work_to_end"] == pytest.approx(90.0)
        assert figures["work_per_hour"] == pytest.approx(100.0, rel=0.05)


def test_of_a_study_without_terms_each_trial_is_a_job() -> None:
    found = moment([*running(1), trial(1)], to_begin=9)
    plain = replace(found, studies=())
    alike = replace(plain, jobs=tuple(replace(one, study=None) for one in plain.jobs))
    assert planned(plain) == planned(alike)


class TestBesideJobs:
    def test_who_gives_more_for_an_instance_gets_it(self) -> None:
        """A job that waits, and trials that wait, before one instance that is left."""
        other = job("other", models=trial(0)[0].models, objective=valued(4.0))
        trials = [*running(2), trial(2)]
        terms = {"quota": 3, "to_begin": 9}
        dear = moment(trials, (), other, objective=valued(60.0), **terms)
        cheap = moment(trials, (), other, objective=valued(0.5), **terms)
        assert held_in(dear) == [0, 1, 1, 1]
        assert held_in(cheap) == [1, 1, 1, 0]

    @pytest.mark.parametrize("trained", [None, ONE])
    @pytest.mark.parametrize("to_begin", [0, 3])
    def test_a_trial_that_arrives_leaves_a_job_of_equal_value_its_instance(
        self, trained: Allocation | None, to_begin: int
    ) -> None:
        """The job would boot again later, whether its instance boots or trains now."""
        own = job("digits", ONE, trained=trained, instances=InstanceBounds(1, 1))
        found = planned(moment([trial(0)], (), own, quota=1, to_begin=to_begin))
        assert found["digits"].target == ONE
        assert found["trial-00"].target is None

    @given(
        study_usd=st.floats(0.5, 50.0),
        job_usd=st.floats(0.5, 50.0),
        waiting=st.integers(1, 4),
        quota=st.integers(1, 2),
    )
    @settings(deadline=None, max_examples=30)
    def test_what_a_study_takes_from_a_job_it_does_not_give_back(
        self, study_usd: float, job_usd: float, waiting: int, quota: int
    ) -> None:
        """Leave trials the instances for which a job gave up a boot."""
        jobs = [
            job(
                f"digits-{number}",
                ONE,
                trained=None,
                objective=worth(job_usd),
                instances=InstanceBounds(1, 1),
            )
            for number in range(quota)
        ]
        trials = [trial(number) for number in range(waiting)]
        plan = planned(moment(trials, (), *jobs, quota=quota, objective=worth(study_usd)))
        taken = [own for own in jobs if plan[own.id].target is None]
        if taken:
            assert study_usd > job_usd
        then_jobs = [
            replace(own, held=plan[own.id].target, trained=plan[own.id].target) for own in jobs
        ]
        then_trials = [
            (replace(own, held=plan[own.id].target, trained=None), record)
            for own, record in trials
        ]
        again = planned(
            moment(then_trials, (), *then_jobs, quota=quota, objective=worth(study_usd))
        )
        assert {name: each.target for name, each in again.items()} == {
            name: each.target for name, each in plan.items()
        }

    def test_a_deadline_takes_from_a_job_what_it_needs(self) -> None:
        """And what trains is not taken from the study."""
        other = job("other", ONE, models=trial(0)[0].models, remaining_examples=1e9)
        terms = {"quota": 2, "to_begin": 9}
        trials = [*running(1), trial(1)]
        assert held_in(moment(trials, (), other, objective=worth(hours=3), **terms)) == [0, 1, 1]
        assert held_in(moment(trials, (), other, objective=valued(0.5), **terms)) == [1, 1, 0]

    def test_what_the_limits_bear_goes_to_both(self) -> None:
        other = job("other", models=trial(0)[0].models)
        assert held_in(moment([*running(2)], (), other, quota=3, to_begin=9)) == [1, 1, 1]


class TestOver:
    """Trials that wait for ever are told apart from those that wait for their turn."""

    def test_a_budget_that_pays_no_trial(self) -> None:
        known = [ended(5, 100.0)]
        for budget, ground in ((0.01, ReasonCode.BEYOND_BUDGET), (100.0, "study")):
            found = planned(moment([trial(0)], known, objective=worth(budget=budget)))
            assert (found["trial-00"].target is None) == (ground == ReasonCode.BEYOND_BUDGET)
            assert found["trial-00"].ground == ground

    def test_what_the_budget_refuses_is_not_called_too_late(self) -> None:
        """The way to the first decision could be paid, that to the end can't."""
        both = worth(hours=20, budget=1.0)
        known = [ended(5, 100.0)]
        found = planned(moment([trial(0, decided_at=5.0)], known, to_begin=9, objective=both))
        assert (found["trial-00"].target, found["trial-00"].ground) == (
            None,
            ReasonCode.BEYOND_BUDGET,
        )

    def test_while_another_trains_or_there_is_no_room_it_is_not_over(self) -> None:
        trains = [trial(0, 10.0, ONE), trial(1)]
        found = planned(moment(trains, objective=worth(budget=0.2), spent_usd=0.19))
        assert found["trial-01"].target is None and found["trial-01"].ground == "study"
        full = moment([trial(0)], [ended(5, 100.0)], quota=0, objective=worth(budget=0.01))
        assert planned(full)["trial-00"].ground == "study"

    def test_of_what_nobody_knows_one_may_look(self) -> None:
        both = moment([trial(0), trial(1)], objective=worth(budget=0.05))
        assert held_in(both) == [1, 0]
        spent = planned(moment([trial(0)], objective=worth(budget=0.05), spent_usd=0.05))
        assert spent["trial-00"].ground == ReasonCode.BEYOND_BUDGET
        search = {"synchronous": True, "later": LATER}
        rungs = moment([trial(0), trial(1)], objective=worth(budget=0.05), **search)
        assert sum(held_in(rungs)) == 1

    def test_a_deadline_after_which_nothing_begins(self) -> None:
        late = worth(hours=-1.0, after_deadline=AfterDeadline.STOP)
        found = planned(moment([trial(0)], [ended(5, 100.0)], objective=late))
        assert (found["trial-00"].target, found["trial-00"].ground) == (
            None,
            ReasonCode.BEYOND_DEADLINE,
        )
        waiting = moment(
            [trial(0, decided_at=50.0)], objective=late, synchronous=True, later=LATER
        )
        assert planned(waiting)["trial-00"].ground == ReasonCode.BEYOND_DEADLINE
        soon = planned(moment([trial(0)], [ended(5, 100.0)], objective=worth(hours=0.01)))
        assert (soon["trial-00"].target, soon["trial-00"].ground) == (
            None,
            ReasonCode.BEYOND_DEADLINE,
        )

    def test_while_an_ended_trial_s_instance_is_there_it_is_not_over(self) -> None:
        soon = moment([trial(0)], [ended(5, 100.0)], objective=worth(hours=0.01))
        lingers = (FreeInstance(GPU.id, paid_seconds=10.0),)
        found = planned(replace(soon, studies=(replace(soon.studies[0], free=lingers),)))
        assert found["trial-00"].ground == "study"

    def test_a_trial_that_is_there_begins_before_those_that_are_to_come(self) -> None:
        search = {
            "synchronous": True,
            "later": (LaterRung(1, 250.0),),
            "objective": worth(hours=0.2),
        }
        begins = planned(moment([trial(0, decided_at=50.0)], quota=1, to_begin=5, **search))
        assert begins["trial-00"].target is not None
