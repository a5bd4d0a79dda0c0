"""Records of instances: the bill, ended instances, unreadable files."""

from __future__ import annotations

import stat
import time
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.clock import VirtualClock
from autoscaler.domain.errors import PermissionDenied, Unavailable
from autoscaler.domain.instance import CloudState
from providers.local.bill import bill_instance
from providers.local.instance import (
    TERMINATED,
    InstanceEnd,
    InstanceRecord,
    LocalInstance,
    create_instance,
)
from providers.local.provider import DISK_KEPT_SECONDS, ENDED_KEPT_SECONDS, LocalProvider
from providers.local.settings import LocalSettings, default_catalogue
from tests.conformance.provider import THEIRS, end, order
from tests.providers.local.cloud import LocalCloud

RECORD = InstanceRecord(
    id="i-1",
    token="1",
    offer="local-small",
    usd_per_hour=Decimal("0.0450"),
    minimum_billed_seconds=60,
    devices=(0,),
    tags={"castor:controller": "a"},
    launched_seconds=1000.25,
    boot_seconds=0.0,
    reclaim_after_seconds=None,
    notice_period_seconds=10.0,
    grace_seconds=2.0,
    agent=("agent", "--user-data"),
)


class InstanceWithoutFiles(LocalInstance):
    end = None

    def __init__(self, record: InstanceRecord, ended_seconds: float | None) -> None:
        super().__init__(Path("nowhere"))
        self.record = record
        if ended_seconds is not None:
            self.end = InstanceEnd(ended_seconds, TERMINATED)


@pytest.mark.parametrize(
    ("ended_seconds", "seconds", "usd"),
    [
        (1000.25, 60, "0.000750"),
        (1060.25, 60, "0.000750"),
        (1060.26, 61, "0.000762"),
        (4600.25, 3600, "0.045000"),
        (None, 7200, "0.090000"),
        (900.0, 60, "0.000750"),
    ],
)
def test_started_seconds_are_billed(ended_seconds: float | None, seconds: int, usd: str) -> None:
    line = bill_instance(InstanceWithoutFiles(RECORD, ended_seconds), now_seconds=8200.25)
    assert (line.seconds, line.usd) == (seconds, Decimal(usd))


@given(
    st.floats(0, 1e6).map(lambda seconds: round(seconds, 3)),
    st.integers(0, 120),
    st.decimals("0.0001", "100", places=4),
)
def test_no_more_is_billed_than_the_second_that_was_started(
    lasted_seconds: float, minimum_seconds: int, usd_per_hour: Decimal
) -> None:
    record = replace(
        RECORD,
        launched_seconds=0.0,
        minimum_billed_seconds=minimum_seconds,
        usd_per_hour=usd_per_hour,
    )
    line = bill_instance(InstanceWithoutFiles(record, lasted_seconds), now_seconds=0.0)
    least = max(lasted_seconds, minimum_seconds)
    assert least <= line.seconds < max(lasted_seconds + 1, minimum_seconds + 0.5)
    assert abs(line.usd - usd_per_hour * line.seconds / 3600) <= Decimal("0.0000005")


def test_the_bill_has_a_line_for_every_instance_of_the_deployment(
    cloud: LocalCloud, provider: LocalProvider
) -> None:
    others = cloud.connect(THEIRS)
    others.launch(order(others, "1", THEIRS))
    ended = end(cloud, provider, provider.launch(order(provider, "1")).id)
    running = provider.launch(order(provider, "2"))
    first, second = provider.bill()
    assert (first.instance, second.instance) == (ended.id, running.id)
    assert first.usd_per_hour == second.usd_per_hour == provider.offers()[0].usd_per_hour
    assert first == provider.bill()[0]
    assert first.seconds >= 1


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "instances").mkdir()
    record = replace(RECORD, reclaim_after_seconds=12.5)
    create_instance(tmp_path / "instances" / "i-1", record, "hello")
    assert LocalInstance(tmp_path / "instances" / "i-1").record == record


