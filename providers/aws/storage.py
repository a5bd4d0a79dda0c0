"""Jobs' files in S3: one prefix a job, and one credential for each that is good for nothing else.

The credential is that of a role that Terraform makes, assumed under a policy for the one prefix.
A role that was assumed by a role lasts for an hour at most, so that is what a grant lasts.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import boto3
from botocore.config import Config

from autoscaler.clock import Clock
from autoscaler.domain.errors import PermissionDenied, SpecError
from autoscaler.domain.storage import StorageGrant
from autoscaler.objects import Objects
from providers.aws.errors import CALL_ERRORS, Call, provider_error
from providers.aws.settings import AwsSettings, Patience
from providers.storage import JobStorage

GRANT_SECONDS: Final = 3600
_OWN_SECONDS: Final = 60.0
# A grant is given again, to the next instance of its job, while so much of its time is left.
_LEAST_LEFT: Final = 0.75
_LONGEST_SESSION_NAME: Final = 64
_STORAGE_PATIENCE_SECONDS: Final = 10.0


class S3JobStorage(JobStorage):
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
        self._region, self._place, self._role = _chosen(settings)
        self._session = session
        self._clock = clock
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
        self._grants: dict[tuple[str, str | None], StorageGrant] = {}
        self._lock = threading.Lock()
        self._jobs = Objects(self._place, self._own, _STORAGE_PATIENCE_SECONDS)
        bundles = f"{self._place.rpartition('/')[0]}/bundles"
        self._bundles = Objects(bundles, self._own, _STORAGE_PATIENCE_SECONDS)

    @property
    def jobs(self) -> Objects:
        """What lies under `regions.R.jobs`, with the controller's own credentials."""
        return self._jobs

    @property
    def bundles(self) -> Objects:
        """What lies beside it, under `bundles`."""
        return self._bundles

    def grant(self, owner: str, bundle: str | None = None) -> StorageGrant:
        """Leave for one owner's prefix and one bundle; see `JobStorage`.

        Raises:
            PermissionDenied: the job role can't be assumed.
            Throttled, Unavailable: not now.
        """
        known = self._known(owner, bundle)
        if known is not None:
            return known
        granted = self._assumed(owner, bundle)
        with self._lock:
            now_seconds = self._clock.now()
            alive = {key: each for key, each in self._grants.items() if _left(each, now_seconds)}
            self._grants = {**alive, (owner, bundle): granted}
        return granted

    def _known(self, owner: str, bundle: str | None) -> StorageGrant | None:
        with self._lock:
            known = self._grants.get((owner, bundle))
        return known if known is not None and _left(known, self._clock.now()) else None

    def _assumed(self, owner: str, bundle: str | None) -> StorageGrant:
        place = self.place(owner)
        archive = None if bundle is None else f"{self._bundles.place}/{bundle}"
        policy = session_policy(place, archive, self._region, _partition(self._role))
        try:
            reply = self._tokens.assume_role(
                RoleArn=self._role,
                RoleSessionName=f"castor-{owner}"[:_LONGEST_SESSION_NAME],
                Policy=json.dumps(policy, separators=(",", ":")),
                DurationSeconds=GRANT_SECONDS,
            )
        except CALL_ERRORS as error:
            raise provider_error(error, Call(self._region, "AssumeRole")) from error
        return _told(place, self._options, reply["Credentials"], archive)

    def _own(self) -> StorageGrant:
        """The controller's own access, by what botocore has for it now."""
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
        until_seconds = self._clock.now() + _OWN_SECONDS
        return StorageGrant(self._place, self._options, credential, until_seconds)


def session_policy(
    place: str, bundle: str | None, region: str, partition: str = "aws"
) -> Mapping[str, Any]:
    """What a grant allows: all that is under `place`, and to read `bundle`.

    It bounds the job role: nothing is allowed that the role's own policy does not allow, too.
    """
    bucket, prefix = _split(place)
    arn = f"arn:{partition}:s3:::{bucket}"
    readable = [] if bundle is None else [f"arn:{partition}:s3:::{'/'.join(_split(bundle))}"]
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


def _chosen(settings: AwsSettings) -> tuple[str, str, str]:
    """Region, place and role. A job's files lie in one place, wherever its instances are."""
    for name, region in settings.regions.items():
        if region.jobs is not None and region.job_role is not None:
            return name, region.jobs, region.job_role
    first = next(iter(settings.regions))
    raise SpecError(
        "no region says where jobs keep their files, and an instance's disk goes with it: apply "
        "this release's Terraform module, or add jobs and job_role",
        f"regions.{first}.jobs",
    )


def _told(
    place: str, options: Mapping[str, str], credentials: Mapping[str, Any], bundle: str | None
) -> StorageGrant:
    credential = {
        "access_key_id": credentials["AccessKeyId"],
        "secret_access_key": credentials["SecretAccessKey"],
        "token": credentials["SessionToken"],
    }
    return StorageGrant(place, options, credential, credentials["Expiration"].timestamp(), bundle)


def _left(grant: StorageGrant, now_seconds: float) -> bool:
    """Most of its time is left."""
    until_seconds = grant.expires_seconds or 0.0
    return until_seconds - now_seconds > _LEAST_LEFT * GRANT_SECONDS


def _split(place: str) -> tuple[str, str]:
    parts = urlsplit(place)
    return parts.netloc, parts.path.strip("/")


def _partition(arn: str) -> str:
    return arn.split(":")[1]
