"""Agents of the members of a gang, with a stand-in for torchrun."""

from __future__ import annotations

import sys

from autoscaler.domain.gang import PEER_ENDED_STATUS, GangPlace
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobSpec
from tests.node.site import STEADY, Site, wait_until

QUIET = (sys.executable, "-c", "import sys, time; time.sleep(1); sys.exit(int(sys.argv[1]))")


def place(index: int, generation: int = 1, address: str | None = None) -> GangPlace:
    return GangPlace("job.1", generation, index, 2, address)


def test_a_leader_reserves_a_port_and_starts_again_with_each_generation(site: Site) -> None:
    controller = site.serve(JobSpec("job", STEADY))
    controller.want(place=place(0))
    instance = site.launch()
    instance.wait_for(InstancePhase.READY)
    wait_until(lambda: controller.reports[-1].rendezvous, "an address")
    address = controller.reports[-1].rendezvous
    assert address is not None and address.startswith("127.0.0.1:")
    controller.want(place=place(0, address=address))
    instance.wait_for(InstancePhase.TRAINING)
    assert controller.reports[-1].generation == 1
    assert controller.reports[-1].rendezvous == address
    wait_until(lambda: f"gang 0 2 {address} job.1.1 127.0.0.1" in controller.log)
    controller.want(place=place(0, generation=2))
    wait_until(lambda: controller.reports[-1].is_generation_over, "the end of its start")
    instance.wait_for(InstancePhase.READY)
    wait_until(lambda: controller.reports[-1].rendezvous, "another address")
    second = controller.reports[-1].rendezvous
    assert second is not None
    controller.want(place=place(0, generation=2, address=second))
    instance.wait_for(InstancePhase.TRAINING)
    wait_until(lambda: f"gang 0 2 {second} job.1.2 127.0.0.1" in controller.log)
    assert not controller.failures


def test_a_follower_whose_script_ends_well_completes_nothing(site: Site) -> None:
    controller = site.serve(JobSpec("job", (*QUIET, "0")))
    controller.want(place=place(1, address="127.0.0.1:1"))
    instance = site.launch()
    instance.wait_for(InstancePhase.STARTING)
    instance.wait_for(InstancePhase.WAITING)
    last = controller.reports[-1]
    assert (last.generation, last.is_generation_over, last.is_complete) == (1, False, False)
    assert not controller.failures


def test_an_end_because_of_another_member_is_no_failure_and_ends_the_generation(
    site: Site,
) -> None:
    controller = site.serve(JobSpec("job", (*QUIET, str(PEER_ENDED_STATUS))))
    controller.want(place=place(1, address="127.0.0.1:1"))
    instance = site.launch()
    instance.wait_for(InstancePhase.STARTING)
    wait_until(lambda: controller.reports[-1].is_generation_over, "the end of its start")
    controller.want(place=place(1, generation=2))
    instance.wait_for(InstancePhase.READY)
    assert not controller.failures
    assert controller.reports[-1].attempt == 1
