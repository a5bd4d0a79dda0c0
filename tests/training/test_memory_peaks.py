from __future__ import annotations

import pytest
import torch

from autoscaler.domain.report import MemoryPeak
from autoscaler.training.memory_peaks import MemoryPeaks


def test_a_peak_belongs_to_the_largest_examples_up_to_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counted = iter([100, 120, 300])
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device: next(counted))
    peaks = MemoryPeaks(torch.device("cuda:0"), "t4")
    for device_batch in (8, 8, 4, 16, 0):
        peaks.note(device_batch)
    assert peaks.reported == (MemoryPeak("t4", 8, 120), MemoryPeak("t4", 16, 300))


def test_nothing_is_counted_on_a_cpu() -> None:
    peaks = MemoryPeaks(torch.device("cpu"), "cpu-core")
    peaks.note(8)
    assert peaks.reported == ()
