"""Infrastructure of `terraform/modules/aws` in a fake AWS, created without Terraform."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import boto3

from tests.fakes.aws.identity import signer
from tests.fakes.aws.machines import KIND, REGION
from tests.fakes.aws.server import FakeAws

MODULE: Final = Path(__file__).parents[2] / "terraform" / "modules" / "aws"
SOURCE: Final = "ssm:/castor/prod/pools"


def environment(url: str, key: str) -> dict[str, str]:
    """Return the variables that point `castor` at an account of the fake AWS."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_REGION": REGION,
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": "secret",
    }


def create_infrastructure(fake: FakeAws, key: str, *regions: str) -> str:
    """Create the infrastructure in an account; return the value for `castor serve --pools`.

    Each of `regions` gets a pool: `gpu` in the first region, `gpu-REGION` in the others. The
    default is `REGION` alone. The bucket is in the first region.
    """
    session = boto3.session.Session(key, "secret", region_name=REGION)
    chosen = regions or (REGION,)
    account_number = fake.proxy.account(key).number
    bucket = f"castor-prod-{account_number}"
    session.client("s3", endpoint_url=fake.url).create_bucket(Bucket=bucket)
    documents, pools = {}, {}
    for region in chosen:

        def client(service: str, region: str = region) -> Any:
            return session.client(service, region_name=region, endpoint_url=fake.url)

        documents[region] = _region(client, region, bucket)
        name = "gpu" if region == chosen[0] else f"gpu-{region}"
        pools[name] = _pool(client("ec2"), name, region, bucket)
    document = {
        "schema": 1,
        "deployment": "prod",
        "account": account_number,
        "regions": documents,
        "pools": pools,
        "max_usd_per_hour": 10,
    }
    session.client("ssm", endpoint_url=fake.url).put_parameter(
        Name=SOURCE.removeprefix("ssm:"), Value=json.dumps(document), Type="String"
    )
    return SOURCE


def _region(client: Callable[[str], Any], region: str, bucket: str) -> dict[str, Any]:
    zones = [{"Name": "availability-zone", "Values": [f"{region}a", f"{region}b"]}]
    subnets = client("ec2").describe_subnets(Filters=zones)["Subnets"]
    queue_url = client("sqs").create_queue(QueueName="castor-prod-events")["QueueUrl"]
    _route_events(client("events"), client("sqs"), queue_url)
    return {
        "subnets": {subnet["AvailabilityZone"]: subnet["SubnetId"] for subnet in subnets},
        "user_data": f"s3://{bucket}/user-data",
        "queue_url": queue_url,
        "identity_certificate": signer(region).certificate,
        "jobs": f"s3://{bucket}/jobs",
        "job_role": "arn:aws:iam::123456789012:role/castor-prod-job",
    }


def _pool(ec2: Any, name: str, region: str, bucket: str) -> dict[str, Any]:
    template = ec2.create_launch_template(
        LaunchTemplateName=f"castor-prod-{name}",
        LaunchTemplateData={
            "ImageId": "ami-0123456789abcdef0",
            "UserData": base64.b64encode(_user_data(region, bucket).encode()).decode(),
        },
    )["LaunchTemplate"]
    return {
        "region": region,
        "launch_template": {"id": template["LaunchTemplateId"], "version": "1"},
        "instance_types": [KIND],
        "purchases": ["spot", "on-demand"],
        "max_instances": 2,
        "max_usd_per_hour": 10,
        "boot": "5s",
    }


def _route_events(events: Any, sqs: Any, queue_url: str) -> None:
    queue = sqs.get_queue_attributes(QueueUrl=queue_url, AttributeNames=["QueueArn"])
    pattern = {"source": ["aws.ec2"], "detail-type": ["EC2 Spot Instance Interruption Warning"]}
    events.put_rule(Name="castor-prod-reclaim", EventPattern=json.dumps(pattern))
    target = {"Id": "castor", "Arn": queue["Attributes"]["QueueArn"]}
    events.put_targets(Rule="castor-prod-reclaim", Targets=[target])


def _user_data(region: str, bucket: str) -> str:
    """Return the user data of a template, as pools.tf composes it."""
    settings = {
        "region": region,
        "bucket": bucket,
        "parcels": "user-data",
        "python": "python3",
        "has_wheels": "false",
        "has_index": "true",
        "registries": "",
        "boot_minutes": "20",
        "datasets": "",
        "pre_bootstrap": "",
        "post_bootstrap": "",
    }
    assignments = [f"{name}='{value}'" for name, value in settings.items()]
    names = ("install.sh", "first_boot.sh", "datasets.sh", "node.sh", "agent.sh")
    scripts = [(MODULE / "files" / name).read_text() for name in names]
    return "\n".join(["#!/bin/bash", *assignments, *scripts])
