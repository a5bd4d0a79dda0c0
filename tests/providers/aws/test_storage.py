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
from providers.aws.reading import parse_settings
from providers.aws.storage import S3JobStorage, session_policy
from tests.conformance.storage import JobStorageConformance, Refusal
from tests.fakes.aws.server import FakeAws
from tests.fakes.faults import Fault
from tests.providers.aws.cloud import QUICK, REGION, AwsWorld

ROLE = "arn:aws:iam::123456789012:role/castor-test-job"
SHA256 = "5" * 64


class S3Site(AwsWorld):
    """Site for `tests.conformance.storage`."""

    key = "job_role"
    grant_actions = ("AssumeRole",)
    refusals = (
        Refusal(
            Fault("AssumeRole", code="AccessDenied", status=403),
            PermissionDenied,
            "allow AssumeRole to these credentials",
        ),
        Refusal(
            Fault("AssumeRole", code="ExpiredToken", status=400),
            PermissionDenied,
            "these credentials are not valid",
        ),
        Refusal(
            Fault("AssumeRole", code="Throttling", status=400),
            Throttled,
            "us-east-1: AssumeRole",
        ),
        Refusal(
            Fault("AssumeRole", code="InternalFailure", status=500),
            Unavailable,
            "us-east-1: AssumeRole",
        ),
    )

    def __init__(self, fake: FakeAws) -> None:
        super().__init__(fake)
        # moto goes by the real time.
        self.clock = VirtualClock(SystemClock().now())
        self.region: dict[str, Any] = self.document["regions"][REGION]
        bucket = self.region["user_data"].split("/")[2]
        self.region |= {"jobs": f"s3://{bucket}/jobs", "job_role": ROLE}

    def connect(  # type: ignore[override]
        self, session: boto3.session.Session | None = None
    ) -> S3JobStorage:
        return S3JobStorage(self.settings, session or self.session, self.clock, QUICK)

    def calls(self) -> Mapping[str, int]:
        return self.account.calls

    def remove_place(self) -> None:
        del self.region["jobs"], self.region["job_role"]

    def put_region_first(self, place: str | None) -> None:
        other = {**self.region, "jobs": place}
        if place is None:
            del other["jobs"], other["job_role"]
        self.document["regions"] = {"eu-west-1": other, REGION: self.region}


@pytest.fixture
def site(fake: FakeAws) -> S3Site:
    return S3Site(fake)


class TestS3JobStorage(JobStorageConformance):
    """Contract of storage on a fake without IAM; see the policy tests below."""


def test_the_role_is_assumed_under_a_policy(site: S3Site) -> None:
    grant = site.connect().grant("digits", f"{SHA256}.tar.gz")
    assert grant.credential["access_key_id"].startswith("ASIA"), "not the controller's own"
    sent = [sent for action, sent in site.account.sent if action == "AssumeRole"][-1]
    assert (sent["RoleArn"], sent["RoleSessionName"]) == (ROLE, "castor-digits")
    assert sent["DurationSeconds"] == "3600"
    assert json.loads(sent["Policy"]) == session_policy(grant.place, grant.bundle, REGION)


def allows(policy: Mapping[str, Any], action: str, resource: str, prefix: str = "") -> bool:
    """Return IAM's decision, for the elements that such a policy has."""
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


@pytest.mark.parametrize("name", ["*/checkpoints", "a?", "../b", "a//b", '"', "${aws:username}"])
def test_no_policy_is_made_from_a_place_with_wildcards(name: str) -> None:
    with pytest.raises(PermissionDenied, match="gets no credential"):
        session_policy(f"s3://castor/jobs/{name}", None, "us-east-1")


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


def test_without_credentials_nothing_is_reached(
    site: S3Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BotoSession, "get_credentials", lambda self: None)
    with pytest.raises(PermissionDenied, match=r"no credentials: set AWS_PROFILE"):
        site.connect(boto3.session.Session(region_name=REGION))


@pytest.mark.parametrize(
    ("region", "said"),
    [
        ({"job_role": None}, "job_role is missing: jobs and job_role go together"),
        ({"jobs": None}, "jobs is missing: jobs and job_role go together"),
        ({"jobs": "castor/jobs"}, 'jobs: "castor/jobs" is not valid: write it like s3://bucket'),
        (
            {"job_role": "castor-job"},
            'job_role: "castor-job" is not valid: write it like arn:aws:iam',
        ),
    ],
)
def test_what_is_wrong_with_the_keys_is_told(
    site: S3Site, region: dict[str, str | None], said: str
) -> None:
    told = {**site.region, **region}
    site.document["regions"][REGION] = {k: v for k, v in told.items() if v is not None}
    with pytest.raises(SpecError, match=said):
        _ = site.settings


def test_a_document_of_terraform_with_a_place_for_files_is_read(site: S3Site) -> None:
    text = json.dumps(site.document)
    assert parse_settings(text, "pools.json").regions[REGION].job_role == ROLE
