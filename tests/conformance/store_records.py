"""Contract of a store for measurements, decisions, events, the ledger, tokens and settings."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from autoscaler.domain.errors import StoreError, UnknownInstance, UnknownJob
from autoscaler.domain.goodput import (
    LocalityParameters,
    NoiseScale,
    PipelineParameters,
    ShardedParameters,
    ThroughputParameters,
)
from autoscaler.domain.report import ReportOrigin
from autoscaler.store.records.step_times import HALF_LIFE_SECONDS
from autoscaler.store.repositories.events import Event
from autoscaler.store.repositories.measurements import MAXIMUM_CONFIGURATIONS
from autoscaler.store.repositories.settings import Freeze
from autoscaler.store.repositories.tokens import NodeToken
from autoscaler.store.sql import job_facts
from autoscaler.store.store import Store
from tests.conformance.store_examples import (
    NOW,
    add_job,
    decision,
    end,
    launch,
    listed_instance,
    model,
    observation,
    order,
    plan,
    report,
    snapshot,
)


class MeasurementsConformance:
    def test_step_times_are_one_mean_for_each_configuration(self, store: Store) -> None:
        add_job(store)
        seconds = HALF_LIFE_SECONDS / 100
        store.measurements.add_observations("digits", [observation(seconds, 100)], NOW)
        store.measurements.add_observations("digits", [observation(1.25 * seconds, 80)], NOW + 1)
        store.measurements.add_observations("digits", [observation(1.0, 1, devices=2)], NOW + 2)
        on_two_devices, on_one_device = store.measurements.observations("digits")
        assert (on_two_devices.devices, on_two_devices.steps, on_two_devices.step_seconds) == (
            2,
            1,
            1.0,
        )
        assert on_one_device.steps == 130
        assert on_one_device.step_seconds == pytest.approx(150 * seconds / 130)
        assert on_one_device.sync_seconds == pytest.approx(0.01)

    def test_the_mean_follows_a_machine_that_changed_speed(self, store: Store) -> None:
        add_job(store)
        for turn in range(50):
            store.measurements.add_observations("digits", [observation(0.1, 100)], NOW + turn)
        for turn in range(50, 56):
            store.measurements.add_observations("digits", [observation(0.12, 83)], NOW + turn)
        (gradually,) = store.measurements.observations("digits")
        assert 0.11 < gradually.step_seconds < 0.12
        for turn in range(60, 62):
            store.measurements.add_observations("digits", [observation(0.3, 33)], NOW + turn)
        (at_once,) = store.measurements.observations("digits")
        assert at_once.step_seconds == pytest.approx(0.3)

    def test_a_size_that_changes_its_speed_begins_an_era(self, store: Store) -> None:
        """Begin an era for the size; its other step times keep the old era until renewed."""
        add_job(store)
        other = replace(observation(0.1, 100), device_batch=32)
        elsewhere = observation(0.1, 100, devices=2)
        for turn in range(2):
            store.measurements.add_observations(
                "digits", [observation(0.1, 100), other, elsewhere], NOW + turn
            )
        for turn in range(2, 4):
            store.measurements.add_observations("digits", [observation(0.3, 40)], NOW + turn)
        by_configuration = {
            step_times.configuration: step_times
            for step_times in store.measurements.observations("digits")
        }
        assert by_configuration[observation().configuration] == observation(0.3, 80)
        assert by_configuration[other.configuration].era == -1
        assert by_configuration[other.configuration].step_seconds == pytest.approx(0.1)
        assert by_configuration[elsewhere.configuration].era == 0
        renewed = replace(other, step_seconds=0.31, steps=10)
        store.measurements.add_observations("digits", [renewed], NOW + 4)
        by_configuration = {
            step_times.configuration: step_times
            for step_times in store.measurements.observations("digits")
        }
        assert by_configuration[other.configuration] == replace(renewed, is_settled=False)

    def test_one_slow_report_begins_no_era(self, store: Store) -> None:
        add_job(store)
        other = replace(observation(0.1, 100), device_batch=32)
        for turn in range(3):
            store.measurements.add_observations(
                "digits", [observation(0.1, 100), other], NOW + turn
            )
        for turn, step_seconds in enumerate((1.0, 0.1, 1.0, 0.1), start=3):
            slow = [observation(step_seconds, 5), observation(step_seconds, 5)]
            store.measurements.add_observations("digits", slow, NOW + turn)
        assert {step_times.era for step_times in store.measurements.observations("digits")} == {0}

    def test_step_times_are_settled_by_a_second_report(self, store: Store) -> None:
        add_job(store)
        settled = []
        for turn, step_seconds in enumerate((1.0, 0.1, 0.1)):
            store.measurements.add_observations(
                "digits", [observation(step_seconds, 50)], NOW + turn
            )
            (only,) = store.measurements.observations("digits")
            settled.append((only.is_settled, only.era))
        assert settled == [(False, 0), (False, 0), (True, 0)]
        assert only.step_seconds == pytest.approx(0.1)

    @pytest.mark.parametrize(
        ("step_seconds", "steps"), [(float("nan"), 1), (float("inf"), 1), (-1.0, 1), (1.0, 0)]
    )
    def test_impossible_step_times_are_ignored(
        self, store: Store, step_seconds: float, steps: int
    ) -> None:
        add_job(store)
        store.measurements.add_observations("digits", [observation()], NOW)
        store.measurements.add_observations("digits", [observation(step_seconds, steps)], NOW)
        (only,) = store.measurements.observations("digits")
        assert only == replace(observation(), is_settled=False)

    def test_the_configurations_that_ran_last_are_kept(self, store: Store) -> None:
        add_job(store)
        first = [observation(devices=devices) for devices in range(1, MAXIMUM_CONFIGURATIONS + 1)]
        store.measurements.add_observations("digits", first, NOW)
        store.measurements.add_observations("digits", [observation(devices=1000)], NOW + 1)
        kept = store.measurements.observations("digits")
        assert len(kept) == MAXIMUM_CONFIGURATIONS
        assert kept[0].devices == 1000

    def test_the_revision_of_step_times_counts_their_changes(self, store: Store) -> None:
        add_job(store)
        held = launch(store)
        assert store.measurements.observations_revision("digits") == 0
        store.measurements.add_observations("digits", [observation(), observation()], NOW)
        assert store.measurements.observations_revision("digits") == 1
        store.measurements.add_observations("digits", [observation(steps=0)], NOW)
        store.measurements.add_observations("digits", [], NOW)
        store.measurements.add_duration("digits", "local-small", "start", 1.0)
        store.measurements.save_models("digits", {})
        assert store.measurements.observations_revision("digits") == 1
        store.reports.add("digits", report(), ReportOrigin(held.id, 1, NOW), NOW)
        assert store.measurements.observations_revision("digits") == 2
        assert store.measurements.observations_revision("unknown") == 0

    def test_durations_have_means_and_counts(self, store: Store) -> None:
        add_job(store)
        for seconds in (10.0, 20.0):
            store.measurements.add_duration("digits", "local-small", "start", seconds)
        store.measurements.add_duration("digits", None, "drain pause", 3.0)
        durations = store.measurements.durations("digits")
        assert durations["local-small", "start"].seconds == 15.0
        assert durations["local-small", "start"].count == 2
        assert durations[None, "drain pause"].seconds == 3.0

    def test_impossible_durations_are_ignored(self, store: Store) -> None:
        add_job(store)
        for seconds in (float("nan"), float("inf"), -1.0):
            store.measurements.add_duration("digits", None, "restore", seconds)
        assert store.measurements.durations("digits") == {}

    def test_durations_follow_a_change(self, store: Store) -> None:
        add_job(store)
        for seconds in [100.0] * 50 + [10.0] * 30:
            store.measurements.add_duration("digits", None, "restore", seconds)
        mean = store.measurements.durations("digits")[None, "restore"]
        assert mean.count == 80
        assert mean.seconds < 20.0

    def test_noise_is_kept_by_progress(self, store: Store) -> None:
        add_job(store)
        origin = ReportOrigin(launch(store).id, 1, NOW)
        for step in (0, 100, 101, 110, 200):
            noise = NoiseScale(64, 1.0, float(step), 0.1)
            store.reports.add("digits", report(step, noise=noise), origin, NOW)
        history = store.measurements.noise_history("digits")
        assert [point.progress_examples for point in history] == [6400.0, 7040.0, 12800.0]
        assert history[-1].noise == NoiseScale(64, 1.0, 200.0, 0.1)

    def test_models_come_back_as_they_were(self, store: Store) -> None:
        add_job(store)
        assert store.measurements.models("digits") == {}
        store.measurements.save_models("digits", {"cpu-core": model(0.3)})
        both = {"cpu-core": model(), "T4": model(0.2, "T4")}
        store.measurements.save_models("digits", both)
        assert store.measurements.models("digits") == both
        assert store.measurements.models_of(["digits", "unknown"]) == {"digits": both}

    def test_models_of_several_jobs_are_stored_together(self, store: Store) -> None:
        first, second = add_job(store), add_job(store, "words")
        store.measurements.save_models(first, {"cpu-core": model(0.3)})
        models = {first: {"cpu-core": replace(model(), fit_error=0.02)}, second: {"T4": model()}}
        store.measurements.save_all_models(models)
        assert store.measurements.models_of([first, second]) == models
        assert store.measurements.models(second) == models[second]
        with pytest.raises(UnknownJob):
            store.measurements.save_all_models({first: {}, "unknown": {}})
        assert store.measurements.models(first) == models[first]

    def test_models_of_every_formula_come_back_as_they_were(self, store: Store) -> None:
        add_job(store)
        seconds = (0.1, 0.01, 0.02, 1e-3, 0.01, 1e-4)
        formulas = {
            "seven": ThroughputParameters(*seconds, 1.5),
            "third level": LocalityParameters(*seconds, 0.3, 0.1, 1.5, near_instances=4),
            "pipeline": PipelineParameters(*seconds, 0.3, 1.5, stages=4, microbatches=16),
            "sharded": ShardedParameters(*seconds, 0.3, 0.1, 0.2, 1.5, shard=8),
        }
        models = {
            name: replace(model(), point=point, draws=(point,) * 2)
            for name, point in formulas.items()
        }
        store.measurements.save_models("digits", models)
        assert store.measurements.models("digits") == models

    def test_measurements_of_an_unknown_job_are_refused(self, store: Store) -> None:
        with pytest.raises(UnknownJob):
            store.measurements.add_observations("unknown", [observation()], NOW)
        with pytest.raises(UnknownJob):
            store.measurements.add_duration("unknown", None, "start", 1.0)
        with pytest.raises(UnknownJob):
            store.measurements.save_models("unknown", {})


class JournalConformance:
    def test_a_decision_is_kept_with_its_inputs(self, store: Store) -> None:
        planned = plan(decision(), decision("other"))
        store.journal.add(7, NOW, snapshot(), planned, planned.decisions)
        (entry,) = store.journal.decisions("digits")
        assert (entry.tick, entry.at_seconds, entry.decision) == (7, NOW, decision())
        assert store.journal.inputs(entry) == snapshot()
        assert store.journal.plan(entry) == planned

    def test_the_latest_come_first(self, store: Store) -> None:
        for tick in range(5):
            planned = plan(decision(reason=f"tick {tick}"))
            store.journal.add(tick, NOW + tick, snapshot(NOW + tick), planned, planned.decisions)
        entries = store.journal.decisions(limit=2)
        assert [entry.decision.reason for entry in entries] == ["tick 4", "tick 3"]
        assert [store.journal.inputs(entry).now_seconds for entry in entries] == [NOW + 4, NOW + 3]
        assert store.journal.decisions("unknown") == ()
        older = store.journal.decisions("digits", 2, before_plan=entries[-1].plan)
        assert [entry.decision.reason for entry in older] == ["tick 2", "tick 1"]
        assert store.journal.decisions(before_plan=store.journal.decisions()[-1].plan) == ()

    def test_old_entries_are_pruned_and_the_rest_can_be_replayed(self, store: Store) -> None:
        alphas = (0.1, 0.2, 0.1, 0.3)
        for tick, alpha in enumerate(alphas):
            planned = plan(decision())
            store.journal.add(tick, NOW + tick, snapshot(NOW, alpha), planned, planned.decisions)
        old = store.journal.decisions()[-1]
        store.journal.prune(NOW + 2)
        entries = store.journal.decisions()
        assert [entry.tick for entry in entries] == [3, 2]
        for entry in entries:
            assert store.journal.inputs(entry) == snapshot(NOW, alphas[entry.tick])
        for lookup in (store.journal.inputs, store.journal.plan):
            with pytest.raises(StoreError, match="pruned"):
                lookup(old)

    def test_events_are_listed_for_their_job(self, store: Store) -> None:
        lost = Event(NOW, "lost", "digits-0-1 was reclaimed", "digits")
        orphan = Event(NOW + 1, "orphan", "i-7 belongs to no job")
        for event in (lost, orphan):
            store.events.add(event)
        assert store.events.latest() == (orphan, lost)
        assert store.events.latest("digits") == (lost,)
        assert store.events.latest(limit=1) == (orphan,)
        store.events.prune(NOW + 1)
        assert store.events.latest() == (orphan,)


class LedgerConformance:
    def test_entries_are_listed_for_one_job_or_for_all(self, store: Store) -> None:
        for job in ("a", "b"):
            add_job(store, job)
            end(store, launch(store, job).id)
        assert len(store.ledger.entries()) == 4
        assert {entry.instance for entry in store.ledger.entries("b")} == {"b-0-1"}

    def test_lines_of_many_jobs_are_read_in_batches(
        self, store: Store, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(job_facts, "MOST_NAMES", 2)
        jobs = [add_job(store, name) for name in "abcde"]
        ended = [end(store, launch(store, job).id) for job in (*jobs, *jobs)]
        wanted = ("e", "a", "c")
        lines = [line for line in store.ledger.entries() if line.job in wanted]
        assert list(store.ledger.of_jobs(wanted)) == lines and len(lines) == 12
        assert store.ledger.of_jobs(()) == ()
        of_jobs = store.instances.ended_of_jobs(wanted)
        assert {job: list(of_jobs[job]) for job in wanted} == {
            job: [held for held in ended if held.job == job] for job in wanted
        }
        records = store.jobs.of_ids((*wanted, "unknown"))
        assert records == {job: store.jobs.get(job) for job in wanted}

    def test_a_period_has_the_whole_bills_of_which_a_part_is_in_it(self, store: Store) -> None:
        for job in ("past", "edge", "open", "later", "other", "again"):
            add_job(store, job)
        end(store, launch(store, "past").id, NOW + 100)
        end(store, launch(store, "edge").id, NOW + 910)  # its minimum lasts until then
        launch(store, "open")
        late = order(store, "later")
        seen = listed_instance(late.id, launched_seconds=NOW + 2000)
        store.instances.observe_cloud(late.id, seen, NOW + 2000)
        launch(store, "other")
        again = launch(store, "again").id
        end(store, again, NOW + 100)
        assert store.instances.bill_again(again, NOW + 5000)
        jobs = ("past", "edge", "open", "later", "again")

        def paid_by(from_seconds: float, until_seconds: float) -> list[str]:
            lines = store.ledger.of_period(jobs, from_seconds, until_seconds)
            assert all(line in store.ledger.entries(line.job) for line in lines)
            return sorted({line.job for line in lines})

        assert paid_by(NOW + 960, NOW + 2000) == ["again", "edge", "open"]
        assert paid_by(NOW + 1000, NOW + 2000) == ["again", "open"]
        assert paid_by(NOW + 1000, NOW + 2001) == ["again", "later", "open"]
        assert paid_by(NOW - 9, NOW) == []
        assert paid_by(NOW, NOW + 10) == ["again", "edge", "open", "past"]
        assert len(store.ledger.of_period(("again",), NOW + 1000, NOW + 2000)) == 3


class TokensConformance:
    def test_a_token_is_good_once(self, store: Store) -> None:
        self._issue(store, "hash")
        assert store.tokens.burn("hash", NOW + 1)
        assert not store.tokens.burn("hash", NOW + 1)
        assert not store.tokens.burn("other", NOW + 1)

    def test_a_token_needs_a_known_instance(self, store: Store) -> None:
        with pytest.raises(UnknownInstance):
            store.tokens.issue("hash", "digits-0-1", NOW)

    def test_a_token_expires(self, store: Store) -> None:
        self._issue(store, "hash")
        assert not store.tokens.burn("hash", NOW + 900)

    def test_a_token_issued_again_expires_later(self, store: Store) -> None:
        self._issue(store, "hash")
        store.tokens.issue("hash", "digits-0-1", NOW + 1800)
        self._issue(store, "hash")
        assert store.tokens.burn("hash", NOW + 1799)

    def test_a_token_is_good_until_it_is_used_or_expires(self, store: Store) -> None:
        self._issue(store, "hash")
        assert not store.tokens.is_good("other", NOW)
        assert store.tokens.is_good("hash", NOW + 899)
        assert not store.tokens.is_good("hash", NOW + 900)
        store.tokens.burn("hash", NOW)
        assert not store.tokens.is_good("hash", NOW)

    def test_a_join_may_be_repeated_for_a_minute_with_its_key(self, store: Store) -> None:
        self._issue(store, "hash")
        assert store.tokens.burn("hash", NOW + 899, "key")
        assert store.tokens.is_good("hash", NOW + 958, "key")
        assert store.tokens.burn("hash", NOW + 958, "key")
        for key, seconds in (("key", 959.0), ("other", 900.0), (None, 900.0)):
            assert not store.tokens.is_good("hash", NOW + seconds, key)
            assert not store.tokens.burn("hash", NOW + seconds, key)

    def test_a_join_without_a_key_is_never_repeated(self, store: Store) -> None:
        self._issue(store, "hash")
        assert store.tokens.burn("hash", NOW)
        assert not store.tokens.burn("hash", NOW, "key")

    def test_a_new_node_token_leaves_the_presented_one_alone(self, store: Store) -> None:
        self._issue(store, "hash")
        first = NodeToken("digits-0-1", NOW, NOW + 60)
        assert not store.tokens.has_node("digits-0-1")
        store.tokens.put_node("first", first)
        store.tokens.put_node("second", replace(first, issued_seconds=NOW + 1), "first")
        assert store.tokens.node("first") == first
        store.tokens.put_node("third", replace(first, issued_seconds=NOW + 2), "second")
        assert [store.tokens.node(name) is None for name in ("first", "second", "third")] == [
            *(True, False, False)
        ]
        store.tokens.put_node("fourth", first)
        assert store.tokens.node("third") is None and store.tokens.has_node("digits-0-1")

    def test_a_node_token_needs_a_known_instance(self, store: Store) -> None:
        with pytest.raises(UnknownInstance):
            store.tokens.put_node("hash", NodeToken("digits-0-1", NOW, NOW))

    def test_a_token_that_was_used_stays_used(self, store: Store) -> None:
        self._issue(store, "hash")
        assert store.tokens.burn("hash", NOW)
        self._issue(store, "hash")
        assert not store.tokens.burn("hash", NOW)

    def test_one_of_many_threads_burns_a_token(self, store: Store) -> None:
        hashes = [f"hash {number}" for number in range(10)]
        for issued in hashes:
            self._issue(store, issued)
        with ThreadPoolExecutor(8) as pool:
            burned = list(
                pool.map(lambda token_hash: store.tokens.burn(token_hash, NOW), hashes * 8)
            )
        assert sum(burned) == len(hashes)

    def test_a_controller_adopts_the_id_of_a_lost_one(self, store: Store) -> None:
        assert store.settings.controller_id() != "lost"
        store.settings.adopt("lost")
        assert store.settings.controller_id() == "lost"

    def test_settings_are_chosen_once(self, store: Store) -> None:
        assert store.settings.controller_id() == store.settings.controller_id()
        assert store.settings.once("key", lambda: "first") == "first"
        assert store.settings.once("key", lambda: "second") == "first"

    def test_a_freeze_stands_until_it_is_released(self, store: Store) -> None:
        assert store.settings.frozen() is None
        store.settings.freeze(Freeze(NOW + 0.1, "ann of ops"))
        store.settings.freeze(Freeze(NOW + 5.0, "bob"))
        assert store.settings.frozen() == Freeze(NOW + 0.1, "ann of ops"), "the first freeze stays"
        store.settings.unfreeze()
        store.settings.unfreeze()
        assert store.settings.frozen() is None

    def _issue(self, store: Store, token_hash: str) -> None:
        if not store.jobs.alive():
            add_job(store)
            launch(store)
        store.tokens.issue(token_hash, "digits-0-1", NOW + 900)
