"""Ranks of one instance and instances of the job, seen from one rank.

The leader of an instance (local rank 0) takes part in the quorum. The instance's other ranks
receive the exchanged rows from the leader, and so act alike.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from autoscaler.training.collectives.gradient_reducer import GradientReducer
from autoscaler.training.collectives.instance import InstanceRanks
from autoscaler.training.collectives.rail import Rail
from autoscaler.training.collectives.shared_flag import SharedFlag
from autoscaler.training.members.instance_state import (
    COMMAND_FOLLOWS,
    LeaderState,
    PartedState,
)
from autoscaler.training.members.peers import MembershipEngine
from autoscaler.training.members.rounds import (
    ROW_WIDTH,
    Membership,
    ReplicaRow,
    decider_of,
    decode,
    encode,
    wants_forming,
)
from autoscaler.training.state.fingerprint import Fingerprint, require_equal
from autoscaler.training.state.training_state import TrainingState

_ALONE = Membership(replicas=1, index=0, healed=False, changed=False)


@dataclass(frozen=True, slots=True)
class Exchange:
    """Result of an exchange: the rows of all replicas, and this replica's membership."""

    rows: tuple[ReplicaRow, ...]
    membership: Membership


@dataclass(frozen=True, slots=True)
class StepAgreement:
    """Agreement of the ranks at the end of a step.

    Attributes:
        committed: whether the gradients are whole.
        users: for each number passed to `commit`, its sum over the instances; empty if this
            instance trains alone.
        ends_round: whether a replica requests that the round ends with this step.
        weight: sum of the ranks' weights.
    """

    committed: bool
    users: tuple[float, ...] = ()
    ends_round: bool = False
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Shortage:
    """Memory that ran out in a step, on some ranks of the job.

    `examples`: fewest examples with which a rank of this instance ran out; 0 if none did.
    """

    examples: int


