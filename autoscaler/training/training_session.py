"""Interface of the training library for training scripts.

At most five lines differ from a plain PyTorch loop, and the script runs unchanged without Castor::

    from autoscaler.training import session

    with session(model, optimizer, dataset, batch_size=128) as job:
        for inputs, targets in job.batches(epochs=20):
            job.step(loss_function(job.model(inputs), targets))
        job.report(accuracy=evaluate(model))
"""

from __future__ import annotations

import atexit
import math
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.utils.data import Dataset

from autoscaler.clock import Clock, SystemClock
from autoscaler.domain.activity import phase_name
from autoscaler.training.arguments import Rehearsal, Script
from autoscaler.training.data.loader import Collate, WorkerInit
from autoscaler.training.data.orders import ChosenOrder
from autoscaler.training.data.shards import ShardedDataset
from autoscaler.training.departure import SessionEnd
from autoscaler.training.opening import Parts, open_parts
from autoscaler.training.rehearsal import rehearsed
from autoscaler.training.saving import CheckpointSchedule
from autoscaler.training.session_rounds import SessionRounds
from autoscaler.training.session_steps import Steps
from autoscaler.training.state.training_state import Scheduler
from autoscaler.training.steps.scaling import ScaledLosses, scaled_losses
from autoscaler.training.steps.step import Step
from autoscaler.training.watch import Watch, present_watch

__all__ = ["ShardedDataset", "Step", "session"]

_ROUNDING_EXAMPLES = 1e-6


def session(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
    dataset: Dataset[Any],
    *,
    batch_size: int,
    device_batch_size: int | None = None,
    lr_rule: str | None = None,
    scheduler: Scheduler | Sequence[Scheduler] | None = None,
    scaler: GradScaler | None = None,
    collate_fn: Collate | None = None,
    num_workers: int = 0,
    pin_memory: bool = False,
    prefetch_factor: int | None = None,
    worker_init_fn: WorkerInit | None = None,
    max_grad_norm: float | None = None,
    warmup_epochs: float = 0.0,
    shuffle: bool = True,
    order: ChosenOrder | None = None,
    drop_last: bool = False,
    logical_ranks: int | None = None,
    seed: int = 0,
    state: MutableMapping[str, Any] | None = None,
    checkpoint_directory: str | None = None,
    across: str = "nccl",
    bf16_gradients: bool = False,
    batch_log: str | None = None,
    static_graph: bool = False,
    rehearsal: Rehearsal | None = None,
) -> AbstractContextManager[TrainingSession]:
    """Open a training session: elastic under Castor, plain otherwise.

    Args:
        model: the model, on its training device; call `job.model` in its place.
        optimizer: optimizer over the model's parameters, with the learning rate for `batch_size`;
            or a list of optimizers with disjoint parameters, which each step moves together.
        dataset: dataset with `len()` and indexing, or a `ShardedDataset`.
        batch_size: examples per step, over all devices. The job file may allow more; the batch
            then grows while that speeds up progress.
        device_batch_size: most examples that a device takes at once; a larger share of a batch is
            split. Default: `batch_size`. `batch.device_max` of the job file replaces it.
        lr_rule: scaling rule of the learning rate with the batch size: adascale (default for SGD),
            sqrt (default for Adam and its family), linear, legw, or none (default for every other
            optimizer).
        scheduler: learning-rate scheduler, or a list. The session steps it once per `batch_size`
            useful examples.
        scaler: gradient scaler for half precision. The session scales and updates; pass the
            unscaled loss to `job.step`.
        collate_fn, num_workers, pin_memory, prefetch_factor, worker_init_fn: as in
            `torch.utils.data.DataLoader`. Workers live as long as the session.
        max_grad_norm: maximum norm that a step's gradient is clipped to; None for no clipping.
        warmup_epochs: warm-up of legw in epochs, at `batch_size`.
        shuffle: whether each pass takes the examples in a random order, given by `seed`.
        order: function from a pass's number, from 0, to its dataset indices, equal on all ranks.
            It replaces `shuffle`.
        logical_ranks: number of shares of each batch, each with its own random numbers, on any
            number of ranks. A run at a fixed batch size is then the same at any size.
        drop_last: whether to leave out the last examples of a pass if they do not fill
            `batch_size`.
        seed: seed of the order of examples.
        state: dict of the script's own state, such as ``{"best": 0.0, "ema": ema}``. Each
            checkpoint holds it, and resuming sets its values. Values are numbers, strings,
            tensors, lists and dicts of these, or objects with a `state_dict`.
        checkpoint_directory: directory of checkpoints if Castor sets none.
        across: transport of GPU gradients between instances: nccl, or gloo through host memory.
        bf16_gradients: whether to sum gradients in bfloat16: half of the traffic, and less exact.
        batch_log: path of a batch log to replay; default: the path in CASTOR_BATCH_LOG.
        static_graph: whether each step uses all parameters that require a gradient, so that no
            search for unused parameters is needed.
        rehearsal: function of model and batch that returns a loss, called before joining others.

    Raises:
        TypeError, ValueError: an argument can't be used; the message names it.
        CheckpointError: there are checkpoints, but none can be used; or, at the end, the job's
            last state can't be saved.
        DivergedError: 20 steps in a row had a loss or gradient that was not finite, or a weight is
            not finite.
    """
    script = Script(
        model=model,
        optimizer=optimizer,
        dataset=dataset,
        batch_size=batch_size,
        device_batch_size=device_batch_size,
        lr_rule=lr_rule,
        scheduler=scheduler,
        scaler=scaler,
        collate_fn=collate_fn,
        num_workers=num_workers,
        pin_memory=pin_memory,
        prefetch_factor=prefetch_factor,
        worker_init_fn=worker_init_fn,
        max_grad_norm=max_grad_norm,
        warmup_epochs=warmup_epochs,
        shuffle=shuffle,
        order=order,
        drop_last=drop_last,
        logical_ranks=logical_ranks,
        seed=seed,
        state=state,
        checkpoint_directory=checkpoint_directory,
        across=across,
        bf16_gradients=bf16_gradients,
        batch_log=batch_log,
        static_graph=static_graph,
        rehearsal=rehearsal,
    )
    return _open_session(script)


