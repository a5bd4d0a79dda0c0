"""The Terraform module of GCP: its own tests, and what its conditions let through.

Google's provider is a stand-in (google_provider.py). That Google does what its documentation says
is for a real project to show.
"""

from __future__ import annotations

import base64
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from providers.gcp.reading import parse_settings
from providers.gcp.settings import Deployment, Project, RegionName, ZoneName
from tests.end_to_end import gce_infrastructure
from tests.terraform.conftest import GCP_MODULE, Terraform
from tests.terraform.iam_conditions import holds

INSTANCE = "compute.googleapis.com/Instance"
DISK = "compute.googleapis.com/Disk"
OBJECT = "storage.googleapis.com/Object"
STEPS = GCP_MODULE.parents[2] / "docs" / "gcp.md"
OBJECTS = "projects/_/buckets/castor-prod-my-project/objects"

# Terraform takes five seconds on a quiet machine, and its tests share one run.
pytestmark = [pytest.mark.gcp, pytest.mark.timeout(300)]


@pytest.fixture(scope="session")
def rendered(gcp_terraform: Terraform) -> dict[str, Any]:
    """Return the outputs of each run of the module's own tests, by name; all must pass."""
    gcp_terraform.run("validate")
    _, told = gcp_terraform.run("test", "-json", "-verbose")
    lines = [json.loads(line) for line in told.splitlines()]
    return {line["@testrun"]: line["test_state"] for line in lines if line["type"] == "test_state"}


@pytest.fixture(scope="session")
def outputs(rendered: dict[str, Any]) -> dict[str, Any]:
    return {name: told["value"] for name, told in rendered["ground"]["outputs"].items()}


