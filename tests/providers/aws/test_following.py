"""Settings that change while a controller runs."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest

from autoscaler.domain.errors import NotAllowed, NotFound, SpecError, Unavailable
from autoscaler.domain.instance import CONTROLLER_TAG
from providers.aws.provider import AwsProvider
from providers.aws.reading import parse_settings
from providers.aws.settings import AwsSettings
from providers.cloud.following import LOOK_SECONDS, FollowingProvider, PoolsSource
from tests.conformance.provider import OURS
from tests.fakes.aws.identity import signer
from tests.providers.aws.cloud import QUICK, REGION, SMALL, AwsWorld

LAG_SECONDS = 90.0


class Parameter:
    """Parameter that Terraform writes: a text, or an error."""

    def __init__(self, world: AwsWorld) -> None:
        self.told: str | Exception = json.dumps(world.document)

    def fetch(self, source: str) -> str:
        if isinstance(self.told, Exception):
            raise self.told
        return self.told


class Followed:
    """A provider that follows a parameter."""

    def __init__(self, world: AwsWorld, kept: Path) -> None:
        self.world = world
        self.parameter = Parameter(world)
        self.kept = kept
        self.provider = self.start()

    def start(self) -> FollowingProvider[AwsSettings]:
        source = PoolsSource(
            "ssm:/castor/test/pools", self.kept, self.parameter.fetch, parse_settings
        )
        return FollowingProvider(source, self._connect, self.world.clock, LAG_SECONDS)

    def write(self, **pool: Any) -> None:
        document = self.world.document
        document["pools"]["gpu"].update(pool)
        self.parameter.told = json.dumps(document)

    def kinds(self, seconds: float = LOOK_SECONDS) -> set[str]:
        """Return the offered types after some time."""
        self.world.clock.advance(seconds)
        return {offer.instance_type for offer in self.provider.offers()}

    def _connect(self, settings: AwsSettings) -> AwsProvider:
        session = self.world.session
        return AwsProvider(settings, OURS, self.world.clock, session, patience=QUICK)


def full_disk(*arguments: object) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.fixture
def followed(world: AwsWorld, tmp_path: Path) -> Followed:
    return Followed(world, tmp_path / "pools")


def test_a_change_is_taken_up_within_a_minute(followed: Followed) -> None:
    assert followed.kinds(0) == {"g4dn.xlarge", "g5.xlarge"}
    followed.write(instance_types=["g4dn.xlarge"])
    assert followed.kinds(LOOK_SECONDS / 2) == {"g4dn.xlarge", "g5.xlarge"}
    assert followed.kinds(LOOK_SECONDS / 2) == {"g4dn.xlarge"}


def test_it_waits_until_lists_have_what_was_launched(followed: Followed) -> None:
    """A cap that the new settings hold is held from their first launch on."""
    followed.provider.launch(followed.world.request("1"))
    followed.write(instance_types=["g4dn.xlarge"], max_instances=1)
    assert followed.kinds() == {"g4dn.xlarge", "g5.xlarge"}
    assert followed.kinds(LAG_SECONDS - LOOK_SECONDS) == {"g4dn.xlarge"}
    (launched,) = followed.provider.instances()
    assert launched.tags[CONTROLLER_TAG] == OURS
    with pytest.raises(Exception, match="1 of 1 instances are running or launching"):
        followed.provider.launch(followed.world.request("2", SMALL))
    followed.provider.terminate([launched.id])
    assert followed.world.account.alive() == []


def test_what_can_not_be_read_changes_nothing_and_is_told_until_it_can(
    followed: Followed,
) -> None:
    for told in (Unavailable("SSM is away"), json.dumps({"schema": 2})):
        followed.parameter.told = told
        assert followed.kinds() == {"g4dn.xlarge", "g5.xlarge"}
        (trouble,) = followed.provider.condition().troubles
        assert trouble.startswith("the pools stay unchanged: ")
    followed.write(instance_types=["g5.xlarge"])
    assert followed.kinds() == {"g5.xlarge"}
    assert followed.provider.condition().troubles == ()


def test_a_start_without_aws_goes_on_with_what_was_read_last(followed: Followed) -> None:
    followed.parameter.told = Unavailable("SSM is away")
    followed.provider = followed.start()
    assert followed.kinds(0) == {"g4dn.xlarge", "g5.xlarge"}
    assert [path.stat().st_mode & 0o777 for path in followed.kept.iterdir()] == [0o600]


@pytest.mark.parametrize("content", [b'{"schema": 2}', b"\xff"])
def test_a_start_on_an_invalid_copy_names_it_and_the_clouds_error(
    followed: Followed, content: bytes
) -> None:
    (copy,) = followed.kept.iterdir()
    copy.write_bytes(content)
    followed.parameter.told = Unavailable("SSM is away")
    with pytest.raises(Unavailable) as caught:
        followed.start()
    assert str(caught.value).startswith(f"SSM is away; the saved copy of the pools, {copy}:")
    followed.write()
    assert followed.start().offers()
    followed.parameter.told = Unavailable("SSM is away")
    assert followed.start().offers()


def test_an_invalid_text_is_not_saved_when_an_earlier_one_comes_into_force(
    followed: Followed,
) -> None:
    (copy,) = followed.kept.iterdir()
    followed.provider.launch(followed.world.request("1"))
    followed.write(instance_types=["g4dn.xlarge"])
    valid = followed.parameter.told
    assert followed.kinds() == {"g4dn.xlarge", "g5.xlarge"}
    followed.parameter.told = json.dumps({"schema": 2})
    assert followed.kinds() == {"g4dn.xlarge"}
    assert copy.read_text() == valid


def test_a_full_disk_stops_no_change_and_is_told_until_the_copy_is_saved(
    followed: Followed, monkeypatch: pytest.MonkeyPatch
) -> None:
    (copy,) = followed.kept.iterdir()
    followed.write(instance_types=["g4dn.xlarge"])
    with monkeypatch.context() as disk:
        disk.setattr(Path, "rename", full_disk)
        assert followed.kinds() == {"g4dn.xlarge"}
        (trouble,) = followed.provider.condition().troubles
        assert trouble.startswith(f"{copy}: the pools can't be saved")
        assert followed.start().offers()
    followed.kinds()
    assert followed.provider.condition().troubles == ()
    assert copy.read_text() == followed.parameter.told


@pytest.mark.parametrize("said", [NotFound("no such parameter"), SpecError("no region is set")])
def test_a_start_on_what_is_wrong_is_refused(followed: Followed, said: Exception) -> None:
    followed.parameter.told = said
    with pytest.raises(type(said)):
        followed.start()


def test_a_first_start_without_aws_is_refused(world: AwsWorld, tmp_path: Path) -> None:
    parameter = Parameter(world)
    parameter.told = Unavailable("SSM is away")
    source = PoolsSource(
        "ssm:/castor/test/pools", tmp_path / "none", parameter.fetch, parse_settings
    )
    with pytest.raises(Unavailable):
        source.read_or_recall()


def test_documents_are_checked_by_the_settings_of_the_moment(followed: Followed) -> None:
    verifier, now_seconds = followed.provider.identity, followed.world.clock.now()
    proof = signer(REGION).proof("i-0123456789abcdef0", now_seconds)
    with pytest.raises(NotAllowed, match="not signed by AWS"):
        verifier.verify(proof)
    ground = followed.world.document["regions"][REGION]
    ground["identity_certificate"] = "-----BEGIN CERTIFICATE----- no letter more"
    followed.write()
    assert followed.kinds() == {"g4dn.xlarge", "g5.xlarge"}
    (trouble,) = followed.provider.condition().troubles
    assert "regions.us-east-1.identity_certificate: it is not a certificate" in trouble
    ground["identity_certificate"] = signer(REGION).certificate
    followed.write()
    followed.kinds()
    assert followed.provider.condition().troubles == ()
    assert verifier.verify(proof).instance == "i-0123456789abcdef0"


def without_its_zone(followed: Followed) -> str:
    """Return the pools document without the zone that the small offer is in."""
    document = json.loads(json.dumps(followed.world.document))
    del document["regions"][REGION]["subnets"][f"{REGION}a"]
    return json.dumps(document)


def test_a_zone_does_not_leave_while_an_instance_runs_there(followed: Followed) -> None:
    launched = followed.provider.launch(followed.world.request("1", SMALL))
    followed.parameter.told = without_its_zone(followed)
    followed.kinds(LAG_SECONDS + LOOK_SECONDS)
    (trouble,) = followed.provider.condition().troubles
    assert f"{launched.id} in {REGION}a" in trouble and "end the instances first" in trouble
    assert [seen.id for seen in followed.provider.instances()] == [launched.id]
    assert any(offer.id == SMALL for offer in followed.provider.offers())
    followed.provider.terminate([launched.id])
    followed.provider.instances()
    followed.kinds(LAG_SECONDS + LOOK_SECONDS)
    assert followed.provider.condition().troubles == ()
    assert not any(offer.zone == f"{REGION}a" for offer in followed.provider.offers())


def test_a_start_without_the_zone_of_what_runs_is_refused_until_it_has_ended(
    followed: Followed,
) -> None:
    launched = followed.provider.launch(followed.world.request("1", SMALL))
    followed.parameter.told = without_its_zone(followed)
    for _ in range(2):
        with pytest.raises(SpecError, match=f"{launched.id} in {REGION}a"):
            followed.start()
    followed.provider.terminate([launched.id])
    assert followed.start().condition().troubles == ()
