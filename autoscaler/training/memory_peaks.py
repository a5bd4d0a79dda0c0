"""Peaks of the memory of this rank's device, by the examples that it took at once."""

from __future__ import annotations

import torch

from autoscaler.domain.report import MemoryPeak


class MemoryPeaks:
    """Largest memory that tensors took so far, by the largest number of examples at once.

    PyTorch's counters are read and never reset, because the script may read them too. So a peak
    belongs to the largest number of examples up to then.
    """

    def __init__(self, device: torch.device, device_kind: str) -> None:
        self._device = device
        self._device_kind = device_kind
        self._peak_bytes: dict[int, int] = {}

    def note(self, device_batch: int) -> None:
        """Record the peak with `device_batch` examples at once; of no device but CUDA's."""
        if self._device.type != "cuda" or device_batch < 1:
            return
        if self._peak_bytes and device_batch < max(self._peak_bytes):
            return
        self._peak_bytes[device_batch] = torch.cuda.max_memory_allocated(self._device)

    @property
    def reported(self) -> tuple[MemoryPeak, ...]:
        """The peaks by rising number of examples."""
        return tuple(
            MemoryPeak(self._device_kind, device_batch, peak_bytes)
            for device_batch, peak_bytes in sorted(self._peak_bytes.items())
        )
