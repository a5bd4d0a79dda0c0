from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.errors import LedgerError
from autoscaler.domain.gpu_use import GpuUse
from autoscaler.domain.job import JobRecord
from autoscaler.domain.spending import LedgerEntry
from autoscaler.loop_watch import LoopState
from autoscaler.service.health import Health
from autoscaler.telemetry.meters import MeteredPolicy, MeteredProvider
from providers.base import Provider
from tests.conformance.store_examples import model
from tests.controller.world import World
from tests.telemetry.conftest import REPORT, Scraped, objective, values_of


def test_a_training_job_has_its_goodput_efficiency_cost_and_forecast(scraped: Scraped) -> None:
    job = scraped.world.submit("a", objective=objective(), person="ada", team="nlp", study="s")
    scraped.report(scraped.train(job, 2))
    samples = scraped.scrape()
    labels = frozenset({("job_id", "a"), ("person", "ada"), ("team", "nlp")})
    values = {name: by[labels] for name, by in samples.items() if labels in by}
    assert values["castor_job_goodput_examples_per_second"] == 80.0
    assert values["castor_job_noise_scale_examples"] == 96.0
    assert values["castor_job_efficiency_ratio"] == pytest.approx(0.8)
    assert values["castor_job_throughput_examples_per_second"] == pytest.approx(100.0)
    assert values["castor_job_batch_examples"] == 64
    assert (values["castor_job_instances"], values["castor_job_training_instances"]) == (2, 2)
    assert values["castor_job_usd_per_hour"] == pytest.approx(0.2)
    assert values["castor_job_budget_usd"] == 20
    assert values["castor_job_deadline_timestamp_seconds"] == 2e6
    assert values["castor_job_remaining_seconds"] == 36.0
    to_come_usd = 0.2 * 36 / 3600
    spent_usd = values["castor_job_spent_usd"]
    assert values["castor_job_predicted_usd"] == pytest.approx(spent_usd + to_come_usd)
    info = labels | {("study", "s"), ("program", "a"), ("phase", "running")}
    assert samples["castor_job_info"] == {info: 1.0}


def test_the_cost_of_a_job_grows_with_time_and_equals_its_ledger(scraped: Scraped) -> None:
    job = scraped.world.submit("a")
    scraped.train(job)
    store, clock = scraped.world.store, scraped.world.clock
    view = scraped.page._jobs
    for _ in range(3):
        clock.advance(100.0)
        spent = scraped.value("castor_job_spent_usd", job_id="a")
        expected = 0.1 * (clock.now() - store.instances.of_job(job)[0].launched_seconds) / 3600  # type: ignore[operator]
        assert spent == pytest.approx(expected, abs=0.1 / 3600)
    assert len(view._costs) == 1
    clock.advance(700.0)
    scraped.scrape()
    assert view._costs["a"].at_seconds == clock.now()


def test_the_use_of_gpus_is_that_of_the_jobs_instances(scraped: Scraped) -> None:
    first = scraped.train(scraped.world.submit("a"), 2)
    second = scraped.world.training("a")[1]
    uses = scraped.sources.gpu_uses
    uses.note(first.id, GpuUse(1, 0.9, 0.9, 10, 80))
    uses.note(second.id, GpuUse(3, 0.5, 0.8, 30, 240))
    uses.note("ended", GpuUse(1, 1.0, 1.0, 1, 1))
    assert scraped.value("castor_job_gpu_utilization_ratio", job_id="a") == pytest.approx(0.6)
    assert scraped.value("castor_job_gpu_memory_used_bytes", job_id="a") == 40
    assert scraped.value("castor_job_gpu_memory_bytes", job_id="a") == 320
    assert uses.of("ended") is None
    uses.note(first.id, None)
    assert scraped.value("castor_job_gpus", job_id="a") == 3


def test_the_productive_share_is_the_useful_part_of_the_billed_time(scraped: Scraped) -> None:
    scraped.train(scraped.world.submit("a"))
    scraped.show(billed_seconds=lambda job, now_seconds: {"useful": 60.0, "boot": 20.0})
    assert scraped.value("castor_job_billed_seconds", job_id="a", category="boot") == 20.0
    assert scraped.value("castor_job_goodput_ratio", job_id="a") == 0.75
    scraped.show(billed_seconds=lambda job, now_seconds: {"useful": 0.0})
    assert scraped.value("castor_job_goodput_ratio", job_id="a") is None


