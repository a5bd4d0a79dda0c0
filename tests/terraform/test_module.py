"""The Terraform module: its own tests, and what it renders as data."""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("boto3", reason="the extra aws is not installed")

from providers.aws.reading import parse_settings
from providers.aws.storage import session_policy
from tests.terraform.conftest import MODULE, terraform_in

# Resources of a launch, without its spot request, which costs nothing and ends with it.
MADE = ("fleet", "instance", "network-interface", "volume")
LAUNCHES = ("ec2:RunInstances", "ec2:CreateFleet")
OWN = {"castor:deployment": "prod"}

Statement = dict[str, Any]

# Terraform takes two minutes on a quiet machine, and its tests share one run.
pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="session")
def rendered(tmp_path_factory: pytest.TempPathFactory, configuration: Path) -> dict[str, Any]:
    """Return the outputs of each run of the module's own tests, by file and name."""
    directory = tmp_path_factory.mktemp("module")
    module = terraform_in(directory, configuration)
    module = replace(module, directory=directory / "aws")
    module.run("init", "-backend=false", "-input=false")
    module.run("validate")
    _, told = module.run("test", "-json", "-verbose")
    lines = [json.loads(line) for line in told.splitlines()]
    return {
        f"{Path(line['@testfile']).name.partition('.')[0]}/{line['@testrun']}": line["test_state"]
        for line in lines
        if line["type"] == "test_state"
    }


