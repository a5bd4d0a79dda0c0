"""How gradients become one: DDP over the ranks of an instance, the quorum over instances.

DDP allows one communication hook, and this is it: it takes the squares for the noise scale before
and after the sum, adds the ranks of the instance up at its leader, the leaders over the quorum,
and hands the result back to the ranks. Every rank's loss is weighted by its share of the step's
examples beforehand, so a plain sum is the mean over the step, however uneven the shares are.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from autoscaler.clock import Clock
from autoscaler.training.buckets import layout_of, placed
from autoscaler.training.preconditioner import Preconditioner
from autoscaler.training.squares import SampledSquares, Squares
from autoscaler.training.world import PendingSum


class Reducer:
    """A model whose gradients are summed over all ranks of the job when `synchronises` is set."""

    def __init__(
        self,
        model: nn.Module,
        clock: Clock,
        sum_over_instances: Callable[[Tensor], PendingSum] | None,
        preconditioner: Preconditioner,
    ) -> None:
        self._sum_over_instances = sum_over_instances
        self._squares = Squares(preconditioner)
        self._local_ranks = dist.get_world_size() if dist.is_initialized() else 1
        self._waits = _Timer(clock)
        self._sampling = _Timer(clock)
        self.sample: SampledSquares | None = None
        self.takes_small = True
        self.spans_instances = False
        self.bare_model = model
        self._trained = [each for each in model.parameters() if each.requires_grad]
        self._device = self._trained[0].device if self._trained else torch.device("cpu")
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

    def used(self) -> list[float]:
        """Return for each trained parameter 1 if a rank of this instance has used it, else 0."""
        return [float(parameter.grad is not None) for parameter in self._trained]

    def take_gradients_of_others(self, users: Sequence[float]) -> None:
        """Give parameters that only other instances have used in this step their summed gradient.

        DDP leaves the gradient of a parameter that no rank of its own instance has used away.
        The optimizer would then move that parameter on the other instances only.

        Args:
            users: for each trained parameter, how many instances have used it; empty where no
                other instance takes part.
        """
        for parameter, count in zip(self._trained, users, strict=False):
            if parameter.grad is None and count > 0:
                parameter.grad = self._summed_gradient(parameter)

    def begin_sample(self, step: int, takes_small: bool) -> None:
        """Take the squares of gradients in the step to come, number `step` of the job.

        Those of this rank's own gradient are taken if `takes_small`.
        """
        self.sample, self.takes_small = SampledSquares(), takes_small
        with self._sampling.timed(self._device):
            self._squares.prepare(step)

    def end_sample(self) -> SampledSquares | None:
        """Return the squares of the step, which are final once its gradients are summed."""
        sample, self.sample = self.sample, None
        if sample is not None and sample.big is None:  # no other rank, so no hook
            sample.big = self.square_of_gradients(self._trained)
        return sample

    def square_of_gradients(self, parameters: Iterable[nn.Parameter]) -> Tensor:
        """Return |g|^2 of what is in `.grad` now, preconditioned; it stays on the device."""
        present = (parameter for parameter in parameters if parameter.grad is not None)
        gradients = ((parameter, cast(Tensor, parameter.grad)) for parameter in present)
        with self._sampling.timed(self._device):
            return self._squares.of(gradients, self._device)

    def forget_factors(self) -> None:
        """Compute what gradients are preconditioned by anew at the next sampled step."""
        self._squares.forget()

    def take_waited_seconds(self) -> float:
        """Return how long gradients were being summed since the last call, by this device."""
        return self._waits.take_seconds()

    def take_sampling_seconds(self) -> float:
        """Return how long this device has taken gradient squares since the last call."""
        return self._sampling.take_seconds()

    def sum_bucket(self, bucket: GradBucket) -> Tensor:
        """Sum one bucket over all ranks, in place."""
        buffer: Tensor = bucket.buffer()
        if self.sample is not None and self.takes_small:
            self.sample.add_small(self._square_of_bucket(bucket))
        with self._waits.timed(buffer.device):
            if self._local_ranks > 1 and not self.spans_instances:
                dist.all_reduce(buffer)
            elif self.spans_instances:
                self._sum_through_leader(buffer)
        if self.spans_instances:
            self._note_gradients(bucket)
        if self.sample is not None:
            self.sample.add_big(self._square_of_bucket(bucket))
        return buffer

    def _sum_through_leader(self, buffer: Tensor) -> None:
        if self._local_ranks > 1:
            dist.reduce(buffer, dst=0)
        if self._sum_over_instances is not None:
            self._sum_over_instances(buffer).wait()
        if self._local_ranks > 1:
            dist.broadcast(buffer, src=0)

    def _note_gradients(self, bucket: GradBucket) -> None:
        """Remember where in the bucket's buffer each parameter's summed gradient is.

        DDP makes its buffers once, so that this is done once a bucket.
        """
        known = self._summed.get(bucket.index())
        begin = bucket.buffer().data_ptr()
        if known is None or begin not in {view.data_ptr() for view in known.values()}:
            parameters = bucket.parameters()
            gradients = placed(bucket.buffer(), layout_of(parameters))
            self._summed[bucket.index()] = dict(zip(parameters, gradients, strict=True))

    def _summed_gradient(self, parameter: nn.Parameter) -> Tensor | None:
        for gradients in self._summed.values():
            if parameter in gradients:
                return gradients[parameter].detach().clone()
        return None  # the sum has failed before it came to this bucket

    def _square_of_bucket(self, bucket: GradBucket) -> Tensor:
        with self._sampling.timed(bucket.buffer().device):
            return self._squares.of_bucket(bucket)


class _Timer:
    """Times what this rank does now and then: by the clock, or on a GPU by its own stream.

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
