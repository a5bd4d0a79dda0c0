"""Which examples a step takes, and which of them each rank.

A *pass* is one walk through the whole dataset in an order of its own. The position in it belongs
to the job, not to a rank, so each example of a pass is taken exactly once however often ranks
come and go: a step that was not committed leaves the position where it was.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from autoscaler.training.data.orders import Order


def share_sizes(
    total: int, ranks: int, least: int = 1, speeds: Sequence[float] = ()
) -> tuple[int, ...]:
    """Return how many of a step's `total` examples each rank takes; together they are all.

    Without `speeds`, or where these would leave a rank fewer than `least` examples, the parts
    differ by at most one. With them all ranks need about the same time.
    """
    holders = max(1, min(ranks, total // least))
    if speeds and holders == ranks:
        parts = (round(part / sum(speeds) * total) for part in accumulate(speeds, initial=0.0))
        sizes = tuple(end - begin for begin, end in pairwise(parts))
        if min(sizes) >= least:
            return sizes
    rest = total % holders
    equal = (total // holders + (rank < rest) for rank in range(holders))
    return (*equal, *(0,) * (ranks - holders))


@dataclass(frozen=True, slots=True)
class Share:
    """The examples that one rank takes of one step, in micro-steps.

    `micro_steps` hold the dataset indices; `weights` the weight of each micro-step's mean loss in
    the mean over the whole step. A rank for which nothing is left gets examples of weight 0, so
    that it can take part in the step's collectives.
    """

    micro_steps: tuple[tuple[int, ...], ...]
    weights: tuple[float, ...]

    @property
    def examples(self) -> int:
        """How many examples count."""
        return sum(
            len(indices)
            for indices, weight in zip(self.micro_steps, self.weights, strict=True)
            if weight > 0
        )


class ElasticSampler:
    """The examples that each step takes, in a given order; the same on every rank.

    With `drop_last`, which is then the initial batch, no step is smaller than that: a pass ends
    where fewer examples are left, and what does not fill a step is left out. Without, a pass ends
    in a step of what is left, but of at least `least_share` examples: the step before it is
    shortened for that.
    """

    def __init__(self, order: Order, least_share: int = 1, drop_last: int | None = None) -> None:
        if order.examples < 1:
            raise ValueError("the dataset is empty")
        if drop_last is not None and order.examples < drop_last:
            raise ValueError(
                f"drop_last=True: the dataset has {order.examples} examples, which do not fill "
                f"one step of batch_size={drop_last}"
            )
        self._order = order
        self._least_share = least_share
        self._least_step = drop_last or 1

    @property
    def examples(self) -> int:
        """How many examples a pass has."""
        return self._order.examples - self._order.examples % self._least_step

    def take(self, pass_index: int, position: int, count: int) -> NDArray[np.int64]:
        """Return the next `count` dataset indices of a pass from `position`, fewer at its end."""
        left = self.examples - position
        count = min(count, left)
        short = self._least_share - (left - count)
        if left - count > 0 and short > 0:
            count = count - short if count - short >= self._least_share else left
        return self._order.slice(pass_index, position, position + count)

    def place_after(self, pass_index: int, position: int, taken: int) -> tuple[int, int]:
        """Return the pass and the position in it after a step that has `taken` examples."""
        position += taken
        if self.examples - position < self._least_step:
            return pass_index + 1, 0
        return pass_index, position


def dealt(
    indices: NDArray[np.int64],
    shares: int,
    rank: int,
    ranks: int,
    micro_steps: int,
    least: int = 1,
    speeds: Sequence[float] = (),
) -> tuple[Share, tuple[tuple[int, int], ...]]:
    """Return rank `rank`'s part of a step that is split into `shares`, however many ranks take it.

    Shares are dealt to the ranks in turn, and each is taken in up to `micro_steps` of its own.
    They are in proportion to `speeds`, one for each share, or equal without.

    Returns:
        The part, and for each of its micro-steps the number of its share and its number in that.
    """
    parts = [
        (place, number, indices_of_part, weight)
        for place in range(rank, shares, ranks)
        for own in (share(indices, place, shares, micro_steps, least, speeds),)
        for number, (indices_of_part, weight) in enumerate(
            zip(own.micro_steps, own.weights, strict=True)
        )
        if weight > 0
    ]
    if not parts:
        return _nothing_of(indices, least), ((rank, 0),)
    own = Share(tuple(part[2] for part in parts), tuple(part[3] for part in parts))
    return own, tuple((place, number) for place, number, _, _ in parts)


def share(
    indices: NDArray[np.int64],
    rank: int,
    ranks: int,
    micro_steps: int,
    least: int = 1,
    speeds: Sequence[float] = (),
) -> Share:
    """Return rank `rank`'s part of a step's `indices`, in up to `micro_steps` micro-steps.

    Parts are those of `share_sizes`; micro-steps differ by at most one example. Neither has fewer
    than `least` examples, unless the step has: of a small step some ranks get nothing that counts.
    """
    total = len(indices)
    sizes = share_sizes(total, ranks, least, speeds)
    if sizes[rank] == 0:
        return _nothing_of(indices, least)
    begin = sum(sizes[:rank])
    own = indices[begin : begin + sizes[rank]]
    parts = np.array_split(own, max(1, min(micro_steps, len(own) // least)))
    return Share(
        tuple(tuple(part.tolist()) for part in parts),
        tuple(len(part) / total for part in parts),
    )


def _nothing_of(indices: NDArray[np.int64], least: int) -> Share:
    """Return the part of a rank for which nothing is left: `least` examples of weight 0."""
    return Share((tuple(indices[:least].tolist()),), (0.0,))
