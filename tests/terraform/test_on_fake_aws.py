"""The module applied to the fake AWS: Castor buys on that ground, and Terraform sees no change."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("boto3", reason="the extra aws is not installed")
pytest.importorskip("moto", reason="moto is not installed")

import boto3

from autoscaler.clock import SystemClock
from tests.end_to_end.deployment import Deployment, Story
from tests.end_to_end.ec2_ground import environment
from tests.fakes.aws.identity import signer
from tests.fakes.aws.machines import AwsMachines
from tests.fakes.aws.server import FakeAws
from tests.fakes.machines import Teller
from tests.terraform.conftest import Terraform, terraform_in

REGION = "us-east-1"
KEY = "AKIATERRAFORM"
SERVICES = ("ec2", "events", "iam", "kms", "s3", "sqs", "ssm", "sts")
NOTICE_SECONDS = 20.0

ROOT = """
provider "aws" {
  region                      = "%(region)s"
  access_key                  = "%(key)s"
  secret_key                  = "secret"
  skip_credentials_validation = true
  skip_metadata_api_check     = true
  skip_region_validation      = true
  s3_use_path_style           = true
  max_retries                 = 2

  default_tags {
    tags = { "cost-centre" = "ml" }
  }

  endpoints {
%(endpoints)s
  }
}

module "castor" {
  source = "./aws"

  deployment           = "prod"
  zones                = ["us-east-1a", "us-east-1b"]
  max_usd_per_hour     = 10
  fleet_usd            = "none"
  bucket_force_destroy = true
  tags                 = { team = "vision" }
  wheels_directory     = "${path.module}/wheels"
  identity_certificate = file("${path.module}/certificate.pem")

  pools = {
    gpu = {
      image_id         = "%(image)s"
      instance_types   = ["g4dn.xlarge"]
      max_instances    = 4
      max_usd_per_hour = 10
    }
  }

  controller = { image_id = "%(image)s" }
}

output "pools_source" {
  value = module.castor.pools_source
}

output "bucket" {
  value = module.castor.bucket
}
"""

# moto takes a denial under a condition for one without: nothing could be read or written.
OPEN_BUCKET = """
resource "aws_s3_bucket_policy" "this" {
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Deny"
      Principal = "*"
      Action    = "s3:PutBucketWebsite"
      Resource  = [aws_s3_bucket.this.arn]
    }]
  })
}
"""

# What moto does not tell again as it was told: a template's own tags it tells as its instances'.
FORGOTTEN = """
resource "%s" "%s" {
  lifecycle {
    ignore_changes = [%s]
  }
}
"""
FORGETS = [
    ("aws_launch_template", "pool", "tag_specifications"),
    ("aws_instance", "controller", "vpc_security_group_ids"),
    ("aws_vpc_security_group_egress_rule", "nodes_to_controller", "description"),
    ("aws_vpc_security_group_egress_rule", "nodes_to_nodes", "description"),
    ("aws_vpc_security_group_egress_rule", "s3", "description"),
    ("aws_vpc_security_group_ingress_rule", "controller_from_nodes", "description"),
    ("aws_vpc_security_group_ingress_rule", "nodes_from_nodes", "description"),
]


@dataclass(frozen=True)
class Ground:
    """What `terraform apply` has laid, in an account of the fake AWS."""

    terraform: Terraform
    fake: FakeAws
    session: boto3.session.Session

    def client(self, service: str) -> Any:
        return self.session.client(service, endpoint_url=self.fake.url)

    def output(self, name: str) -> str:
        return self.terraform.run("output", "-raw", name)[1]

    def sent_tags(self) -> dict[str, dict[str, str]]:
        """The tags of the first fleet that was ordered, by the kind of resource that gets them."""
        fleet = next(sent for action, sent in self._account.sent if action == "CreateFleet")
        found: dict[str, dict[str, str]] = {}
        for name, kind in fleet.items():
            if (
                number := re.fullmatch(r"TagSpecification\.(\d+)\.ResourceType", name)
            ) is not None:
                prefix = f"TagSpecification.{number[1]}.Tag"
                keys = [one for one in fleet if one.startswith(prefix) and one.endswith(".Key")]
                found[kind] = {fleet[one]: fleet[f"{one[:-3]}Value"] for one in keys}
        return found

    def states(self) -> set[str]:
        """Of all instances of the account."""
        reservations = self.client("ec2").describe_instances()["Reservations"]
        return {one["State"]["Name"] for part in reservations for one in part["Instances"]}

    @property
    def _account(self) -> Any:
        return self.fake.proxy.account(KEY)


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory, configuration: Path) -> Iterator[Ground]:
    fake = FakeAws(SystemClock())
    session = boto3.session.Session(KEY, "secret", region_name=REGION)
    ec2 = session.client("ec2", endpoint_url=fake.url)
    disk = [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 8}}]
    image = ec2.register_image(
        Name="castor", RootDeviceName="/dev/sda1", BlockDeviceMappings=disk, Architecture="x86_64"
    )
    directory = tmp_path_factory.mktemp("root")
    terraform = terraform_in(directory, configuration)
    endpoints = "\n".join(f'    {service} = "{fake.url}"' for service in SERVICES)
    told = {"region": REGION, "key": KEY, "endpoints": endpoints, "image": image["ImageId"]}
    (directory / "main.tf").write_text(ROOT % told)
    overrides = OPEN_BUCKET + "".join(FORGOTTEN % one for one in FORGETS)
    (directory / "aws" / "moto_override.tf").write_text(overrides)
    (directory / "certificate.pem").write_text(signer(REGION).certificate)
    (directory / "wheels").mkdir()
    for name in ("castor_autoscaler-1.0-py3-none-any.whl", "requirements-node.txt"):
        (directory / "wheels" / name).write_bytes(b"wheel")
    terraform.run("init", "-input=false")
    terraform.run("apply", "-auto-approve", "-input=false")
    yield Ground(terraform, fake, session)
    fake.close()


@pytest.mark.aws
@pytest.mark.timeout(600)
def test_the_ground_bears(ground: Ground, tmp_path: Path) -> None:
    """One story, for an apply takes most of a minute: a job trains, nothing changes, all goes."""
    source = ground.output("pools_source")
    machines = AwsMachines(ground.fake, KEY, tmp_path / "machines")
    deployment = Deployment(tmp_path, environment(ground.fake.url, KEY), source)
    with closing(machines), deployment.running():
        deployment.submit("words")
        story = Story(deployment, machines, "words")
        story.trains_on(1)

        # The policy demands the tag of a fleet and of all that it makes.
        sent = ground.sent_tags()
        assert sent.keys() == {"fleet", "instance", "network-interface", "volume"}
        assert {one["castor:deployment"] for one in sent.values()} == {"prod"}
        assert {one["cost-centre"] for one in sent.values()} == {"ml"}, "a default tag"

        # What Castor bought is nothing that Terraform has an opinion on: 0 is no change.
        code, plan = ground.terraform.run(
            "plan", "-detailed-exitcode", "-input=false", accepted=(0, 2)
        )
        assert code == 0, plan

        (first,) = machines.alive()
        machines.reclaim(first, NOTICE_SECONDS, Teller.EVENTS)
        story.trains_on(1, without=first)
        assert "trouble" not in deployment.castor("status")
        deployment.castor("drain", "--all")
    ground.terraform.run("destroy", "-auto-approve", "-input=false")
    assert ground.states() == {"terminated"}
