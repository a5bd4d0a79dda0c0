from __future__ import annotations

from tests.service.conftest import Api


def test_offers_have_the_age_and_the_source_of_their_prices(api: Api) -> None:
    api.world.tick()
    api.world.cloud.answers = False
    api.world.clock.advance(100.0)
    small, _ = api.client.offers().offers
    assert (small.offer.id, small.price_source, small.is_stale) == ("small", "file", False)
    assert small.price_age_seconds == 100.0
    api.world.clock.advance(90 * 86400.0)
    assert api.client.offers().offers[0].is_stale
