"""Messages between a node agent and the training process on its instance."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.domain.goodput import StepParameters
from autoscaler.domain.job import BatchSpec

SOCKET_VARIABLE = "CASTOR_SOCKET"
JOB_VARIABLE = "CASTOR_JOB"
BATCH_LOG_VARIABLE = "CASTOR_BATCH_LOG"
SHARD_VARIABLE = "CASTOR_SHARD"
"""Number of devices that hold one copy of the model, in the environment of sharded jobs."""
RESTARTS = "restarts"
"""Name in place of an engine in reports of restartable jobs, which have no session."""


class Engine(StrEnum):
    """Engine by which the instances of a job train together.

    QUORUM: torchft's quorum. ROSTER: Castor's own roster, without torchft. With both, a joiner
    gets the state from the members.
    """

    QUORUM = "quorum"
    ROSTER = "roster"


@dataclass(frozen=True, slots=True)
class TrainingSetup:
    """Setup that a replica receives once, before it joins.

    `bind_address` is the only address on which the replica may open ports. `peer_token` authorises
    the replicas of one job to read each other's state. `attempt` counts starts after failures. The
    scheme of `lighthouse` names its engine: `roster:`, or torchft's `http:`. With a `depot`, a
    place in a cloud's storage, a checkpoint counts once it is uploaded; the agent renews the
    credential in `grant_file`. `checkpoint_owner` is set if jobs may share the directory: the
    directory must hold the owner's checkpoints, none, or those of the job that it `adopts`.
    """

    job: str
    replica: str
    attempt: int
    device_kind: str
    lighthouse: str | None
    bind_address: str
    peer_token: str
    checkpoint_directory: str
    checkpoint_interval_seconds: float
    checkpoints_kept: int
    batch: BatchSpec
    total_examples: float | None
    heartbeat_timeout_seconds: float
    collective_timeout_seconds: float
    depot: str | None = None
    grant_file: str | None = None
    checkpoint_owner: str | None = None
    adopts: str | None = None


@dataclass(frozen=True, slots=True)
class TrainingDirective:
    """Message to a running replica. The last message stays in force.

    `drain`: leave at a step boundary. `throughput` is the controller's fit for this job on this
    kind of device; the job chooses its batch by it, also without the controller.
    `checkpoint_interval_seconds` replaces the setup's interval; None keeps that.
    """

    drain: bool = False
    throughput: StepParameters | None = None
    checkpoint_interval_seconds: float | None = None
