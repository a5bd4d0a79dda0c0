"""Plan of the next steps on one rank: the examples, this rank's share, and the next position."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from autoscaler.training.data.loader import Indices
from autoscaler.training.data.sampler import ElasticSampler, RankShare, dealt
from autoscaler.training.data.seeding import SeededIndices
from autoscaler.training.replica import Replica
from autoscaler.training.state.training_state import TrainingState
from autoscaler.training.steps.streams import Stream, Use, seed_of


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step as this rank takes it.

    Attributes:
        examples: examples of all ranks in the step.
        own: this rank's share, by micro-step.
        streams: stream of random numbers of each micro-step of `own`.
        samples: whether the step takes gradient squares.
        next_place: pass and position at which the following step begins.
    """

    examples: int
    own: RankShare
    streams: tuple[Stream, ...]
    samples: bool
    next_place: tuple[int, int]


class StepPlan:
    """Steps of one rank, as determined by the counters and the round's agreement.

    With a `batch_seed` the indices of micro-steps are `SeededIndices`.
    """

    def __init__(
        self,
        sampler: ElasticSampler,
        state: TrainingState,
        replica: Replica,
        logical_ranks: int | None = None,
        batch_seed: int | None = None,
    ) -> None:
        self._logical_ranks = logical_ranks
        self._batch_seed = batch_seed
        self._sampler = sampler
        self._state = state
        self._replica = replica

    def next_step(self) -> PlannedStep:
        """Return the step after the committed ones."""
        counters = self._state.counters
        # A dataset that has become shorter may end before the checkpoint's position.
        position = self._sampler.place_after(counters.pass_index, counters.position, taken=0)
        return self._planned_step(counters.step, position)

    def expected(self, after: Indices) -> Iterator[Indices]:
        """Yield, without end, the micro-steps expected after `after`, one of the next step."""
        number, step = self._state.counters.step, self.next_step()
        parts = step.own.micro_steps
        yield from parts[parts.index(after) + 1 :] if after in parts else parts
        while True:
            number, step = number + 1, self._planned_step(number + 1, step.next_place)
            yield from step.own.micro_steps

    def _planned_step(self, number: int, place: tuple[int, int]) -> PlannedStep:
        replica, agreement = self._replica, self._replica.agreement
        indices = self._sampler.take(*place, agreement.batch_total)
        samples = replica.samples_step(number, len(indices))
        shares, least_share = self._logical_ranks or agreement.ranks, replica.least_share
        # A single rank splits a step in which it takes gradient squares.
        least_parts = 2 if samples and agreement.ranks == shares == 1 else 1
        speeds = () if self._logical_ranks else agreement.speeds
        micro_steps = max(replica.batch_over(shares).accumulation + 1, least_parts)
        share, places = dealt(
            indices, shares, replica.rank, agreement.ranks, micro_steps, least_share, speeds
        )
        streams = tuple(Stream(*place) for place in places)
        share = self._with_seeds(number, share, streams)
        next_place = self._sampler.place_after(*place, len(indices))
        return PlannedStep(len(indices), share, streams, samples, next_place)

    def _with_seeds(self, step: int, share: RankShare, streams: tuple[Stream, ...]) -> RankShare:
        seed = self._batch_seed
        if seed is None:
            return share
        micro_steps = tuple(
            SeededIndices.of(indices, seed_of(seed, step, stream, Use.BATCH))
            for indices, stream in zip(share.micro_steps, streams, strict=True)
        )
        return replace(share, micro_steps=micro_steps)
