"""Division of a dataset into steps, and of a step into the ranks' shares.

A *pass* is one traversal of the whole dataset in its own order. The position in a pass belongs to
the job, not to a rank. Each example of a pass is therefore taken exactly once, however often ranks
join and leave: a step that is not committed leaves the position unchanged.
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
    """Return how many of a step's `total` examples each rank takes; the sizes add up to `total`.

    Shares are equal up to one example without `speeds`, or if these would leave a rank fewer than
    `least` examples. Otherwise shares are proportional to `speeds`, so that all ranks need about
    the same time.
    """
    holders = max(1, min(ranks, total // least))
    if speeds and holders == ranks:
        bounds = (
            round(cumulated / sum(speeds) * total) for cumulated in accumulate(speeds, initial=0.0)
        )
        sizes = tuple(end - begin for begin, end in pairwise(bounds))
        if min(sizes) >= least:
            return sizes
    rest = total % holders
    equal = (total // holders + (rank < rest) for rank in range(holders))
    return (*equal, *(0,) * (ranks - holders))


@dataclass(frozen=True, slots=True)
class RankShare:
    """Examples that one rank takes of one step, by micro-step.

    `micro_steps` holds the dataset indices; `weights` holds the weight of each micro-step's mean
    loss in the mean over the whole step. A rank without examples gets some of weight 0, so that it
    can take part in the step's collectives.
    """

    micro_steps: tuple[tuple[int, ...], ...]
    weights: tuple[float, ...]

    @property
    def examples(self) -> int:
        """Number of examples with a weight above 0."""
        return sum(
            len(indices)
            for indices, weight in zip(self.micro_steps, self.weights, strict=True)
            if weight > 0
        )


class ElasticSampler:
    """Sampler of each step's examples, in a given order; the same on every rank.

    `drop_last` is the initial batch size or None. If given, no step is smaller: a pass ends when
    fewer examples are left, and these are left out. If None, a pass ends with a step of the
    remaining examples, at least `least_share`; the step before it is shortened for that.

    Raises:
        ValueError: the dataset is empty or does not fill one step of `drop_last` examples.
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
        """Number of examples in a pass."""
        return self._order.examples - self._order.examples % self._least_step

    def take(self, pass_index: int, position: int, count: int) -> NDArray[np.int64]:
        """Return up to `count` dataset indices of a pass from `position`, fewer at its end."""
        remaining = self.examples - position
        count = min(count, remaining)
        missing = self._least_share - (remaining - count)
        if remaining - count > 0 and missing > 0:
            count = count - missing if count - missing >= self._least_share else remaining
        return self._order.slice(pass_index, position, position + count)

    def place_after(self, pass_index: int, position: int, taken: int) -> tuple[int, int]:
        """Return the pass and position after a step that took `taken` examples."""
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
) -> tuple[RankShare, tuple[tuple[int, int], ...]]:
    """Return rank `rank`'s part of a step that is split into `shares`, for any number of ranks.

    Shares are assigned to the ranks in turn, each in up to `micro_steps` micro-steps. Their sizes
    are proportional to `speeds`, one speed per share, or equal without.

    Returns:
        The part, and for each of its micro-steps the index of its share and its index in the
        share.
    """
    parts = [
        (index, number, indices_of_part, weight)
        for index in range(rank, shares, ranks)
        for part in (share(indices, index, shares, micro_steps, least, speeds),)
        for number, (indices_of_part, weight) in enumerate(
            zip(part.micro_steps, part.weights, strict=True)
        )
        if weight > 0
    ]
    if not parts:
        return _empty_share(indices, least), ((rank, 0),)
    rank_share = RankShare(tuple(part[2] for part in parts), tuple(part[3] for part in parts))
    return rank_share, tuple((index, number) for index, number, _, _ in parts)


def share(
    indices: NDArray[np.int64],
    rank: int,
    ranks: int,
    micro_steps: int,
    least: int = 1,
    speeds: Sequence[float] = (),
) -> RankShare:
    """Return rank `rank`'s part of a step's `indices`, in up to `micro_steps` micro-steps.

    Parts are those of `share_sizes`; micro-steps differ by at most one example. Both have at least
    `least` examples, unless the step has fewer. In a small step some ranks get examples of weight
    0.
    """
    total = len(indices)
    sizes = share_sizes(total, ranks, least, speeds)
    if sizes[rank] == 0:
        return _empty_share(indices, least)
    begin = sum(sizes[:rank])
    rank_indices = indices[begin : begin + sizes[rank]]
    parts = np.array_split(rank_indices, max(1, min(micro_steps, len(rank_indices) // least)))
    return RankShare(
        tuple(tuple(part.tolist()) for part in parts),
        tuple(len(part) / total for part in parts),
    )


def _empty_share(indices: NDArray[np.int64], least: int) -> RankShare:
    """Return the share of a rank without examples: `least` examples of weight 0."""
    return RankShare((tuple(indices[:least].tolist()),), (0.0,))
