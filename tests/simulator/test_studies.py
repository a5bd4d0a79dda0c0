"""Simulated studies under the real controller on a virtual clock."""

from __future__ import annotations

from dataclasses import asdict, replace
from functools import cache

import pytest

from autoscaler.domain.objective import Objective
from autoscaler.domain.offer import Purchase
from autoscaler.simulator.results import Result
from autoscaler.simulator.studies.results import StudyResult
from tests.simulator.study_files import ASYNCHRONOUS, OFFER, SYNCHRONOUS, SimulatedRun, study
from tests.simulator.test_timeline import cost_of

EASY = Objective(deadline_seconds=4 * 3600.0)
SPOT = replace(OFFER, id="spot", purchase=Purchase.SPOT, reclaims_per_hour=10.0)
RULES = {"synchronous": SYNCHRONOUS, "asynchronous": ASYNCHRONOUS}


@cache
def ran(search: str, policy: str) -> SimulatedRun:
    return SimulatedRun(study(RULES[search], EASY), policy)


def study_of(result: Result) -> StudyResult:
    assert result.study is not None
    return result.study


@pytest.mark.parametrize("search", RULES)
@pytest.mark.parametrize("policy", ["marginal", "static"])
def test_all_trials_end_all_is_given_back_and_every_bill_is_found_again(
    search: str, policy: str
) -> None:
    run = ran(search, policy)
    study_outcome = study_of(run.result)
    assert all(job.phase.is_final for job in run.store.jobs.all())
    assert run.store.instances.alive() == ()
    assert study_outcome.held[-1].instances == 0
    assert sum(study_outcome.ends.values()) == 9
    assert study_outcome.cost_usd == pytest.approx(float(run.cloud.billed_usd()), abs=1e-9)
    price = {OFFER.id: float(OFFER.usd_per_hour)}
    for job in run.result.jobs:
        rounding = 4 * (1 + sum(entry.gpus == 0 for entry in job.timeline))
        seconds = (job.cost_usd - cost_of(job, price)) / price[OFFER.id] * 3600
        assert -1e-6 <= seconds <= rounding


def test_who_survives_does_not_depend_on_who_plans() -> None:
    reports = [
        [(trial.number, trial.end, len(trial.reports)) for trial in outcome.trials]
        for policy in ("marginal", "static", "pollux")
        for outcome in (study_of(ran("synchronous", policy).result),)
    ]
    assert reports[0] == reports[1] == reports[2]
    lengths = sorted(made for _, _, made in reports[0])
    assert lengths == [1] * 6 + [3] * 2 + [6]
    best = study_of(ran("synchronous", "static").result)
    assert best.ends == {"complete": 1, "pruned": 8}
    assert best.best == pytest.approx(10.0 - 8 / 6)


def test_trials_hold_nothing_while_they_wait_at_a_barrier() -> None:
    result = ran("synchronous", "static").result
    first, second = study_of(result).barriers_s
    for job, trial in zip(result.jobs, study_of(result).trials, strict=True):
        came = trial.reports[0].at_s
        held = [e for e in job.timeline if e.from_s > came + 1 and e.to_s < first - 1]
        assert not held, f"{job.name} came to the barrier at {came}"
    assert first < second


def test_an_easy_deadline_is_kept() -> None:
    assert study_of(ran("synchronous", "marginal").result).in_time
    assert study_of(ran("asynchronous", "marginal").result).in_time


def test_the_same_seed_gives_the_same_run() -> None:
    simulated = study(ASYNCHRONOUS, Objective())
    offers = (SPOT,)
    runs = [SimulatedRun(simulated, "static", offers, seed=seed) for seed in (1, 1, 2)]
    documents = [asdict(study_of(run.result)) for run in runs]
    assert documents[0] == documents[1] != documents[2]
    assert sum(job.restarts for job in runs[0].result.jobs) > 0, "spot was taken back"
    assert all(study_of(run.result).ends == documents[0]["ends"] for run in runs[:2])


def test_an_asynchronous_driver_begins_the_next_while_none_waits_for_an_instance() -> None:
    study_outcome = study_of(ran("asynchronous", "static").result)
    assert max(level.instances for level in study_outcome.held) <= 3
    assert study_outcome.hand_overs > 0
    assert study_outcome.barriers_s == ()


def test_the_store_is_told_terms_speeds_and_ends() -> None:
    run = ran("synchronous", "static")
    terms = run.store.studies.terms("s")
    assert terms is not None and terms.synchronous and terms.later == ()
    records = run.store.studies.trials("s")
    assert [record.stands.job for record in records] == [f"s-{n}" for n in range(9)]
    assert all(record.stands.has_ended for record in records)
    winner = max(records, key=lambda record: record.stands.progress)
    number = int(winner.stands.job.removeprefix("s-"))
    (speed,) = winner.speeds
    assert speed.work / speed.seconds <= 1.0 / (60.0 + 10.0 * number) + 1e-9
    assert winner.stands.features == {}
