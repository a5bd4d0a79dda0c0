"""How gradients become one: DDP's buckets, summed over the ranks of all instances.

DDP allows one communication hook, and this is it: it takes the squares for the noise scale before
and after the sum, and has the bucket summed beside the backward pass. Every rank's loss is
weighted by its share of the step's examples beforehand, so a plain sum is the mean over the step,
however uneven the shares are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket

from autoscaler.clock import Clock
from autoscaler.training.collectives.crossing import Aside, Crossing
from autoscaler.training.collectives.routes import Leg
from autoscaler.training.collectives.static_graph import settle_buckets, unused_error
from autoscaler.training.collectives.timer import Timer
from autoscaler.training.collectives.world import PendingSum
from autoscaler.training.collectives.wrapping import Wrapped
from autoscaler.training.gradients.buckets import layout_of, placed
from autoscaler.training.gradients.preconditioner import Preconditioner
from autoscaler.training.gradients.squares import SampledSquares, Squares


class Reducer:
    """A model whose gradients are summed over all ranks of the job when `synchronises` is set.

    `sum_over_instances` begins a sum over the ranks with this rank's number in all instances; None
    where this rank takes no part in one. `blocks_host`: on a GPU, too, it holds up the thread that
    waits for it. Gradients travel as `wire_type`, if that is given. `has_static_graph`: each step
    uses every trained parameter.
    """

    def __init__(
        self,
        model: nn.Module,
        clock: Clock,
        sum_over_instances: Callable[[Tensor], PendingSum] | None,
        preconditioner: Preconditioner,
        blocks_host: bool = False,
        wire_type: torch.dtype | None = None,
        has_static_graph: bool = False,
    ) -> None:
        self._squares = Squares(preconditioner)
        self._local_ranks = dist.get_world_size() if dist.is_initialized() else 1
        self._waits = Timer(clock)
        self._sampling = Timer(clock)
        self.sample: SampledSquares | None = None
        self.takes_small = True
        self.spans_instances = False
        self._has_begun_last = False
        self.bare_model = model
        self._trained = [each for each in model.parameters() if each.requires_grad]
        self._wire_type = wire_type
        self._device = self._trained[0].device if self._trained else torch.device("cpu")
        self._aside = Aside(self._device, blocks_host)
        group = _group_for_gradients(self._aside.has_thread)
        self._crossing = Crossing(group, sum_over_instances, wire_type)
        self._summed: dict[int, _Views] = {}
        self._sums: list[Callable[[], object]] = []  # each waits for one
        self._has_static_graph = has_static_graph
        self.model: nn.Module = self._wrapped(model) if dist.is_initialized() else model

    def _wrapped(self, model: nn.Module) -> Wrapped:
        """Return the model in DDP, with buckets that are equal on all replicas from now on."""
        is_static = self._has_static_graph
        wrapper = Wrapped(model, self, _reduce_bucket, is_static)
        if is_static:
            settle_buckets(wrapper, self._trained)
            self._has_begun_last = False
            self._sums.clear()
        return wrapper

    def close(self) -> None:
        """Let go of the process group, also where the script keeps the wrapped model.

        A gloo group that is still held when the interpreter ends aborts the process (measured:
        8 of 10 exits of two ranks); one that nobody holds can be destroyed cleanly.
        """
        wrapper, self.model = self.model, self.bare_model
        self._summed.clear()
        self._sums.clear()
        self._aside.stop()
        self._crossing.close()
        if isinstance(wrapper, Wrapped):
            wrapper.close()

    @property
    def synchronises(self) -> bool:
        """Whether the next forward and backward pass sums the gradients over all ranks."""
        return bool(getattr(self.model, "require_backward_grad_sync", True))

    @synchronises.setter
    def synchronises(self, value: bool) -> None:
        if isinstance(self.model, Wrapped):
            self.model.require_backward_grad_sync = value

    @torch.no_grad()
    def end_sums(self) -> None:
        """Wait for the sums of the last backward pass that DDP has not waited for."""
        for wait in self._sums:
            wait()
        self._sums.clear()

    def require_synchronised(self) -> None:
        """Check that the backward passes of a step have made gradients and summed them.

        Raises:
            RuntimeError: they have not: the loss does not come from `model`.
            ValueError: a parameter of a static graph has no part in the last pass.
        """
        has_summed, self._has_begun_last = self._has_begun_last, False
        if not isinstance(self.model, Wrapped):
            enough = all if self._has_static_graph else any
            has_summed = enough(parameter.grad is not None for parameter in self._trained)
        if not has_summed and self._has_static_graph:
            raise unused_error(self.bare_model)
        if not has_summed:
            raise RuntimeError(
                "job.step(loss): the loss is not computed from job.model, so no gradient of it is "
                "summed over the ranks: call job.model(...) in training, not the plain model"
            )

    def begin_step(self) -> None:
        """Expect the sums of one step."""
        self._sums.clear()
        self._has_begun_last = False

    def begin_micro_step(self, examples: int, least: int) -> None:
        """Expect the passes of so many examples; see `Wrapped`."""
        if isinstance(self.model, Wrapped) and self.can_give_up:
            self.model.begin_micro_step(examples, least)

    @property
    def can_give_up(self) -> bool:
        """Whether a step whose passes run out of memory can be given up."""
        return isinstance(self.model, Wrapped) and not self._has_static_graph

    @property
    def ran_out(self) -> bool:
        """Whether the forward pass of the present micro-step ran out of memory."""
        return isinstance(self.model, Wrapped) and self.model.ran_out

    @property
    def fits_none(self) -> bool:
        """Whether a forward pass of the fewest examples ran out of memory."""
        return isinstance(self.model, Wrapped) and self.model.fits_none

    def give_up(self, loss: Tensor) -> None:
        """End the present step without this rank's gradients: it has run out of memory.

        The other ranks are in the step's sums, or will be. They get sums that are not finite, so
        no rank moves. What the passes behind `loss` keep is freed.

        Raises:
            RuntimeError: all sums had begun before, so that the other ranks will move.
        """
        wrapper, self.sample = self.model, None
        assert isinstance(wrapper, Wrapped), "only a wrapped model can give up"
        wrapper.forget_passes(loss)
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        if self._crossing.legs:
            self._end_sums(wrapper)
        wrapper.begin_anew()
        self._summed.clear()

    def _end_sums(self, wrapper: Wrapped) -> None:
        left = wrapper.empty_buckets()[len(self._sums) :]
        if not left:
            raise RuntimeError("memory ran out after the last gradient")
        for buffer in left:
            buffer.fill_(torch.nan)
            self._begin(buffer, lambda: None)
        self.end_sums()
        wrapper.match_used_parameters()

    def used(self) -> list[float]:
        """Return for each trained parameter 1 if a rank of this instance has used it, else 0.

        Empty for a static graph, where all ranks use all.
        """
        if self._has_static_graph:
            return []
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

    def timed_wait(self) -> AbstractContextManager[None]:
        """Count the time inside as waited for the other ranks, as far as the device idles."""
        return self._waits.timed(self._device)

    def take_waited_seconds(self) -> float:
        """Return how long this device has waited for the other ranks since the last call.

        Those are sums of gradients after the last of its own gradients, and `timed_wait`. Sums
        beside the backward pass do not count.
        """
        return self._waits.take_seconds()

    def take_sampling_seconds(self) -> float:
        """Return how long this device has taken gradient squares since the last call."""
        return self._sampling.take_seconds()

    def take_route(
        self, ranks_by_instance: Sequence[int], instance: int, has_rails: bool = False
    ) -> None:
        """Sum gradients over these instances from now on; see `routes.route`."""
        self.spans_instances = len(ranks_by_instance) > 1
        self._crossing.take_route(ranks_by_instance, instance, has_rails)

    @property
    def synchronised_bytes(self) -> int:
        """The size of what is summed over the ranks in each step, as it travels.

        Those are the gradients of trained parameters: frozen ones have none.
        """
        return sum(
            parameter.numel() * (self._wire_type or parameter.dtype).itemsize
            for parameter in self._trained
        )

    @property
    def bucket_sizes(self) -> str:
        """The sizes of the buckets in bytes, equal on all ranks; empty where nothing is summed.

        Those of a static graph are given by the numbers of the parameters in them.
        """
        if not isinstance(self.model, Wrapped):
            return ""
        if self._has_static_graph:
            numbers: dict[Tensor, int] = {
                each: number for number, each in enumerate(self._trained)
            }
            buckets = (self._summed[index].views for index in sorted(self._summed))
            return str([[numbers[parameter] for parameter in views] for views in buckets])
        data = self.model._get_ddp_logging_data()  # type: ignore[no-untyped-call]
        return str(data.get("bucket_sizes", ""))

    @property
    def legs(self) -> tuple[Leg, ...]:
        """The collectives that sum a bucket on this rank now."""
        return self._crossing.legs

    def begin_sum(self, bucket: GradBucket) -> torch.futures.Future[Any]:
        """Begin to sum one bucket over all ranks, in place; its future is the bucket's buffer."""
        buffer, parameters = bucket.buffer(), bucket.parameters()
        self._has_begun_last = self._has_begun_last or bucket.is_last()
        if self.spans_instances or self._has_static_graph:
            self._note_gradients(bucket)
        sample = self.sample
        if sample is not None and self.takes_small:
            sample.add_small(self._square(parameters, buffer))
        if not self._crossing.legs:
            if sample is not None:
                sample.add_big(self._square(parameters, buffer))
            return _done(buffer)
        # What comes before the last bucket's sum may pass unnoticed, beside the backward pass.
        ended = self._waits.begin(buffer.device) if bucket.is_last() else None

        def measure() -> None:
            if sample is not None:
                sample.add_big(self._square(parameters, buffer))
            if ended is not None:
                ended()

        return self._begin(buffer, measure)

    def _begin(self, buffer: Tensor, measure: Callable[[], None]) -> torch.futures.Future[Any]:
        """Begin to sum a bucket, to `measure` it afterwards; return the future for DDP.

        Gradients are views of the buffers, so that a sum on a CPU may come to its end after
        DDP's backward pass; `end_sums` waits for it.
        """
        if self._device.type == "cpu" and self._crossing.is_rail_alone:
            finish = self._crossing.begin(buffer)

            def finish_and_measure() -> None:
                finish()
                measure()

            self._sums.append(finish_and_measure)
            return _done(buffer)

        def sum_and_measure() -> None:
            self._crossing.sum(buffer)
            measure()

        ended = self._aside.begin(buffer, sum_and_measure)
        self._sums.append(ended.wait)
        return ended

    def _note_gradients(self, bucket: GradBucket) -> None:
        """Remember where in the bucket's buffer each parameter's summed gradient is.

        DDP keeps its buffers, so that this is done once a bucket.
        """
        buffer, known = bucket.buffer(), self._summed.get(bucket.index())
        place = (buffer.data_ptr(), buffer.numel())
        if known is None or known.place != place:
            parameters = bucket.parameters()
            gradients = placed(buffer, layout_of(parameters))
            views = dict(zip(parameters, gradients, strict=True))
            self._summed[bucket.index()] = _Views(place, views)

    def _summed_gradient(self, parameter: nn.Parameter) -> Tensor | None:
        for bucket in self._summed.values():
            if parameter in bucket.views:
                return bucket.views[parameter].detach().clone()
        return None  # the sum has failed before it came to this bucket

    def _square(self, parameters: list[Tensor], buffer: Tensor) -> Tensor:
        with self._sampling.timed(buffer.device):
            return self._squares.of_bucket(parameters, buffer)


@dataclass(frozen=True, slots=True)
class _Views:
    """The gradients in a bucket's buffer by their parameters; `place` tells buffers apart."""

    place: tuple[int, int]
    views: dict[Tensor, Tensor]


def _group_for_gradients(has_thread: bool) -> dist.ProcessGroup | None:
    """Return a group of this instance's ranks for gradients, or None where there is one rank.

    One that a thread uses must not be DDP's own: ranks could take turns differently.
    """
    if not dist.is_initialized() or dist.get_world_size() == 1:
        return None
    return dist.new_group() if has_thread else dist.group.WORLD


def _done(buffer: Tensor) -> torch.futures.Future[Any]:
    devices: list[int | str | torch.device] = [buffer.device]
    future: torch.futures.Future[Any] = torch.futures.Future(
        devices=devices if buffer.device.type != "cpu" else None
    )
    future.set_result(buffer)
    return future


def _reduce_bucket(reducer: Reducer, bucket: GradBucket) -> torch.futures.Future[Any]:
    return reducer.begin_sum(bucket)


# DDP compares a hook's annotations with types; under postponed evaluation they are strings.
_reduce_bucket.__annotations__.clear()
