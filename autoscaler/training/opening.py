"""Construction of a session's parts, for a run under Castor, under torchrun, or of one process."""

from __future__ import annotations

import logging
import math
import os
import socket
import warnings
import zlib
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlsplit

import torch

from autoscaler.clock import Clock
from autoscaler.domain.errors import CheckpointError, ProviderError
from autoscaler.domain.goodput import BatchBounds
from autoscaler.domain.job import BatchSpec
from autoscaler.domain.training import SOCKET_VARIABLE, Engine, TrainingSetup
from autoscaler.objects import Meter, open_grant
from autoscaler.training.arguments import Script, least_share, require_usable
from autoscaler.training.channel import AgentConnection
from autoscaler.training.collectives.gradient_groups import FormGradients, gradients_of
from autoscaler.training.collectives.gradient_reducer import GradientReducer
from autoscaler.training.collectives.instance import InstanceRanks, join_instance
from autoscaler.training.collectives.ports import use_interface_of
from autoscaler.training.collectives.rail import Rail
from autoscaler.training.collectives.reducer import Reducer
from autoscaler.training.collectives.sharded_reducer import ShardedReducer
from autoscaler.training.collectives.sharding import is_sharded, sharding_of
from autoscaler.training.collectives.sums import Sums, SumSettings
from autoscaler.training.data.loader import Loader
from autoscaler.training.data.orders import Order
from autoscaler.training.data.sampler import ElasticSampler
from autoscaler.training.data_path import loader_of, order_of, sampler_of
from autoscaler.training.decisions import batch_log_file, batches_to_repeat
from autoscaler.training.gradients.preconditioner import WARM_UP_STEPS, Preconditioner, has_adam
from autoscaler.training.identity import fingerprint_of
from autoscaler.training.members.instance_state import PartedState
from autoscaler.training.members.job_ranks import JobRanks
from autoscaler.training.members.peers import MembershipEngine, QuorumSettings
from autoscaler.training.members.roster_quorum import RosterQuorum
from autoscaler.training.members.state_transfer import StateTransfer
from autoscaler.training.memory_peaks import MemoryPeaks
from autoscaler.training.replica import Replica, ReplicaSettings
from autoscaler.training.reporting import Reporter
from autoscaler.training.state.batch_log import BatchReplay
from autoscaler.training.state.checkpoint import Checkpoints
from autoscaler.training.state.claim import claim, claim_depot
from autoscaler.training.state.fingerprint import Fingerprint, require_equal
from autoscaler.training.state.own_state import ScriptState
from autoscaler.training.state.remote_checkpoints import RemoteCheckpoints
from autoscaler.training.state.training_state import Counters, TrainingState
from autoscaler.training.steps.scaled_optimizer import movers_of
from autoscaler.training.steps.stepper import Stepper, StepSettings
from autoscaler.training.watch import Watch, present_watch

_CHECKPOINT_SECONDS_ALONE = 300.0
_CHECKPOINTS_KEPT_ALONE = 2
_ENGINES = {"http": Engine.QUORUM, "roster": Engine.ROSTER}  # by the URL scheme of the lighthouse
# All ranks form their rails at the same time, after an exchange.
_RAIL_SECONDS = 5.0


@dataclass(slots=True)
class Parts:
    """Parts of one session.

    `channel` and `reporter` are set only on an instance's leader under Castor. `batch_log_file` is
    the file that the batch log is written to at each checkpoint. `may_join`: whether there can be
    other instances.
    """

    state: TrainingState
    job_ranks: JobRanks
    reducer: GradientReducer
    stepper: Stepper
    replica: Replica
    sampler: ElasticSampler
    loader: Loader
    checkpoints: Checkpoints | None
    checkpoint_interval_seconds: float
    total_examples: float | None
    may_join: bool = False
    channel: AgentConnection | None = None
    reporter: Reporter | None = None
    batch_log_file: Path | None = None

    def wait_for_checkpoint(self) -> None:
        """Wait until no checkpoint is being written."""
        if self.checkpoints is not None:
            self.checkpoints.wait()


