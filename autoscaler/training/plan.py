"""The steps to come on this rank: their examples, its share, and where the next one begins."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from autoscaler.training.data.loader import Indices
from autoscaler.training.data.sampler import ElasticSampler, Share, dealt
from autoscaler.training.data.seeding import SeededIndices
from autoscaler.training.replica import Replica
from autoscaler.training.state.training_state import TrainingState
from autoscaler.training.steps.streams import Stream, Use, seed_of


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """One step as this rank takes it; each micro-step of `own` has a stream of random numbers.

    `examples` are those of all ranks; `samples`: gradient squares are taken; `next_place` is the
    pass and the position at which the step after it begins.
    """

    examples: int
    own: Share
    streams: tuple[Stream, ...]
    samples: bool
    next_place: tuple[int, int]


class Plan:
    """The steps of one rank, as the counters and what was agreed on determine them.

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
        """Return the step that the counters stand before."""
        counters = self._state.counters
        # A checkpoint may stand beyond the end of a dataset that has become shorter since.
        place = self._sampler.place_after(counters.pass_index, counters.position, taken=0)
        return self._step(counters.step, place)

    def expected(self, after: Indices) -> Iterator[Indices]:
        """Yield the micro-steps that follow `after`, one of the next step, if nothing changes."""
        number, step = self._state.counters.step, self.next_step()
        parts = step.own.micro_steps
        yield from parts[parts.index(after) + 1 :] if after in parts else parts
        while True:
            number, step = number + 1, self._step(number + 1, step.next_place)
            yield from step.own.micro_steps

    def _step(self, number: int, place: tuple[int, int]) -> PlannedStep:
        replica, agreement = self._replica, self._replica.agreement
        indices = self._sampler.take(*place, agreement.batch_total)
        samples = replica.samples_step(number, len(indices))
        shares, least = self._logical_ranks or agreement.ranks, replica.least_share
        # A lone rank splits a step in which it takes gradient squares.
        least_parts = 2 if samples and agreement.ranks == shares == 1 else 1
        speeds = () if self._logical_ranks else agreement.speeds
        micro_steps = max(replica.batch_over(shares).accumulation + 1, least_parts)
        own, places = dealt(
            indices, shares, replica.rank, agreement.ranks, micro_steps, least, speeds
        )
        streams = tuple(Stream(*place) for place in places)
        own = self._seeded(number, own, streams)
        next_place = self._sampler.place_after(*place, len(indices))
        return PlannedStep(len(indices), own, streams, samples, next_place)

    def _seeded(self, step: int, own: Share, streams: tuple[Stream, ...]) -> Share:
        seed = self._batch_seed
        if seed is None:
            return own
        micro_steps = tuple(
            SeededIndices.of(indices, seed_of(seed, step, stream, Use.BATCH))
            for indices, stream in zip(own.micro_steps, streams, strict=True)
        )
        return replace(own, micro_steps=micro_steps)
