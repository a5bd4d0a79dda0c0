"""Contract of `providers.base.Provider` as tests, for any provider.

Subclass `ProviderConformance` and define a fixture `cloud`: an empty cloud that sells at least two
instances of its cheapest on-demand offer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from typing import Protocol

import pytest

from autoscaler.domain.errors import (
    InsufficientCapacity,
    NotFound,
    PermissionDenied,
    QuotaExceeded,
)
from autoscaler.domain.instance import (
    CONTROLLER_TAG,
    INSTANCE_TAG,
    JOB_TAG,
    CloudInstance,
    CloudState,
    LaunchRequest,
)
from autoscaler.domain.offer import Offer, Purchase
from providers.base import Provider

OURS = "deployment-a"
THEIRS = "deployment-b"


class ConformanceCloud(Protocol):
    """Operations that the suite needs of a cloud beside the contract."""

    def connect(self, controller: str) -> Provider:
        """Return a new provider for `controller`, as after a restart of the controller."""
        ...

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Advance the cloud's time until `condition` holds; fail the test if it never does."""
        ...

    def exhaust(self, provider: Provider) -> str:
        """Use up the capacity of an offer, and return its id."""
        ...

    def reclaim(self, provider: Provider, instance_id: str) -> None:
        """Reclaim the instance with notice, as the cloud would."""
        ...

    def remains(self, instance_id: str) -> Sequence[object]:
        """Return everything of the instance that still runs or is billed."""
        ...


def order(provider: Provider, token: str, controller: str = OURS) -> LaunchRequest:
    """Return an order of the cheapest on-demand offer."""
    tags = {CONTROLLER_TAG: controller, JOB_TAG: "digits", INSTANCE_TAG: f"digits-{token}"}
    return LaunchRequest(token, cheapest(provider).id, tags, user_data=f"join {token}")


def is_grouped(provider: Provider, offer_id: str) -> bool:
    """Return whether one order may name other zones beside this offer."""
    return any(offer.order_group for offer in provider.offers() if offer.id == offer_id)


def with_alternatives(provider: Provider, request: LaunchRequest) -> LaunchRequest:
    """Return the request with the other offers of its group as alternatives.

    If the offer has no group, the alternatives are all other offers without one.
    """
    offers = {offer.id: offer for offer in provider.offers()}
    group = offers[request.offer].order_group
    others = [
        offer.id
        for offer in offers.values()
        if offer.id != request.offer and offer.order_group == group
    ]
    return replace(request, alternatives=tuple(others))


def cheapest(provider: Provider) -> Offer:
    on_demand = [offer for offer in provider.offers() if offer.purchase is Purchase.ON_DEMAND]
    return min(on_demand, key=lambda offer: offer.usd_per_hour)


def find(provider: Provider, instance_id: str) -> CloudInstance | None:
    matches = [instance for instance in provider.instances() if instance.id == instance_id]
    assert len(matches) <= 1
    return matches[0] if matches else None


def state(provider: Provider, instance_id: str) -> CloudState | None:
    instance = find(provider, instance_id)
    return None if instance is None else instance.state


def launch_running(cloud: ConformanceCloud, provider: Provider, token: str) -> CloudInstance:
    instance = provider.launch(order(provider, token))
    cloud.wait_until(lambda: state(provider, instance.id) is CloudState.RUNNING)
    return instance


def end(cloud: ConformanceCloud, provider: Provider, instance_id: str) -> CloudInstance:
    provider.terminate([instance_id])
    cloud.wait_until(lambda: state(provider, instance_id) is CloudState.TERMINATED)
    ended = find(provider, instance_id)
    assert ended is not None
    return ended


