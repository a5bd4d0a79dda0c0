"""Lists of zones, machine types, accelerators, quotas and prices."""

from __future__ import annotations

import itertools
from decimal import Decimal
from typing import Any

import pytest
from google.api_core.exceptions import BadRequest
from google.cloud import compute_v1

from tests.fakes.gcp.clients import HTTP, ZONE, ProjectClients

SKUS = "/v1/services/6F81-5844-456A/skus"


def test_machine_types_say_what_is_in_them(clients: ProjectClients) -> None:
    machine_type = clients.send("GET", f"zones/{ZONE}/machineTypes/a2-highgpu-8g").json()
    assert (machine_type["guestCpus"], machine_type["memoryMb"], machine_type["zone"]) == (
        96,
        696_320,
        ZONE,
    )
    (accelerator,) = machine_type["accelerators"]
    assert accelerator == {
        "guestAcceleratorType": "nvidia-tesla-a100",
        "guestAcceleratorCount": 8,
    }
    everywhere = clients.send("GET", "aggregated/machineTypes").json()["items"]
    names = {listed["name"] for listed in everywhere["zones/us-central1-b"]["machineTypes"]}
    assert "a2-highgpu-8g" in names
    assert "a3-highgpu-8g" not in names
    clients.project.offered[ZONE] = {"e2-standard-4"}
    assert clients.send("GET", f"zones/{ZONE}/machineTypes/a2-highgpu-8g").status_code == 404


def test_accelerators_are_where_their_machines_are(clients: ProjectClients) -> None:
    def names(zone: str) -> set[str]:
        items = clients.send("GET", f"zones/{zone}/acceleratorTypes").json()["items"]
        return {item["name"] for item in items}

    assert names(ZONE) - names("us-central1-b") == {"nvidia-h100-80gb", "nvidia-h200-141gb"}
    assert {"nvidia-tesla-t4", "nvidia-l4"} <= names("us-central1-b")
    accelerator = clients.send("GET", f"zones/{ZONE}/acceleratorTypes/nvidia-l4").json()
    assert accelerator["maximumCardsPerInstance"] == 8
    assert clients.send("GET", f"zones/{ZONE}/acceleratorTypes/nvidia-x").status_code == 404
    scopes = clients.send("GET", "aggregated/acceleratorTypes").json()["items"]
    assert scopes[f"zones/{ZONE}"]["acceleratorTypes"]


def quotas(clients: ProjectClients) -> dict[str, tuple[float, float]]:
    listed = clients.send("GET", "regions/us-central1").json()["quotas"]
    return {quota["metric"]: (quota["usage"], quota["limit"]) for quota in listed}


def test_quotas_say_what_is_used(clients: ProjectClients) -> None:
    assert quotas(clients)["PREEMPTIBLE_NVIDIA_L4_GPUS"] == (0.0, 32.0)
    clients.insert("one")
    assert quotas(clients)["PREEMPTIBLE_NVIDIA_L4_GPUS"] == (1.0, 32.0)
    assert quotas(clients)["PREEMPTIBLE_CPUS"] == (4.0, 512.0)
    assert quotas(clients)["NVIDIA_L4_GPUS"][0] == 0.0
    clients.wait(clients.delete("one"))
    assert quotas(clients)["PREEMPTIBLE_NVIDIA_L4_GPUS"] == (0.0, 32.0)


def test_the_quota_of_all_regions_is_the_projects(clients: ProjectClients) -> None:
    on_demand = {"provisioningModel": "STANDARD", "onHostMaintenance": "TERMINATE"}
    template = clients.project.templates["castor-gpu"]["properties"]
    template["scheduling"] = on_demand
    clients.insert("one")
    (quota,) = clients.send("GET", "").json()["quotas"]
    assert quota == {"metric": "GPUS_ALL_REGIONS", "limit": 64.0, "usage": 1.0}


def test_zones_and_regions_are_listed(clients: ProjectClients) -> None:
    zones = clients.send("GET", "zones").json()["items"]
    regions = clients.send("GET", "regions").json()["items"]
    assert {zone["region"] for zone in zones} == {region["selfLink"] for region in regions}
    assert clients.send("GET", f"zones/{ZONE}").json()["status"] == "UP"
    assert clients.send("GET", "zones/nowhere-a").status_code == 404
    assert clients.send("GET", "regions/nowhere").status_code == 400


