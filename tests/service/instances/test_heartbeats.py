"""Heartbeats in batches, over HTTP as agents send them and directly."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from autoscaler.domain.errors import NotAllowed, SpecError, StoreError
from autoscaler.domain.gpu_use import GpuUse
from autoscaler.service.instances.heartbeats import Answered, Heartbeat
from autoscaler.wire.codec import encode
from autoscaler.wire.messages import NodeReport
from tests.service.agents import joined, node_report, training_report
from tests.service.conftest import Api

AT_ONCE = 12


def test_one_bad_heartbeat_of_a_batch_is_refused_alone(api: Api) -> None:
    held, node = joined(api)
    good = encode(NodeReport, node_report(held, reports=(training_report(10),)))
    others = encode(NodeReport, node_report(held, instance="other"))
    token = node.token or ""
    results = api.heartbeats.answer(
        [
            Heartbeat("no token", good),
            Heartbeat(token, b"{"),
            Heartbeat(token, others),
            Heartbeat(token, good),
        ]
    )
    kinds = [type(result) for result in results]
    assert kinds == [NotAllowed, SpecError, NotAllowed, Answered]
    report = api.world.store.jobs.get(held.job).report
    assert report is not None and report.step == 10


def test_a_batch_whose_commit_fails_is_refused_whole_and_repeated(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, node = joined(api)
    report = node_report(held, reports=(training_report(10),))

    def fail(*_: object) -> bool:
        raise StoreError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(api.world.store.reports, "add", fail)
        body = encode(NodeReport, report)
        url = f"{api.url}/v1/node/heartbeat"
        headers = {"Authorization": f"Bearer {node.token}"}
        assert httpx.post(url, content=body, headers=headers).status_code == 503
    node.heartbeat(report)
    stored = api.world.store.jobs.get(held.job).report
    assert stored is not None and stored.step == 10


def test_the_use_of_gpus_is_kept_in_memory_and_is_no_news(api: Api) -> None:
    held, node = joined(api)
    use = GpuUse(1, 0.5, 0.5, 10, 80)
    node.heartbeat(node_report(held))
    api.woken.clear()
    node.heartbeat(node_report(held, gpu_use=use))
    uses = api.heartbeats._nodes.gpu_uses
    assert uses.of(held.id) == use
    assert not api.woken.is_set()
    node.heartbeat(node_report(held))
    assert uses.of(held.id) is None


def test_heartbeats_that_come_at_once_are_all_answered(api: Api) -> None:
    held, node = joined(api)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        reports = [node_report(held, notes=(f"note {number}",)) for number in range(AT_ONCE)]
        replies = list(pool.map(node.heartbeat, reports))
    assert {reply.job for reply in replies} == {held.job}
    texts = [each.text for each in api.world.store.events.latest(held.job)]
    assert len([text for text in texts if "note" in text]) == AT_ONCE


def test_a_reply_says_when_the_next_heartbeat_is_due(api: Api) -> None:
    held, node = joined(api)
    assert node.heartbeat(node_report(held)).heartbeat_seconds == 1.0


@pytest.mark.parametrize("query", ["", "?wait_seconds=0.0", "?wait_seconds=0"])
def test_the_short_way_refuses_as_the_route_does(api: Api, query: str) -> None:
    _, node = joined(api)
    url = f"{api.url}/v1/node/heartbeat{query}"
    headers = {"Authorization": f"Bearer {node.token}"}
    large = b" " * (5 << 20)
    refused = httpx.post(url, content=large, headers=headers)
    assert refused.status_code == 413 and refused.json()["error"] == "SpecError"
    refused = httpx.post(url, content=b"{", headers=headers)
    assert refused.status_code == 422 and "not JSON" in refused.json()["message"]
    assert httpx.post(url, content=b"{}").status_code == 401
