"""Console output of instances that ended, or were given up, before their agent joined."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import Final

from autoscaler.controller.act.intents import Workers
from autoscaler.controller.offers.market import Market
from autoscaler.domain.errors import CastorError
from autoscaler.domain.instance import HeldInstance

_log = logging.getLogger(__name__)

_MOST_CHARACTERS: Final = 65_536


class Consoles:
    """Requests for the console output, which alone tells why an instance did not start.

    `keep` stores the output of an instance. The calls are made in workers, and their errors are
    only logged.
    """

    def __init__(self, market: Market, workers: Workers) -> None:
        self._market = market
        self._workers = workers
        self.keep: Callable[[HeldInstance, str], None] = lambda held, text: None

    def fetch(self, held: HeldInstance) -> None:
        """Store the last output of an instance that the cloud has launched."""
        if held.cloud_id is not None and held.seen_seconds is None:
            self._workers.submit(partial(self._fetch, held, held.cloud_id))

    def _fetch(self, held: HeldInstance, cloud_id: str) -> None:
        try:
            text = self._market.console(held.offer, cloud_id)
        except CastorError as error:
            _log.warning("the console of %s can't be read: %s", held.id, error)
            return
        if text:
            self.keep(held, text[-_MOST_CHARACTERS:])
