"""Bucket of the fake AWS, and grants for its objects."""

from __future__ import annotations

import itertools
from unittest import mock

import boto3

from autoscaler import objects
from autoscaler.clock import SystemClock
from autoscaler.domain.storage import StorageGrant
from autoscaler.objects import Objects, always
from tests.fakes.aws.proxy import CLOUD_SUFFIX
from tests.fakes.aws.server import FakeAws

REGION = "us-east-1"
_NUMBERS = itertools.count()


class Bucket:
    """New account with one empty bucket."""

    def __init__(self, fake: FakeAws) -> None:
        number = next(_NUMBERS)
        self.key, self.name, self.url = f"AKIABUCKET{number}", f"castor-bucket-{number}", fake.url
        self.account = fake.proxy.renew(self.key, SystemClock())
        session = boto3.session.Session(self.key + CLOUD_SUFFIX, "secret", region_name=REGION)
        self.s3 = session.client("s3", endpoint_url=fake.url)
        self.s3.create_bucket(Bucket=self.name)

    def grant(
        self, folder: str = "jobs/job", expires_seconds: float | None = None
    ) -> StorageGrant:
        return StorageGrant(
            f"s3://{self.name}/{folder}",
            {"region": REGION, "endpoint": self.url},
            {"access_key_id": self.key, "secret_access_key": "secret", "token": "token"},
            expires_seconds,
        )

    def objects(self, folder: str = "jobs/job", patience_seconds: float = 0.3) -> Objects:
        """Return objects that retry for a short time, and await each answer of a busy fake."""
        grant = self.grant(folder)
        with mock.patch.object(objects, "_REQUEST_PATIENCES", 1000.0):
            return Objects(grant.place, always(grant), patience_seconds)

    def contents(self) -> list[str]:
        """Return the keys of all objects."""
        pages = self.s3.get_paginator("list_objects_v2").paginate(Bucket=self.name)
        return [entry["Key"] for page in pages for entry in page.get("Contents", ())]

    def put(self, key: str, content: bytes) -> None:
        self.s3.put_object(Bucket=self.name, Key=key, Body=content)
