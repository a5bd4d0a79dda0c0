"""Run of an instance's agent, from its first start or from the state of an earlier agent."""

from __future__ import annotations

import os
from contextlib import suppress

from autoscaler.clock import Clock
from autoscaler.node.agent import Agent
from autoscaler.node.disk import Disk
from autoscaler.node.instance import DEFAULT_SETTINGS, Instance, NodeSettings
from autoscaler.node.joining import join
from autoscaler.node.script.environment import base_environment
from autoscaler.node.script.preparation import placed
from autoscaler.node.state import AgentState, load_state
from autoscaler.node.user_data import UserData
from autoscaler.node.watchdog import Watchdog
from autoscaler.wire.client import NodeClient
from providers.metadata import InstanceMetadata


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
    client = NodeClient(user_data.controller, state.token if state else None)
    if state is None:
        reply = join(client, user_data, metadata, instance.power, clock)
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
