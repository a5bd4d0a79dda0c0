"""Instances, by Google's own client: made, found, filtered, listed by pages, ended."""

from __future__ import annotations

from datetime import datetime

import pytest
from google.api_core.exceptions import BadRequest, Conflict, NotFound, PreconditionFailed
from google.cloud import compute_v1

from tests.fakes.gcp.ground import START_SECONDS, ZONE, Ground, request_id


def test_an_instance_is_made_runs_and_is_deleted(ground: Ground) -> None:
    made = ground.insert("one")
    assert made.status == compute_v1.Operation.Status.PENDING
    assert ground.status("one") == "PROVISIONING"
    ground.clock.advance(2.5)
    assert ground.status("one") == "STAGING"
    done = ground.wait(made)
    assert done.status == compute_v1.Operation.Status.DONE
    assert ground.clock.now() >= START_SECONDS + 5.0
    found = ground.instances.get(project=ground.name, zone=ZONE, instance="one")
    assert (found.status, found.id, found.name) == ("RUNNING", done.target_id, "one")
    assert datetime.fromisoformat(found.creation_timestamp).timestamp() == START_SECONDS
    assert found.machine_type.endswith(f"/zones/{ZONE}/machineTypes/g2-standard-4")
    assert found.guest_accelerators[0].accelerator_count == 1
    deleted = ground.delete("one")
    assert ground.status("one") == "STOPPING"
    assert ground.project.alive() == []
    assert ground.project.remaining() == ["one"]
    ground.wait(deleted)
    with pytest.raises(NotFound):
        ground.status("one")
    with pytest.raises(NotFound):
        ground.delete("one")
    assert ground.listed() == []


def test_the_same_request_is_the_same_operation(ground: Ground) -> None:
    same = request_id()
    first, again = ground.insert("one", same), ground.insert("one", same)
    assert first.name == again.name
    assert ground.project.alive() == ["one"]
    with pytest.raises(BadRequest, match="another request"):
        ground.insert("two", same)
    with pytest.raises(Conflict):
        ground.insert("one", request_id())
    with pytest.raises(BadRequest, match="valid UUID"):
        ground.insert("three", "00000000-0000-0000-0000-000000000000")


def test_a_request_is_known_again_after_its_instance_has_gone_but_not_for_ever(
    ground: Ground,
) -> None:
    same = request_id()
    made = ground.insert("one", same)
    ground.wait(made)
    ground.wait(ground.delete("one"))
    assert ground.insert("one", same).name == made.name
    assert ground.project.alive() == []
    ground.clock.advance(ground.project.request_seconds)
    assert ground.insert("one", same).name != made.name
    assert ground.project.alive() == ["one"]


def test_what_overrides_a_template_is_merged_with_it(ground: Ground) -> None:
    """Objects are merged; a list, as that of metadata, takes the place of the template's."""
    items = [{"key": "join", "value": "token"}]
    found = ground.running("one", labels={"castor-job": "digits"}, metadata={"items": items})
    assert dict(found.labels) == {"castor-deployment": "test", "castor-job": "digits"}
    assert [item.key for item in found.metadata.items] == ["join"]
    assert found.scheduling.provisioning_model == "SPOT"
    on_demand = {"provisioning_model": "STANDARD", "on_host_maintenance": "TERMINATE"}
    with pytest.raises(BadRequest, match="instanceTerminationAction"):
        ground.insert("two", scheduling=on_demand)


def test_a_filter_lets_through_what_it_says(ground: Ground) -> None:
    for name, job in (("a", "digits"), ("b", "words"), ("c", "digits")):
        ground.insert(name, labels={"castor-controller": "ours", "castor-job": job})
    ground.insert("d")
    assert ground.listed("labels.castor-controller=ours") == ["a", "b", "c"]
    both = 'labels.castor-controller="ours" AND labels.castor-job="digits"'
    assert ground.listed(both) == ["a", "c"]
    assert ground.listed("(labels.castor-job = digits) (name != a)") == ["c"]
    assert ground.listed("labels.castor-job:*") == ["a", "b", "c"]
    assert ground.listed("name eq [ab]") == ["a", "b"]
    assert ground.listed("status=RUNNING") == []
    assert ground.listed("scheduling.preemptible=true name=d") == ["d"]
    with pytest.raises(BadRequest, match="There is no field label"):
        ground.listed("label.castor-controller=ours")