def open_parts(script: Script, clock: Clock) -> Parts:
    """Build the parts of a session and restore the newest checkpoint, without joining others.

    Raises:
        TypeError, ValueError: an argument of the script can't be used.
        CheckpointError: there are checkpoints, but none can be used.
        TimeoutError: the node agent does not answer.
    """
    require_usable(script)
    _silence_intended_warnings()
    device = next(script.model.parameters()).device
    channel = _channel(clock)
    if device.type == "cpu":
        _pin_to_core(int(os.environ.get("LOCAL_RANK", "0")))
    instance = join_instance(device, under_castor=SOCKET_VARIABLE in os.environ)
    setup = instance.value_from_leader(channel.setup() if channel else None)
    order = order_of(script, lambda: state.counters.first_keyed_pass)
    bounds = _bounds(script, setup.batch if setup else BatchSpec(), order.examples)
    batches = batches_to_repeat(script.batch_log, bounds)
    sampler = sampler_of(script, order, bounds, warns=instance.is_leader)
    state = TrainingState(
        script.model,
        script.optimizers,
        script.schedulers,
        Counters(batch_total=bounds.initial),
        script.scaler,
        ScriptState(script.state),
    )
    checkpoints = _checkpoints(script, setup, clock, channel, instance)
    if checkpoints is not None:
        _restore(state, checkpoints, instance)
    peers = None
    if setup is not None and channel is not None and checkpoints is not None:
        peers = _peers(setup, state, _form_gradients(script, setup), clock)
    own_sums = peers.sums if peers else _follower_sums(script, setup, clock)
    rail = Rail(instance, own_sums, state.shards)
    parts = _parted_state(setup, state, instance, peers, clock)
    job_ranks = JobRanks(peers, state, instance, rail, parts)
    reducer = _reducer(script, instance, rail, clock)
    stepper = _stepper(script, bounds, sampler.examples, state, job_ranks, reducer)
    repeated = "" if batches is None else batches.digest
    fingerprint = _fingerprint_of_instance(script, order, instance, reducer, repeated)
    settings = _replica_settings(setup, bounds, script, fingerprint, batches)
    replica = Replica(settings, state, job_ranks, stepper, reducer, clock)
    if peers is not None:
        replica.sees_lighthouse = lambda: peers.is_lighthouse_there
        replica.sees_change = lambda: peers.sees_change
    opened = Parts(
        state=state,
        job_ranks=job_ranks,
        reducer=reducer,
        stepper=stepper,
        replica=replica,
        sampler=sampler,
        loader=loader_of(script),
        checkpoints=checkpoints,
        checkpoint_interval_seconds=_checkpoint_interval(setup),
        total_examples=setup.total_examples if setup else None,
        may_join=setup is not None and setup.lighthouse is not None,
        channel=channel,
        batch_log_file=batch_log_file(setup, bounds),
    )
    if channel is not None and checkpoints is not None:
        opened.reporter = Reporter(channel, replica, stepper, reducer, state, checkpoints, clock)
        opened.reporter.engine = _engine(setup)
        opened.reporter.memory = MemoryPeaks(device, settings.device_kind)
    return opened


def _channel(clock: Clock) -> AgentConnection | None:
    """Return the connection to the agent, on the replica's first rank under Castor.

    Each instance of a gang has an agent. That of the first rank is the replica's.
    """
    agent_socket = os.environ.get(SOCKET_VARIABLE)
    is_leader = int(os.environ.get("RANK", "0")) == 0
    return AgentConnection(agent_socket, clock) if agent_socket and is_leader else None


def _follower_sums(script: Script, setup: TrainingSetup | None, clock: Clock) -> Sums | None:
    """Return the sums over instances of a rank that is no leader; None without other instances.

    The leader detects lost members and ends the worlds of all ranks.
    """
    if setup is None or setup.lighthouse is None:
        return None
    use_interface_of(_own_address(setup))
    settings = SumSettings(
        _form_gradients(script, setup), _RAIL_SECONDS, setup.collective_timeout_seconds
    )
    return Sums(settings, lambda: False, clock)


def _parted_state(
    setup: TrainingSetup | None,
    state: TrainingState,
    instance: InstanceRanks,
    peers: MembershipEngine | None,
    clock: Clock,
) -> PartedState | None:
    """Return the state of which each rank sends and receives its own part; None for others."""
    if setup is None or setup.lighthouse is None or state.shards is None or instance.ranks == 1:
        return None
    if peers is not None:
        transfer = peers.catching_up.parts.transfer
    else:
        transfer = StateTransfer(_own_address(setup), setup.peer_token, state, clock)
    return PartedState(instance, state.shards, transfer, clock)


def _own_address(setup: TrainingSetup) -> str:
    """Return the address of this instance, at which other instances reach it.

    The setup has that of the leader's instance. In a gang of several instances, the others use the
    address from which they reach the leader.
    """
    if os.environ.get("GROUP_RANK", "0") == "0":
        return setup.bind_address
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((os.environ["MASTER_ADDR"], 1))  # sends nothing
        return str(probe.getsockname()[0])