def test_billed_times_are_computed_for_a_few_jobs_at_each_scrape(scraped: Scraped) -> None:
    asked: list[str] = []

    def billed(job: JobRecord, now_seconds: float) -> dict[str, float]:
        asked.append(job.id)
        return {"useful": 1.0}

    for number in range(120):
        scraped.world.submit(f"job-{number}")
    scraped.show(billed_seconds=billed)
    counts = [len(scraped.scrape()["castor_job_goodput_ratio"]) for _ in range(3)]
    assert counts == [50, 100, 120]
    assert len(set(asked)) == len(asked) == 120
    scraped.world.clock.advance(100.0)
    scraped.scrape()
    assert asked[120:] == asked[:50], "the oldest first"


def test_an_error_of_one_job_hides_no_other(
    scraped: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        scraped.world.submit(name)
    scraped.world.tick(1)
    entries = scraped.world.store.ledger.entries

    def torn(job: str | None = None) -> tuple[LedgerEntry, ...]:
        if job == "a":
            raise LedgerError("two openings")
        return entries(job)

    monkeypatch.setattr(scraped.world.store.ledger, "entries", torn)
    scraped.show(billed_seconds=lambda job, now_seconds: {"useful": float(len(torn(job.id)))})
    assert scraped.value("castor_job_spent_usd", job_id="a") is None
    assert scraped.value("castor_job_spent_usd", job_id="b") == 0.0
    assert scraped.value("castor_job_billed_seconds", job_id="b") == 0.0


def test_unknown_values_are_absent(scraped: Scraped) -> None:
    scraped.world.submit("a")
    scraped.world.tick(1)
    samples = scraped.scrape()
    assert samples["castor_job_instances"]
    for name in ("goodput_examples_per_second", "budget_usd", "remaining_seconds", "steps"):
        assert f"castor_job_{name}" not in samples


def test_a_larger_batch_of_unknown_noise_has_no_efficiency(scraped: Scraped) -> None:
    job = scraped.world.submit("a")
    scraped.report(scraped.train(job), replace(REPORT, noise=None))
    assert scraped.value("castor_job_efficiency_ratio", job_id="a") is None
    assert scraped.value("castor_job_goodput_examples_per_second", job_id="a") == 80.0
    assert scraped.value("castor_job_throughput_examples_per_second", job_id="a") is None


def test_the_prediction_follows_reports_and_models(scraped: Scraped) -> None:
    job = scraped.world.submit("a")
    held = scraped.train(job)
    scraped.report(held)
    name = "castor_job_predicted_goodput_examples_per_second"
    assert scraped.value(name, job_id="a") is None
    scraped.world.store.measurements.save_models(job, {"core": model(0.1, "core")})
    slow = scraped.value(name, job_id="a")
    scraped.world.store.measurements.save_models(job, {"core": model(0.01, "core")})
    fast = scraped.value(name, job_id="a")
    assert slow is not None and fast is not None and fast > slow


def test_ended_jobs_and_jobs_beyond_the_limit_have_no_series(scraped: Scraped) -> None:
    for name in ("a", "b", "c"):
        scraped.world.submit(name)
    scraped.world.tick(1)
    scraped.show(most_jobs=2)
    samples = scraped.scrape()
    assert {dict(labels)["job_id"] for labels in samples["castor_job_info"]} == {"a", "b"}
    assert samples["castor_jobs_without_series"] == {frozenset(): 1.0}
    assert samples["castor_jobs"] == {frozenset({("phase", "pending")}): 3.0}
    scraped.show(most_jobs=0)
    assert not [name for name in scraped.scrape() if name.startswith("castor_job_")]


def test_the_fleet_has_its_offers_limits_and_instances(scraped: Scraped) -> None:
    scraped.train(scraped.world.submit("a"), 2)
    now_seconds = scraped.world.clock.now()
    until_seconds = now_seconds + 600
    scraped.world.store.capacity.refused("large", "QuotaExceeded", now_seconds, until_seconds)
    scraped.world.tick(1)
    assert scraped.value("castor_instances", offer="small", phase="training") == 2
    assert scraped.value("castor_devices_used", offer="small") == 2
    assert scraped.value("castor_limit", limit="devices", unit="devices") == 4
    assert scraped.value("castor_limit_used", limit="devices") == 2
    assert scraped.value("castor_offer_usd_per_hour", offer="large", provider="file") == 0.19
    assert scraped.value("castor_offer_unavailable", offer="large") == 1
    assert scraped.value("castor_offer_unavailable", offer="small") == 0
    assert scraped.value("castor_fleet_usd_per_hour") == pytest.approx(0.2)
    assert scraped.value("castor_provider_silent", provider="file") == 0


def test_silence_of_an_agent_grows(scraped: Scraped) -> None:
    scraped.train(scraped.world.submit("a"))
    scraped.world.clock.advance(50.0)
    assert scraped.value("castor_oldest_heartbeat_age_seconds") == pytest.approx(53.0)


def test_the_fleet_budget_has_its_spending(tmp_path: Path, scraped: Scraped) -> None:
    limit_usd = Decimal(100)
    world = World(tmp_path, ControllerSettings(fleet_usd=limit_usd))
    scraped.world = world
    status, clock = world.controller.status, world.clock
    scraped.show(store=world.store, status=status, clock=clock, fleet_usd=limit_usd)
    scraped.train(world.submit("a"))
    world.clock.advance(3600.0)
    world.tick(1)
    assert scraped.value("castor_fleet_budget_usd") == 100
    assert scraped.value("castor_fleet_spent_usd") == pytest.approx(0.1, rel=0.01)


def test_a_follower_has_neither_jobs_nor_a_fleet(scraped: Scraped) -> None:
    scraped.train(scraped.world.submit("a"))
    scraped.health = Health("follower", LoopState(1.0, None), "no store", None)
    samples = scraped.scrape()
    assert samples["castor_leader"] == {frozenset(): 0.0}
    assert samples["castor_store_write_failing"] == {frozenset(): 1.0}
    assert "castor_last_tick_timestamp_seconds" not in samples
    assert not [name for name in samples if "_job" in name or "_instances" in name]


def test_many_scrapes_within_seconds_cost_no_more_than_one(scraped: Scraped) -> None:
    first = scraped.page.text("")
    scraped.world.submit("a")
    assert scraped.page.text("") == first
    scraped.world.clock.advance(3.0)
    assert scraped.page.text("") != first


def test_the_text_is_openmetrics_for_who_asks_for_it(scraped: Scraped) -> None:
    text, kind = scraped.page.text("application/openmetrics-text; version=1.0.0")
    assert kind.startswith("application/openmetrics-text")
    assert text.endswith(b"# EOF\n")
    assert scraped.page.text("text/plain")[1].startswith("text/plain")


def test_names_from_users_can_not_forge_series(scraped: Scraped) -> None:
    hostile = 'a"} 1\ncastor_leader 0\n\\'
    scraped.world.submit("a", person=hostile)
    scraped.world.tick(1)
    samples = scraped.scrape()
    assert samples["castor_leader"] == {frozenset(): 1.0}
    (labels,) = samples["castor_job_info"]
    assert dict(labels)["person"] == hostile


def test_calls_of_providers_and_plans_are_counted(scraped: Scraped) -> None:
    world, meters = scraped.world, scraped.meters
    provider = MeteredProvider("file", world.cloud, meters)
    assert provider.offers() == world.cloud.offers()
    assert provider.condition() == world.cloud.condition()
    name = "castor_provider_call_duration_seconds_count"
    labels = {"provider": "file", "operation": "offers", "outcome": "ok"}
    assert scraped.value(name, **labels) == 1
    public = {name for name in vars(Provider) if not name.startswith("_")}
    assert public <= vars(MeteredProvider).keys()
    world.policy.weighs_boots = False
    policy = MeteredPolicy(world.policy, meters)
    assert policy.weighs_boots is False
    assert not hasattr(policy, "plans_studies")


def test_values_are_read_from_one_text(scraped: Scraped) -> None:
    scraped.meters.answered("GET", "/v1/jobs", 200, 0.02)
    scraped.meters.heartbeats(3, 1)
    samples = values_of(scraped.page.text("")[0])
    route = frozenset({("method", "GET"), ("route", "/v1/jobs"), ("status", "200")})
    assert samples["castor_http_requests_total"] == {route: 1.0}
    assert samples["castor_heartbeats_total"][frozenset({("outcome", "refused")})] == 1
    assert not [name for name in samples if name.endswith("_created")]
