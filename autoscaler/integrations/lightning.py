"""Elastic strategy of Lightning's Trainer.

Two lines of a script change::

    from autoscaler.integrations.lightning import ElasticStrategy

    trainer = lightning.Trainer(max_epochs=10, strategy=ElasticStrategy())
    trainer.fit(module, train_loader, validation_loader)
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import torch
from lightning.pytorch.accelerators import CUDAAccelerator
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_only

from autoscaler.domain.training import JOB_VARIABLE
from autoscaler.integrations.lengths import TrainingLength, training_length
from autoscaler.integrations.lightning_options import (
    require_elastic_module,
    require_elastic_schedules,
    require_elastic_trainer,
)
from autoscaler.integrations.loaders import LoaderArguments, loader_arguments
from autoscaler.integrations.phases import (
    EVALUATION,
    LONGEST_PHASE_SECONDS,
    SAVING,
    DeclaredPhases,
)
from autoscaler.integrations.schedules import paced
from autoscaler.training import Step, TrainingSession, session


class ElasticStrategy(SingleDeviceStrategy):
    """Strategy whose training is a session: instances join and leave while it trains.

    `session_options` are further arguments of `autoscaler.training.session`, such as
    `lr_rule="linear"`. A step has the DataLoader's `batch_size` times `accumulate_grad_batches`
    examples, on any number of devices. A validation or save within the training takes at most
    `phase_seconds`; after that the job may count as stalled.

    Raises:
        ValueError: `phase_seconds` is not above 0.
    """

    strategy_name = "elastic"

    def __init__(
        self, *, phase_seconds: float = LONGEST_PHASE_SECONDS, **session_options: Any
    ) -> None:
        super().__init__()
        self._phases = DeclaredPhases(phase_seconds)
        self._session_options = session_options
        self._trainer: Any = None
        self._data: LoaderArguments | None = None
        self._length: TrainingLength | None = None
        self._fit: _Fit | None = None
        # Under Castor no rank is the first before the first exchange with the others.
        self._is_zero = JOB_VARIABLE not in os.environ and int(os.environ.get("RANK", "0")) == 0
        rank_zero_only.rank = 0 if self._is_zero else 1

    @property
    def root_device(self) -> torch.device:
        """Device of this rank."""
        if isinstance(self.accelerator, CUDAAccelerator):
            return torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        return torch.device("cpu")

    @property
    def is_global_zero(self) -> bool:
        """Whether this rank logs and saves; it changes with the instances."""
        return self._is_zero

    def setup(self, trainer: Any) -> None:
        """Set up model and optimizers, after checking the Trainer's options.

        Raises:
            ValueError: an option can't be elastic; the message names it and a remedy.
        """
        self._trainer = trainer
        if trainer.state.fn == TrainerFn.FITTING:
            require_elastic_trainer(trainer)
            require_elastic_module(self.lightning_module)
            self._accumulated = trainer.accumulate_grad_batches
            trainer.accumulate_grad_batches = 1
        super().setup(trainer)
        if trainer.state.fn == TrainerFn.FITTING:
            require_elastic_schedules(self.lr_scheduler_configs)

    def load_checkpoint(self, checkpoint_path: Any, *arguments: Any, **options: Any) -> Any:
        """Load a Lightning checkpoint, but not to continue a training.

        Raises:
            ValueError: a training would continue from it.
        """
        if self.lightning_module.trainer.state.fn == TrainerFn.FITTING:
            raise ValueError(
                f"ckpt_path={checkpoint_path}: leave it out: a job continues from its own "
                "checkpoints, and castor resume continues an ended one. For weights alone: "
                "Module.load_from_checkpoint(PATH)"
            )
        return super().load_checkpoint(checkpoint_path, *arguments, **options)

    def process_dataloader(self, dataloader: Any) -> Any:
        """Return the batches of the session in place of the training DataLoader's.

        Raises:
            ValueError, TypeError: the data can't be elastic; the message gives a remedy.
        """
        trainer = self.lightning_module.trainer
        if trainer.state.fn != TrainerFn.FITTING or not trainer.training:
            return dataloader
        if self._data is not None:
            raise ValueError(
                "train_dataloaders: several are given: give one, of a dataset that joins them, "
                "such as torch.utils.data.ConcatDataset"
            )
        seed = int(os.environ.get("PL_GLOBAL_SEED", "0"))
        self._data = loader_arguments(dataloader, seed, self.root_device)
        self._length = training_length(
            self._data.examples,
            self._data.batch_size * self._accumulated,
            self._data.drop_last,
            0 if trainer.max_epochs in (None, -1) else trainer.max_epochs,
            trainer.max_steps,
        )
        return _Batches(self)

    @property
    def steps_in_epoch(self) -> int:
        """Steps of an epoch at the script's batch size."""
        assert self._length is not None
        return self._length.pass_steps

    def on_train_start(self) -> None:
        """Open the session, which restores the job's newest checkpoint."""
        assert self._data is not None and self._length is not None
        fit = _Fit(self._trainer, self, self._length)
        schedules = [paced(config, self._length) for config in self.lr_scheduler_configs]
        for config in self.lr_scheduler_configs:
            config.frequency = sys.maxsize  # the session steps them
        arguments = {
            "model": self.lightning_module,
            "optimizer": self.optimizers,
            "scheduler": schedules,
            "scaler": getattr(self.precision_plugin, "scaler", None),
            "batch_size": self._length.batch_size,
            "device_batch_size": self._data.batch_size,
            "max_grad_norm": self._trainer.gradient_clip_val or None,
            "seed": int(os.environ.get("PL_GLOBAL_SEED", "0")),
            "state": {"trainer": fit},
            **self._data.as_session_arguments(),
            **self._session_options,
        }
        self._fit = fit
        fit.open(session(**arguments))
        self.model = fit.job.model

    def next_batch(self) -> Any:
        """Return the next batch of the session.

        Raises:
            StopIteration: training is over.
        """
        assert self._fit is not None
        batch = self._fit.next_batch()
        self.follow(self._fit.job)
        return batch

    def follow(self, job: TrainingSession) -> None:
        """Log and save on this rank from now on, or no longer, as the job decides."""
        if job.decides == self._is_zero:
            return
        self._is_zero = job.decides
        rank_zero_only.rank = 0 if self._is_zero else 1
        parameters = dict(self.lightning_module.hparams)
        if self._is_zero and parameters:
            for logger in self._trainer.loggers:
                logger.log_hyperparams(parameters)

    def training_step(self, *arguments: Any, **options: Any) -> Any:
        """Run the module's training step on the session's present batch."""
        assert self._fit is not None
        return super().training_step(*self._fit.replaced(arguments), **options)

    def backward(
        self, closure_loss: torch.Tensor, optimizer: Any, *arguments: Any, **options: Any
    ) -> torch.Tensor:
        """Learn from the loss of the session's present batch."""
        assert self._fit is not None
        self._fit.step = self._fit.job.step(closure_loss)
        return closure_loss

    def optimizer_step(
        self, optimizer: Any, closure: Callable[[], Any], model: Any = None, **options: Any
    ) -> Any:
        """Make one step of the session; `closure` runs once for each batch of the step."""
        assert self._fit is not None
        return self._fit.make_step(closure)

    def validation_step(self, *arguments: Any, **options: Any) -> Any:
        """Run the module's validation step, on this rank alone."""
        with self.precision_plugin.val_step_context():
            return self.lightning_module.validation_step(*arguments, **options)

    def on_validation_start(self) -> None:
        """Have the other ranks wait for a validation in an epoch, and declare it as a phase."""
        if self._fit is not None:
            self._fit.hold_others()
            self._phases.begin(self._fit.job, EVALUATION)

    def on_validation_end(self) -> None:
        """End the phase of a validation."""
        self._phases.end()

    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None
    ) -> None:
        """Save a Lightning checkpoint on one rank, while the other ranks wait."""
        if self._fit is None:
            super().save_checkpoint(checkpoint, filepath, storage_options)
            return
        self._fit.hold_others()
        with self._phases.phase(self._fit.job, SAVING):
            super().save_checkpoint(checkpoint, filepath, storage_options)

    def reduce_boolean_decision(self, decision: bool, all: bool = True) -> bool:
        """Return whether all ranks, or any, decide for it, such as for an early stop."""
        return decision if self._fit is None else self._fit.agreed(decision, all)

    def on_train_end(self) -> None:
        """Save the last state, and leave the session."""
        if self._fit is not None:
            self._fit.close(None)
            self._leave()

    def on_exception(self, exception: BaseException) -> None:
        """Leave the session after an error."""
        if self._fit is not None:
            fit = self._fit
            self._leave()
            fit.close(exception)

    def _leave(self) -> None:
        self._phases.end_all()
        self._fit = self._data = None
        self.model = self.lightning_module
        self._trainer.accumulate_grad_batches = self._accumulated


