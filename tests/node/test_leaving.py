"""Ends of agents: drained, reclaimed, or without a controller. As in test_agent."""

from __future__ import annotations

import psutil

from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobSpec
from autoscaler.wire.messages import Wanted
from tests.node.site import STEADY, Site, wait_until

FOR_EVER = JobSpec("job", STEADY)


def job(*command: str, **environment: str) -> JobSpec:
    return JobSpec("job", command or STEADY, environment=environment)


def test_a_drained_instance_leaves_at_a_step_and_stays_away(site: Site) -> None:
    controller = site.serve(FOR_EVER)
    instance = site.launch()
    instance.wait_for(InstancePhase.TRAINING)
    controller.want(wanted=Wanted.DRAIN)
    instance.wait_for(InstancePhase.DRAINED)
    assert InstancePhase.DRAINING in controller.phases("job-0")
    assert not instance.is_complete
    assert not controller.failures
    assert not instance.processes("steady.py")
    assert len(instance.starts()) == 1


def test_an_agent_killed_while_it_drains_does_not_start_again(site: Site) -> None:
    controller = site.serve(job(DEAF="1"))
    instance = site.launch()
    instance.wait_for(InstancePhase.TRAINING)
    controller.want(wanted=Wanted.DRAIN)
    instance.wait_for(InstancePhase.DRAINING)
    controller.is_away = True
    instance.kill_agent()
    psutil.Process(instance.starts()[-1]).kill()
    wait_until(lambda: not instance.processes("steady.py"), "the end of the script")
    controller.is_away = False
    instance.wait_for(InstancePhase.DRAINED)
    assert not controller.failures
    assert len(instance.starts()) == 1


def test_a_script_that_does_not_leave_is_ended(site: Site) -> None:
    controller = site.serve(job(DEAF="1"))
    controller.want(drain_seconds=0.5)
    instance = site.launch()
    instance.wait_for(InstancePhase.TRAINING)
    controller.want(wanted=Wanted.DRAIN)
    instance.wait_for(InstancePhase.DRAINED)
    assert not controller.failures


def test_a_script_has_as_long_to_leave_as_the_controller_says(site: Site) -> None:
    controller = site.serve(job(DEAF="1"))
    controller.want(drain_seconds=0.5)
    instance = site.launch()
    instance.wait_for(InstancePhase.TRAINING)
    controller.want(wanted=Wanted.DRAIN, drain_seconds=600.0)
    instance.wait_for(InstancePhase.DRAINING)
    heard = len(controller.reports)
    wait_until(lambda: len(controller.reports) > heard + 10, "more than half a second")
    assert instance.phase is InstancePhase.DRAINING
    controller.want(drain_seconds=0.5)
    instance.wait_for(InstancePhase.DRAINED)


def test_what_does_not_train_yet_is_drained_at_once(site: Site) -> None:
    controller = site.serve(job("sleep", "600"))
    instance = site.launch()
    wait_until(lambda: instance.processes("sleep"), "the script")
    controller.want(wanted=Wanted.DRAIN)
    instance.wait_for(InstancePhase.DRAINED, seconds=30)
    assert not instance.processes("sleep")
    assert not controller.failures


def test_a_reclaim_drains_without_being_told_to(site: Site) -> None:
    site.notice_seconds = 6.0
    controller = site.serve(FOR_EVER)
    instance = site.launch()
    instance.wait_for(InstancePhase.TRAINING)
    controller.is_away = True
    instance.reclaim()
    wait_until(lambda: not instance.processes("steady.py"), "leaving")
    assert not instance.is_off, "it left before the deadline"
    controller.is_away = False
    instance.wait_for(InstancePhase.DRAINED)
    notice = (instance.disk.parent / "reclaim-notice").read_text()
    assert controller.reports[-1].reclaim_seconds == float(notice)
    assert "left" in instance.trace()
    assert not controller.failures


def test_what_is_taken_back_ends_by_itself_when_it_has_left_and_said_so(site: Site) -> None:
    site.notice_seconds = 600.0
    controller = site.serve(FOR_EVER)
    instance = site.launch()
    instance.wait_for(InstancePhase.TRAINING)
    instance.reclaim()
    wait_until(lambda: instance.is_off, "its end, long before the reclaim")
    assert "left" in instance.trace()
    assert instance.phase is InstancePhase.DRAINED
    assert not controller.failures


def test_a_script_may_use_all_of_a_reclaims_notice(site: Site) -> None:
    controller = site.serve(job(SAVE_SECONDS="1"))
    controller.want(drain_seconds=0.2)
    instance = site.launch()
    instance.wait_for(InstancePhase.TRAINING)
    instance.reclaim()
    instance.wait_for(InstancePhase.DRAINED)
    assert "left" in instance.trace()


def test_a_deaf_script_is_gone_before_the_reclaim(site: Site) -> None:
    site.notice_seconds = 4.0
    controller = site.serve(job(DEAF="1"))
    instance = site.launch()
    instance.wait_for(InstancePhase.TRAINING)
    instance.reclaim()
    instance.wait_for(InstancePhase.DRAINED)
    assert not controller.failures


def test_an_instance_that_nobody_answers_for_long_drains_and_powers_off(site: Site) -> None:
    controller = site.serve(FOR_EVER)
    controller.lease_seconds = 1.5
    instance = site.launch()
    instance.wait_for(InstancePhase.TRAINING)
    controller.is_away = True
    instance.kill_agent()
    wait_until(lambda: instance.is_off, "the end of the lease")
    assert "left" in instance.trace()
