"""The module applied to the fake AWS: Castor buys on that ground, and Terraform sees no change."""

from __future__ import annotations

import json
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
from providers.aws.reading import parse_settings
from tests.end_to_end.deployment import Deployment, ObservedJob
from tests.end_to_end.ec2_infrastructure import environment
from tests.fakes.aws.identity import signer
from tests.fakes.aws.machines import AwsMachines
from tests.fakes.aws.server import FakeAws
from tests.fakes.machines import NoticeSource
from tests.terraform.conftest import Terraform, terraform_in

REGION = "us-east-1"
OTHER_REGION = "us-west-2"
KEY = "AKIATERRAFORM"
SERVICES = ("ec2", "events", "iam", "kms", "s3", "scheduler", "sfn", "sqs", "ssm", "sts")
NOTICE_SECONDS = 20.0

PROVIDER = """
provider "aws" {
  %(alias)s
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
"""
ROOT = """
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

  # moto has no Data Lifecycle Manager, which makes the snapshots of each day.
  controller    = { image_id = "%(image)s", state_snapshots = 0 }
  other_regions = [module.west.region]
}

module "west_network" {
  source    = "./aws/modules/network"
  providers = { aws = aws.west }

  deployment       = "prod"
  vpc_cidr         = "10.81.0.0/16"
  zones            = ["us-west-2a"]
  controller_cidrs = [module.castor.network.cidr]
}

module "west" {
  source    = "./aws/modules/pools"
  providers = { aws = aws.west }

  shared  = module.castor.shared
  network = module.west_network.network

  pools = {
    west = {
      image_id         = "%(other_image)s"
      instance_types   = ["g4dn.xlarge"]
      max_instances    = 4
      max_usd_per_hour = 10
    }
  }
}

module "peering" {
  source    = "./aws/modules/peering"
  providers = { aws = aws, aws.other = aws.west }

  deployment = "prod"
  network    = module.castor.network
  other      = module.west_network.network
}

output "pools_source" {
  value = module.castor.pools_source
}

output "pools_json" {
  value = module.castor.pools_json
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
FORGETS = {
    "controller": [("aws_instance", "controller", "vpc_security_group_ids")],
    "network": [
        ("aws_vpc_security_group_egress_rule", "nodes_to_controller", "description"),
        ("aws_vpc_security_group_egress_rule", "nodes_to_nodes", "description"),
        ("aws_vpc_security_group_egress_rule", "s3", "description"),
        ("aws_vpc_security_group_ingress_rule", "controller_from_nodes", "description"),
        ("aws_vpc_security_group_ingress_rule", "nodes_from_nodes", "description"),
    ],
    "pools": [("aws_launch_template", "pool", "tag_specifications")],
}
# Before the sub-modules, all resources were in the root module, and these had no index.
WITHOUT_INDEX = {
    *("aws_iam_instance_profile.node", "aws_iam_role.node", "aws_iam_role.job"),
    *("aws_iam_role.controller", "aws_iam_role_policy.node", "aws_iam_role_policy.job"),
    *("aws_security_group.nodes", "aws_security_group.controller"),
    "aws_vpc_security_group_egress_rule.nodes_to_nodes",
    "aws_vpc_security_group_ingress_rule.nodes_from_nodes",
}
NEW_WITH_SUB_MODULES = {
    *("aws_scheduler_schedule.sweep", "aws_sfn_state_machine.sweep"),
    "aws_vpc_security_group_ingress_rule.controller_from_remote_nodes",
}


@dataclass(frozen=True)
class Ground:
    """Infrastructure that `terraform apply` has created in an account of the fake AWS."""

    terraform: Terraform
    fake: FakeAws
    session: boto3.session.Session

    def client(self, service: str, region: str = REGION) -> Any:
        return self.session.client(service, region_name=region, endpoint_url=self.fake.url)

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
        """Return the states of all instances of the account."""
        reservations = self.client("ec2").describe_instances()["Reservations"]
        return {one["State"]["Name"] for part in reservations for one in part["Instances"]}

    @property
    def _account(self) -> Any:
        return self.fake.proxy.account(KEY)


def registered_image(session: boto3.session.Session, fake: FakeAws, region: str) -> str:
    ec2 = session.client("ec2", region_name=region, endpoint_url=fake.url)
    disk = [{"DeviceName": "/dev/sda1", "Ebs": {"VolumeSize": 8}}]
    image = ec2.register_image(
        Name="castor", RootDeviceName="/dev/sda1", BlockDeviceMappings=disk, Architecture="x86_64"
    )
    return str(image["ImageId"])


def as_before_the_sub_modules(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state in which the module's resources have their former addresses."""
    resources = []
    for resource in state["resources"]:
        name = f"{resource['type']}.{resource['name']}"
        is_inside = resource.get("module", "").startswith("module.castor")
        for instance in resource["instances"]:
            instance.pop("dependencies", None)
            if is_inside and name in WITHOUT_INDEX:
                del instance["index_key"]
        if is_inside and resource["mode"] == "managed" and name not in NEW_WITH_SUB_MODULES:
            resource["module"] = "module.castor"
        resources.append(resource)
    return {**state, "resources": resources, "serial": state["serial"] + 1}


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory, configuration: Path) -> Iterator[Ground]:
    fake = FakeAws(SystemClock())
    session = boto3.session.Session(KEY, "secret", region_name=REGION)
    image, other_image = (registered_image(session, fake, at) for at in (REGION, OTHER_REGION))
    directory = tmp_path_factory.mktemp("root")
    terraform = terraform_in(directory, configuration)
    told = {
        "key": KEY,
        "endpoints": "\n".join(f'    {service} = "{fake.url}"' for service in SERVICES),
    }
    providers = [
        PROVIDER % {**told, "region": region, "alias": alias}
        for region, alias in ((REGION, ""), (OTHER_REGION, 'alias = "west"'))
    ]
    root = ROOT % {"image": image, "other_image": other_image}
    (directory / "main.tf").write_text("".join([*providers, root]))
    (directory / "aws" / "moto_override.tf").write_text(OPEN_BUCKET)
    for module, forgotten in FORGETS.items():
        overrides = "".join(FORGOTTEN % one for one in forgotten)
        (directory / "aws" / "modules" / module / "moto_override.tf").write_text(overrides)
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
def test_a_state_of_before_the_sub_modules_moves_and_loses_nothing(
    ground: Ground, tmp_path: Path
) -> None:
    before = json.loads(ground.terraform.run("state", "pull")[1])
    former = tmp_path / "former.json"
    former.write_text(json.dumps(as_before_the_sub_modules(before)))
    ground.terraform.run("state", "push", str(former))
    ground.terraform.run("plan", "-input=false", "-out=plan")
    plan = json.loads(ground.terraform.run("show", "-json", "plan")[1])
    actions = {
        change["address"]: change["change"]["actions"] for change in plan["resource_changes"]
    }
    assert {
        name: does for name, does in actions.items() if does not in (["no-op"], ["read"])
    } == {}
    ground.terraform.run("apply", "-input=false", "plan")


