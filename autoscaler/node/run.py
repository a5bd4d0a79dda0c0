"""Run of an instance's agent, from its first start or from the state of an earlier agent."""

from __future__ import annotations

import logging
import os
import secrets
from contextlib import suppress
from typing import Final

from autoscaler.back_off import BackOff
from autoscaler.clock import Clock
from autoscaler.domain.errors import CastorError, Unavailable
from autoscaler.node.agent import Agent
from autoscaler.node.disk import Disk
from autoscaler.node.instance import DEFAULT_SETTINGS, Instance, NodeSettings
from autoscaler.node.power import PowerButton
from autoscaler.node.script.environment import base_environment
from autoscaler.node.script.preparation import placed
from autoscaler.node.state import AgentState, load_state
from autoscaler.node.user_data import UserData
from autoscaler.node.watchdog import Watchdog
from autoscaler.wire.messages import JoinReply, JoinRequest
from autoscaler.wire.node_client import NodeClient
from providers.metadata import InstanceMetadata, identity_proof

_log = logging.getLogger(__name__)

_JOIN_SECONDS: Final = 900.0
"""Time for which the agent tries to join, in seconds. The start's own limit may end it before."""
_KEY_BYTES: Final = 16


def run_agent(
    user_data: UserData,
    metadata: InstanceMetadata,
    clock: Clock,
    settings: NodeSettings = DEFAULT_SETTINGS,
) -> None:
    """Run the agent of this instance until the instance ends.

    An instance that can't join is powered off.

    Raises:
        NotAllowed, UnknownInstance: the controller refuses the instance.
        NotFound: the instance's proof of identity is missing from its place in the metadata.
        Unavailable: no controller answered while the token was valid.
        SpecError: a secret of the job can't be found, or the saved state has another version.
    """
    disk = Disk(metadata.directory)
    environment = base_environment(os.environ)
    instance = Instance(user_data.instance, metadata, disk, environment, settings)
    state, joined = load_state(disk.state), None
    client = NodeClient(
        user_data.controller, state.token if state else None, authority=user_data.authority
    )
    if state is None:
        reply = _join(client, user_data, metadata, instance.power, clock)
        joined = placed(reply.assignment, disk)
        state = AgentState(
            reply.token,
            reply.heartbeat_seconds,
            reply.lease_seconds,
            reply.drain_seconds,
            joined,
        )
        with suppress(OSError):  # a full disk
            disk.answered.touch()
    Agent(instance, client, state, joined, clock, Watchdog(os.environ, clock)).run()


def _join(
    client: NodeClient,
    user_data: UserData,
    metadata: InstanceMetadata,
    power: PowerButton,
    clock: Clock,
) -> JoinReply:
    """Exchange the join token for an assignment; power the instance off if that fails.

    All tries have the same key, so that a lost reply costs nothing.

    Raises:
        CastorError: the controller refused the instance.
        Unavailable: no controller answered within `_JOIN_SECONDS`.
    """
    deadline_seconds = clock.monotonic() + _JOIN_SECONDS
    back_off, key = BackOff(), secrets.token_urlsafe(_KEY_BYTES)
    while True:
        try:
            proof = identity_proof(metadata)
            names = user_data.join_token, user_data.instance
            return client.join(JoinRequest(*names, proof, metadata.accelerators, key))
        except CastorError as error:
            if not isinstance(error, Unavailable) or clock.monotonic() >= deadline_seconds:
                _log.error("powering off: %s", error)  # before the machine ends this process
                power.press()
                raise
            _log.warning("can't join yet: %s", error)
        clock.sleep(back_off.next_seconds())
