"""The data path of a session, made from what its script has given."""

from __future__ import annotations

from autoscaler.domain.goodput import BatchBounds
from autoscaler.training.arguments import Script, least_share, length_of
from autoscaler.training.loader import Loader, LoaderSettings
from autoscaler.training.orders import Order, Sequential, Shuffled
from autoscaler.training.sampler import ElasticSampler
from autoscaler.training.shard_order import ShardOrder
from autoscaler.training.shards import ShardedDataset
from autoscaler.training.state import TrainingState


def sampler_of(script: Script, bounds: BatchBounds, state: TrainingState) -> ElasticSampler:
    """Return the sampler of a script's dataset."""
    return ElasticSampler(
        _order(script, state),
        least_share(script.model),
        bounds.initial if script.drop_last else None,
    )


def _order(script: Script, state: TrainingState) -> Order:
    if isinstance(script.dataset, ShardedDataset):
        lengths, streams = script.dataset.lengths.tolist(), script.dataset.streams
        return ShardOrder(lengths, streams, script.seed, script.shuffle)
    examples = length_of(script.dataset)
    if not script.shuffle:
        return Sequential(examples)
    return Shuffled(examples, script.seed, lambda: state.counters.first_keyed_pass)


def loader_of(script: Script) -> Loader:
    """Return the loader of a script's dataset; its workers start with the first batch."""
    settings = LoaderSettings(
        script.num_workers,
        script.collate_fn,
        script.pin_memory,
        script.prefetch_factor,
        script.worker_init_fn,
    )
    return Loader(script.dataset, settings)
