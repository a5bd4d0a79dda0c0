"""How gradients become one: DDP over the ranks of an instance, the quorum over instances.

DDP allows one communication hook, and this is it: it takes the squares for the noise scale before
and after the sum, adds the ranks of the instance up at its leader, the leaders over the quorum,
and hands the result back to the ranks. Every rank's loss is weighted by its share of the step's
examples beforehand, so a plain sum is the mean over the step, however uneven the shares are.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from autoscaler.clock import Clock
from autoscaler.training.preconditioner import LEFT_OUT, Preconditioner


@dataclass(slots=True)
class SampledSquares:
    """Squared gradient norms of one step: this rank's own, and the sum's."""

    small: float = 0.0
    big: float = 0.0


class Reducer:
    """A model whose gradients are summed over all ranks of the job when `synchronises` is set."""

    def __init__(
        self,
        model: nn.Module,
        clock: Clock,
        sum_over_quorum: Callable[[Tensor], None] | None,
        preconditioner: Preconditioner,
    ) -> None:
        self._sum_over_quorum = sum_over_quorum
        self._preconditioner = preconditioner
        self._local_ranks = dist.get_world_size() if dist.is_initialized() else 1
        self._waits = _Waits(clock)
        self.sample: SampledSquares | None = None
        self.takes_small = True
        self.spans_instances = False
        self.bare_model = model
        self._trained = [each for each in model.parameters() if each.requires_grad]
        self._summed: dict[int, dict[Tensor, Tensor]] = {}
        self.model: nn.Module = model
        if dist.is_initialized():
            # Buckets must be equal on all replicas, also on one that joined just now: DDP
            # rebuilds them after the first step unless it looks for unused parameters.
            self.model = DistributedDataParallel(model, find_unused_parameters=True)
            self.model.register_comm_hook(self, _reduce_bucket)

    def close(self) -> None:
        """Let go of the process group, also where the script keeps the wrapped model.

        A gloo group that is still held when the interpreter ends aborts the process (measured:
        8 of 10 exits of two ranks); one that nobody holds can be destroyed cleanly.
        """
        wrapper, self.model = self.model, self.bare_model
        self._summed.clear()
        if isinstance(wrapper, DistributedDataParallel):
            for held in ("reducer", "logger", "process_group"):
                setattr(wrapper, held, None)
            gc.collect()

    @property
    def synchronises(self) -> bool:
        """Whether the next forward and backward pass sums the gradients over all ranks."""
        return bool(getattr(self.model, "require_backward_grad_sync", True))

    @synchronises.setter
    def synchronises(self, value: bool) -> None:
        if isinstance(self.model, DistributedDataParallel):
            self.model.require_backward_grad_sync = value

    def take_gradients_of_others(self) -> None:
        """Give parameters that only other instances have used in this step their summed gradient.

        DDP leaves the gradient of a parameter that no rank of its own instance has used away.
        The optimizer would then move that parameter on the other instances only.
        """
        if not self.spans_instances:
            return
        used = [float(parameter.grad is not None) for parameter in self._trained]
        users = torch.tensor(used, device=self._trained[0].device)
        if self._sum_over_quorum is not None:
            self._sum_over_quorum(users)
        if self._local_ranks > 1:
            dist.broadcast(users, src=0)
        for parameter, count in zip(self._trained, users.tolist(), strict=True):
            if parameter.grad is None and count > 0:
                parameter.grad = self._summed_gradient(parameter)

    def square_of_gradients(self, parameters: Iterable[nn.Parameter]) -> float:
        """|g|^2 of what is in `.grad` now, preconditioned."""
        present = (parameter for parameter in parameters if parameter.grad is not None)
        return self._square((parameter, cast(Tensor, parameter.grad)) for parameter in present)

    def take_waited_seconds(self) -> float:
        """How long gradients were being summed since the last call, by this rank's device."""
        return self._waits.take_seconds()

    def sum_bucket(self, bucket: GradBucket) -> Tensor:
        """Sum one bucket over all ranks, in place."""
        buffer: Tensor = bucket.buffer()
        if self.sample is not None and self.takes_small:
            self.sample.small += self._square_of_bucket(bucket)
        with self._waits.timed(buffer.device):
            if self._local_ranks > 1 and not self.spans_instances:
                dist.all_reduce(buffer)
            elif self.spans_instances:
                self._sum_over_instances(buffer)
        if self.spans_instances:
            self._note_gradients(bucket)
        if self.sample is not None:
            self.sample.big += self._square_of_bucket(bucket)
        return buffer

    def _sum_over_instances(self, buffer: Tensor) -> None:
        if self._local_ranks > 1:
            dist.reduce(buffer, dst=0)
        if self._sum_over_quorum is not None:
            self._sum_over_quorum(buffer)
        if self._local_ranks > 1:
            dist.broadcast(buffer, src=0)

    def _note_gradients(self, bucket: GradBucket) -> None:
        """Remember where in the bucket's buffer each parameter's summed gradient is.

        DDP makes its buffers once, so that this is done once a bucket.
        """
        known = self._summed.get(bucket.index())
        begin = bucket.buffer().data_ptr()
        if known is None or begin not in {view.data_ptr() for view in known.values()}:
            pairs = zip(bucket.parameters(), bucket.gradients(), strict=True)
            self._summed[bucket.index()] = dict(pairs)

    def _summed_gradient(self, parameter: nn.Parameter) -> Tensor | None:
        for gradients in self._summed.values():
            if parameter in gradients:
                return gradients[parameter].detach().clone()
        return None  # the sum has failed before it came to this bucket

    def _square_of_bucket(self, bucket: GradBucket) -> float:
        return self._square(zip(bucket.parameters(), bucket.gradients(), strict=True))

    def _square(self, pairs: Iterable[tuple[Tensor, Tensor]]) -> float:
        total = 0.0
        for parameter, gradient in pairs:
            scale = self._preconditioner(parameter)
            if scale is LEFT_OUT:
                continue
            values = gradient.detach() if scale is None else gradient.detach() / scale
            flat = values.reshape(-1).float()
            total += float(torch.dot(flat, flat))
        return total