class _Batches:
    """Batches of the session, as Lightning's loops take them: one for each step."""

    def __init__(self, strategy: ElasticStrategy) -> None:
        self._strategy = strategy

    def __len__(self) -> int:
        return self._strategy.steps_in_epoch

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._strategy.next_batch()


class _Fit:
    """One fit in a session: its steps, and the state of Lightning's loops and callbacks.

    A batch of Lightning's loop is one step of the session, which may consist of several batches,
    and is repeated if an instance is lost.
    """

    def __init__(self, trainer: Any, strategy: ElasticStrategy, length: TrainingLength) -> None:
        self._trainer = trainer
        self._strategy = strategy
        self._length = length
        self._saved: Mapping[str, Any] | None = None
        self._extra: Any = None
        self._has_extra = False
        self._has_stepped = False
        self.step: Step | None = None

    def open(self, opened: AbstractContextManager[TrainingSession]) -> None:
        self._session = opened
        self.job = opened.__enter__()
        # Lightning would clear the gradients of a step's earlier batches.
        self._strategy.lightning_module.optimizer_zero_grad = _keep_gradients
        self._batches = self.job.batches(epochs=self._length.epochs)
        self._load_saved(is_in_epoch=False)
        if self._length.is_over(self.job.progress_examples):
            next(self._batches, None)  # a restart after the last step: nothing is left to do
            self._strategy.follow(self.job)
            self._trainer.should_stop = True

    def close(self, error: BaseException | None) -> None:
        del self._strategy.lightning_module.optimizer_zero_grad
        kind = None if error is None else type(error)
        self._session.__exit__(kind, error, None if error is None else error.__traceback__)

    def next_batch(self) -> Any:
        self._has_stepped = False
        try:
            batch = next(self._batches)
        except StopIteration:
            self._trainer.should_stop = True
            raise
        self._load_saved(is_in_epoch=True)
        return batch

    def replaced(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return a training step's arguments with the present batch in place of the first."""
        return (self._extra, *arguments[1:]) if self._has_extra else arguments

    def make_step(self, closure: Callable[[], Any]) -> Any:
        """Take batches until one step is committed, and the epoch ends if Lightning's does."""
        progress = self._trainer.fit_loop.epoch_loop.batch_progress
        result = closure()
        while not self._is_over(progress.is_last_batch):
            if (batch := next(self._batches, self)) is self:
                break  # all ranks have agreed on a stop
            self._strategy.follow(self.job)
            self._extra = self._strategy.batch_to_device(batch, dataloader_idx=0)
            self._has_extra = True
            result = closure()
        self._extra, self._has_extra = None, False
        self._has_stepped = True
        progress.is_last_batch = self._ends_epoch
        self._stop_where_steps_are_fewer()
        return result

    def hold_others(self) -> None:
        """Have the other ranks wait until the next step."""
        if self._has_stepped:
            self.job.every(steps=1)

    def agreed(self, decision: bool, by_all: bool) -> bool:
        """Return whether all ranks, or any, decide for it."""
        if not self._has_stepped:
            return decision
        share = self.job.mean(float(decision), weight=1.0)
        if share != share:  # an instance was lost meanwhile
            return decision
        return share == 1.0 if by_all else share > 0.0

    def state_dict(self) -> dict[str, Any]:
        callbacks = {
            callback.state_key: state
            for callback in self._trainer.callbacks
            if (state := callback.state_dict())
        }
        return {"loops": self._trainer.fit_loop.state_dict(), "callbacks": callbacks}

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        self._saved = saved

    def _load_saved(self, is_in_epoch: bool) -> None:
        """Set the state that was received; `is_in_epoch`: whether an epoch's loop has begun."""
        saved, self._saved = self._saved, None
        if saved is None:
            return
        loop = self._trainer.fit_loop
        loop.load_state_dict(dict(saved["loops"]))
        loop.restarting = False
        loop.on_iteration_done()
        if not is_in_epoch:  # Lightning counts the epoch again
            for counts in (loop.epoch_progress.current, loop.epoch_progress.total):
                counts.ready = counts.started = counts.processed
        for callback in self._trainer.callbacks:
            if callback.state_key in saved["callbacks"]:
                callback.load_state_dict(dict(saved["callbacks"][callback.state_key]))

    def _is_over(self, must_end_epoch: bool) -> bool:
        """Return whether Lightning's batch is over."""
        if self.step is None or not self.step.committed:
            return False
        return self._ends_epoch or not must_end_epoch

    @property
    def _ends_epoch(self) -> bool:
        epochs = self._trainer.current_epoch + 1
        done = self._length.epochs_of(self.job.progress_examples)
        return done >= epochs - 1e-9 or self._length.is_over(self.job.progress_examples)

    def _stop_where_steps_are_fewer(self) -> None:
        """Stop at the end of a training in steps whose larger batches made it shorter."""
        steps = self._trainer.max_steps
        if steps < 1 or not self._length.is_over(self.job.progress_examples):
            return
        if self._trainer.global_step + 1 < steps:
            self._trainer.should_stop = True


def _keep_gradients(*_: Any, **__: Any) -> None:
    """Do nothing in place of `optimizer_zero_grad`: the session clears the gradients."""
