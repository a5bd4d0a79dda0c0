"""Contract of `providers.storage.JobStorage` as tests, for the storage of any cloud.

Subclass `JobStorageConformance`, and `BoundedStorageConformance` if the fake cloud checks the
permissions of a credential. Define a fixture `site`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

import pytest

from autoscaler.clock import VirtualClock
from autoscaler.domain.errors import (
    NotFound,
    PermissionDenied,
    ProviderError,
    SpecError,
    Throttled,
    Unavailable,
)
from autoscaler.domain.output import MANIFEST_NAME
from autoscaler.domain.storage import output_folder
from autoscaler.node.files.output_places import StoredOutputs
from autoscaler.objects import Objects, always
from autoscaler.service.jobs.results import StoredFolder
from providers.storage import JobStorage
from tests.fakes.faults import Fault, Faults, When

BUNDLE = f"{'5' * 64}.tar.gz"
GRANT_SECONDS = 3600.0
RENEWAL_SECONDS = GRANT_SECONDS / 4 + 30.0


@dataclass(frozen=True, slots=True)
class Refusal:
    """Refusal of a grant by the cloud, and the error that a user gets for it."""

    fault: Fault
    error: type[ProviderError]

    message: str
    """Regular expression of the error's message."""


class StorageSite(Protocol):
    """Deployment with an empty bucket: what the suite needs beside the contract."""

    clock: VirtualClock
    faults: Faults
    key: str
    """Key of the settings that names the identity which grants are made from."""

    grant_actions: Sequence[str]
    """Calls of the cloud that make one grant, in their order."""

    refusals: Sequence[Refusal]
    """Refusals of a grant with the cloud's wording."""

    def connect(self) -> JobStorage:
        """Return the storage as after a restart of the controller."""
        ...

    def calls(self) -> Mapping[str, int]:
        """Return the number of calls by action."""
        ...

    def remove_place(self) -> None:
        """Remove the location of jobs' files from the settings."""
        ...

    def put_region_first(self, place: str | None) -> None:
        """Put another region first in the settings, with the files' location `place`."""
        ...


