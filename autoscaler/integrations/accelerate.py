"""Elastic Accelerator of Hugging Face's Accelerate.

Three lines of a script change::

    from autoscaler.integrations.accelerate import ElasticAccelerator

    accelerator = ElasticAccelerator(max_grad_norm=1.0)
    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    for epoch in accelerator.epochs(10):
        ...
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.optimizer import AcceleratedOptimizer
from accelerate.scheduler import AcceleratedScheduler
from accelerate.utils import send_to_device
from torch import nn
from torch.optim.lr_scheduler import LRScheduler
from torch.utils.data import DataLoader

from autoscaler.domain.training import JOB_VARIABLE
from autoscaler.integrations.accelerate_options import require_elastic_accelerator
from autoscaler.integrations.lengths import training_length
from autoscaler.integrations.loaders import LoaderArguments, loader_arguments
from autoscaler.integrations.phases import (
    EVALUATION,
    LONGEST_PHASE_SECONDS,
    SAVING,
    DeclaredPhases,
)
from autoscaler.training import Step, TrainingSession, session


class ElasticAccelerator(Accelerator):
    """Accelerator whose training is a session: instances join and leave while it trains.

    It takes the keyword arguments of `accelerate.Accelerator`. A step has the DataLoader's
    `batch_size` times `gradient_accumulation_steps` examples, on any number of devices.

    Args:
        max_grad_norm: norm that a script's `clip_grad_norm_` clips to; None if it does not clip.
        session_options: further arguments of `autoscaler.training.session`, such as
            ``{"lr_rule": "linear"}``.
        phase_seconds: longest time of one pass over a DataLoader for evaluation, and of a save,
            within the training; after it the job may count as stalled.
        options: keyword arguments of `Accelerator`.

    Raises:
        ValueError: an option can't be elastic; the message names it and a remedy.
    """

    def __init__(
        self,
        *,
        max_grad_norm: float | None = None,
        session_options: Mapping[str, Any] | None = None,
        phase_seconds: float = LONGEST_PHASE_SECONDS,
        **options: Any,
    ) -> None:
        self._phases = DeclaredPhases(phase_seconds)
        # Under Castor no rank is the main one before the first exchange with the others.
        self._decided: bool | None = False if JOB_VARIABLE in os.environ else None
        self._parts = _Parts(max_grad_norm, dict(session_options or {}))
        self._session: AbstractContextManager[TrainingSession] | None = None
        self._job: TrainingSession | None = None
        self._step: Step | None = None
        self._tracking: tuple[Any, ...] | None = None
        super().__init__(**options)
        require_elastic_accelerator(self)

    @property
    def job(self) -> TrainingSession:
        """The open session, for `job.stop`, `job.report` and the like.

        Raises:
            RuntimeError: none is open.
        """
        if self._job is None:
            raise RuntimeError("accelerator.job: no session is open outside accelerator.epochs(n)")
        return self._job

    def epochs(self, count: float) -> Iterator[int]:
        """Yield the numbers of the remaining epochs of `count`; iterate the DataLoader in each.

        Raises:
            ValueError, RuntimeError: model, optimizer or DataLoader can't be elastic, or are not
                prepared.
        """
        job = self._open(count)
        with self._leaving_after_errors():
            epochs = job.epochs(count)
            while (epoch := next(epochs, None)) is not None:
                yield epoch
        self._leave(None)

    def prepare(self, *objects: Any, device_placement: list[bool] | None = None) -> Any:
        """Prepare objects as `Accelerator.prepare` does; see there.

        The DataLoader that is prepared with the optimizer, or after it, is the one to train from.
        """
        trains = any(isinstance(given, torch.optim.Optimizer) for given in objects)
        self._parts.has_optimizer = self._parts.has_optimizer or trains
        prepared = tuple(self._prepared(given) for given in objects)
        return prepared if len(prepared) > 1 else prepared[0]

    def _prepared(self, given: Any) -> Any:
        parts = self._parts
        if isinstance(given, DataLoader) and parts.has_optimizer and parts.loader is None:
            seed = torch.initial_seed() % 2**53
            # Accelerate's own sampler has an order that its seed and the epoch determine.
            seeded = self.prepare_data_loader(given) if self.use_seedable_sampler else given
            parts.loader = loader_arguments(seeded, seed, self.device)
            return _TrainingBatches(self, given)
        if isinstance(given, DataLoader):
            return _EvaluationBatches(self, self.prepare_data_loader(given))
        if isinstance(given, torch.optim.Optimizer):
            parts.optimizers.append(given)
            return _SteppedOptimizer(given)
        if isinstance(given, LRScheduler):
            parts.schedulers.append(given)
            return _SteppedScheduler(given, [])
        if isinstance(given, nn.Module):
            return self._prepared_model(given)
        return given

    def _prepared_model(self, model: nn.Module) -> nn.Module:
        if self._parts.model is not None:
            raise ValueError(
                "prepare: several models are given: put them into one nn.Module, whose parts the "
                "loss uses"
            )
        self._parts.model = self.prepare_model(model, evaluation_mode=True)
        return _ElasticModel(self, self._parts.model)

    def backward(self, loss: torch.Tensor, **_: Any) -> None:
        """Learn from the mean loss of the latest batch, with all that a step needs.

        Gradients are summed over all ranks and clipped; optimizer and scheduler step.
        """
        with self._leaving_after_errors():
            self._step = self.job.step(loss)
        self.sync_gradients = self._step.is_last and self._step.committed

    @contextmanager
    def accumulate(self, *_: nn.Module) -> Iterator[None]:
        """Do nothing: the session accumulates gradients over the batches of a step."""
        yield

    @contextmanager
    def no_sync(self, model: nn.Module) -> Iterator[None]:
        """Do nothing: the session sums gradients at the end of a step."""
        yield

    def clip_grad_norm_(
        self, parameters: Any, max_norm: float, norm_type: float = 2
    ) -> torch.Tensor | None:
        """Return the norm before clipping, of the step that `backward` has made.

        Raises:
            ValueError: the norm is not that of the Accelerator.
        """
        if max_norm != self._parts.max_grad_norm or norm_type != 2:
            raise ValueError(
                f"clip_grad_norm_: max_norm={max_norm} is not the Accelerator's: the session "
                f"clips in backward(): give ElasticAccelerator(max_grad_norm={max_norm}), and "
                "norm_type=2"
            )
        return None if self._step is None else self._step.gradient_norm

    def clip_grad_value_(self, parameters: Any, clip_value: float) -> None:
        """Refuse to clip values.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "clip_grad_value_: a session clips the norm of the gradient: give "
            "ElasticAccelerator(max_grad_norm=...)"
        )

    @property
    def is_main_process(self) -> bool:
        """Whether this process logs and saves; it changes with the instances."""
        if self._job is not None:
            self._decided = self._job.decides
        return bool(super().is_main_process) if self._decided is None else self._decided

    @property
    def is_local_main_process(self) -> bool:
        """The same as `is_main_process`, so that each line is printed once."""
        return self.is_main_process

    def on_main_process(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that runs where `is_main_process` holds when it is called."""

        def on_main(*arguments: Any, **options: Any) -> Any:
            return function(*arguments, **options) if self.is_main_process else None

        return on_main

    on_local_main_process = on_main_process

    def print(self, *values: Any, **options: Any) -> None:
        """Print on the main process."""
        if self.is_main_process:
            print(*values, **options)

    def init_trackers(self, *arguments: Any, **options: Any) -> None:
        """Start the trackers on the main process, where a value is logged for the first time."""
        self._tracking = arguments, options
        self._start_trackers()

    def _start_trackers(self) -> None:
        if self._tracking is not None and self.is_main_process and not self.trackers:
            arguments, options = self._tracking
            super().init_trackers(*arguments, **options)

    def log(self, values: dict[str, Any], step: int | None = None, **options: Any) -> None:
        """Log values to all trackers on the main process."""
        if self.is_main_process:
            self._start_trackers()
            super().log(values, step=step, **options)

    def save(self, obj: Any, f: Any, safe_serialization: bool = False) -> None:
        """Save an object on the main process."""
        if self.is_main_process:
            with self._phases.phase(self._job, SAVING):
                super().save(obj, f, safe_serialization)

    def save_model(self, model: nn.Module, *arguments: Any, **options: Any) -> None:
        """Save a model's weights on the main process."""
        if self.is_main_process:
            with self._phases.phase(self._job, SAVING):
                super().save_model(self.unwrap_model(model), *arguments, **options)

    def unwrap_model(self, model: Any, *arguments: Any, **options: Any) -> nn.Module:
        """Return the model that was given to `prepare`."""
        bare = model.module if isinstance(model, _ElasticModel) else model
        unwrapped: nn.Module = super().unwrap_model(bare, *arguments, **options)
        return unwrapped

    def get_state_dict(self, model: Any, unwrap: bool = True) -> Any:
        """Return the weights of the model that was given to `prepare`."""
        return super().get_state_dict(self.unwrap_model(model), unwrap)

    def register_for_checkpointing(self, *objects: Any) -> None:
        """Keep the state of objects in the session's checkpoints, and give it to joiners.

        Raises:
            ValueError: an object has no state, or training has begun.
        """
        for holder in objects:
            if self._session is not None or not hasattr(holder, "load_state_dict"):
                raise ValueError(
                    f"register_for_checkpointing: {type(holder).__name__} needs state_dict and "
                    "load_state_dict, and is registered before accelerator.epochs(n)"
                )
            self._parts.own[f"registered {len(self._parts.own)}"] = holder

    def save_state(self, *_: Any, **__: Any) -> None:
        """Refuse to save a state of one number of processes.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "save_state: leave it out: the session saves checkpoints at the job's interval; "
            "accelerator.save_model saves the weights, and register_for_checkpointing adds to "
            "the checkpoints"
        )

    def load_state(self, *_: Any, **__: Any) -> None:
        """Refuse to load a state.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "load_state: leave it out: a job continues from its own checkpoints, and castor "
            "resume continues an ended one"
        )

    def skip_first_batches(self, dataloader: Any, num_batches: int = 0) -> Any:
        """Refuse to skip batches.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "skip_first_batches: leave it out: after a restart the session continues at the next "
            "batch"
        )

    def end_training(self) -> None:
        """Leave the session, if a loop was left early, and end the trackers."""
        self._leave(None)
        super().end_training()

    def next_batch(self, batches: Iterator[Any]) -> Any:
        """Return the next batch on the model's device; None at the end."""
        self._phases.end_all()  # an evaluation that was left early is over
        with self._leaving_after_errors():
            batch = next(batches, None)
        return send_to_device(batch, self.device, non_blocking=self.non_blocking)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Have the other ranks wait until the next step, and declare an evaluation as a phase."""
        if self._job is not None and self._step is not None:
            self._job.every(steps=1)
        with self._phases.phase(self._job, EVALUATION):
            yield

    def _open(self, count: float) -> TrainingSession:
        if self._session is not None:
            raise RuntimeError("accelerator.epochs: it can be iterated once in a script")
        arguments = self._parts.session_arguments(count, self.gradient_accumulation_steps)
        self._session = session(scaler=self.scaler, **arguments)
        self._job = self._session.__enter__()
        return self._job

    def _leave(self, error: BaseException | None) -> None:
        if self._job is None or self._session is None:
            return
        self._phases.end_all()
        self._decided, self._job = self._job.decides, None
        trace = None if error is None else error.__traceback__
        self._session.__exit__(None if error is None else type(error), error, trace)

    @contextmanager
    def _leaving_after_errors(self) -> Iterator[None]:
        try:
            yield
        except GeneratorExit:  # a loop that was left early; end_training leaves the session
            raise
        except BaseException as error:
            self._leave(error)
            raise


class _Parts:
    """Parts of a session that a script has prepared."""

    def __init__(self, max_grad_norm: float | None, options: dict[str, Any]) -> None:
        self.max_grad_norm = max_grad_norm
        self.options = options
        self.model: nn.Module | None = None
        self.optimizers: list[torch.optim.Optimizer] = []
        self.schedulers: list[LRScheduler] = []
        self.loader: LoaderArguments | None = None
        self.has_optimizer = False
        self.own: dict[str, Any] = {}

    def session_arguments(self, epochs: float, accumulation_steps: int) -> dict[str, Any]:
        """Return the arguments of `session`.

        Raises:
            RuntimeError: something is not prepared.
            ValueError: there is nothing to train.
        """
        if self.model is None or self.loader is None or not self.optimizers:
            raise RuntimeError(
                "accelerator.epochs: prepare model, optimizer and the DataLoader to train from "
                "before: accelerator.prepare(model, optimizer, loader)"
            )
        loader = self.loader
        batch_size = loader.batch_size * accumulation_steps
        training_length(loader.examples, batch_size, loader.drop_last, epochs)
        return {
            "model": self.model,
            "optimizer": self.optimizers,
            "scheduler": self.schedulers,
            "batch_size": batch_size,
            "device_batch_size": loader.batch_size,
            "max_grad_norm": self.max_grad_norm,
            "state": self.own,
            **loader.as_session_arguments(),
            **self.options,
        }


class _ElasticModel(nn.Module):
    """Model that trains by the session, and evaluates on this rank alone."""

    def __init__(self, accelerator: ElasticAccelerator, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self._accelerator = [accelerator]  # in a list, as it is no part of the model

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Call the session's model in training, and the plain one otherwise."""
        (accelerator,) = self._accelerator
        if not self.training or not torch.is_grad_enabled():
            return self.module(*inputs, **options)
        return accelerator.job.model(*inputs, **options)

    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        """Return the plain model's state."""
        return self.module.state_dict(*arguments, **options)

    def load_state_dict(self, *arguments: Any, **options: Any) -> Any:
        """Load the plain model's state."""
        return self.module.load_state_dict(*arguments, **options)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


class _SteppedOptimizer(AcceleratedOptimizer):
    """Optimizer that `backward` has stepped already."""

    def step(self, closure: Any = None) -> None:
        """Do nothing."""

    def zero_grad(self, set_to_none: bool | None = None) -> None:
        """Do nothing: the session clears the gradients."""


class _SteppedScheduler(AcceleratedScheduler):
    """Scheduler that `backward` has stepped already."""

    def step(self, *_: Any, **__: Any) -> None:
        """Do nothing."""


class _Batches:
    """Batches in place of a DataLoader, with its length and attributes."""

    def __init__(self, accelerator: ElasticAccelerator, loader: DataLoader[Any]) -> None:
        self._accelerator = accelerator
        self._loader = loader

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _TrainingBatches(_Batches):
    """Batches of the session in one epoch."""

    def __iter__(self) -> Iterator[Any]:
        batches = self._accelerator.job.batches()
        while (batch := self._accelerator.next_batch(batches)) is not None:
            yield batch

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: the session counts the passes."""


class _EvaluationBatches(_Batches):
    """Batches of a DataLoader that other ranks wait for."""

    def __iter__(self) -> Iterator[Any]:
        with self._accelerator.evaluating():
            yield from self._loader
