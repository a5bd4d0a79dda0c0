"""Bounds on the bytes of one person's bundles, and of one study's files."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import httpx
import pytest

from autoscaler.clock import VirtualClock
from autoscaler.domain.access import Owner
from autoscaler.domain.errors import OverQuota, SpecError
from autoscaler.service.files.quotas import (
    ByteQuota,
    QuotaTerms,
    StoredFile,
    bundle_quota,
    study_quota,
)
from autoscaler.service.files.retention import FileRetention
from autoscaler.service.files.uploads import Bundles, TrialFiles
from autoscaler.store.memory.store import memory_store
from autoscaler.store.repositories.owners import OwnedKind
from autoscaler.wire.client import Client, StudyClient
from autoscaler.wire.study_messages import StudyLease
from tests.service.agents import SPEC, joined, packed
from tests.service.conftest import TOKEN, Api
from tests.service.pages.browser import PageVisitor
from tests.service.pages.test_forms import JOB_FILE, upload

TERMS = QuotaTerms(100, "bundle", "bundles", "store less")


def sha256_of(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def bundle(directory: Path, text: str) -> tuple[Path, str]:
    """Return a new archive and the SHA-256 of its files."""
    place = directory / sha256_of(text.encode())[:8]
    place.mkdir(parents=True)
    return packed(place, text)


async def arriving(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def test_bytes_count_as_they_arrive_and_as_long_as_their_file_is_kept() -> None:
    quota = ByteQuota(TERMS)
    with quota.arriving("ada", "ada") as count:
        count(60)
        with quota.arriving("ada", "ada") as other, pytest.raises(OverQuota):
            other(41)
        with quota.arriving("bob", "bob") as of_bob:
            of_bob(100)
        quota.keep(StoredFile("ada", "a", 60), "ada")
    quota.keep(StoredFile("ada", "a", 60), "ada")
    assert (quota.used_bytes("ada"), quota.used_bytes("bob")) == (60, 0)
    with pytest.raises(OverQuota, match="ada may store 100 bytes of bundles, and has 60: store"):
        quota.keep(StoredFile("ada", "b", 41), "ada")
    quota.keep(StoredFile("bob", "a", 60), "bob")
    quota.forget("a")
    quota.forget("unknown")
    assert (quota.used_bytes("ada"), quota.used_bytes("bob")) == (0, 0)
    quota.keep(StoredFile("ada", "b", 100), "ada")
    quota.forget_all("ada")
    assert quota.used_bytes("ada") == 0


def test_the_disk_is_read_once_at_the_first_use() -> None:
    reads = []

    def stored() -> tuple[StoredFile, ...]:
        reads.append(1)
        return (StoredFile("ada", "a", 70),)

    quota = ByteQuota(TERMS, stored)
    for _ in range(3):
        with pytest.raises(OverQuota, match="has 70"):
            quota.keep(StoredFile("ada", "b", 31), "ada")
    quota.keep(StoredFile("ada", "b", 30), "ada")
    assert reads == [1]


def test_bundles_and_files_that_are_there_count_after_a_start(tmp_path: Path) -> None:
    store = memory_store()
    archive, sha256 = bundle(tmp_path, "print(1)")
    first = Bundles(tmp_path / "bundles", 1000)
    asyncio.run(first.receive(sha256, arriving(archive.read_bytes()), "ada"))
    for person in ("ada", "bob"):
        store.owners.share(OwnedKind.BUNDLE, sha256, Owner(person))
    (tmp_path / "bundles" / ".cut-off").write_bytes(b"partial")
    size_bytes = archive.stat().st_size
    quota = bundle_quota(tmp_path / "bundles", store.owners, size_bytes)
    assert [quota.used_bytes(name) for name in ("ada", "bob", "eve")] == [size_bytes] * 2 + [0]
    bundles = Bundles(tmp_path / "bundles", 1000, quota=quota)
    other, other_sha256 = bundle(tmp_path, "print(2)")
    content = other.read_bytes()
    with pytest.raises(OverQuota, match=r"castor serve --owner-bundles") as refused:
        asyncio.run(bundles.receive(other_sha256, arriving(content), "bob"))
    assert refused.value.field == "bundle"
    asyncio.run(bundles.receive(other_sha256, arriving(content), "eve"))
    assert quota.used_bytes("eve") == len(content)


def test_what_is_deleted_after_a_while_counts_no_more(tmp_path: Path) -> None:
    store = memory_store()
    quota = bundle_quota(tmp_path / "bundles", store.owners, 1000)
    file_quota = study_quota(tmp_path / "files", 10)
    bundles = Bundles(tmp_path / "bundles", 1000, quota=quota)
    files = TrialFiles(tmp_path / "files", quota=file_quota)
    archive, sha256 = bundle(tmp_path, "print(1)")
    asyncio.run(bundles.receive(sha256, arriving(archive.read_bytes()), "ada"))
    asyncio.run(files.receive("sweep", sha256_of(b"0123456789"), arriving(b"0123456789")))
    folder = next((tmp_path / "files").iterdir()).name
    assert (quota.used_bytes("ada") > 0, file_quota.used_bytes(folder)) == (True, 10)

    def forget(path: Path) -> None:
        bundles.forget(path)
        files.forget(path)

    clock = VirtualClock(archive.stat().st_mtime + 10_000)
    assert FileRetention(tmp_path, store, 500.0, clock, forget).run() == 2
    assert (quota.used_bytes("ada"), file_quota.used_bytes(folder)) == (0, 0)


def test_the_files_of_a_study_count_until_its_driver_removes_them(tmp_path: Path) -> None:
    quota = study_quota(tmp_path, 10)
    files = TrialFiles(tmp_path, 1000, quota=quota)

    def receive(study: str, content: bytes) -> None:
        asyncio.run(files.receive(study, sha256_of(content), arriving(content)))

    receive("sweep", b"123456")
    with pytest.raises(OverQuota, match=r"study sweep may store 10 bytes .*, and has 6: start"):
        receive("sweep", b"12345")
    receive("other", b"12345")
    with pytest.raises(SpecError, match="was changed on its way"):
        asyncio.run(files.receive("other", sha256_of(b""), arriving(b"abc")))
    files.remove("sweep", sha256_of(b"123456"))
    receive("sweep", b"1234567890")
    files.clear("sweep")
    receive("sweep", b"0123456789")
    again = TrialFiles(tmp_path, 1000, quota=study_quota(tmp_path, 10))
    with pytest.raises(OverQuota):
        asyncio.run(again.receive("sweep", sha256_of(b"1"), arriving(b"1")))


def test_one_person_fills_their_part_and_another_still_uploads(api: Api, tmp_path: Path) -> None:
    api.limit_uploads(600, 600)
    ada = Client(api.url, api.client.invite("ada").token)
    bob = Client(api.url, api.client.invite("bob").token)
    archives = [bundle(tmp_path, f"print({number})") for number in range(20)]

    def send(client: Client, number: int) -> None:
        archive, sha256 = archives[number]
        client.upload(sha256, archive)

    with pytest.raises(OverQuota, match="ada may store 600 bytes of bundles, and has"):
        for number in range(20):
            send(ada, number)
    archive, sha256 = archives[19]
    reply = httpx.put(
        f"{api.url}/v1/bundles/{sha256}",
        content=archive.read_bytes(),
        headers={"Authorization": f"Bearer {ada._http.token}"},
    )
    problem = reply.json()
    assert (reply.status_code, problem["error"], problem["field"]) == (413, "OverQuota", "bundle")
    assert reply.headers["content-type"] == "application/problem+json"
    assert "castor serve --owner-bundles" in problem["detail"]
    send(bob, 19)
    names = {path.name for path in (api.directory / "bundles").iterdir()}
    assert all(name.endswith(".tar.gz") for name in names), "nothing of a refused upload is left"


def test_the_page_refuses_a_folder_beyond_the_bound(api: Api) -> None:
    api.limit_uploads(1200, 600)
    visitor = PageVisitor(api)
    script = ("digits/train.py", b"print(1)\n")
    assert upload(visitor, JOB_FILE, script).status_code == 303
    reply = upload(visitor, JOB_FILE, ("digits/train.py", bytes(range(256)) * 4))
    assert reply.status_code == 413
    assert "owner may store 1,200 bytes of bundles" in reply.text
    assert not list((api.directory / "bundles").glob(".upload-*"))


def test_a_trial_is_told_that_its_study_has_too_many_bytes(api: Api) -> None:
    api.limit_uploads(600, 10)
    _, node = joined(api, replace(SPEC, study="sweep"))
    StudyClient(api.url, TOKEN, "sweep").lease(StudyLease("me", 300.0))
    node.begin_trial(1.0)
    node.put_trial_file(sha256_of(b"12345678"), BytesIO(b"12345678"))
    with pytest.raises(OverQuota, match=r"study sweep may store 10 bytes .* --study-files"):
        node.put_trial_file(sha256_of(b"123"), BytesIO(b"123"))
    StudyClient(api.url, TOKEN, "sweep").remove_file(sha256_of(b"12345678"))
    node.put_trial_file(sha256_of(b"123"), BytesIO(b"123"))