def test_after_a_day_only_the_record_is_kept(cloud: LocalCloud, provider: LocalProvider) -> None:
    ended = end(cloud, provider, provider.launch(order(provider, "1")).id)
    clock = VirtualClock(time.time() + ENDED_KEPT_SECONDS - 60)
    later = cloud.connect(clock=clock)
    assert [instance.id for instance in later.instances()] == [ended.id]
    assert later.launch(order(later, "1")) == ended
    assert cloud.disk(ended.id).exists()
    clock.advance(120)
    assert list(later.instances()) == []
    assert later.launch(order(later, "1")).state is CloudState.TERMINATED
    assert sorted(path.name for path in cloud.path(ended.id).iterdir()) == [
        "end.json",
        "instance.json",
    ]
    assert [line.instance for line in later.bill()] == [ended.id]
    assert cloud.connect().launch(order(provider, "1")) == ended


def test_only_the_latest_ended_instances_keep_their_disks(
    cloud: LocalCloud, provider: LocalProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("providers.local.provider.ENDED_DISKS_KEPT", 1)
    first, second = (
        end(cloud, provider, provider.launch(order(provider, token)).id) for token in "12"
    )
    clock = VirtualClock(time.time() + DISK_KEPT_SECONDS - 60)
    later = cloud.connect(clock=clock)
    later.launch(order(later, "1"))
    assert cloud.disk(first.id).exists(), "what it wrote may still be fetched"
    clock.advance(120)
    later.launch(order(later, "1"))
    assert not cloud.disk(first.id).exists()
    assert cloud.disk(second.id).exists()
    assert len(later.bill()) == 2


def test_a_disk_that_can_not_be_deleted_stops_no_launch(
    cloud: LocalCloud, provider: LocalProvider, caplog: pytest.LogCaptureFixture
) -> None:
    ended = end(cloud, provider, provider.launch(order(provider, "1")).id)
    (cloud.path(ended.id) / "directory").mkdir()
    later = cloud.connect(clock=VirtualClock(time.time() + ENDED_KEPT_SECONDS + 60))
    assert later.launch(order(later, "2")).state is not CloudState.TERMINATED
    assert f"{cloud.path(ended.id)} can't be deleted" in caplog.text


def test_a_disk_is_opened_before_it_is_deleted_and_nothing_beyond_it(tmp_path: Path) -> None:
    data, instances = tmp_path / "data", tmp_path / "instances"
    data.mkdir(mode=0o555)
    instances.mkdir()
    instance = create_instance(instances / "i-1", RECORD, "hello")
    closed = instance.disk / "work" / "closed"
    closed.mkdir(parents=True)
    (closed / "file").write_text("")
    (instance.disk / "work" / "data").symlink_to(data)
    closed.chmod(0o000)
    instance.discard()
    assert not instance.disk.exists()
    assert stat.S_IMODE(data.stat().st_mode) == 0o555


def test_a_record_that_can_not_be_read_is_not_an_empty_list(
    cloud: LocalCloud, provider: LocalProvider
) -> None:
    provider.launch(order(provider, "1"))
    (file,) = (cloud.directory / "instances").glob("*/instance.json")
    whole = file.read_text()
    for broken in ("{", '{"id": "i-1"}', whole.replace('"token"', '"jeton"')):
        file.write_text(broken)
        with pytest.raises(Unavailable):
            cloud.connect().instances()
    file.write_text(whole)
    assert len(cloud.connect().instances()) == 1


def test_a_directory_that_is_none_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(Unavailable, match="file"):
        LocalCloud(tmp_path / "file").connect()


def test_an_instance_must_carry_its_owner(provider: LocalProvider) -> None:
    with pytest.raises(PermissionDenied, match="castor:controller"):
        provider.launch(order(provider, "1", THEIRS))
    with pytest.raises(PermissionDenied):
        provider.launch(replace(order(provider, "1"), tags={}))


def test_two_cores_cost_slightly_less_than_twice_one() -> None:
    price = {offer.id: offer.usd_per_hour for offer in default_catalogue()}
    for terms in ("", "-spot"):
        small, large = price[f"local-small{terms}"], price[f"local-large{terms}"]
        assert Decimal("1.8") * small < large < 2 * small
    for size in ("small", "large"):
        ratio = price[f"local-{size}-spot"] / price[f"local-{size}"]
        assert Decimal("0.35") < ratio < Decimal("0.4")


@pytest.mark.parametrize("devices", [(), (0, 0)])
def test_every_core_is_sold_once(devices: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="devices="):
        LocalSettings(devices=devices)


def test_no_period_is_negative() -> None:
    with pytest.raises(ValueError, match="grace_seconds"):
        LocalSettings(grace_seconds=-1.0)
