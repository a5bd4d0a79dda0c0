"""Instances by Google's own client: created, found, filtered, paged and ended."""

from __future__ import annotations

from datetime import datetime

import pytest
from google.api_core.exceptions import BadRequest, Conflict, NotFound, PreconditionFailed
from google.cloud import compute_v1

from tests.fakes.gcp.clients import START_SECONDS, ZONE, ProjectClients, request_id


def test_an_instance_is_made_runs_and_is_deleted(clients: ProjectClients) -> None:
    made = clients.insert("one")
    assert made.status == compute_v1.Operation.Status.PENDING
    assert clients.status("one") == "PROVISIONING"
    clients.clock.advance(2.5)
    assert clients.status("one") == "STAGING"
    done = clients.wait(made)
    assert done.status == compute_v1.Operation.Status.DONE
    assert clients.clock.now() >= START_SECONDS + 5.0
    instance = clients.instances.get(project=clients.name, zone=ZONE, instance="one")
    assert (instance.status, instance.id, instance.name) == ("RUNNING", done.target_id, "one")
    assert datetime.fromisoformat(instance.creation_timestamp).timestamp() == START_SECONDS
    assert instance.machine_type.endswith(f"/zones/{ZONE}/machineTypes/g2-standard-4")
    assert instance.guest_accelerators[0].accelerator_count == 1
    deleted = clients.delete("one")
    assert clients.status("one") == "STOPPING"
    assert clients.project.alive() == []
    assert clients.project.remaining() == ["one"]
    clients.wait(deleted)
    with pytest.raises(NotFound):
        clients.status("one")
    with pytest.raises(NotFound):
        clients.delete("one")
    assert clients.listed() == []


def test_the_same_request_is_the_same_operation(clients: ProjectClients) -> None:
    same = request_id()
    first, again = clients.insert("one", same), clients.insert("one", same)
    assert first.name == again.name
    assert clients.project.alive() == ["one"]
    with pytest.raises(BadRequest, match="another request"):
        clients.insert("two", same)
    with pytest.raises(Conflict):
        clients.insert("one", request_id())
    with pytest.raises(BadRequest, match="valid UUID"):
        clients.insert("three", "00000000-0000-0000-0000-000000000000")


def test_a_request_is_known_again_after_its_instance_has_gone_but_not_for_ever(
    clients: ProjectClients,
) -> None:
    same = request_id()
    made = clients.insert("one", same)
    clients.wait(made)
    clients.wait(clients.delete("one"))
    assert clients.insert("one", same).name == made.name
    assert clients.project.alive() == []
    clients.clock.advance(clients.project.request_seconds)
    assert clients.insert("one", same).name != made.name
    assert clients.project.alive() == ["one"]


def test_what_overrides_a_template_is_merged_with_it(clients: ProjectClients) -> None:
    """Merge objects; a list, such as metadata, replaces that of the template."""
    items = [{"key": "join", "value": "token"}]
    instance = clients.running("one", labels={"castor-job": "digits"}, metadata={"items": items})
    assert dict(instance.labels) == {"castor-deployment": "test", "castor-job": "digits"}
    assert [item.key for item in instance.metadata.items] == ["join"]
    assert instance.scheduling.provisioning_model == "SPOT"
    on_demand = {"provisioning_model": "STANDARD", "on_host_maintenance": "TERMINATE"}
    with pytest.raises(BadRequest, match="instanceTerminationAction"):
        clients.insert("two", scheduling=on_demand)


def test_a_filter_lets_through_what_it_says(clients: ProjectClients) -> None:
    for name, job in (("a", "digits"), ("b", "words"), ("c", "digits")):
        clients.insert(name, labels={"castor-controller": "ours", "castor-job": job})
    clients.insert("d")
    assert clients.listed("labels.castor-controller=ours") == ["a", "b", "c"]
    both = 'labels.castor-controller="ours" AND labels.castor-job="digits"'
    assert clients.listed(both) == ["a", "c"]
    assert clients.listed("(labels.castor-job = digits) (name != a)") == ["c"]
    assert clients.listed("labels.castor-job:*") == ["a", "b", "c"]
    assert clients.listed("name eq [ab]") == ["a", "b"]
    assert clients.listed("status=RUNNING") == []
    assert clients.listed("scheduling.preemptible=true name=d") == ["d"]
    with pytest.raises(BadRequest, match="There is no field label"):
        clients.listed("label.castor-controller=ours")


