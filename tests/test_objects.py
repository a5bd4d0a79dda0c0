"""Objects under a place: in a directory, and in S3 as the fake AWS has it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path

import pytest

pytest.importorskip("boto3", reason="the extra aws is not installed")
pytest.importorskip("moto", reason="moto is not installed")

from autoscaler.clock import SystemClock
from autoscaler.domain.errors import NotFound, PermissionDenied, Unavailable
from autoscaler.domain.storage import StorageGrant
from autoscaler.domain.transfer import Transfer
from autoscaler.objects import Objects, always, granted, open_grant
from tests.fakes.aws.bucket import Bucket
from tests.fakes.aws.faults import Fault, When
from tests.fakes.aws.server import FakeAws


@pytest.fixture(scope="module")
def fake() -> Iterator[FakeAws]:
    server = FakeAws(SystemClock())
    yield server
    server.close()


@pytest.fixture
def bucket(fake: FakeAws) -> Bucket:
    return Bucket(fake)


@pytest.fixture(params=["directory", "S3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path, bucket: Bucket) -> Objects:
    if request.param == "S3":
        return bucket.objects()
    place = f"file://{tmp_path}/shared/jobs/job"
    return Objects(place, always(StorageGrant(place)))


def test_objects_come_back_and_are_listed_in_order(objects: Objects, tmp_path: Path) -> None:
    objects.put("b/2", b"two")
    objects.put("b/1", b"")
    objects.put("a", b"one")
    assert objects.get("b/2") == b"two"
    assert [(found.name, found.bytes) for found in objects.listed()] == [
        ("a", 3),
        ("b/1", 0),
        ("b/2", 3),
    ]
    assert [found.name for found in objects.listed("b", after="b/1")] == ["b/2"]
    assert objects.listed("c") == [] == objects.folders("c")
    assert objects.folders() == ["b"]
    assert objects.exists("a") and not objects.exists("b")
    for name in ("b/1", "b/2"):
        objects.download(name, tmp_path / "file")
        assert (tmp_path / "file").read_bytes() == objects.get(name)


def test_a_large_file_goes_and_comes_in_parts(objects: Objects, tmp_path: Path) -> None:
    large = tmp_path / "large"
    large.write_bytes(os.urandom((33 << 20) + 7))
    objects.put("large", large)
    objects.download("large", tmp_path / "back")
    assert (tmp_path / "back").read_bytes() == large.read_bytes()


def test_what_is_sent_and_fetched_is_counted_here_and_below(
    objects: Objects, tmp_path: Path
) -> None:
    news: list[Transfer] = []
    objects.meter.on_news = lambda: news.append(objects.meter.read().transfer)
    large = tmp_path / "large"
    large.write_bytes(os.urandom((17 << 20) + 7))
    objects.put("small", b"12345")
    assert news == [Transfer(sent_bytes=5)]
    objects.put("large", large)
    objects.download("large", tmp_path / "back")
    objects.get("small")
    with pytest.raises(NotFound):
        objects.get("nothing")
    objects.listed()
    objects.remove(["small"])
    sent, reading = 5 + (17 << 20) + 7, objects.meter.read()
    assert reading.transfer == Transfer(sent, sent)
    assert len(news) == 5, "a file that comes in two parts is news twice"
    assert Objects(objects.place, objects._access).meter.read().meter != reading.meter


def test_what_does_not_arrive_is_not_counted(bucket: Bucket, tmp_path: Path) -> None:
    objects = bucket.objects()
    bucket.account.faults.add(Fault("PutObject", When.REFUSED, "AccessDenied", 403))
    with pytest.raises(PermissionDenied):
        objects.put("a", b"1234")
    with pytest.raises(OSError, match="nothing"):
        objects.put("a", tmp_path / "nothing")
    assert not objects.meter.read().transfer
    objects.put("a", b"1234")
    assert objects.meter.read().transfer == Transfer(sent_bytes=4)


def test_threads_that_send_at_once_are_all_counted(objects: Objects) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda number: objects.put(f"{number}", b"123"), range(64)))
        list(pool.map(lambda number: objects.get(f"{number}"), range(64)))
    assert objects.meter.read().transfer == Transfer(192, 192)


def test_what_is_gone_counts_as_removed(objects: Objects) -> None:
    for name in ("a", "b", "c"):
        objects.put(name, b"1")
    objects.remove(["a", "nothing", "b"])
    objects.remove([])
    assert [found.name for found in objects.listed()] == ["c"]
    with pytest.raises(NotFound, match="jobs/job/a: there is no such object"):
        objects.get("a")
    with pytest.raises(NotFound):
        objects.download("a", Path("/dev/null"))


def test_what_fails_for_now_is_tried_again(bucket: Bucket) -> None:
    objects = bucket.objects(patience_seconds=30.0)
    bucket.account.faults.add(
        Fault("PutObject", When.REFUSED, "SlowDown", 503),
        Fault("PutObject", When.LOST_BEFORE),
        Fault("PutObject", When.LOST_AFTER),
    )
    objects.put("a", b"1")
    assert objects.get("a") == b"1"
    assert bucket.account.calls["PutObject"] == 4


@pytest.mark.parametrize(
    ("fault", "error"),
    [
        (Fault("", When.REFUSED, "InternalError", 500, times=None), Unavailable),
        (Fault("", When.LOST_BEFORE, times=None), Unavailable),
        (Fault("", When.REFUSED, "AccessDenied", 403), PermissionDenied),
        (Fault("", When.REFUSED, "ExpiredToken", 400), PermissionDenied),
    ],
)
def test_a_failure_is_one_line_that_names_the_object(
    bucket: Bucket, fault: Fault, error: type[Exception]
) -> None:
    objects = bucket.objects()
    objects.put("some/name", b"1")
    calls: dict[str, Callable[[], object]] = {
        "PutObject": lambda: objects.put("some/name", b"1"),
        "GetObject": lambda: objects.get("some/name"),
        "ListObjectsV2": lambda: objects.listed("some/name"),
    }
    for action, call in calls.items():
        bucket.account.faults.add(replace(fault, action=action))
        with pytest.raises(error) as told:
            call()
        assert str(told.value).startswith(f"s3://{bucket.name}/jobs/job/some/name: ")
        assert "\n" not in str(told.value)
        bucket.account.faults.clear()


def test_a_refusal_to_say_that_an_object_is_missing_is_seen_through(
    bucket: Bucket, tmp_path: Path
) -> None:
    """Treat S3's 403 under a policy for one prefix as a missing object (moto answers 404)."""
    objects = bucket.objects()
    objects.put("there", b"1")
    for action, ask in {
        "GetObject": lambda name: objects.get(name),
        "HeadObject": lambda name: objects.download(name, tmp_path / "file"),
    }.items():
        bucket.account.faults.add(Fault(action, code="AccessDenied", status=403, times=None))
        with pytest.raises(NotFound, match="there is no such object"):
            ask("missing")
        with pytest.raises(PermissionDenied):
            ask("there")
        bucket.account.faults.add(Fault("ListObjectsV2", code="AccessDenied", status=403))
        with pytest.raises(PermissionDenied, match="missing: the credential does not allow it"):
            ask("missing")
        bucket.account.faults.clear()
    assert objects.exists("there") and not objects.exists("missing")
    assert not objects.exists("ther")


