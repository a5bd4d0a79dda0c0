"""Examples of a dataset, micro-step by micro-step, in the order the sampler says."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from torch.utils.data import DataLoader, Dataset, Sampler, default_collate

Indices = tuple[int, ...]
Collate = Callable[[list[Any]], Any]


class Loader:
    """Fetches the examples that are asked for; with workers, those expected next in advance.

    Which examples come next is known until the membership or the batch changes: what workers
    fetched ahead and is not what is asked for then is thrown away.
    """

    def __init__(
        self,
        dataset: Dataset[Any],
        collate: Collate | None,
        workers: int,
    ) -> None:
        self._dataset = dataset
        self._collate = collate or default_collate
        self._workers = workers
        self._expected: Callable[[], Iterator[Indices]] = lambda: iter(())
        self._ahead: Iterator[tuple[Indices, Any]] | None = None

    def expect(self, expected: Callable[[], Iterator[Indices]]) -> None:
        """Let workers fetch what `expected` yields when asked anew."""
        self._expected = expected

    def close(self) -> None:
        """End the workers."""
        self._ahead = None

    def fetch(self, indices: Indices) -> Any:
        """The examples at `indices`, collated."""
        if self._workers == 0:
            return self._collate([self._dataset[index] for index in indices])
        if self._ahead is not None:
            fetched, batch = next(self._ahead, ((), None))
            if fetched == indices:
                return batch
            self._ahead = None
        self._ahead = iter(self._new_ahead())
        fetched, batch = next(self._ahead, ((), None))
        if fetched == indices:
            return batch
        self._ahead = None
        return self._collate([self._dataset[index] for index in indices])

    def _new_ahead(self) -> DataLoader[Any]:
        return DataLoader(
            _Indexed(self._dataset),
            batch_sampler=_Expected(self._expected),
            collate_fn=_CollateIndexed(self._collate),
            num_workers=self._workers,
        )


class _Indexed(Dataset[tuple[int, Any]]):
    """A dataset that says which example it gives."""

    def __init__(self, dataset: Dataset[Any]) -> None:
        self._dataset = dataset

    def __getitem__(self, index: int) -> tuple[int, Any]:
        return index, self._dataset[index]


class _CollateIndexed:
    def __init__(self, collate: Collate) -> None:
        self._collate = collate

    def __call__(self, pairs: Sequence[tuple[int, Any]]) -> tuple[Indices, Any]:
        return tuple(index for index, _ in pairs), self._collate([item for _, item in pairs])


class _Expected(Sampler[list[int]]):
    """Batches of indices as they are expected now; read anew by each iteration."""

    def __init__(self, expected: Callable[[], Iterator[Indices]]) -> None:
        self._expected = expected

    def __iter__(self) -> Iterator[list[int]]:
        return (list(indices) for indices in self._expected())
