"""What a node agent and the training process beside it tell each other."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from autoscaler.domain.goodput import StepParameters
from autoscaler.domain.job import BatchSpec

SOCKET_VARIABLE = "CASTOR_SOCKET"
JOB_VARIABLE = "CASTOR_JOB"
BATCH_LOG_VARIABLE = "CASTOR_BATCH_LOG"


class Engine(StrEnum):
    """How the instances of a job come to train together.

    QUORUM: torchft's. ROSTER: a roster of our own, without torchft. With both, a joiner gets the
    state from the members.
    """

    QUORUM = "quorum"
    ROSTER = "roster"


@dataclass(frozen=True, slots=True)
class TrainingSetup:
    """What a replica is told once, before it joins.

    `bind_address` is the only address on which it may open ports; `peer_token` lets the replicas
    of one job read each other's state. `attempt` counts the starts that failures made necessary.
    The scheme of `lighthouse` says which engine it serves: `roster:`, or torchft's `http:`.
    With a `depot`, a place in a cloud's storage, checkpoints count once they are there, and
    `grant_file` holds the credential for it, which the agent renews. A `checkpoint_owner` is given
    where jobs may share the directory: it must have that owner's checkpoints, or none, or those of
    the job that it `adopts`.
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
    """What a replica is told while it runs. The last one heard stays in force.

    `drain`: leave at a step boundary. `throughput` is the controller's fit for this job on this
    kind of device; the job chooses its batch from it, also while the controller is away.
    `checkpoint_interval_seconds` takes the place of the setup's, None leaves that in force.
    """

    drain: bool = False
    throughput: StepParameters | None = None
    checkpoint_interval_seconds: float | None = None
