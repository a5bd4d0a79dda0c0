"""Loader of a dataset's examples, micro-step by micro-step, in the planned order.

Each worker process reads some streams of a batch, and the training process collates them. If one
worker loaded whole batches, every worker would read every stream of its rank.
"""

from __future__ import annotations

import io
import multiprocessing
import os
import pickle
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise, repeat
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map
from torch.utils.data import DataLoader, Dataset, Sampler, default_collate, get_worker_info

from autoscaler.parent import end_with_parent
from autoscaler.training.data.seeding import SeededIndices, SeedingDataset
from autoscaler.training.data.shards import ShardedDataset

Indices = tuple[int, ...]
Collate = Callable[[list[Any]], Any]
# Yields, without end, the indices expected after the given ones.
Expected = Callable[[Indices], Iterator[Indices]]
WorkerInit = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class LoaderSettings:
    """Arguments of `torch.utils.data.DataLoader` that a script may give, with the same meanings.

    `seeds_batches`: whether batches are loaded with the seeds of `SeededIndices`.
    """

    workers: int = 0
    collate: Collate | None = None
    pin_memory: bool = False
    prefetch_factor: int | None = None
    worker_init: WorkerInit | None = None
    seeds_batches: bool = False


class Loader:
    """Loader of the requested examples; with workers, it prefetches the expected next ones.

    One DataLoader serves the whole session: its workers receive lists of indices as planned. The
    next examples are known until the membership or the batch changes. Prefetched examples that are
    then no longer wanted are dropped; the workers live on.
    """

    def __init__(self, dataset: Dataset[Any], settings: LoaderSettings) -> None:
        self._dataset = dataset
        self._settings = settings
        self._expected: Expected = lambda after: iter(())
        splits_batches = isinstance(dataset, ShardedDataset) and settings.workers > 1
        self._pieces = settings.workers if splits_batches else 1
        self._requests = _Requests(self._pieces)
        self._batches: Iterator[Any] | None = None

    def expect(self, expected: Expected) -> None:
        """Set the function that yields the indices expected after the requested ones."""
        self._expected = expected

    def fetch_first(self, indices: Indices) -> Any:
        """Return the examples at `indices` before the following ones are known; start the workers.

        Raises:
            Exception: as `fetch` does.
        """
        self._requests.source = repeat(indices)
        return self._next()

    def close(self) -> None:
        """End the workers."""
        batches, self._batches = self._batches, None
        if self._settings.workers and batches is not None:
            batches._shutdown_workers()  # type: ignore[attr-defined]

    def fetch(self, indices: Indices) -> Any:
        """Return the examples at `indices`, collated.

        Raises:
            Exception: any error of the dataset; from a worker, with the worker's traceback.
            RuntimeError: a worker was killed.
        """
        waiting = self._requests.waiting
        if not waiting or waiting[0] != indices:
            self._plan_anew(indices)
        return self._next()

    def _plan_anew(self, indices: Indices) -> None:
        """Request `indices` and the expected next ones; drop all earlier requests."""
        stale = len(self._requests.waiting)
        self._requests.source = chain((indices,), self._expected(indices))
        for _ in range(stale):
            self._next()

    def _next(self) -> Any:
        if self._batches is None:
            self._batches = iter(self._new_loader())
        pieces, errors = [], []
        for _ in range(self._pieces):
            try:
                pieces.append(next(self._batches))
            except Exception as error:  # further pieces belong to the same batch
                errors.append(error)
        self._requests.waiting.popleft()
        if errors:
            raise errors[0]
        if self._pieces == 1:
            return pieces[0]
        settings = self._settings
        return collated(pieces, settings.collate or default_collate, settings.pin_memory)

    def _new_loader(self) -> DataLoader[Any]:
        settings, is_whole = self._settings, self._pieces == 1
        is_bound = threading.current_thread() is threading.main_thread()
        return DataLoader(
            SeedingDataset(self._dataset) if settings.seeds_batches else self._dataset,
            batch_sampler=self._requests,
            collate_fn=settings.collate if is_whole else packed,
            num_workers=settings.workers,
            pin_memory=settings.pin_memory and is_whole,
            prefetch_factor=settings.prefetch_factor,
            worker_init_fn=_WorkerStart(settings.worker_init, is_bound),
        )