@pytest.fixture(scope="session")
def resources(rendered: dict[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = rendered["ground"]["root_module"]["resources"]
    return found


def values(resources: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {str(one.get("index")): one["values"] for one in resources if one["type"] == kind}


def test_terraform_would_write_it_the_same(gcp_terraform: Terraform) -> None:
    gcp_terraform.run("fmt", "-check", "-recursive")


def test_the_stand_in_refuses_what_the_provider_has_not(
    gcp_terraform: Terraform, tmp_path: Path
) -> None:
    (tmp_path / "main.tf").write_text(
        'resource "google_compute_network" "this" {\n  nmae = "castor"\n}\n'
    )
    elsewhere = Terraform(tmp_path, gcp_terraform.command, gcp_terraform.environment)
    elsewhere.run("init", "-input=false")
    _, told = elsewhere.run("validate", "-json", accepted=(1,))
    said = {one["summary"] for one in json.loads(told)["diagnostics"]}
    assert said == {"Missing required argument", "Unsupported argument"}


def test_the_pools_are_what_the_provider_reads(outputs: dict[str, Any]) -> None:
    settings = parse_settings(outputs["pools_json"], "pools.json")
    assert settings.pools["gpu"].instance_type("n1-standard-8") == "n1-standard-8+2xt4"
    document = json.loads(outputs["pools_json"])
    pools = document.pop("pools")
    assert document == {
        "schema": 1,
        "cloud": "gcp",
        "deployment": "prod",
        "project": "my-project",
        "audience": "castor-prod",
        "regions": {
            "us-central1": {
                "zones": ["us-central1-a", "us-central1-b"],
                "user_data": "gs://castor-prod-my-project/user-data",
                "subscription": "projects/my-project/subscriptions/castor-prod-events",
                "jobs": "gs://castor-prod-my-project/jobs",
                "job_account": outputs["service_accounts"]["job"],
            }
        },
        "max_usd_per_hour": 60,
        "launches_per_minute": 60,
        "labels": {"team": "vision"},
    }
    template = outputs["instance_templates"]["gpu/spot"]
    assert pools["gpu"] == {
        "region": "us-central1",
        "templates": {"spot": template, "on-demand": template},
        "machine_types": ["n1-standard-8", "n1-standard-16"],
        "accelerator": {"type": "nvidia-tesla-t4", "count": 2},
        "purchases": ["spot", "on-demand"],
        "max_instances": 16,
        "max_usd_per_hour": 40,
        "boot": "3m",
        "boot_minutes": 20,
        "extras_usd_per_hour": "0.028797",  # 200 GB of pd-balanced at $0.10 a month, and NAT
    }
    assert pools["near"]["zones"] == ["us-central1-b"]
    assert pools["near"]["boot_minutes"] == 45, "a pool may set its own limit for joining"
    assert list(pools["near"]["templates"]) == ["on-demand"]
    assert "accelerator" not in pools["near"]


def test_an_instance_has_the_limit_for_joining_that_the_controller_reads(
    outputs: dict[str, Any], resources: list[dict[str, Any]]
) -> None:
    pools = json.loads(outputs["pools_json"])["pools"]
    for name, template in values(resources, "google_compute_instance_template").items():
        minutes = pools[name.partition("/")[0]]["boot_minutes"]
        assert f"\nboot_minutes='{minutes}'\n" in template["metadata"]["startup-script"]


def test_the_ground_of_tests_is_the_modules(
    outputs: dict[str, Any], resources: list[dict[str, Any]]
) -> None:
    """Compare the infrastructure of end-to-end tests with the module's."""
    laid, made = gce_infrastructure.pools("my-project"), json.loads(outputs["pools_json"])
    assert laid.keys() == made.keys()
    assert laid["audience"] == made["audience"]
    assert laid["regions"].keys() == made["regions"].keys()
    (region,), (own,) = made["regions"].values(), laid["regions"].values()
    assert own.keys() == region.keys()
    for key in ("zones", "user_data", "subscription", "jobs"):
        assert own[key] == region[key], key
    some = {"accelerator", "zones"}
    assert laid["pools"]["gpu"].keys() - some == made["pools"]["gpu"].keys() - some
    templates = values(resources, "google_compute_instance_template")
    for purchase in ("spot", "on-demand"):
        properties = gce_infrastructure.template("my-project", purchase)
        template = templates[f"gpu/{purchase}"]
        told = {item["key"]: item["value"] for item in properties["metadata"]["items"]}
        assert told == template["metadata"]
        assert properties["labels"] == template["labels"]
        (laid_disk,), (disk,) = properties["disks"], template["disk"]
        assert laid_disk["initializeParams"]["labels"] == disk["labels"]
        (scheduling,) = template["scheduling"]
        (longest,) = scheduling["max_run_duration"]
        wanted = {
            **properties["scheduling"],
            "maxRunDuration": int(properties["scheduling"]["maxRunDuration"]["seconds"]),
        }
        assert wanted == {
            "automaticRestart": scheduling["automatic_restart"],
            "onHostMaintenance": scheduling["on_host_maintenance"],
            "preemptible": scheduling["preemptible"],
            "provisioningModel": scheduling["provisioning_model"],
            "instanceTerminationAction": scheduling["instance_termination_action"],
            "maxRunDuration": longest["seconds"],
        }


def test_the_steps_enable_every_service_that_is_called(
    outputs: dict[str, Any], rendered: dict[str, Any]
) -> None:
    """Grants in a project are calls of Cloud Resource Manager."""
    steps = STEPS.read_text().partition("## Five steps")[2].partition("\n## ")[0]
    commands = steps.replace("\\\n", " ")
    (enabled,) = re.findall(r"gcloud services enable (.*)", commands)
    assert sorted(enabled.split()) == sorted(outputs["services"])
    assert "cloudresourcemanager.googleapis.com" in enabled
    made = values(rendered["services"]["root_module"]["resources"], "google_project_service")
    assert sorted(made) == sorted(outputs["services"])
    assert not any(one["disable_on_destroy"] for one in made.values())


@pytest.mark.parametrize(
    ("variable", "form", "names"),
    [
        ("deployment", Deployment, ["p", "prod2", 12 * "x", 13 * "x", "prod-1", "2x", "Prod", ""]),
        ("project", Project, ["my-project-123", "short", 30 * "x", 31 * "x", "ends-", "x.com:y"]),
        ("region", RegionName, ["us-central1", "europe-west12", "us-central", "us", "us-east-1"]),
        ("zones", ZoneName, ["us-central1-a", "europe-west12-c", "us-central1", "us-central1-a1"]),
    ],
)
def test_the_module_and_the_provider_take_the_same_names(
    variable: str, form: Any, names: list[str]
) -> None:
    text = (GCP_MODULE / "variables.tf").read_text()
    block = text.partition(f'variable "{variable}" ')[2].partition('\nvariable "')[0]
    found = re.search(r'regex\("(.+?)", (?:var\.\w+|zone)\)', block)
    assert found is not None
    for name in names:
        assert bool(re.search(found[1], name)) is _is_read(form, name), name


def _is_read(form: Any, name: str) -> bool:
    try:
        TypeAdapter(form).validate_python(name)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("kind", [INSTANCE, DISK])
@pytest.mark.parametrize(
    ("name", "is_own"),
    [
        ("zones/us-central1-a/{}/castor-prod-0a1b", True),
        ("zones/us-central1-a/{}/castor-production-0a1b", False),
        ("zones/us-central1-a/{}/castor-other-0a1b", False),
        ("zones/us-central1-a/{}/controller-castor-prod", False),
        ("zones/europe-west4-a/{}/castor-prod-0a1b", False),
        ("zones/us-central1-a/{}/x-castor-prod-0a1b", False),
        ("global/{}/castor-prod-0a1b", False),
    ],
)
def test_only_its_own_are_made_and_ended(
    outputs: dict[str, Any], kind: str, name: str, is_own: bool
) -> None:
    condition = outputs["project_grants"]["launch"]
    path = "projects/my-project/" + name.format("disks" if kind == DISK else "instances")
    assert holds(condition, kind, path) is is_own
    assert not holds(condition, "compute.googleapis.com/Snapshot", path)


def test_several_regions_share_a_document_and_the_files_of_the_first(
    rendered: dict[str, Any],
) -> None:
    told = rendered["several_regions"]["outputs"]
    settings = parse_settings(told["pools_json"]["value"], "pools.json")
    regions = {name: settings.regions[name] for name in ("us-central1", "europe-west4")}
    assert {name: settings.zones_of(pool) for name, pool in settings.pools.items()} == {
        "gpu": ("us-central1-a", "us-central1-b"),
        "gpu-europe": ("europe-west4-a",),
    }
    assert [region.jobs is not None for region in regions.values()] == [True, False]
    assert [region.subscription is not None for region in regions.values()] == [True, False]
    assert len({region.user_data for region in regions.values()}) == 1
    extras = {name: pool.extras_usd_per_hour for name, pool in settings.pools.items()}
    assert extras["gpu-europe"] > extras["gpu"], "disks cost what they cost in their region"


@pytest.mark.parametrize("kind", [INSTANCE, DISK])
def test_launches_are_limited_to_the_regions(rendered: dict[str, Any], kind: str) -> None:
    condition = rendered["several_regions"]["outputs"]["project_grants"]["value"]["launch"]
    part = "disks" if kind == DISK else "instances"
    regions = {"us-central1": True, "europe-west4": True, "us-east1": False}
    for region, is_own in regions.items():
        path = f"projects/my-project/zones/{region}-a/{part}/castor-{{}}-0a1b"
        assert holds(condition, kind, path.format("prod")) is is_own
        assert not holds(condition, kind, path.format("other"))


def test_the_condition_of_most_regions_is_one_that_iam_takes(rendered: dict[str, Any]) -> None:
    """A condition has at most 12 logical operators (cloud.google.com/iam/quotas)."""
    condition = rendered["most_regions"]["outputs"]["project_grants"]["value"]["launch"]
    assert condition.count("startsWith") == 2 * (4 + 1)
    assert condition.count("&&") + condition.count("||") <= 12


def test_all_that_is_billed_by_a_label_has_it(resources: list[dict[str, Any]]) -> None:
    """Label disks too; templates lack the labels that Castor adds to instances."""
    own, host = {"castor-deployment": "prod"}, {"castor-controller-of": "prod"}
    for template in values(resources, "google_compute_instance_template").values():
        for labels in (template["labels"], *(disk["labels"] for disk in template["disk"])):
            assert own.items() <= labels.items() and not host.keys() & labels.keys()
    for disk in values(resources, "google_compute_disk").values():
        assert host.items() <= disk["labels"].items() and not own.keys() & disk["labels"].keys()
    for controller in values(resources, "google_compute_instance").values():
        (boot,) = controller["boot_disk"]
        (made,) = boot["initialize_params"]
        for labels in (controller["labels"], made["labels"]):
            assert host.items() <= labels.items() and not own.keys() & labels.keys()


def test_no_other_deployments_names_begin_with_its_prefix(outputs: dict[str, Any]) -> None:
    assert outputs["prefix"] == "castor-prod-"
    assert outputs["controller_instance"] == "controller-castor-prod"


def test_what_is_granted_everywhere_changes_nothing(outputs: dict[str, Any]) -> None:
    free = {role for role, condition in outputs["project_grants"].items() if condition is None}
    actions = {one.rsplit(".", 1)[1] for role in free for one in outputs["roles"][role]}
    assert actions == {"get", "list", "use"}
    assert outputs["roles"]["placement"] == ["compute.resourcePolicies.use"]


def test_no_role_may_do_what_nobody_calls(outputs: dict[str, Any]) -> None:
    actions = {one for role in outputs["roles"].values() for one in role}
    assert not any("*" in one for one in actions)
    changing = {one for one in actions if one.rsplit(".", 1)[1] not in {"get", "list"}}
    assert changing == {
        *(f"compute.disks.{verb}" for verb in ("create", "setLabels")),
        *("compute.instances.create", "compute.instances.delete", "compute.instances.setLabels"),
        "compute.instances.getSerialPortOutput",
        *("compute.instances.setMetadata", "compute.instances.setServiceAccount"),
        *("compute.instanceTemplates.useReadOnly", "compute.images.useReadOnly"),
        *("compute.subnetworks.use", "compute.resourcePolicies.use"),
        *("iam.serviceAccounts.actAs", "iam.serviceAccounts.getAccessToken"),
        *("pubsub.subscriptions.consume", "storage.objects.create", "storage.objects.delete"),
        *("storage.multipartUploads.abort", "storage.multipartUploads.create"),
        *("logging.logEntries.create", "workflows.executions.create"),
    }


def test_the_sweep_deletes_instances_of_its_deployment_alone(
    resources: list[dict[str, Any]], outputs: dict[str, Any]
) -> None:
    granted = values(
        [one for one in resources if one["name"] == "sweep"], "google_project_iam_member"
    )
    roles = {role: outputs["roles"][role] for role in granted}
    assert [role for role, names in roles.items() if "compute.instances.delete" in names] == [
        "sweep_delete"
    ]
    assert {len(one["condition"]) for role, one in granted.items() if role != "sweep_delete"} == {
        0
    }
    (condition,) = granted["sweep_delete"]["condition"]
    where = "projects/my-project/zones/us-central1-a/instances/"
    assert holds(condition["expression"], INSTANCE, f"{where}castor-prod-0a1b")
    for name in ("castor-other-0a1b", "controller-castor-prod"):
        assert not holds(condition["expression"], INSTANCE, f"{where}{name}")
    (job,) = values(resources, "google_cloud_scheduler_job").values()
    (target,) = job["http_target"]
    argument = json.loads(json.loads(base64.b64decode(target["body"]))["argument"])
    assert argument == {"project": "my-project", "deployment": "prod"}
    assert target["uri"].endswith("/workflows/castor-prod-sweep/executions")


def test_the_nodes_account_alone_is_acted_as(resources: list[dict[str, Any]]) -> None:
    found = [
        (one["name"], one["values"]["service_account_id"])
        for one in resources
        if one["type"] == "google_service_account_iam_member"
    ]
    accounts = values(resources, "google_service_account")
    assert found == [
        ("controller_acts_as_node", accounts["node"]["name"]),
        ("controller_hands_on_leave", accounts["job"]["name"]),
    ]


@pytest.mark.parametrize(
    ("account", "permission", "may", "may_not"),
    [
        ("node", "storage.objects.get", ["user-data/x", "wheels/x"], ["jobs/x", "pools.json"]),
        ("node", "storage.objects.create", [], ["user-data/x", "jobs/x", "wheels/x"]),
        (
            "controller",
            "storage.objects.get",
            ["pools.json", "wheels/x", "jobs/x", "bundles/x"],
            ["user-data/x", "pools.json.old", "other"],
        ),
        (
            "controller",
            "storage.objects.create",
            ["user-data/x", "bundles/x", "jobs/x"],
            ["pools.json", "wheels/x"],
        ),
        ("job", "storage.objects.get", ["jobs/x", "bundles/x"], ["user-data/x", "pools.json"]),
        ("job", "storage.objects.delete", ["jobs/x"], ["bundles/x", "user-data/x", "wheels/x"]),
        ("job", "storage.multipartUploads.create", ["jobs/x"], ["bundles/x", "wheels/x"]),
    ],
)
def test_each_has_its_part_of_the_bucket(
    outputs: dict[str, Any], account: str, permission: str, may: list[str], may_not: list[str]
) -> None:
    granted = [
        one["condition"]
        for one in outputs["bucket_grants"].values()
        if one["account"] == account and permission in outputs["roles"][one["role"]]
    ]
    for name, expected in [*((one, True) for one in may), *((one, False) for one in may_not)]:
        found = any(holds(one, OBJECT, f"{OBJECTS}/{name}") for one in granted)
        assert found is expected, name


def test_lists_are_of_one_folder(outputs: dict[str, Any]) -> None:
    lists = [one for one in outputs["bucket_grants"].values() if one["role"] == "list"]
    assert {one["account"] for one in lists} == {"controller", "job"}
    bucket = OBJECTS.removesuffix("/objects")
    for one in lists:
        folders = ["jobs/", "bundles/", "user-data/", "wheels/", ""]
        may = {
            folder
            for folder in folders
            if holds(one["condition"], "storage.googleapis.com/Bucket", bucket, folder)
        }
        assert may in ({"jobs/"}, {"bundles/"})
        assert may == {"jobs/"} or one["account"] == "controller"


def test_every_grant_in_the_bucket_has_a_condition(resources: list[dict[str, Any]]) -> None:
    grants = values(resources, "google_storage_bucket_iam_member")
    assert len(grants) == 15, "and none beside, where there are no datasets"
    assert all(len(one["condition"]) == 1 for one in grants.values())


@pytest.mark.parametrize(
    ("bucket", "may", "may_not"),
    [
        ("my-data", ["vision/imagenet/", "vision/imagenet/train/"], ["", "vision/", "secrets/"]),
        ("texts", ["", "any/"], []),
        ("their-data", [], ["", "theirs/"]),  # it is their owner's to let instances in
        ("castor-prod-my-project", [], ["", "jobs/"]),
    ],
)
def test_instances_read_and_list_datasets_and_nothing_beside_them(
    rendered: dict[str, Any], bucket: str, may: list[str], may_not: list[str]
) -> None:
    made = {name: told["value"] for name, told in rendered["datasets"]["outputs"].items()}
    granted = [one for one in made["dataset_grants"].values() if one["bucket"] == bucket]
    assert {tuple(made["roles"][one["role"]]) for one in granted} <= {
        ("storage.objects.get",),
        ("storage.objects.list",),
    }
    whole = f"projects/_/buckets/{bucket}"
    for folder, expected in [*((one, True) for one in may), *((one, False) for one in may_not)]:
        asked = {
            "read": (OBJECT, f"{whole}/objects/{folder}x", ""),
            "list": ("storage.googleapis.com/Bucket", whole, folder),
        }
        for role, request in asked.items():
            conditions = [one["condition"] for one in granted if one["role"] == role]
            found = any(one is None or holds(one, *request) for one in conditions)
            assert found is expected, (role, folder)


def test_a_dataset_that_is_mounted_as_a_whole_needs_no_uniform_access(
    rendered: dict[str, Any],
) -> None:
    resources = rendered["datasets"]["root_module"]["resources"]
    made = [one for one in resources if one["type"] == "google_storage_bucket_iam_member"]
    conditions = {
        one["index"]: len(one["values"]["condition"]) for one in made if one["name"] == "dataset"
    }
    assert conditions == {
        "list /datasets/imagenet": 1,
        "list /datasets/text/all": 0,
        "read /datasets/imagenet": 1,
        "read /datasets/text/all": 0,
    }


def test_preemptions_of_its_own_instances_are_heard_of(resources: list[dict[str, Any]]) -> None:
    (sink,) = values(resources, "google_logging_project_sink").values()
    assert '"compute.instances.preempted"' in sink["filter"]
    assert 'protoPayload.resourceName:"/instances/castor-prod-"' in sink["filter"]
    (topic,) = values(resources, "google_pubsub_topic").values()
    assert sink["destination"] == f"pubsub.googleapis.com/{topic['id']}"
    (member,) = values(resources, "google_pubsub_topic_iam_member").values()
    assert member["member"] == sink["writer_identity"]
    (subscription,) = values(resources, "google_pubsub_subscription").values()
    assert subscription["topic"] == topic["id"]


def test_the_start_of_an_instance_is_a_program(
    resources: list[dict[str, Any]], tmp_path: Path
) -> None:
    templates = values(resources, "google_compute_instance_template")
    controllers = values(resources, "google_compute_instance")
    scripts = [one["metadata"]["startup-script"] for one in templates.values()]
    scripts += [one["metadata_startup_script"] for one in controllers.values()]
    assert len(scripts) == 4
    for script in scripts:
        path = tmp_path / "start"
        path.write_text(script)
        subprocess.run(["bash", "-n", str(path)], check=True)
        assert script.startswith("#!/bin/bash\n")
        assert "join_token" not in script
        assert "bucket='castor-prod-my-project'" in script
    assert all("\ndatasets=''\n" in script for script in scripts[:-1])
    assert "--pools $pools" in scripts[-1]
    assert "pools='gs://castor-prod-my-project/pools.json'" in scripts[-1]