class _Waits:
    """Times what this rank waits for: by the clock, or on a GPU by its own stream.

    NCCL's collectives return once they are queued, and hold the stream up until they are done.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seconds = 0.0
        self._spans: list[tuple[torch.cuda.Event, torch.cuda.Event]] = []

    @contextmanager
    def timed(self, device: torch.device) -> Iterator[None]:
        if device.type == "cuda":
            stream = torch.cuda.current_stream(device)
            began, ended = _event(), _event()
            began.record(stream)
            yield
            ended.record(stream)
            self._spans.append((began, ended))
            return
        began_seconds = self._clock.monotonic()
        yield
        self._seconds += self._clock.monotonic() - began_seconds

    def take_seconds(self) -> float:
        """The sum since the last call; waits for what is still under way on a GPU."""
        seconds, self._seconds = self._seconds, 0.0
        spans, self._spans = self._spans, []
        for began, ended in spans:
            ended.synchronize()
            seconds += began.elapsed_time(ended) / 1e3
        return seconds


def _event() -> torch.cuda.Event:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]


def _reduce_bucket(reducer: Reducer, bucket: GradBucket) -> torch.futures.Future[Any]:
    buffer = reducer.sum_bucket(bucket)
    devices: list[int | str | torch.device] = [buffer.device]
    future: torch.futures.Future[Any] = torch.futures.Future(
        devices=devices if buffer.device.type != "cpu" else None
    )
    future.set_result(buffer)
    return future


# DDP compares a hook's annotations with types; under postponed evaluation they are strings.
_reduce_bucket.__annotations__.clear()