def _reducer(script: Script, instance: InstanceRanks, rail: Rail, clock: Clock) -> GradientReducer:
    sharding = sharding_of(script.model)
    preconditioner = Preconditioner(*script.optimizers)
    wire_type = torch.bfloat16 if script.bf16_gradients else None
    if sharding is not None:
        return ShardedReducer(
            sharding,
            script.model,
            clock,
            instance,
            rail.gradients,
            preconditioner,
            wire_type=wire_type,
            has_static_graph=script.static_graph,
        )
    return Reducer(
        script.model,
        clock,
        rail.gradients,
        preconditioner,
        blocks_host=script.across == "gloo",
        wire_type=wire_type,
        has_static_graph=script.static_graph,
    )


def _stepper(
    script: Script,
    bounds: BatchBounds,
    pass_examples: int,
    state: TrainingState,
    job_ranks: JobRanks,
    reducer: GradientReducer,
) -> Stepper:
    settings = StepSettings(
        bounds.initial,
        pass_examples,
        script.warmup_epochs,
        script.max_grad_norm,
    )
    movers = movers_of(script.optimizers, script.lr_rule, bounds.may_grow)
    return Stepper(settings, state, job_ranks, reducer, movers, script.scaler)


def _bounds(script: Script, spec: BatchSpec, pass_examples: int) -> BatchBounds:
    """Return the batch bounds of the job file; the script's batch size replaces missing values.

    Raises:
        ValueError: the script's batch size exceeds the job file's maximum.
    """
    initial = spec.initial or script.batch_size
    maximum = spec.maximum or initial
    if maximum < initial:
        raise ValueError(
            f"batch_size={initial} is more than the job file's batch.max {maximum}: raise "
            "batch.max, or set batch.initial"
        )
    # A step takes at most the examples of one pass.
    maximum = max(initial, min(maximum, pass_examples))
    # The script's own batch size fits into a device's memory; the job file may allow more.
    device_maximum = spec.device_maximum or min(script.device_batch_size or initial, initial)
    kind_maxima = spec.kind_maxima
    if script.logical_ranks is not None:
        logical_maximum = math.ceil(initial / script.logical_ranks)
        device_maximum = min(device_maximum, logical_maximum)
        kind_maxima = tuple(
            (kind, min(kind_maximum, logical_maximum)) for kind, kind_maximum in kind_maxima
        )
    return BatchBounds(initial, maximum, device_maximum, spec.adaptive, kind_maxima)


def _checkpoints(
    script: Script,
    setup: TrainingSetup | None,
    clock: Clock,
    channel: AgentConnection | None,
    instance: InstanceRanks,
) -> Checkpoints | None:
    if setup is not None:
        directory, watch = Path(setup.checkpoint_directory), present_watch()
        if watch is not None:
            directory /= watch.name
        remote = _remote_store(setup, watch, channel.meter if channel else None)
        if channel is not None:
            _claim(setup, directory, remote)
        kept = setup.checkpoints_kept
    elif script.checkpoint_directory is not None:
        directory, remote = Path(script.checkpoint_directory), None
        kept = _CHECKPOINTS_KEPT_ALONE
    else:
        return None
    shards = is_sharded(script.model)
    return Checkpoints(directory, kept, clock, remote, ranks=instance, is_sharded=shards)


def _checkpoint_interval(setup: TrainingSetup | None) -> float:
    return setup.checkpoint_interval_seconds if setup else _CHECKPOINT_SECONDS_ALONE


def _claim(setup: TrainingSetup, directory: Path, remote: RemoteCheckpoints | None) -> None:
    """Check that the checkpoints at the job's location are its own, and record the ownership.

    Raises:
        CheckpointError: the checkpoints are another job's.
    """
    if setup.checkpoint_owner is None:
        return
    if remote is None:
        claim(directory, setup.checkpoint_owner, setup.adopts)
    else:
        claim_depot(remote, setup.checkpoint_owner, setup.adopts)


def _remote_store(
    setup: TrainingSetup, watch: Watch | None, meter: Meter | None
) -> RemoteCheckpoints | None:
    """Return the job's remote checkpoint store; None if the job has none.

    `meter` is None on ranks that are no leader, whose transfers their leader counts.

    Raises:
        CheckpointError: the store's grant can't be opened.
    """
    if setup.depot is None or setup.grant_file is None:
        return None
    location = setup.depot if watch is None else f"{setup.depot}/{watch.name}"
    try:
        return RemoteCheckpoints(open_grant(Path(setup.grant_file), location, meter=meter))
    except ProviderError as error:
        raise CheckpointError(str(error)) from error


