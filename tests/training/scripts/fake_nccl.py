"""A gradient group that fails as NCCL does: it hangs, raises nothing and leaves garbage."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
from torch._C._distributed_c10d import AllreduceOptions, ProcessGroupGloo, Store

from autoscaler.training.collectives.world import parking

_SLICE = timedelta(seconds=0.02)
_GARBAGE = 1e30


class FakeNccl:
    """Sums over gloo that end only by an abort once a peer is lost.

    `wait` of a work stands for a host's read of the tensor. It returns when the device would be
    done, whatever the tensor then holds. `on_sum` is called before each sum.
    """

    blocks_host = False

    def __init__(
        self,
        store: Store,
        index: int,
        members: int,
        control: Any,
        on_sum: Callable[[], object] = lambda: None,
        timeout_seconds: float = 60.0,
    ) -> None:
        timeout = timedelta(seconds=timeout_seconds)
        self._group = ProcessGroupGloo(store, index, members, timeout)
        self._on_sum = on_sum
        self._last: _FakeWork | None = None
        self._error: Exception | None = None
        self.aborted = threading.Event()

    def all_reduce(self, tensor: torch.Tensor) -> _FakeWork:
        self._on_sum()
        self._last = _FakeWork(self._group, tensor, self.aborted)
        return self._last

    def finish(self) -> None:
        if self._last is not None:
            self._last.wait()

    def error(self) -> Exception | None:
        return self._error

    def abort(self) -> None:
        self._error = RuntimeError("aborted")
        self.aborted.set()
        if self._last is not None:
            parking.leave(self._group, [self._last.work])


class _FakeWork:
    def __init__(
        self, group: ProcessGroupGloo, tensor: torch.Tensor, aborted: threading.Event
    ) -> None:
        self._tensor = tensor
        self._sum = tensor.clone()
        self._aborted = aborted
        self._done = threading.Event()
        self.work = group.allreduce([self._sum], AllreduceOptions())
        threading.Thread(target=self._run, daemon=True).start()

    def is_completed(self) -> bool:
        return self._done.is_set()

    def wait(self) -> None:
        self._done.wait()

    def _run(self) -> None:
        while not self._aborted.is_set() and not self._has_sum():
            pass
        is_whole = not self._aborted.is_set()
        self._tensor.copy_(self._sum if is_whole else torch.full_like(self._sum, _GARBAGE))
        self._done.set()

    def _has_sum(self) -> bool:
        """Return whether the sum is complete soon; it never is once a peer is lost."""
        try:
            self.work.wait(_SLICE)
        except RuntimeError:
            self._aborted.wait(_SLICE.total_seconds())
            return False
        return True
