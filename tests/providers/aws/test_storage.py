"""Jobs' files in S3: what each job's grant allows, and what is said where there is none."""

from __future__ import annotations

import fnmatch
import json
from collections.abc import Mapping
from typing import Any

import boto3
import pytest
from botocore.session import Session as BotoSession

from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.domain.errors import PermissionDenied, SpecError, Throttled, Unavailable
from autoscaler.objects import Objects, always
from providers.aws.reading import parse_settings
from providers.aws.settings import AwsSettings
from providers.aws.storage import GRANT_SECONDS, S3JobStorage, session_policy
from tests.fakes.aws.faults import Fault
from tests.providers.aws.cloud import QUICK, REGION, AwsWorld

ROLE = "arn:aws:iam::123456789012:role/castor-test-job"
SHA256 = "5" * 64


def settings_of(world: AwsWorld, **region: str | None) -> AwsSettings:
    bucket = world.document["regions"][REGION]["user_data"].split("/")[2]
    told = {"jobs": f"s3://{bucket}/jobs", "job_role": ROLE, **region}
    world.document["regions"][REGION].update({k: v for k, v in told.items() if v is not None})
    return world.settings


@pytest.fixture
def storage(world: AwsWorld) -> S3JobStorage:
    return S3JobStorage(settings_of(world), world.session, SystemClock(), QUICK)


def session_of(world: AwsWorld) -> Mapping[str, str]:
    """The parameters of the last AssumeRole."""
    return [sent for action, sent in world.account.sent if action == "AssumeRole"][-1]


def test_an_instance_writes_with_its_grant_and_the_controller_reads(
    world: AwsWorld, storage: S3JobStorage
) -> None:
    grant = storage.grant("digits", f"{SHA256}.tar.gz")
    assert grant.place == storage.place("digits") == f"{storage.jobs.place}/digits"
    assert grant.bundle == f"{storage.bundles.place}/{SHA256}.tar.gz"
    assert storage.bundles.place == storage.jobs.place.removesuffix("jobs") + "bundles"
    assert grant.credential["access_key_id"].startswith("ASIA"), "not the controller's own"
    assert grant.expires_seconds is not None
    assert grant.expires_seconds - SystemClock().now() == pytest.approx(GRANT_SECONDS, abs=60)
    Objects(grant.place, always(grant)).put("checkpoints/a", b"1")
    assert storage.jobs.get("digits/checkpoints/a") == b"1"
    sent = session_of(world)
    assert (sent["RoleArn"], sent["RoleSessionName"]) == (ROLE, "castor-digits")
    assert sent["DurationSeconds"] == "3600"
    policy = session_policy(grant.place, grant.bundle, REGION)
    assert json.loads(sent["Policy"]) == policy


def test_the_next_instance_of_a_job_has_the_same_grant_while_most_of_it_is_left(
    world: AwsWorld,
) -> None:
    clock = VirtualClock(SystemClock().now())
    storage = S3JobStorage(settings_of(world), world.session, clock, QUICK)
    first = storage.grant("digits")
    assert storage.grant("digits") is first
    assert storage.grant("digits", f"{SHA256}.tar.gz") is not first
    assert storage.grant("letters") is not first
    clock.advance(GRANT_SECONDS / 4 + 30.0)
    assert storage.grant("digits") is not first
    assert world.account.calls["AssumeRole"] == 4


def allows(policy: Mapping[str, Any], action: str, resource: str, prefix: str = "") -> bool:
    """As IAM decides it, of what such a policy has in it."""
    for statement in policy["Statement"]:
        actions, condition = statement["Action"], statement.get("Condition", {})
        named = [actions] if isinstance(actions, str) else actions
        assert set(condition) <= {"StringLike", "StringEquals"}
        wanted = condition.get("StringLike", {}).get("s3:prefix", "*")
        service = condition.get("StringEquals", {}).get("kms:ViaService")
        applies = fnmatch.fnmatchcase(prefix, wanted) and service in (None, resource)
        named_resource = fnmatch.fnmatchcase(resource, statement["Resource"])
        if action in named and applies and named_resource:
            return True
    return False


BUCKET = "arn:aws:s3:::castor"