class JobStorageConformance:
    """Contract that every fake cloud can check, also one that does not check permissions."""

    def test_an_instance_writes_with_its_grant_and_the_controller_reads(
        self, site: StorageSite
    ) -> None:
        storage = site.connect()
        grant = storage.grant("digits", BUNDLE)
        assert grant.place == storage.place("digits") == f"{storage.jobs.place}/digits"
        assert grant.bundle == f"{storage.bundles.place}/{BUNDLE}"
        assert storage.bundles.place == storage.jobs.place.removesuffix("jobs") + "bundles"
        assert grant.expires_seconds is not None
        left_seconds = grant.expires_seconds - site.clock.now()
        assert left_seconds == pytest.approx(GRANT_SECONDS, abs=60)
        objects = Objects(grant.place, always(grant))
        objects.put("checkpoints/a", b"1")
        assert storage.jobs.get("digits/checkpoints/a") == b"1"
        storage.bundles.put(BUNDLE, b"packed")
        assert storage.bundles.exists(BUNDLE) and not storage.bundles.exists("other")
        assert bundle_of(storage).get(BUNDLE) == b"packed"
        storage.jobs.remove(["digits/checkpoints/a"])
        assert objects.listed() == []

    def test_a_job_does_all_that_it_needs_with_its_grant(
        self, site: StorageSite, tmp_path: Path
    ) -> None:
        objects = objects_of(site.connect(), "digits")
        large = tmp_path / "large"
        large.write_bytes(os.urandom((33 << 20) + 7))
        objects.put("checkpoints/a/rest", large)
        objects.download("checkpoints/a/rest", tmp_path / "back")
        assert (tmp_path / "back").read_bytes() == large.read_bytes()
        for content in (b"1", b"22"):  # a grant permits overwriting
            objects.put("checkpoints/a/manifest", content)
        assert [(entry.name, entry.bytes) for entry in objects.listed("checkpoints")] == [
            ("checkpoints/a/manifest", 2),
            ("checkpoints/a/rest", len(large.read_bytes())),
        ]
        assert objects.folders("checkpoints") == ["a"]
        assert objects.exists("checkpoints/a/rest") and not objects.exists("checkpoints/a/res")
        for missing in ("checkpoints/b", "none"):
            with pytest.raises(NotFound, match=f"digits/{missing}: there is no such object"):
                objects.get(missing)
        objects.remove(["checkpoints/a/rest", "none", "checkpoints/a/manifest"])
        assert objects.listed() == []

    def test_outputs_that_an_instance_keeps_are_read_by_the_controller(
        self, site: StorageSite, tmp_path: Path
    ) -> None:
        storage = site.connect()
        staging, content = tmp_path / "staging", os.urandom((17 << 20) + 3)
        outputs = StoredOutputs(
            objects_of(storage, "digits"), output_folder("digits-0-1"), staging
        )
        staging.mkdir()
        (staging / "file").write_bytes(content)
        outputs.take(staging / "file", "5" * 64)
        for manifest in (b"first", b"second"):
            outputs.publish(manifest)
        folder = StoredFolder(storage.jobs, f"digits/{output_folder()}")
        assert folder.folders() == ["digits-0-1"]
        assert folder.content(f"digits-0-1/{MANIFEST_NAME}") == b"second"
        assert folder.size(f"digits-0-1/{'5' * 64}") == len(content)
        assert b"".join(folder.chunks(f"digits-0-1/{'5' * 64}")) == content
        outputs.remove(["5" * 64, "4" * 64])
        with pytest.raises(NotFound):
            folder.size(f"digits-0-1/{'5' * 64}")

    def test_instances_share_a_grant_while_most_of_its_time_is_left(
        self, site: StorageSite
    ) -> None:
        storage = site.connect()
        first = storage.grant("digits")
        assert storage.grant("digits") is first
        assert storage.grant("digits", BUNDLE) is not first
        assert storage.grant("letters") is not first
        site.clock.advance(RENEWAL_SECONDS)
        second = storage.grant("digits")
        assert second.expires_seconds is not None and first.expires_seconds is not None
        assert second.expires_seconds > first.expires_seconds
        assert {site.calls()[action] for action in site.grant_actions} == {4}

    @pytest.mark.parametrize("owner", ["*", "a/b", "..", "", "x') || true || ('", "a b", "a?"])
    def test_an_owner_with_special_characters_of_a_policy_gets_no_grant(
        self, site: StorageSite, owner: str
    ) -> None:
        storage, before = site.connect(), sum(site.calls().values())
        with pytest.raises(PermissionDenied, match="an owner's name may have letters"):
            storage.grant(owner)
        assert sum(site.calls().values()) == before

    def test_a_grant_does_not_print_its_credential(self, site: StorageSite) -> None:
        grant = site.connect().grant("digits")
        assert grant.credential
        assert not any(value in repr(grant) for value in grant.credential.values())

    def test_a_refused_grant_names_the_way_out(self, site: StorageSite) -> None:
        storage = site.connect()
        for refusal in site.refusals:
            site.faults.add(replace(refusal.fault))
            with pytest.raises(refusal.error, match=refusal.message) as raised:
                storage.grant("digits")
            assert "\n" not in str(raised.value)
        assert storage.grant("digits").place == storage.place("digits"), "a later call works"

    @pytest.mark.parametrize(
        "kind", [When.LOST_BEFORE, When.LOST_AFTER, When.MALFORMED, When.EMPTY]
    )
    def test_an_unreadable_grant_is_an_unavailable_cloud(
        self, site: StorageSite, kind: When
    ) -> None:
        storage = site.connect()
        for action in site.grant_actions:
            site.faults.add(Fault(action, kind))
            with pytest.raises(Unavailable) as raised:
                storage.grant("digits")
            assert "\n" not in str(raised.value)
        assert objects_of(storage, "digits").listed() == []

    @pytest.mark.parametrize("status", [429, 503])
    def test_a_temporary_refusal_is_throttled_or_unavailable(
        self, site: StorageSite, status: int
    ) -> None:
        storage = site.connect()
        for action in site.grant_actions:
            site.faults.add(Fault(action, code=busy(status), status=status))
            with pytest.raises(Throttled if status == 429 else Unavailable):
                storage.grant("digits")

    def test_a_deployment_without_a_place_for_files_is_refused(self, site: StorageSite) -> None:
        site.remove_place()
        message = (
            rf"regions\.\S+\.jobs: no region names a location .* disk .* add jobs and {site.key}"
        )
        with pytest.raises(SpecError, match=message):
            site.connect()

    def test_files_lie_in_the_first_region_that_has_a_place(self, site: StorageSite) -> None:
        place = site.connect().jobs.place
        site.put_region_first(None)
        assert site.connect().jobs.place == place
        other = f"{place.rpartition('/')[0]}/elsewhere/jobs"
        site.put_region_first(other)
        assert site.connect().jobs.place == other


