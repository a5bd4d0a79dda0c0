"""The ground of `terraform/modules/aws` without Terraform: what there has to be of it."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, Final

import boto3

from tests.fakes.aws.identity import signer
from tests.fakes.aws.machines import REGION
from tests.fakes.aws.server import FakeAws

MODULE: Final = Path(__file__).parents[2] / "terraform" / "modules" / "aws"
SOURCE: Final = "ssm:/castor/prod/pools"
_ZONES: Final = ("us-east-1a", "us-east-1b")


def environment(url: str, key: str) -> dict[str, str]:
    """What leads `castor` to that account of the fake AWS."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": "secret",
    }


def lay_ground(fake: FakeAws, key: str) -> str:
    """Lay it in that account; returns what `castor serve --pools` takes."""
    session = boto3.session.Session(key, "secret", region_name=REGION)

    def client(service: str) -> Any:
        return session.client(service, endpoint_url=fake.url)

    ec2, bucket = client("ec2"), f"castor-prod-{fake.proxy.account(key).number}"
    zones = [{"Name": "availability-zone", "Values": list(_ZONES)}]
    subnets = ec2.describe_subnets(Filters=zones)["Subnets"]
    template = ec2.create_launch_template(
        LaunchTemplateName="castor-prod-gpu",
        LaunchTemplateData={
            "ImageId": "ami-0123456789abcdef0",
            "UserData": base64.b64encode(_user_data(bucket).encode()).decode(),
        },
    )["LaunchTemplate"]
    client("s3").create_bucket(Bucket=bucket)
    queue_url = client("sqs").create_queue(QueueName="castor-prod-events")["QueueUrl"]
    _route_events(client("events"), client("sqs"), queue_url)
    region = {
        "subnets": {one["AvailabilityZone"]: one["SubnetId"] for one in subnets},
        "user_data": f"s3://{bucket}/user-data",
        "queue_url": queue_url,
        "identity_certificate": signer(REGION).certificate,
        "jobs": f"s3://{bucket}/jobs",
        "job_role": "arn:aws:iam::123456789012:role/castor-prod-job",
    }
    pool = {
        "region": REGION,
        "launch_template": {"id": template["LaunchTemplateId"], "version": "1"},
        "instance_types": ["g4dn.xlarge"],
        "purchases": ["spot", "on-demand"],
        "max_instances": 2,
        "max_usd_per_hour": 10,
        "boot": "5s",
    }
    document = {
        "schema": 1,
        "deployment": "prod",
        "account": fake.proxy.account(key).number,
        "regions": {REGION: region},
        "pools": {"gpu": pool},
        "max_usd_per_hour": 10,
    }
    name = SOURCE.removeprefix("ssm:")
    client("ssm").put_parameter(Name=name, Value=json.dumps(document), Type="String")
    return SOURCE


def _route_events(events: Any, sqs: Any, queue_url: str) -> None:
    wanted = ["QueueArn"]
    told = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=wanted)
    pattern = {"source": ["aws.ec2"], "detail-type": ["EC2 Spot Instance Interruption Warning"]}
    events.put_rule(Name="castor-prod-reclaim", EventPattern=json.dumps(pattern))
    target = {"Id": "castor", "Arn": told["Attributes"]["QueueArn"]}
    events.put_targets(Rule="castor-prod-reclaim", Targets=[target])


def _user_data(bucket: str) -> str:
    """As pools.tf puts it together."""
    settings = {
        "region": REGION,
        "bucket": bucket,
        "parcels": "user-data",
        "python": "python3",
        "has_wheels": "false",
        "has_index": "true",
        "registries": "",
        "boot_minutes": "20",
        "datasets": "",
    }
    told = [f"{name}='{value}'" for name, value in settings.items()]
    names = ("install.sh", "first_boot.sh", "datasets.sh", "node.sh", "agent.sh")
    scripts = [(MODULE / "files" / name).read_text() for name in names]
    return "\n".join(["#!/bin/bash", *told, *scripts])