class ProviderConformance:
    @pytest.fixture
    def provider(self, cloud: ConformanceCloud) -> Provider:
        return cloud.connect(OURS)

    def test_offers_have_stable_ids(self, cloud: ConformanceCloud, provider: Provider) -> None:
        ids = [offer.id for offer in provider.offers()]
        assert ids
        assert len(set(ids)) == len(ids)
        assert [offer.id for offer in cloud.connect(OURS).offers()] == ids

    def test_only_spot_offers_say_that_they_are_reclaimed(self, provider: Provider) -> None:
        for offer in provider.offers():
            assert offer.reclaims_per_hour >= 0
            assert offer.purchase is Purchase.SPOT or offer.reclaims_per_hour == 0

    def test_limits_are_of_offers_that_exist(self, provider: Provider) -> None:
        ids = {offer.id for offer in provider.offers()}
        for limit in provider.limits():
            assert limit.maximum >= 0
            assert limit.offers is None or limit.offers <= ids

    def test_a_new_deployment_owns_nothing(self, provider: Provider) -> None:
        assert list(provider.instances()) == []
        assert list(provider.interruptions()) == []

    def test_launch_returns_what_was_ordered(self, provider: Provider) -> None:
        request = order(provider, "1")
        instance = provider.launch(request)
        assert (instance.token, instance.offer) == (request.token, request.offer)
        assert request.tags.items() <= instance.tags.items()
        assert instance.state in (CloudState.PENDING, CloudState.RUNNING)
        assert instance.ended_seconds is None

    def test_a_launched_instance_runs_in_the_end(
        self, cloud: ConformanceCloud, provider: Provider
    ) -> None:
        launched = launch_running(cloud, provider, "1")
        running = find(provider, launched.id)
        assert running is not None
        assert running.tags == launched.tags
        assert running.launched_seconds == launched.launched_seconds

    def test_a_rehearsal_launches_nothing(self, provider: Provider) -> None:
        for offer in provider.offers():
            provider.rehearse(offer.id)
        assert list(provider.instances()) == []

    def test_a_console_is_text_and_empty_for_an_unknown_instance(
        self, cloud: ConformanceCloud, provider: Provider
    ) -> None:
        launched = launch_running(cloud, provider, "1")
        assert isinstance(provider.console(launched.id), str)
        assert provider.console("i-0123456789abcdef0") == ""

    def test_an_unknown_offer_launches_nothing(self, provider: Provider) -> None:
        request = order(provider, "1")
        with pytest.raises(NotFound):
            provider.launch(LaunchRequest("1", "no-such-offer", request.tags, ""))
        assert list(provider.instances()) == []

    def test_a_token_launches_once(self, provider: Provider) -> None:
        first = provider.launch(order(provider, "1"))
        assert provider.launch(order(provider, "1")).id == first.id
        assert [instance.id for instance in provider.instances()] == [first.id]

    def test_a_token_launches_once_from_many_threads(self, provider: Provider) -> None:
        request = order(provider, "1")
        with ThreadPoolExecutor(4) as pool:
            launched = list(pool.map(provider.launch, [request] * 4))
        assert len({instance.id for instance in launched}) == 1
        assert len(provider.instances()) == 1

    def test_a_token_launches_once_through_a_restart(
        self, cloud: ConformanceCloud, provider: Provider
    ) -> None:
        first = provider.launch(order(provider, "1"))
        restarted = cloud.connect(OURS)
        assert restarted.launch(order(restarted, "1")).id == first.id
        assert len(restarted.instances()) == 1

    def test_the_token_of_an_ended_instance_launches_nothing(
        self, cloud: ConformanceCloud, provider: Provider
    ) -> None:
        first = provider.launch(order(provider, "1"))
        ended = end(cloud, provider, first.id)
        assert provider.launch(order(provider, "1")) == ended
        assert len(provider.instances()) == 1

    def test_another_token_launches_another(self, provider: Provider) -> None:
        ids = {provider.launch(order(provider, token)).id for token in ("1", "2")}
        assert len(ids) == 2
        assert {instance.id for instance in provider.instances()} == ids

    def test_refused_capacity_launches_nothing(
        self, cloud: ConformanceCloud, provider: Provider
    ) -> None:
        offer = cloud.exhaust(provider)
        before = {instance.id for instance in provider.instances()}
        request = order(provider, "refused")
        with pytest.raises((InsufficientCapacity, QuotaExceeded)):
            provider.launch(LaunchRequest(request.token, offer, request.tags, ""))
        assert {instance.id for instance in provider.instances()} == before

    def test_an_order_of_several_zones_launches_one_of_them(
        self, cloud: ConformanceCloud, provider: Provider
    ) -> None:
        """Launch one instance; a provider may ignore the alternatives."""
        request = with_alternatives(provider, order(provider, "1"))
        launched = provider.launch(request)
        assert launched.offer in (request.offer, *request.alternatives)
        assert provider.launch(request).id == launched.id
        cloud.wait_until(lambda: state(provider, launched.id) is CloudState.RUNNING)
        for connected in (provider, cloud.connect(OURS)):
            assert [instance.offer for instance in connected.instances()] == [launched.offer]

    def test_an_alternative_has_the_capacity_that_the_planned_zone_lacks(
        self, cloud: ConformanceCloud, provider: Provider
    ) -> None:
        exhausted = cloud.exhaust(provider)
        before = {instance.id for instance in provider.instances()}
        request = with_alternatives(provider, replace(order(provider, "spans"), offer=exhausted))
        if not is_grouped(provider, exhausted):
            with pytest.raises((InsufficientCapacity, QuotaExceeded)):
                provider.launch(request)
            return
        launched = provider.launch(request)
        assert launched.offer in request.alternatives
        cloud.wait_until(lambda: state(provider, launched.id) is CloudState.RUNNING)
        after = {instance.id: instance.offer for instance in cloud.connect(OURS).instances()}
        assert after.keys() - before == {launched.id}
        assert after[launched.id] == launched.offer

    def test_terminate_ends_an_instance_for_good(
        self, cloud: ConformanceCloud, provider: Provider
    ) -> None:
        launched = launch_running(cloud, provider, "1")
        ended = end(cloud, provider, launched.id)
        assert ended.ended_seconds is not None
        assert ended.ended_seconds >= launched.launched_seconds
        assert ended.tags == launched.tags
        assert list(cloud.remains(launched.id)) == []

    def test_an_instance_has_no_end_before_it_is_terminated(
        self, cloud: ConformanceCloud, provider: Provider
    ) -> None:
        launched = launch_running(cloud, provider, "1")
        provider.terminate([launched.id])

        def has_ended() -> bool:
            instance = find(provider, launched.id)
            assert instance is not None
            is_terminated = instance.state is CloudState.TERMINATED
            assert (instance.ended_seconds is not None) is is_terminated
            return is_terminated

        cloud.wait_until(has_ended)

    def test_terminate_ends_an_instance_that_has_not_booted(
        self, cloud: ConformanceCloud, provider: Provider
    ) -> None:
        launched = provider.launch(order(provider, "1"))
        end(cloud, provider, launched.id)
        assert list(cloud.remains(launched.id)) == []

    def test_terminate_may_be_repeated(self, cloud: ConformanceCloud, provider: Provider) -> None:
        launched = provider.launch(order(provider, "1"))
        provider.terminate([launched.id, launched.id])
        ended = end(cloud, provider, launched.id)
        provider.terminate([launched.id])
        assert find(provider, launched.id) == ended

    def test_terminate_ignores_unknown_instances(
        self, cloud: ConformanceCloud, provider: Provider
    ) -> None:
        launched = provider.launch(order(provider, "1"))
        provider.terminate([])
        provider.terminate(["i-0000000000000000"])
        assert state(provider, launched.id) in (CloudState.PENDING, CloudState.RUNNING)
        provider.terminate(["i-0000000000000000", launched.id])
        cloud.wait_until(lambda: state(provider, launched.id) is CloudState.TERMINATED)

    def test_terminate_spares_the_others(
        self, cloud: ConformanceCloud, provider: Provider
    ) -> None:
        spared = launch_running(cloud, provider, "1")
        end(cloud, provider, provider.launch(order(provider, "2")).id)
        assert state(provider, spared.id) is CloudState.RUNNING

    def test_an_ended_instance_stays_listed(
        self, cloud: ConformanceCloud, provider: Provider
    ) -> None:
        ended = end(cloud, provider, provider.launch(order(provider, "1")).id)
        assert list(cloud.connect(OURS).instances()) == [ended]

    def test_deployments_do_not_see_each_other(
        self, cloud: ConformanceCloud, provider: Provider
    ) -> None:
        others = cloud.connect(THEIRS)
        theirs = others.launch(order(others, "1", THEIRS))
        ours = provider.launch(order(provider, "1"))
        assert ours.id != theirs.id
        assert [instance.id for instance in provider.instances()] == [ours.id]
        assert [instance.id for instance in others.instances()] == [theirs.id]

    def test_deployments_can_not_end_each_other(
        self, cloud: ConformanceCloud, provider: Provider
    ) -> None:
        ours = launch_running(cloud, provider, "1")
        others = cloud.connect(THEIRS)
        with suppress(PermissionDenied):
            others.terminate([ours.id])
        end(cloud, provider, provider.launch(order(provider, "2")).id)
        assert state(provider, ours.id) is CloudState.RUNNING

    def test_a_restarted_controller_adopts_what_it_owns(
        self, cloud: ConformanceCloud, provider: Provider
    ) -> None:
        launched = launch_running(cloud, provider, "1")
        restarted = cloud.connect(OURS)
        adopted = restarted.instances()
        assert [instance.id for instance in adopted] == [launched.id]
        assert adopted[0].tags[INSTANCE_TAG] == launched.tags[INSTANCE_TAG]
        assert adopted[0].launched_seconds == launched.launched_seconds
        end(cloud, restarted, launched.id)
        assert list(cloud.remains(launched.id)) == []

    def test_a_reclaim_is_reported_until_the_instance_has_ended(
        self, cloud: ConformanceCloud, provider: Provider
    ) -> None:
        taken = launch_running(cloud, provider, "1")
        launch_running(cloud, provider, "2")
        cloud.reclaim(provider, taken.id)
        cloud.wait_until(lambda: len(provider.interruptions()) > 0)
        (notice,) = provider.interruptions()
        assert notice.instance == taken.id
        assert notice.reclaim_seconds >= notice.notice_seconds >= taken.launched_seconds
        assert list(cloud.connect(OURS).interruptions()) == [notice]
        cloud.wait_until(lambda: state(provider, taken.id) is CloudState.TERMINATED)
        assert list(provider.interruptions()) == []
        ended = find(provider, taken.id)
        assert ended is not None
        assert ended.ended_seconds is not None
        assert ended.ended_seconds >= notice.reclaim_seconds
        assert list(cloud.remains(taken.id)) == []
