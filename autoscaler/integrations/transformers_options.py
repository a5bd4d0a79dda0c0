"""Options of Transformers' Trainer that can't be elastic, and what to do in their place."""

from __future__ import annotations

from typing import Any, Final

from autoscaler.integrations.refusals import SHARDED_IN_A_SCRIPT, refuse

_FIXED_OPTIMIZERS: Final = ("lomo", "schedule_free", "apollo")
_OWNER: Final = "the session of Castor"


def require_elastic_options(args: Any) -> None:
    """Check the options of a `TrainingArguments`.

    Raises:
        ValueError: an option can't be elastic; the message names it and a remedy.
    """
    remedies = {
        "deepspeed": (args.deepspeed, f"leave it out; {SHARDED_IN_A_SCRIPT}"),
        "fsdp": (args.fsdp, f"leave it out; {SHARDED_IN_A_SCRIPT}"),
        "parallelism_config": (args.parallelism_config, "leave it out: each device holds the "
                               "model"),
        "auto_find_batch_size": (args.auto_find_batch_size, "leave it out: a batch that runs out "
                                 "of memory is split anyway"),
        "train_sampling_strategy='batch_rebalance'": (
            args.train_sampling_strategy == "batch_rebalance",
            "use 'random' or 'group_by_length': its batches are made for one number of devices",
        ),
        "push_to_hub": (args.push_to_hub, "call trainer.push_to_hub() after train(), where "
                        "trainer.is_world_process_zero()"),
        "resume_from_checkpoint": (args.resume_from_checkpoint, "leave it out: a job continues "
                                   "from its own checkpoints, and castor resume continues an "
                                   "ended one"),
        "enable_jit_checkpoint": (args.enable_jit_checkpoint, "leave it out: Castor saves a "
                                  "checkpoint when instances are reclaimed"),
        "include_num_input_tokens_seen": (
            str(args.include_num_input_tokens_seen) not in ("no", "False"),
            "leave it out: no rank sees all inputs",
        ),
        "neftune_noise_alpha": (args.neftune_noise_alpha, "add the noise in the model's forward"),
        f"optim={getattr(args.optim, 'value', args.optim)}": (
            any(name in str(args.optim).lower() for name in _FIXED_OPTIMIZERS),
            "use adamw_torch or another optimizer that steps after the whole backward pass",
        ),
        "lr_scheduler_type": (
            str(getattr(args.lr_scheduler_type, "value", args.lr_scheduler_type))
            in ("reduce_lr_on_plateau", "greedy"),
            "use a schedule that needs no metric, such as cosine: the session steps it",
        ),
        "gradient_checkpointing_kwargs": (
            (args.gradient_checkpointing_kwargs or {}).get("use_reentrant"),
            "leave use_reentrant out: checkpoints of this kind run a second backward pass",
        ),
        "n_gpu": (args.n_gpu > 1, "start one process for each GPU: torchrun --nproc-per-node=gpu "
                  "SCRIPT, as Castor does"),
        "accelerator_config": (
            args.accelerator_config.split_batches or args.accelerator_config.dispatch_batches,
            "leave split_batches and dispatch_batches out: the session divides each batch",
        ),
    }  # fmt: skip
    refuse(_OWNER, remedies)


def require_elastic_train(trainer: Any, resume_from_checkpoint: object, trial: object) -> None:
    """Check the arguments of `train`, and options that were changed since the Trainer was made.

    Raises:
        ValueError: one of them can't be elastic; the message names it and a remedy.
    """
    require_elastic_options(trainer.args)
    if resume_from_checkpoint:
        raise ValueError(
            f"resume_from_checkpoint={resume_from_checkpoint!r}: leave it out: a job continues "
            "from its own checkpoints, and castor resume continues an ended one. For weights "
            "alone: model.from_pretrained(DIRECTORY)"
        )
    if trial is not None:
        raise ValueError(
            "trial: a search has no elastic trials: write an objective for hpo.optimize"
        )
    if trainer.train_dataset is None:
        raise ValueError("train_dataset: none is given to the Trainer: give one")
    if getattr(trainer.model, "hf_device_map", None) and trainer.is_model_parallel:
        raise ValueError(
            "device_map: the model lies on several devices: load it without device_map, as each "
            "device holds the whole model"
        )


def require_whole_epoch(control: Any) -> None:
    """Check that no callback ends an epoch early.

    Raises:
        ValueError: one does.
    """
    if control.should_epoch_stop:
        raise ValueError(
            "control.should_epoch_stop: a callback ends an epoch early, which an elastic training "
            "can't: set control.should_training_stop, or give a shorter dataset"
        )
