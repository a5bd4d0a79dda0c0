"""Several instances by one call: at least the smallest requested number, or none."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.fakes.gcp.clients import TEMPLATE, ZONE, ProjectClients, properties

PLACE = ("g2-standard-4", ZONE, "SPOT")
LINK = f"global/instanceTemplates/{TEMPLATE}"


def bulk(
    clients: ProjectClients, scope: str = f"zones/{ZONE}", status: int = 200, **fields: Any
) -> dict[str, Any]:
    body = {"count": "3", "namePattern": "n-####", "sourceInstanceTemplate": LINK, **fields}
    reply: httpx.Response = clients.send("POST", f"{scope}/instances/bulkInsert", body)
    assert reply.status_code == status, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


def done(clients: ProjectClients, operation: dict[str, Any], scope: str = f"zones/{ZONE}") -> Any:
    return clients.send("POST", f"{scope}/operations/{operation['name']}/wait").json()


def test_they_are_numbered_and_run(clients: ProjectClients) -> None:
    begun = bulk(clients, instanceProperties={"labels": {"castor-job": "digits"}})
    assert "error" not in done(clients, begun)
    assert clients.listed("labels.castor-job=digits status=RUNNING") == [
        *("n-0001", "n-0002", "n-0003")
    ]
    bulk(clients, count="1")
    assert "n-0004" in clients.project.alive()
    of_group = clients.send("GET", f"zones/{ZONE}/operations").json()["items"]
    inserts = [operation for operation in of_group if operation["operationType"] == "insert"]
    groups = {
        insert["operationGroupId"] for insert in inserts if "n-0004" not in insert["targetLink"]
    }
    assert groups == {begun["operationGroupId"]}


def test_with_too_little_capacity_there_are_none(clients: ProjectClients) -> None:
    clients.project.capacity[PLACE] = 2
    failed = done(clients, bulk(clients))
    (progress,) = failed["instancesBulkInsertOperationMetadata"]["perLocationStatus"].values()
    assert (progress["targetVmCount"], progress["deletedVmCount"]) == (3, 2)
    assert failed["error"]["errors"][0]["code"].startswith("ZONE_RESOURCE_POOL_EXHAUSTED")
    assert clients.project.remaining() == []
    assert clients.project.capacity[PLACE] == 2


def test_with_enough_for_the_least_there_are_those(clients: ProjectClients) -> None:
    clients.project.capacity[PLACE] = 2
    assert "error" not in done(clients, bulk(clients, minCount="2"))
    assert len(clients.project.alive()) == 2
    assert clients.project.capacity[PLACE] == 0


def test_a_quota_that_is_too_small_for_all_is_refused(clients: ProjectClients) -> None:
    clients.project.quotas["us-central1", "PREEMPTIBLE_NVIDIA_L4_GPUS"] = 2.0
    bulk(clients, status=403)
    assert clients.project.history == []


@pytest.mark.gcp
def test_names_may_be_told(clients: ProjectClients) -> None:
    names = {"a": {}, "b": {"name": "c"}}
    bulk(clients, namePattern=None, count="2", perInstanceProperties=names)
    assert clients.project.alive() == ["a", "c"]
    bulk(clients, namePattern=None, count="2", perInstanceProperties={"d": {}}, status=400)
    bulk(clients, namePattern=None, count="1", perInstanceProperties={"a": {}}, status=409)


@pytest.mark.parametrize(
    "fields",
    [
        {"count": "0"},
        {"minCount": "4"},
        {"namePattern": "n"},
        {"namePattern": "n-#-#"},
        {"namePattern": None},
        {"sourceInstanceTemplate": None},
        {"instanceProperties": {"machineType": f"zones/{ZONE}/machineTypes/g2-standard-4"}},
        {"locationPolicy": {"targetshape": "ANY"}},
    ],
)
def test_what_can_not_be_is_refused(clients: ProjectClients, fields: dict[str, Any]) -> None:
    bulk(clients, status=400, **fields)
    assert clients.project.history == []


def test_a_region_gives_them_where_there_is_room(clients: ProjectClients) -> None:
    clients.project.capacity[PLACE] = 0
    locations = {"zones/us-central1-c": {"preference": "DENY"}}
    begun = bulk(clients, "regions/us-central1", locationPolicy={"locations": locations})
    assert "error" not in done(clients, begun, "regions/us-central1")
    assert {instance.zone for instance in clients.project.history} == {"us-central1-b"}


@pytest.mark.gcp
def test_without_a_template_all_is_told(clients: ProjectClients) -> None:
    bulk(clients, sourceInstanceTemplate=None, instanceProperties=properties())
    assert len(clients.project.alive()) == 3
