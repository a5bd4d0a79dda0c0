"""The grant of an instance: a file for the job's user alone, renewed in time."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import cast

import pytest

from autoscaler.clock import VirtualClock
from autoscaler.domain.errors import Unavailable
from autoscaler.domain.storage import StorageGrant
from autoscaler.node.files.grants import Grants
from autoscaler.objects import granted
from autoscaler.wire.node_client import NodeClient

JOBS_USER = 20_007
HOUR_SECONDS = 3600.0


class Controller:
    """Gives grants that last an hour, one after the other."""

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.is_away = False
        self.asked: list[str] = []

    def grant(self, job: str) -> StorageGrant:
        self.asked.append(job)
        if self.is_away:
            raise Unavailable("no controller answers")
        credential = {"access_key_id": f"key-{len(self.asked)}"}
        return StorageGrant(
            "s3://b/jobs/job", {}, credential, self.clock.now() + HOUR_SECONDS, "s3://b/bundles/1"
        )


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(1_790_000_000.0)


@pytest.fixture
def controller(clock: VirtualClock) -> Controller:
    return Controller(clock)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "grant" / "grant.json"


def grants_of(file: Path, controller: Controller) -> Grants:
    return Grants(file, cast(NodeClient, controller), controller.clock)


@pytest.fixture
def grants(file: Path, controller: Controller) -> Grants:
    grants = grants_of(file, controller)
    grants.take("job", controller.grant("job"))
    return grants


def key(file: Path) -> str:
    return granted(file)().credential["access_key_id"]


def test_it_is_there_whole_for_its_owner_alone(file: Path, grants: Grants) -> None:
    assert grants.path == file
    assert granted(file)().bundle == "s3://b/bundles/1"
    assert stat.S_IMODE(file.stat().st_mode) == 0o400
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o711, "its name has to be known"
    assert [path.name for path in file.parent.iterdir()] == ["grant.json"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_the_jobs_user_owns_the_file_and_not_its_directory(
    file: Path, grants: Grants, clock: VirtualClock
) -> None:
    grants.let_in(JOBS_USER)
    assert (file.stat().st_uid, file.parent.stat().st_uid) == (JOBS_USER, 0)
    clock.advance(HOUR_SECONDS)
    grants.renew_if_due()
    assert (key(file), file.stat().st_uid) == ("key-2", JOBS_USER)


def test_what_the_jobs_user_leaves_there_does_not_lead_astray(
    file: Path, grants: Grants, clock: VirtualClock, tmp_path: Path
) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    file.with_name("grant.json.unfinished").symlink_to(victim)
    clock.advance(HOUR_SECONDS)
    grants.renew_if_due()
    assert key(file) == "key-2"
    assert victim.read_text() == "precious"


def test_it_is_renewed_at_half_time_and_not_before(
    file: Path, grants: Grants, controller: Controller, clock: VirtualClock
) -> None:
    clock.advance(HOUR_SECONDS / 2 - 1.0)
    grants.renew_if_due()
    assert key(file) == "key-1"
    clock.advance(1.0)
    grants.renew_if_due()
    grants.renew_if_due()
    assert key(file) == "key-2"
    assert controller.asked == ["job", "job"]


def test_a_controller_that_is_away_is_asked_ever_more_slowly_until_it_is_back(
    file: Path, grants: Grants, controller: Controller, clock: VirtualClock
) -> None:
    controller.is_away = True
    clock.advance(HOUR_SECONDS / 2)
    for _ in range(1500):  # 25 minutes
        grants.renew_if_due()
        clock.advance(1.0)
    assert 100 < len(controller.asked) < 200
    assert key(file) == "key-1", "which is good for five minutes more"
    controller.is_away = False
    clock.advance(10.0)
    grants.renew_if_due()
    assert key(file) == f"key-{len(controller.asked)}"


def test_an_agent_that_was_started_again_goes_on_with_the_file(
    file: Path, grants: Grants, controller: Controller, clock: VirtualClock
) -> None:
    clock.advance(HOUR_SECONDS / 3)
    later = grants_of(file, controller)
    later.resume("job", None)
    later.renew_if_due()
    assert key(file) == "key-1"
    clock.advance(HOUR_SECONDS / 3)
    later.renew_if_due()
    assert key(file) == "key-2"


def test_of_a_job_without_storage_there_is_no_file(
    file: Path, grants: Grants, controller: Controller, clock: VirtualClock
) -> None:
    grants.take("next", None)
    assert grants.path is None and not file.exists()
    clock.advance(HOUR_SECONDS)
    grants.renew_if_due()
    assert controller.asked == ["job"]


def test_a_grant_that_lasts_is_not_renewed(
    file: Path, controller: Controller, clock: VirtualClock
) -> None:
    grants = grants_of(file, controller)
    grants.take("job", StorageGrant("file:///shared/jobs/job"))
    clock.advance(1e9)
    grants.renew_if_due()
    assert controller.asked == []


def test_a_grant_that_comes_too_late_for_its_job_is_not_the_next_ones(
    file: Path, controller: Controller, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    grants = grants_of(file, controller)
    grants.take("job", controller.grant("job"))
    give = controller.grant

    def meanwhile(job: str) -> StorageGrant:
        grants.take("next", give("next"))
        return give(job)

    monkeypatch.setattr(controller, "grant", meanwhile)
    clock.advance(HOUR_SECONDS / 2)
    grants.renew_if_due()
    assert controller.asked == ["job", "next", "job"]
    assert key(file) == "key-2"
