"""Arguments of `session` that a script has given to a DataLoader."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    SequentialSampler,
)

# Maps the number of a pass to its dataset indices.
Order = Callable[[int], NDArray[np.int64]]


@dataclass(frozen=True, slots=True)
class LoaderArguments:
    """Part of a DataLoader that `session` takes; see there.

    `batch_size` is that of the DataLoader. `order` is None for a sequential one.
    """

    dataset: Dataset[Any]
    batch_size: int
    order: Order | None
    collate_fn: Callable[[list[Any]], Any] | None
    num_workers: int
    pin_memory: bool
    prefetch_factor: int | None
    worker_init_fn: Callable[[int], None] | None
    drop_last: bool

    def as_session_arguments(self) -> dict[str, Any]:
        """Return the keyword arguments of `session` about data, except `batch_size`."""
        return {
            "dataset": self.dataset,
            "order": self.order,
            "shuffle": False,
            "collate_fn": self.collate_fn,
            "num_workers": self.num_workers,
            "pin_memory": self.pin_memory,
            "prefetch_factor": self.prefetch_factor,
            "worker_init_fn": self.worker_init_fn,
            "drop_last": self.drop_last,
        }

    @property
    def examples(self) -> int:
        """Examples of a pass, where `drop_last` leaves out a rest of `batch_size`."""
        return len(self.dataset) if self.order is None else len(self.order(0))  # type: ignore[arg-type]


def loader_arguments(loader: Any, seed: int, device: torch.device) -> LoaderArguments:
    """Return the arguments of a DataLoader, or of one that Accelerate has prepared.

    Args:
        loader: the DataLoader.
        seed: seed of a sampler that has none of its own.
        device: the model's device; memory is pinned for another one than the CPU.

    Raises:
        TypeError: the object is no DataLoader, or one of an iterable dataset.
        ValueError: the DataLoader has a batch sampler of the script; the message names a remedy.
    """
    if not isinstance(loader, DataLoader):
        raise TypeError(
            f"the training data are a {type(loader).__name__}: an elastic training needs one "
            "torch.utils.data.DataLoader"
        )
    if isinstance(loader.dataset, IterableDataset):
        raise TypeError(
            f"the training dataset is iterable ({type(loader.dataset).__name__}), without an "
            "order in which each example could be taken once while ranks join and leave: give a "
            "dataset with len() and indexing, or use a ShardedDataset in a script with session"
        )
    batches = _plain_batch_sampler(loader)
    # Accelerate replaces a random sampler by a seeded one, which this method finds.
    find = getattr(loader, "get_sampler", None)
    sampler = find() if callable(find) else loader.sampler
    order = None
    if batches is not None and not isinstance(sampler, SequentialSampler):
        order = sampler_order(sampler, seed)
    return LoaderArguments(
        dataset=loader.dataset,
        batch_size=(batches.batch_size if batches is not None else loader.batch_size) or 1,
        order=order,
        collate_fn=loader.collate_fn,
        num_workers=loader.num_workers,
        pin_memory=loader.pin_memory and device.type != "cpu",
        prefetch_factor=loader.prefetch_factor if loader.num_workers else None,
        worker_init_fn=loader.worker_init_fn,
        drop_last=bool(batches.drop_last if batches is not None else loader.drop_last),
    )


def sampler_order(sampler: Any, seed: int) -> Order:
    """Return a sampler's order of each pass, a function of the pass's number alone.

    A sampler with `set_epoch` is given the number. Another one finds torch's generator, and its
    own if it has one, seeded by `seed` and the number.
    """

    def order(pass_index: int) -> NDArray[np.int64]:
        set_epoch = getattr(sampler, "set_epoch", None)
        with torch.random.fork_rng(devices=[]):
            if callable(set_epoch):
                set_epoch(pass_index)
            else:
                torch.manual_seed(seed + pass_index)
                generator = getattr(sampler, "generator", None)
                if generator is not None:
                    generator.manual_seed(seed + pass_index)
            return np.fromiter(sampler, np.int64)

    return order


def _plain_batch_sampler(loader: DataLoader[Any]) -> BatchSampler | None:
    """Return the BatchSampler of a DataLoader, without Accelerate's; None without batches.

    Raises:
        ValueError: it is one of the script's own.
    """
    batches: Any = loader.batch_sampler
    if batches is None:
        return None
    batches = getattr(batches, "batch_sampler", batches)
    if type(batches) is not BatchSampler:
        raise ValueError(
            f"the DataLoader's batch_sampler is a {type(batches).__name__}, whose batches an "
            "elastic training can't divide over a changing number of devices: give batch_size, "
            "and a sampler or shuffle"
        )
    return batches