class BoundedStorageConformance:
    """Contract of a cloud that checks the permissions of a credential at each use."""

    def test_a_grant_does_not_permit_the_files_of_other_jobs(
        self, site: StorageSite, tmp_path: Path
    ) -> None:
        storage, others = site.connect(), ("letters", "digits-2")
        for owner in others:
            storage.jobs.put(f"{owner}/log", b"theirs")
        grant = storage.grant("digits", BUNDLE)
        for owner in others:
            theirs = Objects(storage.place(owner), always(grant))
            assert_refused(lambda theirs=theirs: theirs.get("log"))
            assert_refused(lambda theirs=theirs: theirs.download("log", tmp_path / "log"))
            assert_refused(lambda theirs=theirs: theirs.put("log", b"ours"))
            assert_refused(lambda theirs=theirs: theirs.put("new", b"ours"))
            assert_refused(lambda theirs=theirs: theirs.listed())
            assert_refused(lambda theirs=theirs: theirs.remove(["log"]))
        everything = Objects(storage.jobs.place, always(grant))
        assert_refused(everything.listed)
        assert_refused(everything.folders)
        assert {entry.name for entry in storage.jobs.listed()} == {"letters/log", "digits-2/log"}
        assert storage.jobs.get("letters/log") == b"theirs"

    def test_a_bundle_is_read_and_not_written(self, site: StorageSite) -> None:
        storage = site.connect()
        for name in (BUNDLE, "other.tar.gz"):
            storage.bundles.put(name, b"packed")
        bundles = bundle_of(storage)
        assert bundles.get(BUNDLE) == b"packed"
        assert_refused(lambda: bundles.put(BUNDLE, b"ours"))
        assert_refused(lambda: bundles.remove([BUNDLE]))
        assert_refused(lambda: bundles.get("other.tar.gz"))
        assert_refused(bundles.listed)
        assert storage.bundles.get(BUNDLE) == b"packed"
        of_another_job = Objects(storage.bundles.place, always(storage.grant("letters")))
        assert_refused(lambda: of_another_job.get(BUNDLE))

    def test_an_instance_renews_its_grant_before_it_expires(self, site: StorageSite) -> None:
        storage = site.connect()
        old = objects_of(storage, "digits")
        renewed = Objects(storage.place("digits"), lambda: storage.grant("digits"))
        renewed.put("a", b"1")
        for _ in range(3):
            site.clock.advance(GRANT_SECONDS / 2)
            renewed.put("a", b"2")
        with pytest.raises(PermissionDenied, match=r"a: the credential .* or has expired"):
            old.get("a")
        assert renewed.get("a") == b"2"


def objects_of(storage: JobStorage, owner: str) -> Objects:
    """Return the objects of `owner`, opened with a grant as an instance holds it."""
    grant = storage.grant(owner)
    return Objects(grant.place, always(grant))


def bundle_of(storage: JobStorage) -> Objects:
    """Return the bundles, opened with a grant that permits one of them."""
    return Objects(storage.bundles.place, always(storage.grant("digits", BUNDLE)))


def assert_refused(call: Callable[[], object]) -> None:
    with pytest.raises(PermissionDenied, match="the credential does not allow it, or has expired"):
        call()


def busy(status: int) -> str:
    """Return the error code of both clouds for a status of overload."""
    return "ThrottlingException" if status == 429 else "ServiceUnavailable"