class JobRanks:
    """All ranks that train together at present.

    `is_interrupted` is called on the leader in each step: whether the round should end with the
    step. `on_failed_sum` is called on the leader before it waits for the other instances because a
    sum with them has failed. `parts` is the state of which each rank of this instance has a part;
    None for a plain model and a single rank.
    """

    def __init__(
        self,
        peers: MembershipEngine | None,
        state: TrainingState,
        instance: InstanceRanks | None = None,
        rail: Rail | None = None,
        parts: PartedState | None = None,
    ) -> None:
        self._peers = peers
        self._state = state
        self._instance = instance or InstanceRanks()
        self._rail = rail or Rail(self._instance, None)
        self._membership = _ALONE
        self._must_form = peers is not None
        self._parts = parts
        if peers is not None and parts is not None:
            peers.catching_up.parts = parts
        elif peers is not None and isinstance(peers.catching_up.parts, LeaderState):
            peers.catching_up.parts.give_to_ranks = self._broadcast_received_state
        self.is_interrupted: Callable[[], bool] = lambda: False
        self.on_failed_sum: Callable[[], None] = lambda: None

    @property
    def local_ranks(self) -> int:
        """Number of ranks of this instance."""
        return self._instance.ranks

    @property
    def local_rank(self) -> int:
        """Index of this rank in its instance."""
        return self._instance.rank

    @property
    def is_leader(self) -> bool:
        """Whether this rank represents its instance."""
        return self._instance.is_leader

    @property
    def spans_instances(self) -> bool:
        """Whether several instances train together, so that a step may be lost."""
        return self._membership.replicas > 1

    @property
    def uses_rails(self) -> bool:
        """Whether each rank sums gradients with its counterparts in the other instances."""
        return self._rail.is_used

    def exchange(self, own_row: Callable[[], ReplicaRow], gathers: bool = False) -> Exchange:
        """Open a round: exchange rows with the other replicas and agree on the membership.

        A joiner forms a new membership. The members do so after a failed step or a leave, and if a
        row reports that the lighthouse hears others. Blocks until the exchange succeeds.

        Args:
            own_row: returns this replica's row; called once the replica is a member with the
                state.
            gathers: whether members wait for each other while alive, as after an evaluation.
        """
        if self.is_leader and self._peers is not None:
            if gathers:
                self._peers.sums.gather()
            exchanged = self._exchange_as_leader(self._peers, own_row)
        else:
            exchanged = Exchange((own_row(),), _ALONE)
        return self._share_in_instance(exchanged) if self.local_ranks > 1 else exchanged

    def require_equal_to_decider(self, own: Fingerprint, exchange: Exchange) -> None:
        """Check that this replica's fingerprint equals that of the deciding replica.

        Raises:
            MismatchError: they differ; the others continue without this replica.
        """
        index, decider = exchange.membership.index, decider_of(exchange.rows)
        names = self._peers.names if self._peers is not None else ()
        own_name, other_name = (
            f"replica {names[replica] if replica < len(names) else replica}"
            for replica in (index, decider)
        )
        require_equal(own, exchange.rows[decider].fingerprint, own_name, other_name)

    def shared_flag(self) -> SharedFlag:
        """Create a flag of this instance; all its ranks must call this together."""
        return SharedFlag(self._instance)

    def sum_in_instance(self, values: list[float]) -> list[float]:
        """Return the sums of numbers over the ranks of this instance."""
        return self._instance.sum(values)

    def sum(self, values: list[float]) -> list[float] | None:
        """Return the sums of numbers over all ranks of the job; None if an instance was lost.

        All ranks must call this at the same point between two steps. They wait for each other
        while alive.
        """
        summed, whole = self._instance.sum(values), True
        if self.is_leader and self._peers is not None:
            numbers = torch.tensor(summed, dtype=torch.float64)
            self._peers.sums.gather()
            whole = self._peers.sums.numbers(numbers)
            summed = numbers.tolist()
        is_whole, *summed = self._instance.from_leader([float(whole), *summed])
        return summed if is_whole else None

    def shortage(self, own_examples: int) -> Shortage | None:
        """Return the memory shortage of the step that ends, or None if no rank ran out of memory.

        All ranks must call this if the summed gradient is not finite; a rank that runs out makes
        it so. A lost instance counts as out of memory.

        Args:
            own_examples: examples with which this rank ran out; 0 if it did not.
        """
        instance_examples = [
            examples for examples in self._instance.values(own_examples) if examples
        ]
        sums = self.sum([float(own_examples > 0)])
        if sums is not None and sums[0] == 0:
            return None
        return Shortage(min(instance_examples, default=0))

    def share_buffers(self, is_source: bool) -> None:
        """Set the model's buffers on all instances to those of the instance that `is_source`.

        Within an instance DDP copies the leader's buffers to the other ranks before each forward
        pass.
        """
        if self.is_leader and self._peers is not None:
            self._state.buffers.share(is_source, self._sum_as_numbers)

    def commit(self, used: Sequence[float] = (), own_weight: float | None = None) -> StepAgreement:
        """Agree on whether every rank has this step's gradients, and on the step's weight.

        Takes one sum over the instances and one broadcast in the instance, or none if there is no
        other rank. Weights and rails take one more sum in the instance each.

        Args:
            used: numbers to add up over the instances, equal on the ranks of an instance.
            own_weight: weight to add up over all ranks; None if the weights add up to 1.

        Raises:
            RuntimeError: only some replicas have given a weight.
        """
        self._rail.require_whole()
        has_weight = own_weight is not None
        weight = 0.0 if own_weight is None else self._instance.sum([own_weight])[0]
        numbers = [1.0, 0.0, float(has_weight), weight, *(used if self.spans_instances else ())]
        if self.is_leader:
            numbers = self._commit_as_leader(numbers)
        whole, interruptions, with_weight, weight, *users = self._instance.from_leader(numbers)
        if whole > 0 and with_weight not in (0, self._membership.replicas):
            raise RuntimeError(
                f"job.step(loss, weight=...): {with_weight:.0f} of {self._membership.replicas} "
                "replicas have given a weight in one step: give a weight on all ranks, or on none"
            )
        total = weight if has_weight else 1.0
        return StepAgreement(whole > 0, tuple(users), interruptions > 0, total)

    def expect_leave(self, is_ours: bool) -> None:
        """Prepare for a member's leave at the end of the present round; `is_ours`: this member's.

        The lighthouse forgets the leaving member during the round; the others form anew after it.
        """
        if self.is_leader and self._peers is not None and self._membership.replicas > 1:
            self._must_form = True
            self._peers.expect_leave()
            if is_ours:
                self._peers.announce_leave()

    def leave(self, reducer: GradientReducer, awaits_ranks: bool = True) -> None:
        """Leave the job and close all connections, so that the process can end cleanly.

        Args:
            reducer: the gradient reducer, which is closed.
            awaits_ranks: whether to wait for the instance's other ranks. A busy rank would take
                their end for a failure. After an error of the script they may never get here.
        """
        self._rail.close()
        if self._peers is not None:
            self._peers.leave()
        elif self._parts is not None:
            self._parts.close()
        if awaits_ranks:
            with contextlib.suppress(RuntimeError):
                self._instance.barrier()
        reducer.close()
        self._instance.close()

    def _sum_as_numbers(self, tensor: torch.Tensor) -> bool:
        """Sum `tensor` over the instances in place, through the CPU; return the success."""
        assert self._peers is not None
        numbers = tensor.cpu()
        succeeded = self._peers.sums.numbers(numbers)
        tensor.copy_(numbers)
        return succeeded

    def _commit_as_leader(self, numbers: list[float]) -> list[float]:
        peers = self._peers
        sees_change = peers is not None and peers.sees_change
        interruption = float(sees_change or self.is_interrupted())
        values = [interruption, *numbers[2:]]
        is_whole = True
        if peers is not None:
            if self._membership.replicas > 1:
                summed = torch.tensor(values, dtype=torch.float64)
                peers.sums.numbers(summed)
                values = summed.tolist()
            is_whole = peers.commit()
            self._must_form = self._must_form or not is_whole
        return [float(is_whole), *values]

    def _exchange_as_leader(
        self, peers: MembershipEngine, own_row: Callable[[], ReplicaRow]
    ) -> Exchange:
        healed = changed = False
        has_formed = False
        while True:
            if self._must_form:
                if peers.sums.has_failed:
                    self.on_failed_sum()
                self._membership = peers.form(self._state.counters.step)
                healed = healed or self._membership.healed
                changed = changed or self._membership.changed
                has_formed = True
            rows = self._exchange_rows(peers, own_row())
            self._must_form = rows is None or (wants_forming(rows) and not has_formed)
            if rows is None:
                peers.commit()
            elif not self._must_form:
                replicas, index = self._membership.replicas, self._membership.index
                return Exchange(rows, Membership(replicas, index, healed, changed))

    def _exchange_rows(
        self, peers: MembershipEngine, own_row: ReplicaRow
    ) -> tuple[ReplicaRow, ...] | None:
        """Return the rows of all members, or None if a member does not answer."""
        table = torch.zeros((self._membership.replicas, ROW_WIDTH), dtype=torch.float64)
        table[self._membership.index] = torch.tensor(encode(own_row), dtype=torch.float64)
        if not peers.sums.numbers(table):
            return None
        return tuple(decode(line) for line in table.tolist())

    def _broadcast_received_state(self) -> None:
        """Send the state that the leader received to the instance's other ranks."""
        if self.local_ranks > 1:
            self._instance.from_leader(COMMAND_FOLLOWS)
            self._state.broadcast_in_instance(self._instance)

    def _header_from_leader(self, header: list[float]) -> list[float]:
        """Return the leader's header, after its commands or its state if they precede it."""
        while True:
            numbers = self._instance.from_leader(header)
            if numbers != COMMAND_FOLLOWS:
                if self._parts is not None:
                    self._parts.stop()
                return numbers
            if self._parts is not None:
                self._parts.obey()
            else:
                self._state.broadcast_in_instance(self._instance)

    def _share_in_instance(self, exchanged: Exchange) -> Exchange:
        membership = exchanged.membership
        header = [
            float(value)
            for value in (
                membership.replicas,
                membership.index,
                membership.healed,
                membership.changed,
            )
        ]
        replicas, index, healed, changed = (
            int(value) for value in self._header_from_leader(header)
        )
        table = [0.0] * (replicas * ROW_WIDTH)
        if self.is_leader:
            table = [number for row in exchanged.rows for number in encode(row)]
        table = self._instance.from_leader(table)
        rows = tuple(
            decode(table[replica * ROW_WIDTH : (replica + 1) * ROW_WIDTH])
            for replica in range(replicas)
        )
        self._membership = Membership(replicas, index, bool(healed), bool(changed))
        self._rail.follow_leader([int(row.ranks) for row in rows])
        return Exchange(rows, self._membership)
