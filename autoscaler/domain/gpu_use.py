"""Use of an instance's GPUs and their memory, as its agent measures it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from autoscaler.domain.errors import SpecError
from autoscaler.domain.rules import require_count, require_number

_MOST_GPUS: Final = 1 << 10
_MOST_BYTES: Final = 1 << 50


@dataclass(frozen=True, slots=True)
class GpuUse:
    """Use of all GPUs of one instance in the driver's last interval, a second or less.

    Attributes:
        gpus: number of GPUs.
        mean_share: share of the interval in which a GPU computed, as a mean over the GPUs.
        busiest_share: that share of the GPU with the largest one.
        memory_used_bytes: memory in use, of all GPUs together.
        memory_bytes: memory of all GPUs together.
    """

    gpus: int
    mean_share: float
    busiest_share: float
    memory_used_bytes: int
    memory_bytes: int


def require_gpu_use(use: GpuUse) -> None:
    """Check the values of a use of GPUs.

    Raises:
        SpecError: a value is out of its range; the message has its field.
    """
    require_count(use.gpus, "gpu_use.gpus", _MOST_GPUS)
    require_number(use.mean_share, "gpu_use.mean_share", 0.0, 1.0)
    require_number(use.busiest_share, "gpu_use.busiest_share", 0.0, 1.0)
    require_count(use.memory_bytes, "gpu_use.memory_bytes", _MOST_BYTES, least=0)
    require_count(use.memory_used_bytes, "gpu_use.memory_used_bytes", _MOST_BYTES, least=0)
    if use.memory_used_bytes > use.memory_bytes:
        raise SpecError(f"must be at most {use.memory_bytes}", "gpu_use.memory_used_bytes")
