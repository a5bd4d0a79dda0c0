"""Stops while slow reads occupy all threads of the framework."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from autoscaler.domain.job import JobPhase, JobSpec
from autoscaler.service.access.people import PeopleAccess
from autoscaler.service.jobs.views import Views
from autoscaler.wire.client import StudyClient
from autoscaler.wire.study_messages import StudyLease
from tests.service.conftest import TOKEN, Api

# More than the framework's threads.
READS = 45
HEADERS = {"Authorization": f"Bearer {TOKEN}"}


@contextmanager
def blocked_reads(api: Api, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """Let reads of the fleet wait, more than there are threads; yield how many have ended."""
    release, reading = threading.Event(), threading.Semaphore(0)
    fleet, ended = Views.fleet, []

    def slow(views: Views, now_seconds: float) -> Any:
        reading.release()
        release.wait(60)
        return fleet(views, now_seconds)

    def read() -> None:
        httpx.get(f"{api.url}/v1/fleet", headers=HEADERS, timeout=60)
        ended.append(1)

    monkeypatch.setattr(Views, "fleet", slow)
    threads = [threading.Thread(target=read) for _ in range(READS)]
    for thread in threads:
        thread.start()
    for _ in range(40):
        assert reading.acquire(timeout=60)
    try:
        yield lambda: len(ended)
    finally:
        release.set()
        for thread in threads:
            thread.join()


def test_stops_do_not_wait_for_reads(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("digits", "letters", "signs"):
        api.client.submit(JobSpec(name, ("true",)))
    StudyClient(api.url, TOKEN, "sweep").lease(StudyLease("laptop", 300.0))
    # As with a token that was not seen for a while, so that the store is asked for it.
    monkeypatch.setattr(PeopleAccess, "known", lambda people, token: None)
    with blocked_reads(api, monkeypatch) as ended:
        client = httpx.Client(base_url=api.url, headers=HEADERS, timeout=30)
        for path in (
            "/v1/freeze",
            "/v1/unfreeze",
            "/v1/jobs/digits/stop",
            "/v1/studies/sweep/stop?at_once=true",
            "/fleet/freeze",
            "/jobs/letters/stop",
            "/studies/sweep/stop",
            "/v1/drain",
            "/fleet/drain",
        ):
            assert client.post(path).status_code in (200, 204, 303), path
        assert ended() == 0
    assert {job.phase for job in api.world.store.jobs.all()} == {JobPhase.STOPPING}