@pytest.mark.aws
@pytest.mark.timeout(600)
def test_instances_of_another_region_reach_the_controller(ground: Ground) -> None:
    settings = parse_settings(ground.output("pools_json"), "pools")
    assert settings.regions.keys() == {REGION, OTHER_REGION}
    assert {name: pool.region for name, pool in settings.pools.items()} == {
        "gpu": REGION,
        "west": OTHER_REGION,
    }
    assert settings.regions[OTHER_REGION].user_data == settings.regions[REGION].user_data
    assert settings.regions[OTHER_REGION].jobs is None, "files of all jobs are in one region"

    (peering,) = ground.client("ec2").describe_vpc_peering_connections()["VpcPeeringConnections"]
    assert peering["Status"]["Code"] == "active"
    for region, other_cidr in ((REGION, "10.81.0.0/16"), (OTHER_REGION, "10.80.0.0/16")):
        tables = ground.client("ec2", region).describe_route_tables()["RouteTables"]
        routes = [route for table in tables for route in table["Routes"]]
        (route,) = [one for one in routes if one.get("DestinationCidrBlock") == other_cidr]
        connection = peering["VpcPeeringConnectionId"]
        assert route["VpcPeeringConnectionId"] == connection

    templates = ground.client("ec2", OTHER_REGION).describe_launch_templates()["LaunchTemplates"]
    (template,) = [one["LaunchTemplateId"] for one in templates]
    assert settings.pools["west"].launch_template.id == template


@pytest.mark.aws
@pytest.mark.timeout(600)
def test_the_ground_bears(ground: Ground, tmp_path: Path) -> None:
    """Apply, run a job, apply again without a change, and destroy: all in one slow test."""
    source = ground.output("pools_source")
    machines = AwsMachines(ground.fake, KEY, tmp_path / "machines")
    deployment = Deployment(tmp_path, environment(ground.fake.url, KEY), source)
    with closing(machines), deployment.running():
        deployment.submit("words")
        observed = ObservedJob(deployment, machines, "words")
        observed.wait_until_training(1)

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
        machines.reclaim(first, NOTICE_SECONDS, NoticeSource.EVENTS)
        observed.wait_until_training(1, without=first)
        assert "trouble" not in deployment.castor("status")
        deployment.castor("drain", "--all", "-y")
    ground.terraform.run("destroy", "-auto-approve", "-input=false")
    assert ground.states() == {"terminated"}