def test_pages_hold_everything_once(ground: Ground) -> None:
    for number in range(5):
        ground.insert(f"n{number}")
    request = compute_v1.ListInstancesRequest(project=ground.name, zone=ZONE, max_results=2)
    pages = [[one.name for one in page.items] for page in ground.instances.list(request).pages]
    assert pages == [["n0", "n1"], ["n2", "n3"], ["n4"]]
    ground.project.page = 2
    everything = ground.instances.aggregated_list(project=ground.name)
    assert [one.name for _, scope in everything for one in scope.instances] == [
        f"n{number}" for number in range(5)
    ]


def test_all_zones_are_listed_at_once(ground: Ground) -> None:
    ground.insert("one")
    scopes = dict(ground.instances.aggregated_list(project=ground.name))
    assert [one.name for one in scopes[f"zones/{ZONE}"].instances] == ["one"]
    assert scopes["zones/us-central1-b"].warning.code == "NO_RESULTS_ON_PAGE"


def test_a_zone_that_does_not_answer_is_told_of(ground: Ground) -> None:
    """Without `returnPartialSuccess` the whole list fails."""
    ground.insert("one")
    ground.project.unreachable.add("us-central1-b")
    whole = ground.send("GET", "aggregated/instances")
    assert whole.status_code == 503
    part = ground.send("GET", "aggregated/instances", returnPartialSuccess="true").json()
    assert part["items"]["zones/us-central1-b"]["warning"]["code"] == "UNREACHABLE"
    assert part["unreachables"][0].endswith("/zones/us-central1-b")
    assert len(part["items"][f"zones/{ZONE}"]["instances"]) == 1
    assert ground.send("GET", "zones/us-central1-b/instances").status_code == 503


def test_a_new_instance_may_be_known_late(ground: Ground) -> None:
    ground.project.lag_seconds = 10.0
    ground.wait(ground.insert("one"))
    assert ground.listed() == []
    with pytest.raises(NotFound):
        ground.delete("one")
    with pytest.raises(Conflict):
        ground.insert("one")
    ground.clock.advance(5.0)
    assert ground.listed() == ["one"]
    assert ground.project.alive() == ["one"]


def test_labels_change_for_whoever_has_seen_them(ground: Ground) -> None:
    found = ground.running("one")

    def change(fingerprint: str) -> None:
        wanted = compute_v1.InstancesSetLabelsRequest(
            labels={"castor-job": "other"}, label_fingerprint=fingerprint
        )
        ground.instances.set_labels_unary(
            project=ground.name,
            zone=ZONE,
            instance="one",
            instances_set_labels_request_resource=wanted,
        )

    change(found.label_fingerprint)
    assert ground.listed("labels.castor-job=other") == ["one"]
    with pytest.raises(PreconditionFailed):
        change(found.label_fingerprint)


def test_projects_do_not_see_each_other(ground: Ground, fake: object) -> None:
    ground.insert("one")
    other = Ground(ground.fake)
    assert other.listed() == []
    other.insert("one")
    assert ground.project.of("compute.instances.insert")[0].body["name"] == "one"
    assert ground.project.calls["compute.instances.insert"] == 1


@pytest.mark.gcp
def test_what_is_protected_is_not_deleted(ground: Ground) -> None:
    ground.running("one", deletion_protection=True)
    with pytest.raises(BadRequest, match="protected against deletion"):
        ground.delete("one")
    assert ground.project.alive() == ["one"]


@pytest.mark.gcp
def test_a_stopped_instance_keeps_its_name(ground: Ground) -> None:
    ground.running("one")
    ground.wait(ground.instances.stop_unary(project=ground.name, zone=ZONE, instance="one"))
    assert ground.status("one") == "TERMINATED"
    assert ground.project.alive() == []
    with pytest.raises(Conflict):
        ground.insert("one")
