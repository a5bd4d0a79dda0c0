"""Elastic Trainer of Hugging Face's Transformers.

Two lines of a script change::

    from autoscaler.integrations.transformers import ElasticTrainer

    trainer = ElasticTrainer(model=model, args=args, train_dataset=train, eval_dataset=test)
    trainer.train()
    trainer.save_model("final")
"""

from __future__ import annotations

import dataclasses
import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import torch
from accelerate.utils import find_batch_size
from transformers import PreTrainedTokenizerBase, ProcessorMixin, ProgressCallback, Trainer
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import (
    SaveStrategy,
    TrainOutput,
    align_special_tokens,
    speed_metrics,
)

from autoscaler.clock import SystemClock
from autoscaler.integrations.lengths import training_length
from autoscaler.integrations.loaders import loader_arguments
from autoscaler.integrations.phases import (
    EVALUATION,
    LONGEST_PHASE_SECONDS,
    PREDICTION,
    SAVING,
    DeclaredPhases,
)
from autoscaler.integrations.transformers_options import (
    require_elastic_options,
    require_elastic_train,
    require_whole_epoch,
)
from autoscaler.training import Step, TrainingSession, session

_STATE_FILE: Final = "trainer_state.json"
_OWN_FIELDS: Final = ("is_local_process_zero", "is_world_process_zero", "stateful_callbacks")


class ElasticTrainer(Trainer):
    """Trainer whose training is a session: instances join and leave while it trains.

    It takes the arguments of `transformers.Trainer`. `session_options` are further arguments of
    `autoscaler.training.session`, such as ``{"lr_rule": "linear"}``. A step has
    `per_device_train_batch_size` times `gradient_accumulation_steps` examples, on any number of
    devices. An evaluation, prediction or save within the training takes at most `phase_seconds`;
    after that the job may count as stalled.

    Raises:
        ValueError: an option can't be elastic; the message names it and a remedy.
    """

    def __init__(
        self,
        *arguments: Any,
        session_options: Mapping[str, Any] | None = None,
        phase_seconds: float = LONGEST_PHASE_SECONDS,
        **options: Any,
    ) -> None:
        self._phases = DeclaredPhases(phase_seconds)
        args = options.get("args", arguments[1] if len(arguments) > 1 else None)
        if args is not None:
            require_elastic_options(args)
        self._job: TrainingSession | None = None
        self._decides: bool | None = None
        self._session_options = dict(session_options or {})
        super().__init__(*arguments, **options)

    def train(
        self,
        resume_from_checkpoint: str | bool | None = None,
        trial: Any = None,
        ignore_keys_for_eval: list[str] | None = None,
    ) -> TrainOutput:
        """Train in a session, and return what `Trainer.train` does.

        Raises:
            ValueError: an argument can't be elastic; the message names it and a remedy.
        """
        require_elastic_train(self, resume_from_checkpoint, trial)
        return _Training(self, ignore_keys_for_eval).run(self._session_options)

    def hyperparameter_search(self, *arguments: Any, **options: Any) -> Any:
        """Refuse a search.

        Raises:
            ValueError: always.
        """
        raise ValueError(
            "hyperparameter_search: its trials are no jobs of Castor: write an objective for "
            "hpo.optimize (docs/hpo.md), or search with transformers.Trainer"
        )

    def is_world_process_zero(self) -> bool:
        """Return whether this process is the one that writes; it changes with the instances."""
        if self._job is not None:
            self._decides = self._job.decides
        return bool(super().is_world_process_zero()) if self._decides is None else self._decides

    def evaluate(self, *arguments: Any, **options: Any) -> dict[str, float]:
        """Evaluate as `Trainer.evaluate` does; within a training this is a phase of the job."""
        with self._phases.phase(self._job, EVALUATION):
            metrics: dict[str, float] = super().evaluate(*arguments, **options)
            return metrics

    def predict(self, *arguments: Any, **options: Any) -> Any:
        """Predict as `Trainer.predict` does; within a training this is a phase of the job."""
        with self._phases.phase(self._job, PREDICTION):
            return super().predict(*arguments, **options)

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model as `Trainer.save_model` does, on one process of the job."""
        if self.is_world_process_zero():
            with self._phases.phase(self._job, SAVING):
                super().save_model(output_dir, _internal_call)

    def compute_loss_context_manager(self) -> ExitStack:
        """Return the context of a loss: that of `Trainer`, and autocast to bf16 or fp16."""
        stack: ExitStack = super().compute_loss_context_manager()
        stack.enter_context(self.accelerator.autocast())
        return stack

    @contextmanager
    def joined_to(self, job: TrainingSession) -> Iterator[None]:
        """Write and log as `job` decides, within the context and after it."""
        self._job = job
        try:
            yield
        finally:
            self._decides = job.decides
            self._job = None


class _Losses:
    """Mean loss of the steps since the last log, and of all steps of this start.

    `weight` is the total that this rank's losses since the last log are means over.
    """

    def __init__(self) -> None:
        self._window: torch.Tensor | None = None
        self._steps = 0
        self.weight = 0.0
        self._total = 0.0
        self._total_steps = 0

    def add(self, loss: torch.Tensor | None, skips_non_finite: bool) -> None:
        if loss is None:
            return
        if skips_non_finite and self._window is not None:
            mean = self._window / self._steps
            loss = torch.where(torch.isfinite(loss), loss, mean)
        self._window = loss.clone() if self._window is None else self._window + loss
        self._steps += 1

    def take(self, mean: Callable[[torch.Tensor | None, float], float]) -> float:
        """Return the mean since the last call, over all ranks by `mean`."""
        mean_here = None if self._window is None else self._window / self._steps
        result = mean(mean_here, self.weight)
        if not math.isfinite(result) and mean_here is not None:  # an instance was lost meanwhile
            result = float(mean_here)
        self._total += result * self._steps
        self._total_steps += self._steps
        self._window, self._steps, self.weight = None, 0, 0.0
        return result

    @property
    def has_any(self) -> bool:
        return self._steps > 0

    @property
    def mean(self) -> float:
        return self._total / max(self._total_steps, 1)


class _Progress:
    """State of the Trainer and of its callbacks, as the session's own state."""

    def __init__(self, trainer: ElasticTrainer) -> None:
        self._trainer = trainer

    def state_dict(self) -> dict[str, str]:
        state = dataclasses.asdict(self._trainer.state)
        values = {name: value for name, value in state.items() if name not in _OWN_FIELDS}
        callbacks = [
            [type(callback).__name__, callback.state()["attributes"]]
            for callback in self._exportable()
        ]
        text = json.dumps({"state": values, "callbacks": callbacks}, default=float)
        return {"json": text}

    def load_state_dict(self, saved: Mapping[str, str]) -> None:
        values = json.loads(saved["json"])
        for name, value in values["state"].items():
            setattr(self._trainer.state, name, value)
        states = list(values["callbacks"])
        for callback in self._exportable():
            place = next((state for state in states if state[0] == type(callback).__name__), None)
            if place is not None:
                states.remove(place)
                for name, value in place[1].items():
                    setattr(callback, name, value)

    def _exportable(self) -> list[Any]:
        callbacks = self._trainer.callback_handler.callbacks
        return [callback for callback in callbacks if isinstance(callback, ExportableState)]


