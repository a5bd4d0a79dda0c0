"""Contract of `providers.base.Provider` for orders that wait in a cloud's queue, as tests.

Subclass `QueueConformance` and define a fixture `cloud`: an empty cloud with a flex-start offer
that has no capacity yet.
"""

from __future__ import annotations

from typing import Protocol

import pytest

from autoscaler.domain.instance import (
    CONTROLLER_TAG,
    INSTANCE_TAG,
    JOB_TAG,
    CloudInstance,
    CloudState,
    LaunchRequest,
)
from autoscaler.domain.offer import Purchase
from providers.base import Provider
from tests.conformance.provider import OURS, ConformanceCloud, end, find, state


class QueueCloud(ConformanceCloud, Protocol):
    """Operations that the suite needs of a cloud with a queue, beside the contract."""

    def give_capacity(self, offer_id: str) -> None:
        """Provide capacity for one order of the offer, now or as time passes."""
        ...


def queue_offer(provider: Provider) -> str:
    flex_start = [offer for offer in provider.offers() if offer.purchase is Purchase.FLEX_START]
    return min(flex_start, key=lambda offer: offer.usd_per_hour).id


def launch_queued(provider: Provider, token: str) -> CloudInstance:
    tags = {CONTROLLER_TAG: OURS, JOB_TAG: "digits", INSTANCE_TAG: f"digits-{token}"}
    return provider.launch(LaunchRequest(token, queue_offer(provider), tags, f"join {token}"))


def queued_ids(provider: Provider) -> list[str]:
    return [
        instance.id for instance in provider.instances() if instance.state is CloudState.QUEUED
    ]


class QueueConformance:
    @pytest.fixture
    def provider(self, cloud: QueueCloud) -> Provider:
        return cloud.connect(OURS)

    def test_orders_are_expected_to_wait(self, provider: Provider) -> None:
        for offer in provider.offers():
            assert (offer.fill_seconds > 0) is (offer.purchase is Purchase.FLEX_START)

    def test_an_order_without_capacity_is_queued(self, provider: Provider) -> None:
        launched = launch_queued(provider, "1")
        assert (launched.state, launched.launched_seconds) == (CloudState.QUEUED, None)
        assert find(provider, launched.id) == launched
        assert launch_queued(provider, "1").id == launched.id
        assert [instance.id for instance in provider.instances()] == [launched.id]

    def test_a_queued_order_launches_when_it_gets_capacity(
        self, cloud: QueueCloud, provider: Provider
    ) -> None:
        orders = {
            order.id: order
            for order in (launch_queued(provider, "1"), launch_queued(provider, "2"))
        }
        cloud.give_capacity(queue_offer(provider))
        cloud.wait_until(lambda: len(queued_ids(provider)) == 1)
        (second,) = queued_ids(provider)
        (first,) = (order for order in orders.values() if order.id != second)
        booting = find(provider, first.id)
        assert booting is not None
        assert booting.launched_seconds is not None
        assert booting.tags == first.tags
        cloud.wait_until(lambda: state(provider, first.id) is CloudState.RUNNING)
        running = find(provider, first.id)
        assert running is not None
        assert running.launched_seconds == booting.launched_seconds
        assert queued_ids(provider) == [second]
        ended = end(cloud, provider, first.id)
        assert ended.launched_seconds == booting.launched_seconds
        assert list(cloud.remains(first.id)) == []

    def test_terminate_removes_an_order_from_the_queue(
        self, cloud: QueueCloud, provider: Provider
    ) -> None:
        terminated, kept = launch_queued(provider, "1"), launch_queued(provider, "2")
        ended = end(cloud, provider, terminated.id)
        assert ended.launched_seconds is None
        assert ended.ended_seconds is not None
        assert list(cloud.remains(terminated.id)) == []
        cloud.give_capacity(terminated.offer)
        cloud.wait_until(lambda: state(provider, kept.id) is CloudState.RUNNING)
        assert find(provider, terminated.id) == ended

    def test_a_restarted_controller_adopts_queued_orders(
        self, cloud: QueueCloud, provider: Provider
    ) -> None:
        launched = launch_queued(provider, "1")
        restarted = cloud.connect(OURS)
        cloud.wait_until(lambda: find(restarted, launched.id) is not None)
        assert find(restarted, launched.id) == launched
        cloud.give_capacity(launched.offer)
        cloud.wait_until(lambda: state(restarted, launched.id) is CloudState.RUNNING)
        end(cloud, restarted, launched.id)
        assert list(cloud.remains(launched.id)) == []
