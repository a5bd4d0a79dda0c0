"""Options of Accelerate's Accelerator that can't be elastic, and remedies."""

from __future__ import annotations

from typing import Any, Final

from autoscaler.integrations.refusals import SHARDED_IN_A_SCRIPT, refuse

_ELASTIC: Final = ("NO", "MULTI_CPU", "MULTI_GPU")
_OWNER: Final = "ElasticAccelerator"


def require_elastic_accelerator(accelerator: Any) -> None:
    """Check the options of an Accelerator.

    Raises:
        ValueError: an option can't be elastic; the message names it and a remedy.
    """
    kind = str(accelerator.distributed_type).rpartition(".")[2]
    remedies = {
        f"distributed_type={kind}": (
            kind not in _ELASTIC,
            f"leave the plugin out; {SHARDED_IN_A_SCRIPT}",
        ),
        "parallelism_config": (
            accelerator.parallelism_config is not None,
            "leave it out: each device holds the model",
        ),
        "split_batches": (
            accelerator.split_batches,
            "leave it out: the DataLoader's batch_size is that of all devices anyway",
        ),
        "dispatch_batches": (
            bool(accelerator.dispatch_batches),
            "leave it out: each rank reads its own share",
        ),
        "use_stateful_dataloader": (
            accelerator.use_stateful_dataloader,
            "leave it out: the session keeps the position in the data",
        ),
        "step_scheduler_with_optimizer=False": (
            not accelerator.step_scheduler_with_optimizer,
            "leave it out: the session steps the scheduler once for each step",
        ),
    }
    refuse(_OWNER, remedies)
