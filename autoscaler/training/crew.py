"""The ranks of one instance and the instances of the job, seen from one rank.

The leader of an instance (local rank 0) speaks to the quorum; the other ranks of the instance
learn from it what was exchanged, and so do the same.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.distributed as dist

from autoscaler.training.fingerprint import require_equal
from autoscaler.training.peers import Peers
from autoscaler.training.reducer import Reducer
from autoscaler.training.rounds import ROW_WIDTH, Membership, Row, decode, encode, oldest
from autoscaler.training.state import TrainingState

# Members are in step with each other; only a joiner that still loads may take its time.
_EXCHANGE_SECONDS = 6.0
_ALONE = Membership(replicas=1, index=0, healed=False, changed=False)


@dataclass(frozen=True, slots=True)
class Exchange:
    """What an exchange brought: the rows of all replicas, and our place among them."""

    rows: tuple[Row, ...]
    membership: Membership


class Crew:
    """All ranks that train together now."""

    def __init__(
        self,
        quorum: Peers | None,
        state: TrainingState,
        device: torch.device,
        owns_group: bool,
    ) -> None:
        self._owns_group = owns_group
        self._quorum = quorum
        self._state = state
        self._device = device
        self.local_ranks = dist.get_world_size() if dist.is_initialized() else 1
        self.local_rank = dist.get_rank() if dist.is_initialized() else 0
        self._membership = _ALONE
        self._must_form = quorum is not None

    @property
    def is_leader(self) -> bool:
        """We speak for our instance."""
        return self.local_rank == 0

    def exchange(self, own_row: Callable[[], Row], keeps_membership: bool) -> Exchange:
        """Open a round: agree on the membership, tell our row, learn the others'.

        Blocks until it succeeds. `own_row` is asked once we are a member: a joiner has its
        peers' state by then.
        """
        if self.is_leader and self._quorum is not None:
            exchanged = self._exchange_as_leader(self._quorum, own_row, keeps_membership)
        else:
            exchanged = Exchange((own_row(),), _ALONE)
        return self._share_in_instance(exchanged) if self.local_ranks > 1 else exchanged

    def require_equal_to_decider(self, exchange: Exchange) -> None:
        """Check that this replica may train with the one that decides.

        Raises:
            MismatchError: it may not; the others go on without it.
        """
        index, decider = exchange.membership.index, oldest(exchange.rows)
        names = self._quorum.names if self._quorum is not None else ()
        own_name, other_name = (
            f"replica {names[place] if place < len(names) else place}"
            for place in (index, decider)
        )
        rows = exchange.rows
        require_equal(rows[index].fingerprint, rows[decider].fingerprint, own_name, other_name)

    def sum_in_instance(self, values: list[float]) -> list[float]:
        """Add numbers up over the ranks of this instance."""
        if self.local_ranks == 1:
            return values
        tensor = torch.tensor(values, dtype=torch.float64, device=self._device)
        dist.all_reduce(tensor)
        return [float(value) for value in tensor]

    def share_buffers(self, is_source: bool) -> None:
        """Set the model's buffers to those of the instance that `is_source`, on all instances.

        Within an instance DDP gives the leader's to the other ranks before each forward pass.
        """
        if self.is_leader and self._quorum is not None:
            self._state.buffers.share(is_source, self._sum_over_quorum)

    def commit(self) -> bool:
        """Whether every rank of the job has this step's gradients."""
        whole = True
        if self.is_leader and self._quorum is not None:
            whole = self._quorum.commit()
            self._must_form = self._must_form or not whole
        if self.local_ranks == 1:
            return whole
        flag = torch.tensor([float(whole)], device=self._device)
        dist.broadcast(flag, src=0)
        return bool(flag.item())

    def announce_leave(self) -> None:
        """Let the lighthouse forget us while we take part in the last round."""
        if self.is_leader and self._quorum is not None and self._membership.replicas > 1:
            self._quorum.announce_leave()

    def leave(self, reducer: Reducer) -> None:
        """Be part of it no more, and leave nothing behind that could spoil the process's end.

        The ranks of an instance go together: one that is still busy would take the others' end
        for a failure.
        """
        if self._quorum is not None:
            self._quorum.leave()
        if self.local_ranks > 1:
            with contextlib.suppress(RuntimeError):
                dist.barrier()
        self._close(reducer)

    def abandon(self, reducer: Reducer) -> None:
        """As `leave`, without waiting for the other ranks of the instance."""
        if self._quorum is not None:
            self._quorum.leave()
        self._close(reducer)

    def _sum_over_quorum(self, tensor: torch.Tensor) -> bool:
        assert self._quorum is not None
        self._quorum.all_reduce(tensor, _EXCHANGE_SECONDS)
        return not self._quorum.has_failed

    def _close(self, reducer: Reducer) -> None:
        reducer.close()
        if self._owns_group:
            dist.destroy_process_group()

    def _exchange_as_leader(
        self, quorum: Peers, own_row: Callable[[], Row], keeps_membership: bool
    ) -> Exchange:
        healed = changed = False
        while True:
            if self._must_form or not keeps_membership:
                self._membership = quorum.form(self._state.counters.step)
                healed = healed or self._membership.healed
                changed = changed or self._membership.changed
            table = torch.zeros(
                (self._membership.replicas, ROW_WIDTH), dtype=torch.float64, device=self._device
            )
            numbers = encode(own_row())
            table[self._membership.index] = torch.tensor(numbers, dtype=torch.float64)
            quorum.all_reduce(table, None if changed else _EXCHANGE_SECONDS)
            if not quorum.has_failed:
                self._must_form = False
                membership = Membership(
                    self._membership.replicas, self._membership.index, healed, changed
                )
                return Exchange(tuple(decode(line) for line in table.tolist()), membership)
            quorum.commit()
            self._must_form = True

    def _share_in_instance(self, exchanged: Exchange) -> Exchange:
        membership = exchanged.membership
        header = torch.tensor(
            [membership.replicas, membership.index, membership.healed, membership.changed],
            dtype=torch.float64,
            device=self._device,
        )
        dist.broadcast(header, src=0)
        replicas, index, healed, changed = (int(value) for value in header)
        table = torch.zeros((replicas, ROW_WIDTH), dtype=torch.float64, device=self._device)
        if self.is_leader:
            table.copy_(torch.tensor([encode(row) for row in exchanged.rows], dtype=torch.float64))
        dist.broadcast(table, src=0)
        if healed:
            self._state.broadcast_in_instance()
        rows = tuple(decode(numbers) for numbers in table.tolist())
        return Exchange(rows, Membership(replicas, index, bool(healed), bool(changed)))
