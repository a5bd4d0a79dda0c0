"""Tokens of agents: lost replies to joins, and renewal by heartbeats."""

from __future__ import annotations

from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobSpec
from tests.node.site import STEADY, Site, wait_until


def test_a_lost_reply_to_a_join_costs_nothing(site: Site) -> None:
    controller = site.serve(JobSpec("job", STEADY))
    controller.loses_replies = True
    instance = site.launch()
    wait_until(lambda: controller.joins, "the first join")
    controller.loses_replies = False
    instance.wait_for(InstancePhase.TRAINING)
    assert len(controller.joins) > 1
    (key,) = {join.key for join in controller.joins}
    assert key is not None and len(key) >= 16


def test_a_renewed_token_is_used_and_outlives_the_agent(site: Site) -> None:
    controller = site.serve(JobSpec("job", STEADY))
    instance = site.launch()
    instance.wait_for(InstancePhase.TRAINING)
    controller.want(token="lasting-job-0#renewed")
    wait_until(lambda: controller.tokens[-1].endswith("#renewed"), "the renewed token")
    controller.want(token=None)
    instance.kill_agent()
    begun = len(controller.tokens)
    wait_until(lambda: len(controller.tokens) > begun + 1, "the next agent")
    assert all(token.endswith("#renewed") for token in controller.tokens[begun:])