class _Training:
    """One call of `train`: the loop over a session's batches, with the Trainer's events."""

    def __init__(self, trainer: ElasticTrainer, ignored_keys: list[str] | None) -> None:
        self._trainer = trainer
        self._ignored_keys = ignored_keys
        self._losses = _Losses()
        self._own: dict[str, Any] = {"trainer": _Progress(trainer), "best_model": {}}
        self._clock = SystemClock()
        self._has_begun = False
        self._items: Any = None
        self._batch_examples = 0
        self._step: Step | None = None
        self._begun_seconds = self._clock.now()
        self._first_step = 0
        loader = trainer.get_train_dataloader()
        args = trainer.args
        seed = args.seed if args.data_seed is None else args.data_seed
        self._data = loader_arguments(loader, seed, args.device)
        self._length = training_length(
            self._data.examples,
            args.per_device_train_batch_size * args.gradient_accumulation_steps,
            self._data.drop_last,
            args.num_train_epochs,
            args.max_steps,
        )
        trainer.callback_handler.train_dataloader = loader

    def run(self, options: Mapping[str, Any]) -> TrainOutput:
        trainer, args = self._trainer, self._trainer.args
        trainer.is_in_train = True
        averages, args.average_tokens_across_devices = args.average_tokens_across_devices, False
        backward = trainer.accelerator.backward
        try:
            arguments = self._session_arguments(options)
            with session(**arguments) as job, trainer.joined_to(job):
                self._job = job
                trainer.accelerator.backward = self._learn
                self._train()
                output = self._finish()
        finally:
            args.average_tokens_across_devices = averages
            trainer.accelerator.backward = backward
            trainer.model_wrapped = trainer.model
            trainer.is_in_train = False
        if args.load_best_model_at_end and self._own["best_model"]:
            trainer.model.load_state_dict(self._own["best_model"])
        self._call("on_train_end")
        return output

    def _session_arguments(self, options: Mapping[str, Any]) -> dict[str, Any]:
        trainer, args, length = self._trainer, self._trainer.args, self._length
        _checkpoint_activations(trainer)
        tokens = trainer.processing_class
        if isinstance(tokens, (PreTrainedTokenizerBase, ProcessorMixin)):
            align_special_tokens(trainer.model, tokens)
        model = trainer.accelerator.prepare_model(trainer.model, evaluation_mode=True)
        trainer.create_optimizer_and_scheduler(num_training_steps=length.scheduler_steps)
        for name in ("model", "optimizer", "lr_scheduler"):
            setattr(trainer.callback_handler, name, getattr(trainer, name))
        state = trainer.state
        state.compute_steps(args, length.steps)
        state.max_steps, state.num_train_epochs = length.steps, math.ceil(length.epochs)
        state.train_batch_size = args.per_device_train_batch_size
        seed = args.seed if args.data_seed is None else args.data_seed
        return {
            "model": model,
            "optimizer": trainer.optimizer,
            "scheduler": trainer.lr_scheduler,
            "scaler": trainer.accelerator.scaler,
            "batch_size": length.batch_size,
            "device_batch_size": args.per_device_train_batch_size,
            "max_grad_norm": args.max_grad_norm or None,
            "static_graph": bool(args.ddp_static_graph),
            "seed": seed,
            "state": self._own,
            **self._data.as_session_arguments(),
            **options,
        }

    def _train(self) -> None:
        trainer, job = self._trainer, self._job
        trainer.current_gradient_accumulation_steps = 1
        for _ in job.epochs(self._length.epochs):
            self._begin()
            self._call("on_epoch_begin")
            starts_step = True
            for inputs in job.batches():
                if starts_step:
                    self._follow_decider()
                    self._call("on_step_begin")
                starts_step = self._take(inputs)
            if self._step is not None:
                self._call("on_epoch_end")
                self._log_evaluate_save(waits=False)

    def _begin(self) -> None:
        """Begin once: after the first exchange it is known which rank logs and how far it is."""
        if self._has_begun:
            return
        self._has_begun = True
        state = self._trainer.state
        self._first_step = state.global_step
        decides = self._trainer.is_world_process_zero()
        state.is_world_process_zero = state.is_local_process_zero = decides
        self._call("on_train_begin")
        if self._trainer.args.eval_on_start and state.global_step == 0:
            self._trainer.evaluate(ignore_keys=self._ignored_keys)

    def _follow_decider(self) -> None:
        """Let this rank log from now on, or no longer, as the job decides."""
        trainer, state = self._trainer, self._trainer.state
        decides = trainer.is_world_process_zero()
        if decides == state.is_world_process_zero:
            return
        state.is_world_process_zero = state.is_local_process_zero = decides
        for callback in trainer.callback_handler.callbacks:
            if decides and isinstance(callback, ProgressCallback):  # it lacks its bar
                callback.on_train_begin(trainer.args, state, trainer.control)

    def _take(self, inputs: Any) -> bool:
        """Learn from one batch; return whether the step is over."""
        trainer, job, state = self._trainer, self._job, self._trainer.state
        trainer.model_wrapped = job.model
        (inputs,), self._items = trainer.get_batch_samples(iter([inputs]), 1, trainer.args.device)
        self._step, self._batch_examples = None, find_batch_size(inputs) or 1
        trainer.training_step(job.model, inputs, self._items)
        step = self._taken_step()
        if not step.is_last:
            self._call("on_substep_end")
            return False
        if not step.committed:
            return True
        self._losses.add(step.loss, trainer.args.logging_nan_inf_filter)
        state.global_step = step.number
        state.epoch = self._length.epochs_of(job.progress_examples)
        state.max_steps = self._length.steps_in_all(
            step.number, job.progress_examples, job.batch_size
        )
        self._call("on_step_end")
        require_whole_epoch(trainer.control)
        self._log_evaluate_save(waits=True)
        if trainer.control.should_training_stop and not self._length.is_over(
            job.progress_examples
        ):
            job.stop("a callback of the Trainer stopped it")
        return True

    def _taken_step(self) -> Step:
        """Return what the last batch's step came to.

        Raises:
            ValueError: `training_step` made none.
        """
        if self._step is None:
            raise ValueError(
                "training_step: it has to call self.accelerator.backward(loss) once, as that of "
                "Trainer does; or override compute_loss in its place"
            )
        return self._step

    def _learn(self, loss: torch.Tensor, **_: Any) -> None:
        """Take the place of `accelerator.backward` in `training_step`."""
        is_mean_over_items = self._trainer.loss_is_scaled_for_ga is not False
        weight = self._items if is_mean_over_items else None
        self._losses.weight += float(self._batch_examples if weight is None else weight)
        self._step = self._job.step(loss, weight=weight)

    def _log_evaluate_save(self, waits: bool) -> None:
        """Log, evaluate and save as the callbacks ask.

        Args:
            waits: whether the other ranks must be told to wait, as no epoch has ended.
        """
        trainer, control, step = self._trainer, self._trainer.control, self._step
        if control.should_log and self._losses.has_any and step is not None:
            logs = {"loss": self._losses.take(self._job.mean)}
            if step.gradient_norm is not None:
                logs["grad_norm"] = float(step.gradient_norm)
            logs["learning_rate"] = step.learning_rate
            trainer.log(logs)
        if waits and (trainer.control.should_evaluate or trainer.control.should_save):
            self._job.every(steps=1)
        if trainer.control.should_evaluate:
            is_best = self._is_best(trainer.evaluate(ignore_keys=self._ignored_keys))
            if is_best and trainer.args.load_best_model_at_end:
                self._own["best_model"] = {
                    name: value.detach().cpu().clone()
                    for name, value in trainer.model.state_dict().items()
                }
            if trainer.args.save_strategy == SaveStrategy.BEST:
                trainer.control.should_save = is_best
        if trainer.control.should_save:
            self._save()
            self._call("on_save")

    def _is_best(self, metrics: Mapping[str, float]) -> bool:
        """Return whether an evaluation is the best so far, and remember it.

        Raises:
            KeyError: the metric that decides is not among the metrics.
        """
        args, state = self._trainer.args, self._trainer.state
        name = args.metric_for_best_model
        if name is None:
            return False
        name = name if name.startswith("eval_") else f"eval_{name}"
        if name not in metrics:
            raise KeyError(
                f"metric_for_best_model={name} is not among the metrics {', '.join(metrics)}"
            )
        value, best = metrics[name], state.best_metric
        is_best = best is None or (value > best if args.greater_is_better else value < best)
        if is_best:
            state.best_metric, state.best_global_step = value, state.global_step
        return bool(is_best)

    def _save(self) -> None:
        """Write the model and the Trainer's state to output_dir, as the deciding rank."""
        trainer, state = self._trainer, self._trainer.state
        directory = Path(trainer.args.output_dir) / f"checkpoint-{state.global_step}"
        if state.best_global_step == state.global_step:
            state.best_model_checkpoint = str(directory)
        if not trainer.is_world_process_zero():
            return
        trainer.save_model(str(directory), _internal_call=True)
        state.save_to_json(str(directory / _STATE_FILE))
        _remove_old(directory, state.best_model_checkpoint, trainer.args.save_total_limit)

    def _finish(self) -> TrainOutput:
        """Log the whole training, and return its facts."""
        trainer, state = self._trainer, self._trainer.state
        self._begin()  # where a restart finds nothing left to do
        if self._losses.has_any:
            self._losses.take(self._job.mean)
        steps = state.global_step - self._first_step
        metrics = speed_metrics(
            "train",
            self._begun_seconds,
            num_samples=steps * self._length.batch_size,
            num_steps=steps,
        )
        metrics["train_loss"] = self._losses.mean
        trainer.log(metrics)
        return TrainOutput(state.global_step, self._losses.mean, metrics)

    def _call(self, event: str) -> None:
        """Call the callbacks of an event, which may change the Trainer's control."""
        trainer = self._trainer
        handler = getattr(trainer.callback_handler, event)
        trainer.control = handler(trainer.args, trainer.state, trainer.control)


def _checkpoint_activations(trainer: ElasticTrainer) -> None:
    """Enable activation checkpoints as the arguments ask, of the kind that sessions can take."""
    args = trainer.args
    if not (args.gradient_checkpointing or args.activation_checkpointing):
        return
    given = args.activation_checkpointing_kwargs or args.gradient_checkpointing_kwargs or {}
    trainer.model.gradient_checkpointing_enable({"use_reentrant": False, **given})


def _remove_old(newest: Path, best: str | None, limit: int | None) -> None:
    """Remove the oldest of the directories beside `newest`, down to `limit`, but not the best."""
    if not limit:
        return
    steps = {}
    for directory in newest.parent.glob("checkpoint-*"):
        with suppress(ValueError):
            steps[int(directory.name.rpartition("-")[2])] = directory
    kept = {newest, Path(best or newest)}
    old = [steps[step] for step in sorted(steps) if steps[step] not in kept]
    for directory in old[: max(len(steps) - max(limit, len(kept)), 0)]:
        shutil.rmtree(directory, ignore_errors=True)
