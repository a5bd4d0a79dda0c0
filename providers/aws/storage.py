"""Jobs' files in S3: one prefix a job, and one credential for each that is good for nothing else.

The credential is that of a role that Terraform makes, assumed under a policy for the one prefix.
A role that was assumed by a role lasts for an hour at most, so that is what a grant lasts.
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
from providers.aws.errors import CALL_ERRORS, Call, provider_error
from providers.aws.settings import AwsSettings, Patience
from providers.cloud.storage import (
    GRANT_SECONDS,
    OWN_SECONDS,
    CloudJobStorage,
    bucket_and_name,
    place_of_jobs,
)

_LONGEST_SESSION_NAME: Final = 64


class S3JobStorage(CloudJobStorage):
    """The storage that `settings` name: that of the first region with `jobs`.

    `session` has the controller's credentials. Safe to share between threads.

    Raises:
        SpecError: no region names one.
        PermissionDenied: there are no credentials.
        NotFound: obstore is not installed.
    """

    def __init__(
        self,
        settings: AwsSettings,
        session: boto3.session.Session,
        clock: Clock,
        patience: Patience = Patience(),
    ) -> None:
        self._region, self._place, self._role = place_of_jobs(
            settings.regions, lambda region: region.job_role, "job_role"
        )
        self._session = session
        self._options = {"region": self._region}
        if settings.endpoint_url is not None:
            self._options["endpoint"] = settings.endpoint_url
        self._tokens = session.client(
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
        super().__init__(self._place, clock)

    def _made(self, place: str, bundle: str | None) -> StorageGrant:
        policy = session_policy(place, bundle, self._region, _partition(self._role))
        owner = place.rpartition("/")[2]
        try:
            reply = self._tokens.assume_role(
                RoleArn=self._role,
                RoleSessionName=f"castor-{owner}"[:_LONGEST_SESSION_NAME],
                Policy=json.dumps(policy, separators=(",", ":")),
                DurationSeconds=GRANT_SECONDS,
            )
        except CALL_ERRORS as error:
            raise provider_error(error, Call(self._region, "AssumeRole")) from error
        return _told(place, self._options, reply["Credentials"], bundle)

    def _own(self) -> StorageGrant:
        """By what botocore has for the controller now."""
        try:
            credentials = self._session.get_credentials()
            found = None if credentials is None else credentials.get_frozen_credentials()
        except CALL_ERRORS as error:
            raise provider_error(error, Call(self._region, "GetCredentials")) from error
        if found is None:
            raise PermissionDenied(
                f"{self._place}: no credentials: set AWS_PROFILE or AWS_ACCESS_KEY_ID, or run the "
                "controller where its instance role is"
            )
        credential = {"access_key_id": found.access_key, "secret_access_key": found.secret_key}
        if found.token is not None:
            credential["token"] = found.token
        until_seconds = self._clock.now() + OWN_SECONDS
        return StorageGrant(self._place, self._options, credential, until_seconds)


def session_policy(
    place: str, bundle: str | None, region: str, partition: str = "aws"
) -> Mapping[str, Any]:
    """What a grant allows: all that is under `place`, and to read `bundle`.

    It bounds the job role: nothing is allowed that the role's own policy does not allow, too.
    """
    bucket, prefix = bucket_and_name(place)
    arn = f"arn:{partition}:s3:::{bucket}"
    readable = (
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
                {"Effect": "Allow", "Action": "s3:GetObject", "Resource": each}
                for each in readable
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


def _told(
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