def resources_in(state: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    """Return the attributes of all resources of a type, in all modules."""
    waiting, found = [state["root_module"]], []
    while waiting:
        module = waiting.pop()
        waiting += module.get("child_modules", [])
        found += [one["values"] for one in module.get("resources", []) if one["type"] == kind]
    return found


@pytest.fixture(scope="session")
def outputs(rendered: dict[str, Any]) -> dict[str, Any]:
    return {name: told["value"] for name, told in rendered["module/ground"]["outputs"].items()}


@pytest.fixture(scope="session")
def statements(outputs: dict[str, Any]) -> list[Statement]:
    policies = [json.loads(policy) for policy in outputs["controller_policies"].values()]
    return [statement for policy in policies for statement in policy["Statement"]]


def listed(value: str | Sequence[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def allowing(statements: list[Statement], action: str) -> Iterator[Statement]:
    for statement in statements:
        assert statement["Effect"] == "Allow"
        assert "NotAction" not in statement and "NotResource" not in statement
        if any(fnmatchcase(action.lower(), one.lower()) for one in listed(statement["Action"])):
            yield statement


def kinds(statement: Statement) -> set[str]:
    """The kinds of EC2's resources that a statement names; * is all of them."""
    found = {arn.split(":", 5)[-1].partition("/")[0] for arn in listed(statement["Resource"])}
    return set(MADE) if "*" in found else found


def equals(statement: Statement, key: str) -> list[str]:
    return listed(statement.get("Condition", {}).get("StringEquals", {}).get(key, []))


@pytest.mark.aws
def test_terraform_would_write_it_the_same(configuration: Path, tmp_path: Path) -> None:
    terraform_in(tmp_path, configuration).run("fmt", "-check", "-recursive")


@pytest.mark.aws
def test_castor_reads_the_pools_that_it_renders(outputs: dict[str, Any]) -> None:
    settings = parse_settings(outputs["pools_json"], outputs["pools_source"])
    assert settings.deployment == "prod"
    assert settings.pools["gpu"].launch_template.version == "3"
    assert settings.zones_of(settings.pools["gpu"]) == ("us-east-1a", "us-east-1b")
    assert settings.zones_of(settings.pools["near"]) == ("us-east-1b",)
    assert settings.tags == {"team": "vision", "cost-centre": "ml"}
    assert settings.pools["gpu"].extras_usd_per_hour == Decimal("0.026918")
    assert settings.max_run_hours == 168


@pytest.mark.aws
def test_castor_reads_the_reserved_pools_that_it_renders(
    rendered: dict[str, Any], outputs: dict[str, Any]
) -> None:
    region = rendered["pools/reserved_pools"]["outputs"]["region"]["value"]
    document = json.loads(outputs["pools_json"]) | {"pools": region["pools"]}
    settings = parse_settings(json.dumps(document), "pools.json")
    reserved = {name: pool.reservation for name, pool in settings.pools.items()}
    assert reserved == {"own": "cr-0123456789abcdef0", "block": "cr-0123456789abcdef1"}
    assert [settings.pools[name].capacity_block for name in ("own", "block")] == [False, True]


@pytest.mark.aws
@pytest.mark.parametrize("action", LAUNCHES)
def test_what_is_launched_says_whose_it_is(statements: list[Statement], action: str) -> None:
    seen: set[str] = set()
    for statement in allowing(statements, action):
        made = kinds(statement) & set(MADE)
        seen |= made
        if made:
            assert equals(statement, "aws:RequestTag/castor:deployment") == ["prod"], statement
    assert seen >= ({"fleet", "instance", "volume"} if action.endswith("Fleet") else {"instance"})


@pytest.mark.aws
def test_only_types_of_the_pools_are_launched(statements: list[Statement]) -> None:
    found = [one for one in allowing(statements, "ec2:RunInstances") if "instance" in kinds(one)]
    assert [equals(one, "ec2:InstanceType") for one in found] == [
        ["g5.12xlarge", "g5.xlarge", "p4d.24xlarge"]
    ]


@pytest.mark.aws
def test_launches_name_nothing_but_given_parts(statements: list[Statement]) -> None:
    for action in LAUNCHES:
        for statement in allowing(statements, action):
            for arn in listed(statement["Resource"]):
                kind, _, name = arn.split(":", 5)[-1].partition("/")
                assert name != "*" or kind in (*MADE, "snapshot", "spot-instances-request"), arn


@pytest.mark.aws
def test_only_its_own_are_ended(statements: list[Statement]) -> None:
    (statement,) = allowing(statements, "ec2:TerminateInstances")
    assert equals(statement, "aws:ResourceTag/castor:deployment") == ["prod"]


@pytest.mark.aws
def test_the_sweep_ends_what_castor_launched_alone(outputs: dict[str, Any]) -> None:
    statements = json.loads(outputs["sweep_policy"])["Statement"]
    (ending,) = allowing(statements, "ec2:TerminateInstances")
    assert equals(ending, "aws:ResourceTag/castor:deployment") == ["prod"]
    assert ending["Condition"]["Null"] == {"aws:ResourceTag/castor:controller": "false"}
    calls = re.findall(r"aws-sdk:ec2:(\w)(\w+)", (MODULE / "files" / "sweep.asl.json").read_text())
    actions = {action for statement in statements for action in listed(statement["Action"])}
    assert actions == {
        "states:StartExecution",
        *(f"ec2:{first.upper()}{rest}" for first, rest in calls),
    }


@pytest.mark.aws
def test_the_controllers_host_is_no_instance_of_castor(rendered: dict[str, Any]) -> None:
    (host,) = resources_in(rendered["module/ground"], "aws_instance")
    assert host["tags"].keys() == {"Name", "castor:controller-of", "team"}


@pytest.mark.aws
def test_tags_are_given_at_a_launch_and_never_after(statements: list[Statement]) -> None:
    (statement,) = allowing(statements, "ec2:CreateTags")
    assert equals(statement, "ec2:CreateAction") == ["CreateFleet", "RunInstances"]
    assert equals(statement, "aws:RequestTag/castor:deployment") == ["prod"]
    assert not list(allowing(statements, "ec2:DeleteTags"))


@pytest.mark.aws
def test_the_nodes_role_alone_is_passed_on(
    statements: list[Statement], outputs: dict[str, Any]
) -> None:
    (statement,) = allowing(statements, "iam:PassRole")
    assert listed(statement["Resource"]) == [outputs["node_role_arn"]]
    assert equals(statement, "iam:PassedToService") == ["ec2.amazonaws.com"]


@pytest.mark.aws
def test_what_the_provider_calls_is_allowed_and_no_more(statements: list[Statement]) -> None:
    """Compare the calls that change anything with the list in docs/aws.md."""
    actions = {action for statement in statements for action in listed(statement["Action"])}
    reads = ("Describe", "Get", "List", "Receive", "Decrypt")
    own = {one for one in actions if not one.split(":")[1].startswith(reads)}
    assert not any("*" in one for one in actions)
    assert {one for one in own if not one.startswith("ssmmessages:")} == {
        *LAUNCHES,
        *("ec2:CreateTags", "ec2:TerminateInstances", "iam:PassRole", "kms:GenerateDataKey"),
        *("s3:DeleteObject", "s3:PutObject", "sqs:DeleteMessage", "sts:AssumeRole"),
        "ssm:UpdateInstanceInformation",
    }
    documented = (MODULE.parents[2] / "docs" / "aws.md").read_text()
    part = documented.partition("## What the controller may do")[2].partition("\nOther roles")[0]
    named = {one for one in re.findall(r"`(\w+:\w+)`", part) if not one.startswith("aws:")}
    conditions = {"ec2:CreateAction", "castor:deployment"}
    assert named - conditions and named - conditions <= actions


@pytest.mark.aws
def test_the_controller_puts_no_files_of_jobs_and_reads_no_other_ones(
    statements: list[Statement],
) -> None:
    def places(action: str) -> set[str]:
        found = [arn for one in allowing(statements, action) for arn in listed(one["Resource"])]
        return {arn.partition(":::")[2].partition("/")[2] for arn in found}

    assert places("s3:PutObject") == {"user-data/*", "bundles/*"}
    assert places("s3:GetObject") == {"bundles/*", "jobs/*", "wheels/*"}
    assert places("s3:DeleteObject") == {"jobs/*"}


@pytest.mark.aws
def test_the_role_of_jobs_is_for_their_files_alone(
    statements: list[Statement], outputs: dict[str, Any]
) -> None:
    (assuming,) = allowing(statements, "sts:AssumeRole")
    assert listed(assuming["Resource"]) == [outputs["job_role_arn"]]
    own = json.loads(outputs["job_policy"])["Statement"]
    for action in {one for statement in own for one in listed(statement["Action"])}:
        assert action.startswith(("s3:", "kms:")), action
    places = [arn.partition(":::")[2] for one in own for arn in listed(one["Resource"])]
    assert {place.partition("/")[2] for place in places} == {"jobs/*", "bundles/*", ""}
    (listing,) = allowing(own, "s3:ListBucket")
    assert listing["Condition"] == {"StringLike": {"s3:prefix": ["jobs/*"]}}
    settings = parse_settings(outputs["pools_json"], outputs["pools_source"])
    region = settings.regions[outputs["region"]]
    assert region.job_role == outputs["job_role_arn"]
    assert region.jobs is not None
    for action in ("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"):
        granted = session_policy(f"{region.jobs}/digits", None, outputs["region"])["Statement"]
        assert list(allowing(own, action)) and list(allowing(list(granted), action))


@pytest.mark.aws
def test_instances_only_read_who_they_are(outputs: dict[str, Any]) -> None:
    statements = json.loads(outputs["node_policy"])["Statement"]
    actions = {action for one in statements for action in listed(one["Action"])}
    assert actions == {"s3:GetObject", "s3:ListBucket", "kms:Decrypt"}
    (listing,) = allowing(statements, "s3:ListBucket")
    assert listing["Condition"] == {"StringLike": {"s3:prefix": ["wheels/*"]}}


@pytest.mark.aws
def test_instances_read_and_list_datasets_and_nothing_beside_them(
    rendered: dict[str, Any], outputs: dict[str, Any]
) -> None:
    policy = rendered["module/datasets"]["outputs"]["node_policy"]["value"]
    before = json.loads(outputs["node_policy"])["Statement"]
    added = [one for one in json.loads(policy)["Statement"] if one not in before]
    assert {action for one in added for action in listed(one["Action"])} == {
        *("s3:GetObject", "s3:ListBucket", "kms:Decrypt")
    }
    read = [arn for one in allowing(added, "s3:GetObject") for arn in listed(one["Resource"])]
    assert sorted(read) == [
        "arn:aws:s3:::my-data/vision/imagenet/*",
        "arn:aws:s3:::my-data/wiki/date=2026-11-01/*",
        "arn:aws:s3:::texts.example.com/*",
    ]
    assert {one["Resource"]: one.get("Condition") for one in allowing(added, "s3:ListBucket")} == {
        "arn:aws:s3:::my-data": {
            "StringLike": {"s3:prefix": ["vision/imagenet/*", "wiki/date=2026-11-01/*"]}
        },
        "arn:aws:s3:::texts.example.com": None,  # which is mounted as a whole
    }
    (decrypting,) = allowing(added, "kms:Decrypt")
    assert [arn.split(":")[4] for arn in listed(decrypting["Resource"])] == ["999999999999"]
    assert decrypting["Condition"] == {"StringLike": {"kms:ViaService": "s3.*.amazonaws.com"}}


@pytest.mark.aws
def test_nobody_else_reads_what_instances_find(
    rendered: dict[str, Any], outputs: dict[str, Any]
) -> None:
    (policy,) = resources_in(rendered["module/ground"], "aws_s3_bucket_policy")
    plain, reading = json.loads(policy["policy"])["Statement"]
    assert plain["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
    assert plain["Action"] == "s3:*" and plain["Effect"] == reading["Effect"] == "Deny"
    assert reading["Resource"].endswith("/user-data/*")
    node = {"aws:PrincipalArn": outputs["node_role_arn"]}
    assert reading["Condition"] == {"ArnNotEquals": node}


@pytest.mark.aws
def test_the_start_of_an_instance_is_a_program(rendered: dict[str, Any], tmp_path: Path) -> None:
    states = [rendered["module/ground"], rendered["module/datasets"]]
    found = [values for one in states for values in resources_in(one, "aws_launch_template")]
    assert len(found) == 4
    for values in found:
        path = tmp_path / "start"
        path.write_bytes(base64.b64decode(values["user_data"]))
        shell = shutil.which("bash")
        assert shell is not None
        subprocess.run([shell, "-n", str(path)], check=True)
        text = path.read_text()
        assert "join_token" not in text
        assert "bucket='castor-prod-123456789012-us-east-1'" in text