class _Requests(Sampler[list[int]]):
    """Lists of indices for the DataLoader, which requests one more for each that it returns.

    Without workers it requests them one by one. `waiting` holds the lists not yet returned. A list
    of a sharded dataset is split into pieces, one per worker.
    """

    def __init__(self, pieces: int) -> None:
        self.source: Iterator[Indices] = iter(())
        self.waiting: deque[Indices] = deque()
        self._pieces = pieces
        self._pending_pieces: deque[list[int]] = deque()

    def __iter__(self) -> Iterator[list[int]]:
        return self

    def __next__(self) -> list[int]:
        if not self._pending_pieces:
            indices = next(self.source)
            self.waiting.append(indices)
            if isinstance(indices, SeededIndices):
                self._pending_pieces.append(cast(list[int], indices))  # a copy would have no seed
            else:
                self._pending_pieces.extend(split(indices, self._pieces))
        return self._pending_pieces.popleft()


class _WorkerStart:
    """Start-up of a worker process.

    `is_bound`: whether Linux may end the worker with the thread that forked it.
    """

    def __init__(self, init: WorkerInit | None, is_bound: bool) -> None:
        self._init = init
        self._is_bound = is_bound

    def __call__(self, worker: int) -> None:
        parent = multiprocessing.parent_process()
        # A worker holds its parent's sockets: peers of a killed rank would wait for their end.
        # A worker of a fork server ends some seconds later, by DataLoader's own check.
        if self._is_bound and parent is not None and parent.pid == os.getppid():
            end_with_parent(parent.pid)
        info = get_worker_info()
        if info is not None and isinstance(info.dataset, SeedingDataset):
            object.__setattr__(info, "dataset", info.dataset.plain)
        if self._init is not None:
            self._init(worker)


class _Pickler(pickle.Pickler):
    """Pickler of CPU tensors as arrays; torch would pass a file descriptor for each."""

    def reducer_override(self, value: Any) -> Any:
        is_plain = type(value) is Tensor and value.layout is torch.strided and value.is_cpu
        if not is_plain or value.requires_grad or value.dtype not in _NUMPY_DTYPES:
            return NotImplemented
        return torch.from_numpy, (value.numpy(),)


_NUMPY_DTYPES = {
    torch.from_numpy(np.empty(0, dtype)).dtype
    for dtype in ("?", "u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "c8", "c16")
}


def packed(examples: Sequence[Any]) -> Tensor:
    """Serialise a worker's piece into one byte tensor, which processes can share."""
    buffer = io.BytesIO()
    _Pickler(buffer, protocol=pickle.HIGHEST_PROTOCOL).dump(list(examples))
    return torch.frombuffer(buffer.getbuffer(), dtype=torch.uint8)


def joined(pieces: Sequence[Tensor]) -> list[Any]:
    """Return the examples of all pieces, in order."""
    return [example for piece in pieces for example in pickle.loads(piece.numpy().data)]


def split(indices: Sequence[int], pieces: int) -> list[list[int]]:
    """Split `indices` into `pieces` contiguous lists, one per worker; some may be empty."""
    bounds = [len(indices) * piece // pieces for piece in range(pieces + 1)]
    return [list(indices[low:high]) for low, high in pairwise(bounds)]


def collated(pieces: Sequence[Tensor], collate: Callable[[list[Any]], Any], pins: bool) -> Any:
    """Collate the examples of all pieces; with `pins`, into pinned memory if there is a device."""
    batch = collate(joined(pieces))
    return tree_map(_pinned, batch) if pins and torch.accelerator.is_available() else batch


def _pinned(leaf: Any) -> Any:
    return leaf.pin_memory() if isinstance(leaf, Tensor) else leaf
