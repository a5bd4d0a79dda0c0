from __future__ import annotations

from dataclasses import replace

import httpx
import pytest

from autoscaler.domain.goodput import NoiseScale
from autoscaler.domain.job import InstanceBounds
from autoscaler.domain.report import ReportOrigin
from tests.service.agents import SPEC, joined, training_report
from tests.service.conftest import Api


def trained(api: Api) -> None:
    """Let a job train on one, then two instances, with a report every two seconds."""
    held, _ = joined(api, replace(SPEC, instances=InstanceBounds(maximum=4)))
    start_seconds = api.world.clock.now()
    for turn in range(20):
        if turn == 10:
            api.world.set_target("job", 2)
        api.world.tick(1)
        now_seconds = api.world.clock.now()
        report = training_report(
            step=10 * (turn + 1),
            noise=NoiseScale(32, 1.0, 1.0 + turn, 0.2),
            metrics={"loss": 2.0 - 0.1 * turn},
        )
        api.world.store.reports.add(
            "job", report, ReportOrigin(held.id, 1, start_seconds), now_seconds
        )


def test_the_history_has_all_series_on_one_axis(api: Api) -> None:
    trained(api)
    view, job = api.client.history("job", points=60), api.client.job("job")
    assert len(view.times) == 60
    assert view.times[0] == job.submitted_seconds and view.times[-1] == api.world.clock.now()
    for series in (view.devices, view.usd_per_hour, view.spent_usd, view.loss, view.batch):
        assert len(series) == 60
    assert {max(counts) for counts in view.instances.values()} == {2}
    assert view.devices[-1] == 2
    assert view.spent_usd[-1] == pytest.approx(float(job.spent_usd))
    assert list(view.spent_usd) == sorted(view.spent_usd)
    losses = [loss for loss in view.loss if loss is not None]
    assert losses == sorted(losses, reverse=True) and losses[-1] == pytest.approx(0.1)
    assert {batch for batch in view.batch if batch} == {32}
    noises = [noise for noise in view.noise_examples if noise is not None]
    assert noises == sorted(noises)
    times = [decision.at_seconds for decision in view.decisions]
    assert times == sorted(times) and any(decision.target for decision in view.decisions)


def test_a_history_may_begin_later_and_have_few_points(api: Api) -> None:
    trained(api)
    since = api.world.clock.now() - 10.0
    view = api.client.history("job", since, 5)
    assert view.times == pytest.approx([since + 2.5 * step for step in range(5)])
    assert all(decision.at_seconds >= since for decision in view.decisions)
    assert view.spent_usd[0] > 0, "what was spent before counts"


def test_an_ended_job_has_the_same_history_later(api: Api) -> None:
    trained(api)
    api.client.stop("job")
    api.world.tick(5)
    before = api.client.history("job")
    api.world.tick(5)
    assert api.client.history("job") == before
    assert before.times[-1] == api.client.job("job").ended_seconds


def test_a_job_without_instances_has_an_empty_history(api: Api) -> None:
    api.client.submit(SPEC)
    view = api.client.history("job")
    assert view.instances == {} and set(view.spent_usd) == {0.0} and set(view.loss) == {None}


@pytest.mark.parametrize("query", ["points=1", "points=2001", "since_seconds=-1", "points=x"])
def test_a_history_that_can_not_be_given_is_refused(api: Api, query: str) -> None:
    api.client.submit(SPEC)
    reply = httpx.get(
        f"{api.url}/v1/jobs/job/history?{query}",
        headers={"Authorization": f"Bearer {api.token}"},
    )
    assert reply.status_code == 422 and query.split("=")[0] in reply.json()["field"]
