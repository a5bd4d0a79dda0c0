"""The ranks of one instance and the instances of the job, seen from one rank.

The leader of an instance (local rank 0) speaks to the quorum; the other ranks of the instance
learn from it what was exchanged, and so do the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch

from autoscaler.training.collectives.instance import Instance
from autoscaler.training.collectives.rail import Rail
from autoscaler.training.collectives.reducer import Reducer
from autoscaler.training.collectives.shared_flag import SharedFlag
from autoscaler.training.members.peers import Peers
from autoscaler.training.members.rounds import (
    ROW_WIDTH,
    Membership,
    Row,
    decider_of,
    decode,
    encode,
    wants_forming,
)
from autoscaler.training.state.fingerprint import Fingerprint, require_equal
from autoscaler.training.state.training_state import TrainingState

# Stands in the place of a membership, which has at least one replica.
_STATE_COMES = [0.0, 0.0, 0.0, 0.0]
_ALONE = Membership(replicas=1, index=0, healed=False, changed=False)


@dataclass(frozen=True, slots=True)
class Exchange:
    """What an exchange brought: the rows of all replicas, and our place among them."""

    rows: tuple[Row, ...]
    membership: Membership


@dataclass(frozen=True, slots=True)
class Verdict:
    """What the ranks agree on at the end of a step.

    `committed`: the gradients are whole. `users`: for each number that was given to `commit`,
    how many instances gave a 1; empty where this instance trains alone. `ends_round`: a replica
    asks for the round to end with this step. `weight` is the sum of the ranks' weights.
    """

    committed: bool
    users: tuple[float, ...] = ()
    ends_round: bool = False
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class Shortage:
    """Memory that ran out in a step, on some ranks.

    `examples` are the fewest with which a rank of this instance ran out; 0 where none did.
    """

    examples: int


class Crew:
    """All ranks that train together now.

    `is_interrupted` is asked on the leader in each step: whether the round should end with it.
    """

    def __init__(
        self,
        peers: Peers | None,
        state: TrainingState,
        instance: Instance | None = None,
        rail: Rail | None = None,
    ) -> None:
        self._peers = peers
        self._state = state
        self._instance = instance or Instance()
        self._rail = rail or Rail(self._instance, None)
        self._membership = _ALONE
        self._must_form = peers is not None
        if peers is not None:
            peers.catching_up.give_to_instance = self._give_state_to_instance
        self.is_interrupted: Callable[[], bool] = lambda: False

    @property
    def local_ranks(self) -> int:
        """The number of ranks of this instance."""
        return self._instance.ranks

    @property
    def local_rank(self) -> int:
        """Our place among the ranks of this instance."""
        return self._instance.rank

    @property
    def is_leader(self) -> bool:
        """We speak for our instance."""
        return self._instance.is_leader

    @property
    def spans_instances(self) -> bool:
        """Several instances train together, so that a step may be lost."""
        return self._membership.replicas > 1

    @property
    def uses_rails(self) -> bool:
        """Each rank sums gradients with its counterparts in the other instances."""
        return self._rail.is_used

    def exchange(self, own_row: Callable[[], Row], gathers: bool = False) -> Exchange:
        """Open a round: tell our row, learn the others', and agree on the membership.

        The membership is formed anew where a row says that the lighthouse hears others than the
        members, after a failed step, after a leave, and by a joiner. Blocks until it succeeds.
        `own_row` is asked once we are a member: a joiner has its peers' state by then. After an
        evaluation all members call it with `gathers`: each is awaited while it is alive.
        """
        if self.is_leader and self._peers is not None:
            if gathers:
                self._peers.sums.gather()
            exchanged = self._exchange_as_leader(self._peers, own_row)
        else:
            exchanged = Exchange((own_row(),), _ALONE)
        return self._share_in_instance(exchanged) if self.local_ranks > 1 else exchanged

    def require_equal_to_decider(self, own: Fingerprint, exchange: Exchange) -> None:
        """Check that this replica, of fingerprint `own`, may train with the one that decides.

        Raises:
            MismatchError: it may not; the others go on without it.
        """
        index, decider = exchange.membership.index, decider_of(exchange.rows)
        names = self._peers.names if self._peers is not None else ()
        own_name, other_name = (
            f"replica {names[place] if place < len(names) else place}"
            for place in (index, decider)
        )
        require_equal(own, exchange.rows[decider].fingerprint, own_name, other_name)

    def shared_flag(self) -> SharedFlag:
        """Return a new flag of this instance; all its ranks call it together."""
        return SharedFlag(self._instance)

    def sum_in_instance(self, values: list[float]) -> list[float]:
        """Add numbers up over the ranks of this instance."""
        return self._instance.sum(values)

    def sum(self, values: list[float]) -> list[float] | None:
        """Return the sums of numbers over all ranks of the job; None where an instance is lost.

        All ranks call it at the same place between two steps. Each is awaited while it is alive.
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
        """Learn whether a rank of the job ran out of memory in the step that ends.

        All ranks call it where the summed gradient is not finite, which is what a rank that ran
        out makes of it. A lost instance may have been such a rank.

        Args:
            own_examples: those with which this rank ran out; 0 if it did not.
        """
        of_instance = [examples for examples in self._instance.values(own_examples) if examples]
        sums = self.sum([float(own_examples > 0)])
        if sums is not None and sums[0] == 0:
            return None
        return Shortage(min(of_instance, default=0))

    def share_buffers(self, is_source: bool) -> None:
        """Set the model's buffers to those of the instance that `is_source`, on all instances.

        Within an instance DDP gives the leader's to the other ranks before each forward pass.
        """
        if self.is_leader and self._peers is not None:
            self._state.buffers.share(is_source, self._sum_as_numbers)

    def commit(self, used: Sequence[float] = (), own_weight: float | None = None) -> Verdict:
        """Agree on whether every rank has this step's gradients, and on what goes with a step.

        One sum of numbers over the instances and one broadcast in the instance; none where there
        is no other. Weights take one sum in the instance more, and so do rails.

        Args:
            used: numbers to add up over the instances, equal on the ranks of one.
            own_weight: to add up over all ranks; None where weights are known to add up to 1.

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
                "replicas have given a weight in one step: let all do, or none"
            )
        total = weight if has_weight else 1.0
        return Verdict(whole > 0, tuple(users), interruptions > 0, total)

    def expect_leave(self, is_ours: bool) -> None:
        """Take the present round for one at whose end a member leaves, maybe we.

        The lighthouse is let forget the member meanwhile; the others form anew after it.
        """
        if self.is_leader and self._peers is not None and self._membership.replicas > 1:
            self._must_form = True
            self._peers.expect_leave()
            if is_ours:
                self._peers.announce_leave()

    def leave(self, reducer: Reducer, awaits_ranks: bool = True) -> None:
        """Be part of it no more, and leave nothing behind that could spoil the process's end.

        The ranks of an instance go together: one that is still busy would take the others' end
        for a failure. After an error of the script they may not come: not `awaits_ranks`.
        """
        self._rail.close()
        if self._peers is not None:
            self._peers.leave()
        if awaits_ranks:
            with contextlib.suppress(RuntimeError):
                self._instance.barrier()
        reducer.close()
        self._instance.close()

    def _sum_as_numbers(self, tensor: torch.Tensor) -> bool:
        """Sum `tensor` over the instances, in place, by way of the CPU; whether it holds."""
        assert self._peers is not None
        numbers = tensor.cpu()
        holds = self._peers.sums.numbers(numbers)
        tensor.copy_(numbers)
        return holds

    def _commit_as_leader(self, numbers: list[float]) -> list[float]:
        peers = self._peers
        sees_change = peers is not None and peers.sees_change
        interruption = float(sees_change or self.is_interrupted())
        told = [interruption, *numbers[2:]]
        whole = True
        if peers is not None:
            if self._membership.replicas > 1:
                summed = torch.tensor(told, dtype=torch.float64)
                peers.sums.numbers(summed)
                told = summed.tolist()
            whole = peers.commit()
            self._must_form = self._must_form or not whole
        return [float(whole), *told]

    def _exchange_as_leader(self, peers: Peers, own_row: Callable[[], Row]) -> Exchange:
        healed = changed = False
        has_formed = False
        while True:
            if self._must_form:
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

    def _exchange_rows(self, peers: Peers, own_row: Row) -> tuple[Row, ...] | None:
        """The rows of all members, or None if a member does not answer."""
        table = torch.zeros((self._membership.replicas, ROW_WIDTH), dtype=torch.float64)
        table[self._membership.index] = torch.tensor(encode(own_row), dtype=torch.float64)
        if not peers.sums.numbers(table):
            return None
        return tuple(decode(line) for line in table.tolist())

    def _give_state_to_instance(self) -> None:
        """Give the state that the leader has received to the other ranks, which wait for rows."""
        if self.local_ranks > 1:
            self._instance.from_leader(_STATE_COMES)
            self._state.broadcast_in_instance(self._instance)

    def _header_from_leader(self, header: list[float]) -> list[float]:
        """Return the leader's header, after the state where it has received one."""
        while True:
            numbers = self._instance.from_leader(header)
            if numbers != _STATE_COMES:
                return numbers
            self._state.broadcast_in_instance(self._instance)

    def _share_in_instance(self, exchanged: Exchange) -> Exchange:
        own = exchanged.membership
        header = [float(value) for value in (own.replicas, own.index, own.healed, own.changed)]
        replicas, index, healed, changed = (
            int(value) for value in self._header_from_leader(header)
        )
        table = [0.0] * (replicas * ROW_WIDTH)
        if self.is_leader:
            table = [number for row in exchanged.rows for number in encode(row)]
        table = self._instance.from_leader(table)
        rows = tuple(
            decode(table[place * ROW_WIDTH : (place + 1) * ROW_WIDTH]) for place in range(replicas)
        )
        self._membership = Membership(replicas, index, bool(healed), bool(changed))
        self._rail.follow_leader([int(row.ranks) for row in rows])
        return Exchange(rows, self._membership)