@contextmanager
def _open_session(script: Script) -> Iterator[TrainingSession]:
    watch, clock = present_watch(), SystemClock()
    job = TrainingSession(script, rehearsed(script, open_parts(script, clock)), clock, watch)
    if watch is not None:
        watch.see(job)
    atexit.register(job.departure.close_at_exit)
    try:
        with scaled_losses() as job.scaled_losses:
            yield job
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        job.departure.abandon(explained := job.steps.explained(error), job.steps.limit)
        if explained is not error:
            raise explained from error
        raise
    except GeneratorExit:  # the script discarded the session without leaving it
        job.departure.close_at_exit()
        raise
    else:
        job.finish()
    finally:
        atexit.unregister(job.departure.close_at_exit)


class TrainingSession:
    """Session of a script's training loop, on one rank."""

    def __init__(
        self, script: Script, parts: Parts, clock: Clock, watch: Watch | None = None
    ) -> None:
        self._watch = watch
        self.scaled_losses = ScaledLosses()
        self.model = parts.reducer.model
        self._examples = parts.sampler.examples
        self._parts = parts
        self._total: float | None = None
        self._schedule = CheckpointSchedule(parts, clock)
        self.departure = SessionEnd(parts, self._schedule, watch)
        self.steps = Steps(script, parts, clock)
        self._rounds = SessionRounds(
            parts, self.steps, self._schedule, self.departure, is_watched=watch is not None
        )

    @property
    def progress_examples(self) -> float:
        """Useful examples so far; each is worth one example at the initial batch size."""
        return self._parts.state.counters.progress_examples

    @property
    def epoch(self) -> int:
        """Number of whole epochs of useful examples so far."""
        return int((self.progress_examples + _ROUNDING_EXAMPLES) // self._examples)

    @property
    def batch_size(self) -> int:
        """Examples per step at present, over all devices."""
        return self._parts.state.counters.batch_total

    @property
    def decides(self) -> bool:
        """Whether this rank is the one that prints or saves if only one rank should."""
        return self._parts.replica.decides

    @property
    def has_last_word(self) -> bool:
        """Whether this rank reports how the job ended: it decides, or no round has begun."""
        return self.departure.has_last_word

    def epochs(self, count: float) -> Iterator[int]:
        """Yield the numbers of the remaining epochs of `count`; iterate `batches()` in each.

        With a `count` that is not whole, the last epoch ends early.
        """
        self._set_total(count)
        self._rounds.open()
        end = self._end_of_training()
        while not self._is_over(end):
            yield self.epoch
            if not self._is_past(end):
                self._rounds.open()

    def batches(self, epochs: float | None = None) -> Iterator[Any]:
        """Yield batches; compute a loss on each and pass it to `step`, once.

        The loop ends after `epochs` epochs' worth of progress or, inside `epochs()`, at the end of
        the present epoch. An epoch is as many useful examples as the dataset has examples. At a
        larger batch size each example is worth less, so an epoch takes more examples.

        Raises:
            RuntimeError: no number of epochs was given, or `step` was not called for a batch.
            ValueError: `epochs` is not above 0.
        """
        if epochs is not None:
            self._set_total(epochs)
        end = self._end_of_training()
        if epochs is None:
            end = min(end, (self.epoch + 1.0) * self._examples)
        self._rounds.open()
        while not self._is_over(end):
            yield from self._rounds.batches(lambda: self._is_past(end))
            self._rounds.close(ends_epoch=epochs is None and self._is_past(end))
            if self._is_past(end):
                return
            self._rounds.open()  # after catching up, this replica may be past the end

    def step(
        self,
        loss: torch.Tensor,
        weight: float | torch.Tensor | None = None,
        *,
        optimizer: torch.optim.Optimizer | None = None,
        last: bool | None = None,
    ) -> Step:
        """Learn from the last batch, and return the step's facts for logging.

        Args:
            loss: the mean over the batch.
            weight: total that the mean is over, such as the number of unpadded tokens. The
                gradient is then that of the mean over the whole step, on all ranks. Without, each
                example counts the same.
            optimizer: the only optimizer to step by this loss; others step by other losses of the
                batch.
            last: whether no other loss of this batch follows. By default true once each optimizer
                has made a step by the batch.

        Raises:
            RuntimeError: no batch was given since the last call; the loss is not computed from
                `job.model`; only some ranks give a weight; or this process is a forked one.
            TypeError: the loss is no tensor, or the weight no number.
            ValueError: the loss is not one number with a gradient, or a GradScaler has scaled it;
                or the weight can't be used; or a batch can have one step only.
            DivergedError: too many steps in a row had a loss or gradient that was not finite.
        """
        self.departure.require_own_process()
        self.scaled_losses.require_unscaled(loss)
        return self.steps.take(loss, weight, optimizer, last)

    def mean(self, value: torch.Tensor | float | None, weight: float | None = None) -> float:
        """Return the weighted mean of the ranks' values.

        All ranks must call this after the same step. The call waits for the device and for all
        ranks.

        Args:
            value: this rank's value, such as `step.loss`. None counts for nothing.
            weight: total that this rank's value is the mean over, such as its evaluated examples;
                default: this rank's part of the last step.

        Returns:
            The mean; NaN if all weights are 0, or an instance was lost meanwhile.
        """
        return self.steps.mean(value, weight)

    def every(self, *, steps: int | None = None, examples: float | None = None) -> bool:
        """Return whether the last step has reached the next multiple of `steps` or `examples`.

        The result is the same on all ranks, so that they can evaluate together. All ranks must
        call this right after `step`. After True, ranks that are alive wait for each other, and the
        time until the next step does not count as step time.

        Args:
            steps: committed steps of the job.
            examples: useful examples, as `progress_examples` counts them.

        Raises:
            ValueError: not exactly one of both is given, or it is not above 0.
        """
        is_due = self.steps.has_passed(steps, examples)
        if is_due:
            self._parts.replica.begin_evaluation()
        return is_due

    def stop(self, reason: str) -> None:
        """Request an early end of training, on all ranks after the same step; any rank may do so.

        The loops over `batches` and `epochs` end with the next step. The job is then finished and
        `reason` is shown with it, in up to 200 bytes.

        Raises:
            TypeError: the reason is no text.
        """
        self._parts.replica.stop.ask(reason)

    @contextmanager
    def phase(self, name: str, seconds: float) -> Iterator[None]:
        """Declare a phase without steps, such as an evaluation or a compilation.

        A job that makes no step for long is reported as stalled, and paused if its job file says
        `stalls: pause`, but not within such a phase.

        Args:
            name: shown with the job, up to 60 letters.
            seconds: the longest time that the phase may take.

        Raises:
            ValueError: the name is no such text, or the time is not above 0.
        """
        declared = phase_name(name, seconds)
        channel = self._parts.channel
        if channel is not None:
            channel.phase(*declared)
        try:
            yield
        finally:
            if channel is not None:
                channel.phase(None)

    def report(self, **metrics: float) -> None:
        """Report numbers to show with the job, such as an accuracy."""
        reporter = self._parts.reporter
        if reporter is not None:
            reporter.metrics.update({name: float(value) for name, value in metrics.items()})

    def finish(self) -> None:
        """End the session after the script's block; see `SessionEnd.finish`."""
        self.departure.finish(self._is_complete, self._parts.replica.stop.reason)
        self.model = self._parts.reducer.model

    @property
    def _is_complete(self) -> bool:
        return self._total is not None and self._is_past(self._total)

    def _set_total(self, epochs: float) -> None:
        if not 0 < epochs < math.inf:
            raise ValueError(f"epochs={epochs} must be above 0")
        self._total = self._parts.total_examples or float(epochs * self._examples)
        if self._watch is not None:
            self._watch.on_epochs(math.ceil(epochs))
        if self._parts.reporter is not None:
            self._parts.reporter.total_examples = self._total

    def _end_of_training(self) -> float:
        if self._total is None:
            raise RuntimeError("batches(): give the number of epochs, here or in epochs()")
        return self._total

    def _is_past(self, end: float) -> bool:
        return self.progress_examples >= end - _ROUNDING_EXAMPLES

    def _is_over(self, end: float) -> bool:
        return self._is_past(end) or self._parts.replica.stop.is_agreed
