"""What a training script imports.

At most five lines differ from a plain PyTorch loop, and the script runs unchanged without Castor::

    from autoscaler.training.session import session

    with session(model, optimizer, dataset, batch_size=128) as job:
        for inputs, targets in job.batches(epochs=20):
            job.step(loss_function(job.model(inputs), targets))
        job.report(accuracy=evaluate(model))
"""

from __future__ import annotations

import atexit
from collections.abc import Iterator, MutableMapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch import nn
from torch.amp.grad_scaler import GradScaler
from torch.utils.data import Dataset

from autoscaler.clock import Clock, SystemClock
from autoscaler.training.arguments import Rehearsal, Script
from autoscaler.training.data.loader import Collate, WorkerInit
from autoscaler.training.data.orders import ChosenOrder
from autoscaler.training.data.shards import ShardedDataset
from autoscaler.training.departure import Departure
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

_CLOSE_TO_THE_END = 1e-6


def session(
    model: nn.Module,
    optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer],
    dataset: Dataset[Any],
    *,
    batch_size: int,
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
    """Train `model` elastically under Castor, or plainly without.

    Args:
        model: on the device it is to train on; `job.model` is to be called in its place.
        optimizer: over the model's parameters, with the learning rate meant for `batch_size`; or a
            list of several, each over some of them, which each step moves together.
        dataset: with `len()` and indexing, or a `ShardedDataset`.
        batch_size: examples in a step, over all devices. The job's file may allow more: then
            the batch grows while that buys progress.
        lr_rule: how the learning rate follows the batch: adascale (the default for SGD), sqrt (for
            Adam and its family), linear, legw, none (for every other optimizer).
        scheduler: stepped by the session, once for every `batch_size` useful examples; or a list.
        scaler: for half precision; the session scales and updates, `job.step` takes the bare loss.
        collate_fn, num_workers, pin_memory, prefetch_factor, worker_init_fn: as in
            `torch.utils.data.DataLoader`. Workers live as long as the session.
        max_grad_norm: clip the norm of the step's gradient.
        warmup_epochs: for legw, at `batch_size`.
        shuffle: take each pass's examples in a random order, given by `seed`.
        order: in place of it, a function from a pass's number to its indices, equal on all ranks.
        logical_ranks: split each batch into so many shares, each with random numbers of its own,
            whatever the number of ranks: a run at a fixed batch is then the same at any size.
        drop_last: leave out the last examples of a pass where they do not fill `batch_size`.
        seed: of the order of examples.
        state: a dict of the script's own, such as ``{"best": 0.0, "ema": ema}``. It is saved with
            each checkpoint as it stands, and set here when training goes on from one. Values are
            numbers, texts, tensors, lists and dicts of these, or objects with a `state_dict`.
        checkpoint_directory: where to keep checkpoints when Castor does not say where.
        across: how gradients on GPUs cross instances: nccl, or gloo by way of the hosts' memory.
        bf16_gradients: sum gradients in bfloat16: half of the traffic, and less exact.
        batch_log: path of a log of batches to be repeated; by default that of CASTOR_BATCH_LOG.
        static_graph: each step uses all parameters that require a gradient: none is searched.
        rehearsal: function of model and batch that returns a loss; called before joining others.

    Raises:
        TypeError, ValueError: an argument can't be used; the message names it.
        CheckpointError: there are checkpoints, but none can be used; or, at the end, the job's
            last state can't be saved.
        DivergedError: 20 steps in a row had a loss or gradient that was not finite, or a weight is
            not.
    """
    script = Script(
        model=model,
        optimizer=optimizer,
        dataset=dataset,
        batch_size=batch_size,
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
    return _opened(script)


@contextmanager
def _opened(script: Script) -> Iterator[TrainingSession]:
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
    except GeneratorExit:  # the script has dropped the session without leaving it
        job.departure.close_at_exit()
        raise
    else:
        job.finish()
    finally:
        atexit.unregister(job.departure.close_at_exit)


class TrainingSession:
    """One run of a script's training loop, on one rank."""

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
        self.departure = Departure(parts, self._schedule, watch)
        self.steps = Steps(script, parts, clock)
        self._rounds = SessionRounds(
            parts, self.steps, self._schedule, self.departure, is_watched=watch is not None
        )

    @property
    def progress_examples(self) -> float:
        """Useful examples so far: each worth one example at the initial batch size."""
        return self._parts.state.counters.progress_examples

    @property
    def epoch(self) -> int:
        """Whole epochs' worth of useful examples so far."""
        return int((self.progress_examples + _CLOSE_TO_THE_END) // self._examples)

    @property
    def batch_size(self) -> int:
        """Examples in a step now, over all devices."""
        return self._parts.state.counters.batch_total

    @property
    def decides(self) -> bool:
        """This rank speaks for the job: the one to print or to save, where only one should."""
        return self._parts.replica.decides

    @property
    def has_last_word(self) -> bool:
        """This rank is the one to say how the job ended: it decides, or has met no other."""
        return self.departure.has_last_word

    def epochs(self, count: int) -> Iterator[int]:
        """The numbers of the epochs that are left of `count`; iterate `batches()` in each."""
        self._plan(count)
        self._rounds.open()
        end = self._end_of_training()
        while not self._is_over(end):
            yield self.epoch
            if not self._is_past(end):
                self._rounds.open()

    def batches(self, epochs: int | None = None) -> Iterator[Any]:
        """Batches to compute a loss on and pass it to `step`, once each.

        Until `epochs` epochs' worth of progress is made or, inside `epochs()`, to the end of the
        present epoch. An epoch is as many useful examples as the dataset has examples: at larger
        batches each example is worth less, and more of them are taken.
        """
        if epochs is not None:
            self._plan(epochs)
        end = self._end_of_training()
        if epochs is None:
            end = min(end, (self.epoch + 1.0) * self._examples)
        self._rounds.open()
        while not self._is_over(end):
            yield from self._rounds.batches(lambda: self._is_past(end))
            self._rounds.close(ends_epoch=epochs is None and self._is_past(end))
            if self._is_past(end):
                return
            self._rounds.open()  # who was behind may be past the end when it has caught up

    def step(
        self,
        loss: torch.Tensor,
        weight: float | torch.Tensor | None = None,
        *,
        optimizer: torch.optim.Optimizer | None = None,
        last: bool | None = None,
    ) -> Step:
        """Learn from the batch that was given last, and return the facts to log.

        Args:
            loss: the mean over the batch.
            weight: what the mean is over, such as the number of tokens that are not padding. The
                gradient is then that of the mean over all of the step, on all ranks; without, each
                example counts the same.
            optimizer: the only one to step by this loss; others step by other losses of the batch.
            last: no other loss of this batch follows. By default that is so once each of the
                optimizers has made a step by it.

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
        """Return the mean of the ranks' values. All ranks must call it, after the same step.

        It reads `value`, which waits for the device, and waits for all ranks.

        Args:
            value: this rank's, such as `step.loss`. None counts for nothing.
            weight: what this rank's value is the mean over, such as the examples that it has
                evaluated; without, this rank's part of the last step.

        Returns:
            The mean; NaN where all weights are 0, or an instance was lost meanwhile.
        """
        return self.steps.mean(value, weight)

    def every(self, *, steps: int | None = None, examples: float | None = None) -> bool:
        """Return whether the last step has reached the next multiple of `steps` or `examples`.

        It is true on all ranks after the same step, for what they do together, such as an
        evaluation. All ranks must ask, right after `step`. After a true answer the ranks wait for
        each other while they are alive, and what they do does not count as time of steps.

        Args:
            steps: committed steps of the job.
            examples: useful examples, as `progress_examples` counts them.

        Raises:
            ValueError: not one of both is given, above 0.
        """
        is_due = self.steps.has_passed(steps, examples)
        if is_due:
            self._parts.replica.begin_evaluation()
        return is_due

    def stop(self, reason: str) -> None:
        """End training early, on all ranks after the same step; any rank may ask.

        The loops over `batches` and `epochs` end with the next step. The job is finished, and
        `reason` is shown with it, in up to 200 bytes.

        Raises:
            TypeError: the reason is no text.
        """
        self._parts.replica.stop.ask(reason)

    def report(self, **metrics: float) -> None:
        """Numbers to be shown with the job, such as an accuracy."""
        reporter = self._parts.reporter
        if reporter is not None:
            reporter.metrics.update({name: float(value) for name, value in metrics.items()})

    def finish(self) -> None:
        """End the session well; see `Departure.finish`. Called by `session`."""
        self.departure.finish(self._is_complete, self._parts.replica.stop.reason)
        self.model = self._parts.reducer.model

    @property
    def _is_complete(self) -> bool:
        return self._total is not None and self._is_past(self._total)

    def _plan(self, epochs: int) -> None:
        if epochs < 1:
            raise ValueError(f"epochs={epochs} must be at least 1")
        self._total = self._parts.total_examples or float(epochs * self._examples)
        if self._watch is not None:
            self._watch.on_epochs(epochs)
        if self._parts.reporter is not None:
            self._parts.reporter.total_examples = self._total

    def _end_of_training(self) -> float:
        if self._total is None:
            raise RuntimeError("batches(): say how many epochs, here or in epochs()")
        return self._total

    def _is_past(self, end: float) -> bool:
        return self.progress_examples >= end - _CLOSE_TO_THE_END

    def _is_over(self, end: float) -> bool:
        return self._is_past(end) or self._parts.replica.stop.is_agreed