def _restore(state: TrainingState, checkpoints: Checkpoints, instance: InstanceRanks) -> None:
    """Restore the newest whole checkpoint on all ranks; do nothing without one."""
    if instance.is_leader:
        checkpoints.remove_abandoned()
    if state.restore_newest(checkpoints):
        # A resumed job may skip the full number of steps again.
        state.counters.skipped_in_a_row = 0


def _engine(setup: TrainingSetup | None) -> Engine:
    """Return the engine of the job's lighthouse, by its URL scheme.

    Raises:
        ValueError: this version does not know the scheme.
    """
    if setup is None or setup.lighthouse is None:
        return Engine.QUORUM
    scheme = urlsplit(setup.lighthouse).scheme
    if scheme in _ENGINES:
        return _ENGINES[scheme]
    raise ValueError(f"{setup.lighthouse}: install the version of castor that the controller has")


def _peers(
    setup: TrainingSetup,
    state: TrainingState,
    form_gradients: FormGradients,
    clock: Clock,
) -> MembershipEngine | None:
    if setup.lighthouse is None:
        return None
    settings = QuorumSettings(
        lighthouse=setup.lighthouse,
        replica=setup.replica,
        bind_address=setup.bind_address,
        peer_token=setup.peer_token,
        heartbeat_timeout_seconds=setup.heartbeat_timeout_seconds,
        collective_timeout_seconds=setup.collective_timeout_seconds,
        form_gradients=form_gradients,
    )
    state.replica = setup.replica
    if _engine(setup) is Engine.ROSTER:
        return RosterQuorum(settings, clock, state)
    try:
        # torchft exists for x86-64 Linux only; a script without Castor does not need it.
        from autoscaler.training.members.quorum import Quorum
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"the job's controller expects torchft on its instances, where {error.name} is not "
            "installed: install castor-autoscaler[training], or start castor serve with "
            "--engine roster"
        ) from error
    return Quorum(settings, clock, state)


def _form_gradients(script: Script, setup: TrainingSetup) -> FormGradients:
    """Return the constructor of gradient sums over instances."""
    device = next(script.model.parameters()).device
    timeout = timedelta(seconds=setup.collective_timeout_seconds)
    return gradients_of(device, script.across, timeout)


def _fingerprint_of_instance(
    script: Script, order: Order, instance: InstanceRanks, reducer: GradientReducer, batches: str
) -> Fingerprint:
    """Return this rank's fingerprint, after checking that all ranks of the instance have it.

    Raises:
        MismatchError: the ranks' fingerprints differ.
    """
    fingerprint = fingerprint_of(script, order, reducer.bucket_sizes, batches)
    fingerprint = replace(fingerprint, shards=reducer.shards)
    for rank, other_fingerprint in enumerate(instance.values(fingerprint)):
        require_equal(
            fingerprint, other_fingerprint, f"rank {instance.rank}", f"rank {rank} of its instance"
        )
    return fingerprint


def _replica_settings(
    setup: TrainingSetup | None,
    bounds: BatchBounds,
    script: Script,
    fingerprint: Fingerprint,
    batches: BatchReplay | None,
) -> ReplicaSettings:
    kind = setup.device_kind if setup else "own"
    # A roster receives leave messages; torchft's lighthouse only notices missing heartbeats.
    learns_of_leaves = _engine(setup) is Engine.ROSTER
    return ReplicaSettings(
        bounds=bounds,
        device_kind=kind,
        kind_number=float(zlib.crc32(kind.encode())),
        farewell_seconds=setup.heartbeat_timeout_seconds
        if setup and not learns_of_leaves
        else 0.0,
        warm_up_steps=WARM_UP_STEPS if has_adam(script.optimizers) else 0,
        least_share=least_share(script.model),
        fingerprint=fingerprint,
        batches=batches,
    )


def _silence_intended_warnings() -> None:
    """Suppress warnings about intended behaviour in the job's log."""
    for message in (
        ".*torch.distributed is disabled, unavailable or uninitialized",
        ".*given buffer is not writable",
        ".*LeafSpec",
    ):
        warnings.filterwarnings("ignore", message=message)
    logging.getLogger("torchft.manager").setLevel(logging.ERROR)


def _pin_to_core(local_rank: int) -> None:
    """Pin this rank to its CPU core if the instance's devices are cores."""
    devices = os.environ.get("CASTOR_DEVICES", "")
    cores = [int(core) for core in devices.split(",") if core.strip()]
    if local_rank < len(cores):
        os.sched_setaffinity(0, {cores[local_rank]})
        torch.set_num_threads(1)
