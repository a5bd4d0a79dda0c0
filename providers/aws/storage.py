"""Jobs' files in S3: one prefix for each job, and credentials limited to this prefix.

The credentials are of a role that Terraform creates, assumed with a policy for the one prefix. AWS
limits a role assumed by another role to an hour, so a grant is valid for an hour.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import boto3
from botocore.config import Config

from autoscaler.clock import Clock
from autoscaler.domain.errors import PermissionDenied
from autoscaler.domain.storage import StorageGrant
from autoscaler.market.egress import network_of
from providers.aws.errors import CALL_ERRORS, Call, provider_error
from providers.aws.settings import AwsSettings, CallTimeouts
from providers.cloud.storage import (
    GRANT_SECONDS,
    OWN_SECONDS,
    CloudJobStorage,
    bucket_and_name,
    place_of_jobs,
)

_MAX_SESSION_NAME_CHARACTERS: Final = 64


class S3JobStorage(CloudJobStorage):
    """Job storage in S3, at the location of the first region with `jobs` in the settings.

    `session` has the controller's credentials. Thread-safe.

    Raises:
        SpecError: no region has `jobs`.
        PermissionDenied: no credentials are available.
        NotFound: obstore is not installed.
    """

    def __init__(
        self,
        settings: AwsSettings,
        session: boto3.session.Session,
        clock: Clock,
        patience: CallTimeouts = CallTimeouts(),
    ) -> None:
        self._region, self._place, self._role = place_of_jobs(
            settings.regions, lambda region: region.job_role, "job_role"
        )
        self._session = session
        self._options = {"region": self._region}
        if settings.endpoint_url is not None:
            self._options["endpoint"] = settings.endpoint_url
        self._sts_client = session.client(
            "sts",
            region_name=self._region,
            endpoint_url=settings.endpoint_url,
            config=Config(
                retries={
                    "total_max_attempts": patience.read_attempts,
                    "mode": patience.read_mode,
                },
                connect_timeout=patience.connect_seconds,
                read_timeout=patience.answer_seconds,
            ),
        )
        super().__init__(self._place, network_of("aws", self._region), clock)

    def _made(self, place: str, bundle: str | None) -> StorageGrant:
        policy = session_policy(place, bundle, self._region, _partition(self._role))
        owner = place.rpartition("/")[2]
        try:
            reply = self._sts_client.assume_role(
                RoleArn=self._role,
                RoleSessionName=f"castor-{owner}"[:_MAX_SESSION_NAME_CHARACTERS],
                Policy=json.dumps(policy, separators=(",", ":")),
                DurationSeconds=GRANT_SECONDS,
            )
        except CALL_ERRORS as error:
            raise provider_error(error, Call(self._region, "AssumeRole")) from error
        return _grant_of(place, self._options, reply["Credentials"], bundle)

    def _own(self) -> StorageGrant:
        """Return the controller's access by its current credentials."""
        try:
            credentials = self._session.get_credentials()
            frozen = None if credentials is None else credentials.get_frozen_credentials()
        except CALL_ERRORS as error:
            raise provider_error(error, Call(self._region, "GetCredentials")) from error
        if frozen is None:
            raise PermissionDenied(
                f"{self._place}: no credentials: set AWS_PROFILE or AWS_ACCESS_KEY_ID, or run the "
                "controller on an instance with its role"
            )
        credential = {"access_key_id": frozen.access_key, "secret_access_key": frozen.secret_key}
        if frozen.token is not None:
            credential["token"] = frozen.token
        until_seconds = self._clock.now() + OWN_SECONDS
        return StorageGrant(self._place, self._options, credential, until_seconds)


def session_policy(
    place: str, bundle: str | None, region: str, partition: str = "aws"
) -> Mapping[str, Any]:
    """Return a policy that allows reading and writing under `place`, and reading `bundle`.

    The policy narrows the job role: an action needs the permission of the role's own policy, too.
    """
    bucket, prefix = bucket_and_name(place)
    arn = f"arn:{partition}:s3:::{bucket}"
    bundle_arns = (
        [] if bundle is None else [f"arn:{partition}:s3:::{'/'.join(bucket_and_name(bundle))}"]
    )
    return {
        "Version": "2012-10-17",
        "Statement": [
            {
                "Effect": "Allow",
                "Action": [
                    "s3:AbortMultipartUpload",
                    "s3:DeleteObject",
                    "s3:GetObject",
                    "s3:PutObject",
                ],
                "Resource": f"{arn}/{prefix}/*",
            },
            *(
                {"Effect": "Allow", "Action": "s3:GetObject", "Resource": arn_of_bundle}
                for arn_of_bundle in bundle_arns
            ),
            {
                "Effect": "Allow",
                "Action": "s3:ListBucket",
                "Resource": arn,
                "Condition": {"StringLike": {"s3:prefix": f"{prefix}/*"}},
            },
            {
                "Effect": "Allow",
                "Action": ["kms:Decrypt", "kms:GenerateDataKey"],
                "Resource": "*",
                "Condition": {"StringEquals": {"kms:ViaService": f"s3.{region}.amazonaws.com"}},
            },
        ],
    }


def _grant_of(
    place: str, options: Mapping[str, str], credentials: Mapping[str, Any], bundle: str | None
) -> StorageGrant:
    credential = {
        "access_key_id": credentials["AccessKeyId"],
        "secret_access_key": credentials["SecretAccessKey"],
        "token": credentials["SessionToken"],
    }
    return StorageGrant(place, options, credential, credentials["Expiration"].timestamp(), bundle)


def _partition(arn: str) -> str:
    return arn.split(":")[1]