@pytest.mark.parametrize(
    ("action", "resource", "prefix", "is_allowed"),
    [
        ("s3:GetObject", f"{BUCKET}/jobs/digits/checkpoints/step-1/rest.pt", "", True),
        ("s3:PutObject", f"{BUCKET}/jobs/digits/logs/digits/digits-0/0", "", True),
        ("s3:DeleteObject", f"{BUCKET}/jobs/digits/checkpoints/step-1/rest.pt", "", True),
        ("s3:ListBucket", BUCKET, "jobs/digits/", True),
        ("s3:ListBucket", BUCKET, "jobs/digits/logs/", True),
        ("s3:GetObject", f"{BUCKET}/bundles/{SHA256}.tar.gz", "", True),
        ("kms:GenerateDataKey", "s3.us-east-1.amazonaws.com", "", True),
        ("s3:GetObject", f"{BUCKET}/jobs/letters/checkpoints/step-1/rest.pt", "", False),
        ("s3:GetObject", f"{BUCKET}/jobs/digits-2/checkpoints/step-1/rest.pt", "", False),
        ("s3:PutObject", f"{BUCKET}/jobs/letters/x", "", False),
        ("s3:DeleteObject", f"{BUCKET}/jobs/letters/x", "", False),
        ("s3:ListBucket", BUCKET, "", False),
        ("s3:ListBucket", BUCKET, "jobs/", False),
        ("s3:ListBucket", BUCKET, "jobs/digits-2/", False),
        ("s3:ListBucket", BUCKET, "bundles/", False),
        ("s3:PutObject", f"{BUCKET}/bundles/{SHA256}.tar.gz", "", False),
        ("s3:GetObject", f"{BUCKET}/bundles/{'6' * 64}.tar.gz", "", False),
        ("s3:GetObject", f"{BUCKET}/user-data/token", "", False),
        ("s3:PutBucketPolicy", BUCKET, "jobs/digits/", False),
        ("kms:Decrypt", "ec2.us-east-1.amazonaws.com", "", False),
        ("sts:AssumeRole", ROLE, "", False),
        ("ec2:TerminateInstances", "*", "", False),
    ],
)
def test_a_grant_is_good_for_its_own_place_alone(
    action: str, resource: str, prefix: str, is_allowed: bool
) -> None:
    bundle = f"s3://castor/bundles/{SHA256}.tar.gz"
    policy = session_policy("s3://castor/jobs/digits", bundle, "us-east-1")
    assert allows(policy, action, resource, prefix) is is_allowed


def test_a_policy_has_room_in_a_session_whatever_the_names() -> None:
    bucket, owner = "b" * 63, f"study.named.{'f' * 32}"
    policy = session_policy(
        f"s3://{bucket}/some/long/prefix/jobs/{owner}",
        f"s3://{bucket}/some/long/prefix/bundles/{SHA256}.tar.gz",
        "ap-southeast-1",
        "aws-us-gov",
    )
    assert len(json.dumps(policy, separators=(",", ":"))) < 2048
    assert all(
        each["Resource"].startswith(("arn:aws-us-gov:s3:::", "*")) for each in policy["Statement"]
    )


@pytest.mark.parametrize(
    ("code", "status", "error", "said"),
    [
        ("AccessDenied", 403, PermissionDenied, "allow AssumeRole to the controller's role"),
        ("ExpiredToken", 400, PermissionDenied, "these credentials do not hold"),
        ("Throttling", 400, Throttled, "us-east-1: AssumeRole"),
        ("InternalFailure", 500, Unavailable, "us-east-1: AssumeRole"),
    ],
)
def test_a_refused_grant_says_what_to_mend(
    world: AwsWorld,
    storage: S3JobStorage,
    code: str,
    status: int,
    error: type[Exception],
    said: str,
) -> None:
    world.account.faults.add(Fault("AssumeRole", code=code, status=status))
    with pytest.raises(error, match=said):
        storage.grant("digits")
    assert storage.grant("digits").place == storage.place("digits")


def test_without_credentials_nothing_is_reached(
    world: AwsWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BotoSession, "get_credentials", lambda self: None)
    session = boto3.session.Session(region_name=REGION)
    with pytest.raises(PermissionDenied, match=r"no credentials: set AWS_PROFILE"):
        S3JobStorage(settings_of(world), session, SystemClock(), QUICK)


def test_a_deployment_without_a_place_for_files_is_refused(world: AwsWorld) -> None:
    with pytest.raises(SpecError, match=rf"regions\.{REGION}\.jobs: no region says where .* disk"):
        S3JobStorage(world.settings, world.session, SystemClock(), QUICK)


def test_files_lie_in_the_first_region_that_has_a_place(world: AwsWorld) -> None:
    first = {**world.document["regions"][REGION], "user_data": "s3://other/user-data"}
    settings_of(world)
    here = world.document["regions"][REGION]
    world.document["regions"] = {"eu-west-1": first, REGION: here}
    storage = S3JobStorage(world.settings, world.session, SystemClock(), QUICK)
    assert storage.jobs.place == here["jobs"]


@pytest.mark.parametrize(
    ("region", "said"),
    [
        ({"job_role": None}, "job_role is missing: jobs and job_role go together"),
        ({"jobs": None}, "jobs is missing: jobs and job_role go together"),
        ({"jobs": "castor/jobs"}, 'jobs: "castor/jobs" is none: write it like s3://bucket'),
        ({"job_role": "castor-job"}, 'job_role: "castor-job" is none: write it like arn:aws:iam'),
    ],
)
def test_what_is_wrong_with_the_keys_is_told(
    world: AwsWorld, region: dict[str, str | None], said: str
) -> None:
    with pytest.raises(SpecError, match=said):
        settings_of(world, **region)


def test_a_document_of_terraform_with_a_place_for_files_is_read(world: AwsWorld) -> None:
    settings_of(world)
    text = json.dumps(world.document)
    assert parse_settings(text, "pools.json").regions[REGION].job_role == ROLE
