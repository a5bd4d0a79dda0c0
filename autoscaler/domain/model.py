"""Model of a job as its owner declares it, for the memory that its devices need."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from autoscaler.domain.rules import require_number, require_positive

_MOST_PARAMETERS: Final = 1e15
_MOST_BYTES: Final = 1 << 50


class Precision(StrEnum):
    """Types of a model's numbers: all 4 bytes, all 2 bytes, or both.

    MIXED keeps parameters, gradients and optimizer in 4 bytes and computes in 2.
    """

    FP32 = "fp32"
    BF16 = "bf16"
    MIXED = "mixed"

    @property
    def stored_bytes(self) -> int:
        """Bytes in which a device keeps each parameter."""
        return 2 if self is Precision.BF16 else 4

    @property
    def computed_bytes(self) -> int:
        """Bytes in which a device computes with each parameter."""
        return 4 if self is Precision.FP32 else 2


class OptimizerKind(StrEnum):
    """Optimizer, by the numbers that it keeps for each parameter."""

    SGD = "sgd"
    MOMENTUM = "momentum"
    ADAM = "adam"
    ADAMW = "adamw"
    ADAMW_8BIT = "adamw-8bit"

    def bytes_of(self, precision: Precision) -> float:
        """Return the bytes of the optimizer's state for each parameter."""
        if self is OptimizerKind.ADAMW_8BIT:
            return 2.0
        numbers = {OptimizerKind.SGD: 0, OptimizerKind.MOMENTUM: 1}.get(self, 2)
        return float(numbers * precision.stored_bytes)


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """Model of a job.

    `activation_bytes` are what one example adds to a device's memory between forward and backward
    pass; None: unknown.
    """

    parameters: float
    optimizer: OptimizerKind = OptimizerKind.ADAMW
    precision: Precision = Precision.MIXED
    activation_bytes: float | None = None

    @property
    def gradient_bytes(self) -> int:
        """Bytes of the gradients of the whole model."""
        return int(self.parameters * self.precision.stored_bytes)

    @property
    def state_bytes(self) -> float:
        """Bytes of parameters, gradients and optimizer of the whole model."""
        of_optimizer = self.optimizer.bytes_of(self.precision)
        return self.parameters * (2 * self.precision.stored_bytes + of_optimizer)


def require_valid_model(model: ModelSpec) -> None:
    """Check a declared model.

    Raises:
        SpecError: a value is invalid; its `field` is the key of the job file.
    """
    require_positive(model.parameters, "model.parameters", _MOST_PARAMETERS)
    if model.activation_bytes is not None:
        require_number(model.activation_bytes, "model.activations", 0.0, _MOST_BYTES)
