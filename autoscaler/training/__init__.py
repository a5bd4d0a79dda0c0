"""Library of a training script: its session with elastic replicas, batches and checkpoints."""

from __future__ import annotations

from typing import TYPE_CHECKING

from autoscaler.lazy_exports import lazy_exports

if TYPE_CHECKING:
    from autoscaler.training.collectives.instance import replica_mesh as replica_mesh
    from autoscaler.training.data.shards import ShardedDataset as ShardedDataset
    from autoscaler.training.steps.step import Step as Step
    from autoscaler.training.training_session import TrainingSession as TrainingSession
    from autoscaler.training.training_session import session as session

__getattr__, __dir__, __all__ = lazy_exports(
    __name__,
    {
        "collectives.instance": ("replica_mesh",),
        "data.shards": ("ShardedDataset",),
        "steps.step": ("Step",),
        "training_session": ("TrainingSession", "session"),
    },
)
