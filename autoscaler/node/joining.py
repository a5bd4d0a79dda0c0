"""How an instance gets in."""

from __future__ import annotations

import logging
from typing import Final

from autoscaler.back_off import BackOff
from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError, Unavailable
from autoscaler.node.power import PowerButton
from autoscaler.node.user_data import UserData
from autoscaler.wire.client import NodeClient
from autoscaler.wire.messages import JoinReply, JoinRequest
from providers.metadata import InstanceMetadata, identity_proof

_log = logging.getLogger(__name__)

JOIN_SECONDS: Final = 900.0
"""So long the agent looks for its controller; its token is no longer good then."""


def join(
    client: NodeClient,
    user_data: UserData,
    metadata: InstanceMetadata,
    power: PowerButton,
    clock: Clock,
) -> JoinReply:
    """Exchange the token for work. An instance that is not let in is powered off.

    Raises:
        CastorError: it was not let in.
        Unavailable: no controller has answered for long.
    """
    deadline_seconds = clock.monotonic() + JOIN_SECONDS
    back_off = BackOff()
    while True:
        try:
            proof = identity_proof(metadata)
            return client.join(JoinRequest(user_data.join_token, user_data.instance, proof))
        except CastorError as error:
            if not isinstance(error, Unavailable) or clock.monotonic() >= deadline_seconds:
                _log.error("powering off: %s", error)  # before the machine ends us
                power.press()
                raise
            _log.warning("can't join yet: %s", error)
        clock.sleep(back_off.next_seconds())
