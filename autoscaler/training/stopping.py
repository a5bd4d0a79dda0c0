"""Early stop that any rank may request and all ranks of the job agree on."""

from __future__ import annotations

from typing import Final

from autoscaler.training.members.job_ranks import JobRanks
from autoscaler.training.members.rounds import Agreement

_MAX_REASON_BYTES: Final = 200


class Stop:
    """Early stop of training, seen from one rank.

    All ranks of an instance must construct it together. `reason` is the reason of the first rank
    that requested the stop, None before agreement.
    """

    def __init__(self, job_ranks: JobRanks) -> None:
        self._job_ranks = job_ranks
        self._flag = job_ranks.shared_flag()
        self._own_reason: str | None = None
        self.reason: str | None = None
        self.is_agreed = False

    @property
    def is_asked(self) -> bool:
        """Whether this rank has requested a stop."""
        return self._own_reason is not None

    @property
    def is_heard(self) -> bool:
        """Whether a rank of this instance has requested a stop."""
        return self._flag.is_raised

    def ask(self, reason: object) -> None:
        """Request a stop; only the first reason counts.

        A shared flag signals the request to the instance's leader, as steps send it no other
        numbers. The leader reads the flag before it commits the next step, which needs this rank's
        gradients.

        Raises:
            TypeError: the reason is not a string.
        """
        if not isinstance(reason, str):
            raise TypeError(
                f"job.stop(reason): the reason is of type {type(reason).__name__}: give a text, "
                "such as 'no progress in 5 evaluations'"
            )
        if self._own_reason is None:
            self._own_reason = " ".join(reason.split()) or "no reason given"
            self._flag.raise_up()

    def asking_rank(self) -> int:
        """Return the first rank of this instance that requests a stop, from 1; 0 if none does.

        All ranks of the instance must call this together.
        """
        requests = [0.0] * self._job_ranks.local_ranks
        requests[self._job_ranks.local_rank] = float(self.is_asked)
        requesting = [
            rank
            for rank, requested in enumerate(self._job_ranks.sum_in_instance(requests))
            if requested
        ]
        return requesting[0] + 1 if requesting else 0

    def settle(self, agreement: Agreement, index: int) -> None:
        """Apply a round's agreement on stopping, and exchange the reason.

        `index` is this replica's index among the replicas.
        """
        if agreement.stopper is None:
            return
        self.is_agreed = True
        replica, rank = agreement.stopper
        is_ours = (index, self._job_ranks.local_rank + 1) == (replica, rank)
        own_bytes = (self._own_reason or "").encode() if is_ours else b""
        codes = self._job_ranks.sum(
            [float(code) for code in own_bytes[:_MAX_REASON_BYTES].ljust(_MAX_REASON_BYTES, b"\0")]
        )
        if codes is None:  # the requesting rank was lost meanwhile
            self.reason = self._own_reason
        else:
            text = bytes(int(code) for code in codes).rstrip(b"\0")
            self.reason = text.decode(errors="ignore")