def test_pages_hold_everything_once(clients: ProjectClients) -> None:
    for number in range(5):
        clients.insert(f"n{number}")
    request = compute_v1.ListInstancesRequest(project=clients.name, zone=ZONE, max_results=2)
    pages = [
        [instance.name for instance in page.items]
        for page in clients.instances.list(request).pages
    ]
    assert pages == [["n0", "n1"], ["n2", "n3"], ["n4"]]
    clients.project.page = 2
    everything = clients.instances.aggregated_list(project=clients.name)
    assert [instance.name for _, scope in everything for instance in scope.instances] == [
        f"n{number}" for number in range(5)
    ]


def test_all_zones_are_listed_at_once(clients: ProjectClients) -> None:
    clients.insert("one")
    scopes = dict(clients.instances.aggregated_list(project=clients.name))
    assert [instance.name for instance in scopes[f"zones/{ZONE}"].instances] == ["one"]
    assert scopes["zones/us-central1-b"].warning.code == "NO_RESULTS_ON_PAGE"


def test_a_zone_that_does_not_answer_is_told_of(clients: ProjectClients) -> None:
    """Fail the whole list unless `returnPartialSuccess` is set."""
    clients.insert("one")
    clients.project.unreachable.add("us-central1-b")
    whole = clients.send("GET", "aggregated/instances")
    assert whole.status_code == 503
    part = clients.send("GET", "aggregated/instances", returnPartialSuccess="true").json()
    assert part["items"]["zones/us-central1-b"]["warning"]["code"] == "UNREACHABLE"
    assert part["unreachables"][0].endswith("/zones/us-central1-b")
    assert len(part["items"][f"zones/{ZONE}"]["instances"]) == 1
    assert clients.send("GET", "zones/us-central1-b/instances").status_code == 503


def test_a_new_instance_may_be_known_late(clients: ProjectClients) -> None:
    clients.project.lag_seconds = 10.0
    clients.wait(clients.insert("one"))
    assert clients.listed() == []
    with pytest.raises(NotFound):
        clients.delete("one")
    with pytest.raises(Conflict):
        clients.insert("one")
    clients.clock.advance(5.0)
    assert clients.listed() == ["one"]
    assert clients.project.alive() == ["one"]


def test_labels_change_for_whoever_has_seen_them(clients: ProjectClients) -> None:
    instance = clients.running("one")

    def change(fingerprint: str) -> None:
        wanted = compute_v1.InstancesSetLabelsRequest(
            labels={"castor-job": "other"}, label_fingerprint=fingerprint
        )
        clients.instances.set_labels_unary(
            project=clients.name,
            zone=ZONE,
            instance="one",
            instances_set_labels_request_resource=wanted,
        )

    change(instance.label_fingerprint)
    assert clients.listed("labels.castor-job=other") == ["one"]
    with pytest.raises(PreconditionFailed):
        change(instance.label_fingerprint)


def test_projects_do_not_see_each_other(clients: ProjectClients, fake: object) -> None:
    clients.insert("one")
    other = ProjectClients(clients.fake)
    assert other.listed() == []
    other.insert("one")
    assert clients.project.of("compute.instances.insert")[0].body["name"] == "one"
    assert clients.project.calls["compute.instances.insert"] == 1


@pytest.mark.gcp
def test_what_is_protected_is_not_deleted(clients: ProjectClients) -> None:
    clients.running("one", deletion_protection=True)
    with pytest.raises(BadRequest, match="protected against deletion"):
        clients.delete("one")
    assert clients.project.alive() == ["one"]


@pytest.mark.gcp
def test_a_stopped_instance_keeps_its_name(clients: ProjectClients) -> None:
    clients.running("one")
    clients.wait(clients.instances.stop_unary(project=clients.name, zone=ZONE, instance="one"))
    assert clients.status("one") == "TERMINATED"
    assert clients.project.alive() == []
    with pytest.raises(Conflict):
        clients.insert("one")
