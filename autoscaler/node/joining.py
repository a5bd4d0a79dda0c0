"""Joining of an instance to its controller."""

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
"""Time for which the agent tries to join, in seconds. The start's own limit may end it before."""


def join(
    client: NodeClient,
    user_data: UserData,
    metadata: InstanceMetadata,
    power: PowerButton,
    clock: Clock,
) -> JoinReply:
    """Exchange the join token for an assignment; power the instance off if that fails.

    Raises:
        CastorError: the controller refused the instance.
        Unavailable: no controller answered within `JOIN_SECONDS`.
    """
    deadline_seconds = clock.monotonic() + JOIN_SECONDS
    back_off = BackOff()
    while True:
        try:
            proof = identity_proof(metadata)
            return client.join(
                JoinRequest(user_data.join_token, user_data.instance, proof, metadata.accelerators)
            )
        except CastorError as error:
            if not isinstance(error, Unavailable) or clock.monotonic() >= deadline_seconds:
                _log.error("powering off: %s", error)  # before the machine ends this process
                power.press()
                raise
            _log.warning("can't join yet: %s", error)
        clock.sleep(back_off.next_seconds())
