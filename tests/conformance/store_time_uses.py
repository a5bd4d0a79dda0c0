"""Contract of a store for the use of instances' time, and for work made again."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

from autoscaler.domain.report import ReportOrigin
from autoscaler.domain.time_use import CostCategory, LostWork, TimeCount, TimeUse
from autoscaler.store.store import Store
from tests.conformance.store_examples import NOW, add_job, launch, report

COUNT = TimeCount(NOW + 5.0, TimeUse(60.0, 10.0, 3.0, 2.0, 1.0), CostCategory.USEFUL)
FIRST = date(2000, 1, 1)


class TimeUsesConformance:
    def test_the_last_count_of_an_instance_is_kept(self, store: Store) -> None:
        add_job(store)
        held = launch(store)
        later = replace(COUNT, use=TimeUse(90.0, 10.0, 3.0, 2.0, 1.0))
        for count in (COUNT, later, COUNT):  # a late one changes nothing
            store.time_uses.count(held.id, "digits", count, NOW)
            store.time_uses.keep(NOW)
        assert store.time_uses.of_job("digits") == {held.id: later}
        assert store.time_uses.of_job("other") == {}

    def test_a_count_that_began_anew_adds_to_the_earlier_one(self, store: Store) -> None:
        add_job(store)
        held = launch(store)
        store.time_uses.count(held.id, "digits", COUNT, NOW)
        anew = TimeCount(NOW + 200.0, TimeUse(5.0), CostCategory.IDLE)
        store.time_uses.count(held.id, "digits", anew, NOW)
        expected = TimeCount(NOW + 5.0, TimeUse(65.0, 10.0, 3.0, 2.0, 1.0), CostCategory.IDLE)
        store.time_uses.count(held.id, "digits", COUNT, NOW)
        assert store.time_uses.of_job("digits") == {held.id: expected}

    def test_days_have_the_time_of_all_instances(self, store: Store) -> None:
        add_job(store)
        first, second = launch(store), launch(store)
        for held in (first, second):
            store.time_uses.count(held.id, "digits", COUNT, NOW)
            store.time_uses.keep(NOW)
        later = replace(COUNT, use=TimeUse(100.0, 10.0, 3.0, 2.0, 1.0))
        store.time_uses.count(first.id, "digits", later, NOW)
        day = datetime.fromtimestamp(NOW, UTC).date()
        used = TimeUse(160.0, 30.0, 6.0, 4.0, 2.0)  # with the boot before the first count
        assert store.time_uses.days(FIRST) == {day: used}
        store.time_uses.keep(NOW + 100.0)
        assert store.time_uses.days(FIRST) == {day: used}
        assert store.time_uses.days(day + timedelta(days=1)) == {}

    def test_steps_that_a_later_start_makes_again_are_lost_work(self, store: Store) -> None:
        add_job(store)
        held = launch(store)
        first = ReportOrigin(held.id, 1, NOW)
        earlier = report(100, steps=100, trained_seconds=50.0)
        store.reports.add("digits", earlier, first, NOW + 60.0)
        # From the checkpoint at step 80.
        second = ReportOrigin(held.id, 2, NOW + 70.0)
        again = report(105, steps=25, trained_seconds=12.0)
        store.reports.add("digits", again, second, NOW + 90.0)
        store.reports.add("digits", replace(again, step=120, steps=40), second, NOW + 99.0)
        assert store.time_uses.lost_work("digits") == (LostWork(NOW + 60.0, 10.0, 20),)
        assert store.time_uses.lost_work("other") == ()

    def test_a_replica_that_joined_the_others_has_lost_nothing(self, store: Store) -> None:
        add_job(store)
        first, second = launch(store), launch(store)
        earlier = report(100, steps=100, trained_seconds=50.0)
        store.reports.add("digits", earlier, ReportOrigin(first.id, 1, NOW), NOW + 60.0)
        joined = report(120, steps=60, trained_seconds=30.0)  # since step 60
        store.reports.add("digits", joined, ReportOrigin(second.id, 1, NOW + 30.0), NOW + 90.0)
        assert store.time_uses.lost_work("digits") == ()

    def test_reports_of_older_sessions_tell_no_lost_work(self, store: Store) -> None:
        add_job(store)
        held = launch(store)
        store.reports.add("digits", report(100), ReportOrigin(held.id, 1, NOW), NOW + 60.0)
        store.reports.add("digits", report(10), ReportOrigin(held.id, 2, NOW + 70.0), NOW + 90.0)
        assert store.time_uses.lost_work("digits") == ()
