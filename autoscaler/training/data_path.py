"""Construction of a session's data path from the script's arguments."""

from __future__ import annotations

import logging
from collections.abc import Callable

from autoscaler.domain.goodput import BatchBounds
from autoscaler.training.arguments import Script, least_share, length_of
from autoscaler.training.data.loader import Loader, LoaderSettings
from autoscaler.training.data.orders import Chosen, Order, Sequential, Shuffled
from autoscaler.training.data.sampler import ElasticSampler
from autoscaler.training.data.shard_order import ShardOrder
from autoscaler.training.data.shards import ShardedDataset

_log = logging.getLogger(__name__)


def order_of(script: Script, first_keyed_pass: Callable[[], int] = lambda: 0) -> Order:
    """Return the order of examples that a script has chosen; see `orders.Shuffled`.

    Raises:
        TypeError, ValueError: the script's own order returns no indices of the dataset.
    """
    if isinstance(script.dataset, ShardedDataset):
        lengths, streams = script.dataset.lengths.tolist(), script.dataset.streams
        return ShardOrder(lengths, streams, script.seed, script.shuffle)
    examples = length_of(script.dataset)
    if script.order is not None:
        return Chosen(script.order, examples)
    if not script.shuffle:
        return Sequential(examples)
    return Shuffled(examples, script.seed, first_keyed_pass)


def sampler_of(
    script: Script, order: Order, bounds: BatchBounds, warns: bool = False
) -> ElasticSampler:
    """Return the sampler of a script's dataset in `order`.

    `warns`: whether to log a warning if a pass is shorter than a batch.
    """
    if warns:
        _warn_of_short_pass(order.examples, bounds.initial)
    least_step = bounds.initial if script.drop_last else None
    return ElasticSampler(order, least_share(script.model), least_step)


def seeds_batches(script: Script) -> bool:
    """Return whether each batch is loaded with the random seed of its logical rank.

    A shard's examples are read continuously, so its random numbers belong to no single batch. Even
    without workers, batches are seeded when loaded: a new DataLoader draws random numbers before.
    """
    return script.logical_ranks is not None and not isinstance(script.dataset, ShardedDataset)


def loader_of(script: Script) -> Loader:
    """Return the loader of a script's dataset; its workers start with the first batch."""
    settings = LoaderSettings(
        script.num_workers,
        script.collate_fn,
        script.pin_memory,
        script.prefetch_factor,
        script.worker_init_fn,
        seeds_batches=seeds_batches(script),
    )
    return Loader(script.dataset, settings)


def _warn_of_short_pass(examples: int, batch_size: int) -> None:
    """Log a warning if a pass has fewer `examples` than a step."""
    if examples < batch_size:
        _log.warning(
            "dataset: a pass has %d examples, fewer than batch_size=%d, so each step takes %d: "
            "give a longer dataset, or a smaller batch_size with a learning rate for it",
            examples,
            batch_size,
            examples,
        )
