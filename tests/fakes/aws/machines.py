"""Machines of a fake AWS account's instances, with the user data of their template."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import boto3

from tests.fakes.aws.account import Account
from tests.fakes.aws.identity import DocumentSigner, signer
from tests.fakes.aws.metadata_service import MetadataService
from tests.fakes.aws.proxy import CLOUD_SUFFIX
from tests.fakes.aws.server import FakeAws
from tests.fakes.machines import BootConfiguration, Machines, NoticeSource, Power

REGION: Final = "us-east-1"
OTHER_REGION: Final = "us-west-2"
KIND: Final = "g4dn.xlarge"
_METADATA: Final = "http://169.254.169.254"
# Stand-in for `aws s3 cp ... s3://BUCKET/KEY FILE`, which reads from the fake account.
_AWS: Final = """#!{python} -P
import boto3, sys
source, target = sys.argv[-2:]
bucket, _, key = source.removeprefix("s3://").partition("/")
boto3.client("s3").download_file(bucket, key, target)
"""


class AwsMachines(Machines):
    """Machines of the account whose access key is `key`."""

    def __init__(self, fake: FakeAws, key: str, directory: Path) -> None:
        self.fake = fake
        self._key = key
        self._cloud = boto3.session.Session(key + CLOUD_SUFFIX, "secret", region_name=REGION)
        self._ec2 = {name: self._client("ec2", name) for name in (REGION, OTHER_REGION)}
        self._regions: dict[str, str] = {}
        self._metadata = MetadataService()
        self._reclaims: dict[str, float] = {}
        self._signers = {name: signer(name) for name in self._ec2}
        super().__init__(directory)

    def alive(self) -> list[str]:
        return self._account.alive()

    def remaining(self) -> list[str]:
        return self._account.alive()

    @property
    def launched(self) -> int:
        return len(self._account.launched_seconds)

    def reclaim(self, instance_id: str, notice_seconds: float, source: NoticeSource) -> None:
        """Reclaim an instance, with notice by an EventBridge event or by the metadata service."""
        self._reclaims[instance_id] = time.time() + notice_seconds
        if source is NoticeSource.METADATA:
            self._metadata.announce_end(instance_id, self._reclaims[instance_id])
            return
        event = {
            "Source": "aws.ec2",
            "DetailType": "EC2 Spot Instance Interruption Warning",
            "Detail": json.dumps({"instance-id": instance_id, "instance-action": "terminate"}),
        }
        self._client("events", self.region_of(instance_id)).put_events(Entries=[event])

    def region_of(self, instance_id: str) -> str:
        if instance_id not in self._regions:
            condition = [{"Name": "instance-id", "Values": [instance_id]}]
            (self._regions[instance_id],) = (
                region
                for region, ec2 in self._ec2.items()
                if ec2.describe_instances(Filters=condition)["Reservations"]
            )
        return self._regions[instance_id]

    def sell_out(self, region: str) -> None:
        for zone in (f"{region}{letter}" for letter in "abc"):
            for purchase in ("spot", "on-demand"):
                self._account.capacity[KIND, zone, purchase] = 0

    def forge(self, is_forging: bool) -> None:
        self._signers = {
            name: DocumentSigner(name) if is_forging else signer(name) for name in self._ec2
        }

    def close(self) -> None:
        super().close()
        self._metadata.close()

    @property
    def _account(self) -> Account:
        return self.fake.proxy.account(self._key)

    def _client(self, service: str, region: str) -> Any:
        return self._cloud.client(service, region_name=region, endpoint_url=self.fake.url)

    def _pass_time(self) -> None:
        for instance_id in self.alive():
            if self._reclaims.get(instance_id, time.time() + 1) <= time.time():
                self._account.reclaimed.add(instance_id)
                self._power_off(instance_id)

    def _power(self) -> Mapping[str, Power]:
        account = self._account
        return {
            instance_id: Power.ON
            for instance_id in account.alive()
            if not account.is_pending(instance_id)
        }

    def _power_off(self, instance_id: str) -> None:
        self._ec2[self.region_of(instance_id)].terminate_instances(InstanceIds=[instance_id])

    def _boot_configuration(self, instance_id: str) -> BootConfiguration:
        region = self.region_of(instance_id)
        answer = self._ec2[region].describe_instances(InstanceIds=[instance_id])
        (reservation,) = answer["Reservations"]
        (instance,) = reservation["Instances"]
        tags = {f"meta-data/tags/instance/{tag['Key']}": tag["Value"] for tag in instance["Tags"]}
        facts = {"meta-data/instance-id": instance_id, "meta-data/local-ipv4": "127.0.0.1"}
        proof = self._signers[region].proof(
            instance_id, instance["LaunchTime"].timestamp(), accountId=self._account.number
        )
        signed = {"dynamic/instance-identity/rsa2048": proof}
        self._metadata.add_facts(instance_id, {**facts, **tags, **signed})
        return BootConfiguration(
            self._user_data(instance_id).replace("has_wheels='true'", "has_wheels='false'"),
            {_METADATA: self._metadata.url(instance_id)},
            self._environment(region),
            {"aws": _AWS},
        )

    def _user_data(self, instance_id: str) -> str:
        ec2 = self._ec2[self.region_of(instance_id)]
        answer = ec2.describe_instance_attribute(InstanceId=instance_id, Attribute="userData")
        return base64.b64decode(answer["UserData"]["Value"]).decode()

    def _environment(self, region: str) -> dict[str, str]:
        """Return the variables of an instance, with keys in place of its role."""
        return {
            "AWS_ENDPOINT_URL": self.fake.url,
            "AWS_REGION": region,
            "AWS_DEFAULT_REGION": region,
            "AWS_ACCESS_KEY_ID": self._key,
            "AWS_SECRET_ACCESS_KEY": "secret",
        }