def test_a_bucket_that_is_not_there_is_not_an_empty_one(bucket: Bucket) -> None:
    grant = bucket.grant()
    objects = Objects("s3://no-such-bucket/jobs/job", always(grant), 0.3)
    with pytest.raises(Unavailable, match="NoSuchBucket"):
        objects.listed()


def test_the_file_is_read_again_once_its_credential_has_expired(
    fake: FakeAws, bucket: Bucket, tmp_path: Path
) -> None:
    file = tmp_path / "grant.json"
    now_seconds = SystemClock().now()

    def write(key: str, left_seconds: float) -> None:
        grant = bucket.grant(expires_seconds=now_seconds + left_seconds)
        renewed = replace(grant, credential={**grant.credential, "access_key_id": key})
        file.write_text(json.dumps(asdict(renewed)))

    write("AKIAOLD", -1.0)
    objects = open_grant(file)
    objects.put("a", b"1")
    write("AKIANEW", 3600.0)
    objects.put("a", b"2")
    file.unlink()
    objects.put("a", b"3")
    assert fake.proxy.account("AKIAOLD").calls["PutObject"] == 1
    assert fake.proxy.account("AKIANEW").calls["PutObject"] == 2, "one that holds is kept"


def test_a_file_that_is_no_grant_is_named(tmp_path: Path) -> None:
    file = tmp_path / "grant.json"
    with pytest.raises(Unavailable, match=r"grant\.json: No such file or directory"):
        open_grant(file)
    file.write_text("{}")
    with pytest.raises(Unavailable, match=r"grant\.json: it is not a grant"):
        granted(file)()


def test_a_grant_does_not_print_its_credential(bucket: Bucket) -> None:
    assert "secret" not in repr(bucket.grant())