def test_a_compact_policy_is_laid_and_used(clients: ProjectClients) -> None:
    body = {"name": "compact", "groupPlacementPolicy": {"collocation": "COLLOCATED"}}
    path = "regions/us-central1/resourcePolicies"
    assert clients.send("POST", path, body).status_code == 200
    assert clients.send("POST", path, body).status_code == 409
    assert clients.send("GET", f"{path}/compact").json()["status"] == "READY"
    link = "regions/us-central1/resourcePolicies/compact"
    instance = clients.running("one", resource_policies=[link])
    assert list(instance.resource_policies) == [link]
    properties = clients.project.templates["castor-gpu"]["properties"]
    properties["resourcePolicies"] = ["compact"]
    assert list(clients.running("two").resource_policies) == [link]
    properties["resourcePolicies"] = [link]
    with pytest.raises(BadRequest, match="Names, not URLs"):
        clients.insert("three")


@pytest.mark.gcp
def test_an_accelerator_of_choice_goes_with_the_machines_that_take_one(
    clients: ProjectClients,
) -> None:
    chosen = compute_v1.AcceleratorConfig(
        accelerator_type=f"zones/{ZONE}/acceleratorTypes/nvidia-tesla-t4", accelerator_count=2
    )
    instance = clients.running(
        "one",
        machine_type=f"zones/{ZONE}/machineTypes/n1-standard-8",
        guest_accelerators=[chosen],
    )
    assert instance.guest_accelerators[0].accelerator_count == 2
    assert quotas(clients)["PREEMPTIBLE_NVIDIA_T4_GPUS"][0] == 2.0


def skus(clients: ProjectClients, **query: str) -> list[dict[str, Any]]:
    caller = f"look@{clients.name}.iam.gserviceaccount.com"
    headers = {"Authorization": f"Bearer ya29.{caller}"}
    listed: list[dict[str, Any]] = []
    for _ in itertools.count():
        reply = HTTP.get(clients.fake.url + SKUS, params=query, headers=headers).json()
        listed.extend(reply["skus"])
        if not reply["nextPageToken"]:
            return listed
        query["pageToken"] = reply["nextPageToken"]
    raise AssertionError


def usd(sku: dict[str, Any]) -> Decimal:
    (price,) = sku["pricingInfo"]
    (rate,) = price["pricingExpression"]["tieredRates"]
    return Decimal(rate["unitPrice"]["units"]) + Decimal(rate["unitPrice"]["nanos"]).scaleb(-9)


def test_the_parts_of_a_machine_add_up_to_its_price(clients: ProjectClients) -> None:
    clients.project.page = 10
    here = {
        sku["description"]: sku for sku in skus(clients) if "us-central1" in sku["serviceRegions"]
    }
    parts = {name: usd(sku) for name, sku in here.items()}
    whole = (
        4 * parts["G2 Instance Core running in Americas"]
        + 16 * parts["G2 Instance Ram running in Americas"]
        + parts["Nvidia L4 GPU running in Americas"]
    )
    assert whole == pytest.approx(Decimal("0.7068"), abs=Decimal("0.001"))
    spot = here["Spot Preemptible Nvidia L4 GPU running in Americas"]
    assert spot["category"]["usageType"] == "Preemptible"
    assert usd(spot) < parts["Nvidia L4 GPU running in Americas"]


def test_a_price_can_be_changed(clients: ProjectClients) -> None:
    title = "Nvidia L4 GPU running in Americas"
    clients.project.prices[title] = Decimal("12.5")
    (changed,) = [sku for sku in skus(clients) if sku["description"] == title]
    assert usd(changed) == Decimal("12.5")
    caller = f"look@{clients.name}.iam.gserviceaccount.com"
    headers = {"Authorization": f"Bearer ya29.{caller}"}
    missing = HTTP.get(f"{clients.fake.url}/v1/services/none/skus", headers=headers)
    assert missing.status_code == 400
