"""Early stops that all ranks of a job agree on, whichever of them asks for one."""

from __future__ import annotations

from typing import Final

from autoscaler.training.members.crew import Crew
from autoscaler.training.members.rounds import Agreement

_MOST_BYTES: Final = 200


class Stop:
    """One rank's part in an early stop; `reason` is that of the rank that asked first.

    All ranks of an instance make it together.
    """

    def __init__(self, crew: Crew) -> None:
        self._crew = crew
        self._flag = crew.shared_flag()
        self._own_reason: str | None = None
        self.reason: str | None = None
        self.is_agreed = False

    @property
    def is_asked(self) -> bool:
        """This rank has asked for a stop."""
        return self._own_reason is not None

    @property
    def is_heard(self) -> bool:
        """A rank of this instance has asked for a stop."""
        return self._flag.is_raised

    def ask(self, reason: object) -> None:
        """Ask for a stop; only the first reason counts.

        No step sends numbers of all ranks to the one that leads, so a flag tells it. It hears of
        the stop before it commits the next step, whose gradients it has from this rank.

        Raises:
            TypeError: the reason is no text.
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
        """Return the first rank of this instance that asks, counted from 1; 0 if none does.

        All ranks of the instance call it together.
        """
        asks = [0.0] * self._crew.local_ranks
        asks[self._crew.local_rank] = float(self.is_asked)
        asking = [rank for rank, asked in enumerate(self._crew.sum_in_instance(asks)) if asked]
        return asking[0] + 1 if asking else 0

    def settle(self, agreement: Agreement, index: int) -> None:
        """Take in what the rows of a round say; `index` is our replica's."""
        if agreement.stopper is None:
            return
        self.is_agreed = True
        replica, rank = agreement.stopper
        is_ours = (index, self._crew.local_rank + 1) == (replica, rank)
        own = (self._own_reason or "").encode() if is_ours else b""
        codes = self._crew.sum(
            [float(code) for code in own[:_MOST_BYTES].ljust(_MOST_BYTES, b"\0")]
        )
        if codes is None:  # the rank that asked is lost meanwhile
            self.reason = self._own_reason
        else:
            text = bytes(int(code) for code in codes).rstrip(b"\0")
            self.reason = text.decode(errors="ignore")
