"""Options of Lightning's Trainer and hooks of modules that can't be elastic, and remedies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from lightning.pytorch import Callback, LightningModule

from autoscaler.integrations.refusals import refuse

_CALLBACKS: Final = {
    "BatchSizeFinder": "give the batch size: the session splits batches that don't fit",
    "GradientAccumulationScheduler": "leave it out: batch.max of the job file lets the batch grow",
    "LearningRateFinder": "find the rate in a run without the strategy",
    "ModelPruning": "prune after fit",
    "StochasticWeightAveraging": "average the weights in a script with session and state",
    "Timer": "set a deadline in the job file, or call job.stop in a script with session",
    "WeightAveraging": "average the weights in a script with session and state",
    "EMAWeightAveraging": "average the weights in a script with session and state",
}
_MODULE_HOOKS: Final = {
    "backward": "compute everything in training_step: the session runs the backward pass",
    "configure_gradient_clipping": "use Trainer(gradient_clip_val=...), which clips the sum over "
    "all devices",
    "lr_scheduler_step": "use a scheduler whose step() needs no argument",
    "optimizer_step": "use a scheduler with interval: step to change the rate",
    "optimizer_zero_grad": "leave it out: the session clears the gradients",
}
# The session sums, applies and clears the gradients in one call.
_GRADIENT_HOOKS: Final = {
    "on_after_backward": "use on_train_batch_end; the summed gradients are not kept",
    "on_before_optimizer_step": "use on_train_batch_end; the summed gradients are not kept",
}
_OWNER: Final = "ElasticStrategy"


def require_elastic_trainer(trainer: Any) -> None:
    """Check the Trainer's options.

    Raises:
        ValueError: an option can't be elastic; the message names it and a remedy.
    """
    has_end = trainer.max_epochs not in (None, -1) or trainer.max_steps > 0
    remedies = {
        "max_epochs=-1": (not has_end, "give max_epochs or max_steps"),
        "limit_train_batches": (
            trainer.limit_train_batches != 1.0 or isinstance(trainer.limit_train_batches, int),
            "give a shorter dataset, such as torch.utils.data.Subset",
        ),
        "overfit_batches": (
            bool(trainer.overfit_batches),
            "give a shorter dataset, such as torch.utils.data.Subset",
        ),
        "reload_dataloaders_every_n_epochs": (
            bool(trainer.reload_dataloaders_every_n_epochs),
            "change the order by a sampler with set_epoch",
        ),
        "gradient_clip_algorithm='value'": (
            bool(trainer.gradient_clip_val)
            and str(getattr(trainer.gradient_clip_algorithm, "value", "norm")) == "value",
            "use 'norm'",
        ),
    }
    refuse(_OWNER, remedies)
    for callback in trainer.callbacks:
        name = type(callback).__name__
        if name in _CALLBACKS:
            raise ValueError(f"callback {name}: {_OWNER} can't train with it: {_CALLBACKS[name]}")
        _require_default(callback, Callback, _GRADIENT_HOOKS)


def require_elastic_module(module: Any) -> None:
    """Check a LightningModule.

    Raises:
        ValueError: the module can't be elastic; the message names the hook and a remedy.
    """
    if not module.automatic_optimization:
        raise ValueError(
            f"automatic_optimization=False: {_OWNER} can't train with it: write the loop with "
            "session, whose phases step several optimizers (docs/training-recipes.md)"
        )
    _require_default(module, LightningModule, {**_MODULE_HOOKS, **_GRADIENT_HOOKS})


def require_elastic_schedules(configs: Sequence[Any]) -> None:
    """Check the learning-rate schedules that the module has configured.

    Raises:
        ValueError: a schedule follows a metric.
    """
    if any(config.reduce_on_plateau for config in configs):
        raise ValueError(
            "configure_optimizers: ReduceLROnPlateau needs a metric at each step: use a "
            "scheduler without, such as CosineAnnealingLR"
        )


def _require_default(holder: Any, base: type, hooks: dict[str, str]) -> None:
    """Check that an object does not override some hooks of its base class.

    Raises:
        ValueError: it does.
    """
    for hook, remedy in hooks.items():
        if getattr(type(holder), hook) is not getattr(base, hook):
            raise ValueError(f"{type(holder).__name__}.{hook}: {_OWNER} can't call it: {remedy}")
