"""Infrastructure of `terraform/modules/gcp` in a fake Google Cloud, created without Terraform.

`tests/terraform/test_gcp_module.py` compares it with the module's own output.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import httpx

from tests.fakes.gcp.project import Project
from tests.fakes.gcp.server import FakeGcp

MODULE: Final = Path(__file__).parents[2] / "terraform" / "modules" / "gcp"
DEPLOYMENT: Final = "prod"
REGION: Final = "us-central1"
OTHER_REGION: Final = "europe-west4"
_ZONES: Final = {
    REGION: ("us-central1-a", "us-central1-b"),
    OTHER_REGION: ("europe-west4-a",),
}
_PREFIX: Final = f"castor-{DEPLOYMENT}"
_MODELS: Final = {"spot": "SPOT", "on-demand": "STANDARD"}
_MACHINE_TYPES: Final = ("g2-standard-4",)
_MOST_SECONDS: Final = 168 * 3600
_SCOPE: Final = "https://www.googleapis.com/auth/devstorage.read_only"


def environment(url: str, directory: Path) -> dict[str, str]:
    """Return the variables that point `castor` at the fake, without this machine's credentials."""
    return {
        "STORAGE_EMULATOR_HOST": url,
        "GOOGLE_APPLICATION_CREDENTIALS": "",
        "CLOUDSDK_CONFIG": str(directory / "gcloud"),
        "NO_GCE_CHECK": "true",
    }


def new_project(fake: FakeGcp, project: str) -> Project:
    """Return a new project in which all operations are quick."""
    created = fake.front.project(project)
    created.provision_seconds = created.staging_seconds = 0.5
    created.delete_seconds = 2.0
    return created


def create_infrastructure(fake: FakeGcp, project: str, *others: str) -> str:
    """Create the infrastructure in a project; return the value for `castor serve --pools`.

    A pool `gpu` is in `REGION`, and a pool `gpu-REGION` in each of `others`.
    """
    bucket = bucket_of(project)
    compute = f"{fake.url}/compute/v1/projects/{project}"
    for region in (REGION, *others):
        for purchase in _MODELS:
            body = {
                "name": template_name(purchase, _pool_name(region)),
                "properties": template(project, purchase, region),
            }
            _send("POST", f"{compute}/global/instanceTemplates", json=body)
    _send("POST", f"{fake.url}/storage/v1/b?project={project}", json={"name": bucket})
    events = {"topic": f"projects/{project}/topics/{_PREFIX}-events", "ackDeadlineSeconds": 20}
    _send("PUT", f"{fake.url}/v1/{_subscription(project)}", json=events)
    document = {**pools(project, *others), "endpoint_url": fake.url}
    upload = f"{fake.url}/upload/storage/v1/b/{bucket}/o?uploadType=media&name=pools.json"
    _send("POST", upload, content=json.dumps(document))
    return f"gs://{bucket}/pools.json"


def bucket_of(project: str) -> str:
    """Return the bucket's name, as bucket.tf composes it."""
    return f"{_PREFIX}-{project}"


def template_name(purchase: str, pool: str = "gpu") -> str:
    """Return the name of a purchase's template, with the suffix that Terraform adds."""
    return f"{_PREFIX}-{pool}-{purchase}-1"


def pools(project: str, *others: str) -> dict[str, Any]:
    """Return the document, as pools.tf makes it for the first region."""
    bucket = bucket_of(project)
    link = f"projects/{project}/global/instanceTemplates"
    region = {
        "user_data": f"gs://{bucket}/user-data",
        "subscription": _subscription(project),
        "jobs": f"gs://{bucket}/jobs",
        "job_account": _account(project, "job"),
    }
    pool = {
        "machine_types": list(_MACHINE_TYPES),
        "purchases": list(_MODELS),
        "max_instances": 2,
        "max_usd_per_hour": 10,
        "boot": "5s",
        "boot_minutes": 20,
        "extras_usd_per_hour": "0.028797",
    }
    return {
        "schema": 1,
        "cloud": "gcp",
        "deployment": DEPLOYMENT,
        "project": project,
        "audience": _PREFIX,
        "regions": {name: {"zones": list(_ZONES[name]), **region} for name in (REGION, *others)},
        "pools": {
            _pool_name(name): {
                "region": name,
                "templates": {
                    purchase: f"{link}/{template_name(purchase, _pool_name(name))}"
                    for purchase in _MODELS
                },
                # All zones cost the same: a job whose instance was reclaimed would go to another.
                "zones": list(_ZONES[name][:1]),
                **pool,
            }
            for name in (REGION, *others)
        },
        "max_usd_per_hour": 10,
        "launches_per_minute": 60,
        "labels": {"team": "vision"},
    }


def template(project: str, purchase: str, region: str = REGION) -> dict[str, Any]:
    """Return the properties of an instance template, as pools.tf composes them."""
    metadata = {
        "block-project-ssh-keys": "TRUE",
        "enable-oslogin": "TRUE",
        "serial-port-enable": "FALSE",
        "startup-script": node_start(bucket_of(project)),
    }
    labels = {"castor-deployment": DEPLOYMENT, "team": "vision"}
    disk = {
        "sourceImage": f"projects/{project}/global/images/castor-7",
        "diskType": "pd-balanced",
        "diskSizeGb": "200",
        "labels": labels,
    }
    return {
        "machineType": _MACHINE_TYPES[0],
        "canIpForward": False,
        "labels": labels,
        "metadata": {"items": [{"key": key, "value": value} for key, value in metadata.items()]},
        "disks": [{"boot": True, "autoDelete": True, "initializeParams": disk}],
        "networkInterfaces": [
            {"subnetwork": f"projects/{project}/regions/{region}/subnetworks/{_PREFIX}"}
        ],
        "scheduling": scheduling(purchase),
        "serviceAccounts": [{"email": _account(project, "node"), "scopes": [_SCOPE]}],
    }


def scheduling(purchase: str) -> dict[str, Any]:
    """Return the scheduling of a purchase's instances, with their maximum run time."""
    return {
        "automaticRestart": False,
        "onHostMaintenance": "TERMINATE",
        "preemptible": purchase == "spot",
        "provisioningModel": _MODELS[purchase],
        "instanceTerminationAction": "DELETE",
        "maxRunDuration": {"seconds": str(_MOST_SECONDS)},
    }


def node_start(bucket: str) -> str:
    """Return the start script for an image that has Castor, as pools.tf composes it."""
    variables = {
        "bucket": bucket,
        "python": "python3",
        "wheels": "",
        "has_index": "true",
        "parcels": "user-data",
        "audience": _PREFIX,
        "boot_minutes": "20",
        "datasets": "",
        "registries": "",
    }
    assignments = [f"{name}='{value}'" for name, value in variables.items()]
    names = ("install.sh", "first_boot.sh", "datasets.sh", "node.sh", "agent.sh")
    scripts = [(MODULE / "files" / name).read_text() for name in names]
    return "\n".join(["#!/bin/bash", *assignments, *scripts])


def _pool_name(region: str) -> str:
    return "gpu" if region == REGION else f"gpu-{region}"


def _account(project: str, name: str) -> str:
    return f"{_PREFIX}-{name}@{project}.iam.gserviceaccount.com"


def _subscription(project: str) -> str:
    return f"projects/{project}/subscriptions/{_PREFIX}-events"


def _send(verb: str, url: str, **options: Any) -> None:
    answer = httpx.request(verb, url, trust_env=False, **options)
    assert answer.is_success, answer.text
