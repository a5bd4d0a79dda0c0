"""Memory of one device: declared, then corrected by measured peaks."""

from __future__ import annotations

import pytest

from autoscaler.domain.model import ModelSpec, OptimizerKind, Precision
from autoscaler.domain.report import MemoryPeak
from autoscaler.goodput.device_memory import (
    CONSTANT_BYTES,
    GATHERED_SHARE,
    MemoryModel,
    declared_memory,
    measured_memory,
)


@pytest.mark.parametrize(
    ("optimizer", "precision", "bytes_per_parameter"),
    [
        (OptimizerKind.ADAMW, Precision.MIXED, 16),
        (OptimizerKind.ADAMW, Precision.FP32, 16),
        (OptimizerKind.ADAM, Precision.BF16, 8),
        (OptimizerKind.SGD, Precision.FP32, 8),
        (OptimizerKind.MOMENTUM, Precision.FP32, 12),
        (OptimizerKind.ADAMW_8BIT, Precision.MIXED, 10),
    ],
)
def test_states_are_parameters_gradients_and_optimizer(
    optimizer: OptimizerKind, precision: Precision, bytes_per_parameter: int
) -> None:
    model = ModelSpec(7e9, optimizer, precision)
    assert model.state_bytes == 7e9 * bytes_per_parameter
    assert declared_memory(model, 1).base_bytes == CONSTANT_BYTES + model.state_bytes
    gathered = GATHERED_SHARE * 7e9 * precision.computed_bytes
    assert declared_memory(model, 8).base_bytes == pytest.approx(
        CONSTANT_BYTES + model.state_bytes / 8 + gathered
    )


def test_seven_billion_parameters_need_two_80_gb_devices_or_more() -> None:
    model = ModelSpec(7e9, activation_bytes=2e9)
    assert not declared_memory(model, 1).fits(80e9)
    assert declared_memory(model, 2).fits(80e9)
    assert not declared_memory(model, 4).fits(24e9)
    assert declared_memory(model, 8).fits(24e9)


def test_unknown_activations_exclude_nothing() -> None:
    memory = declared_memory(ModelSpec(1e9), 1)
    assert memory.fits(24e9)
    assert memory.most_examples(24e9) is None
    assert declared_memory(ModelSpec(1e10), 1).most_examples(24e9) == 0


def test_examples_at_once_fit_the_device() -> None:
    memory = MemoryModel(4e9, 1e9)
    most = memory.most_examples(24e9)
    assert most is not None
    assert memory.bytes_with(most) <= 0.92 * 24e9 < memory.bytes_with(most + 1)


def test_peaks_at_two_batches_give_both_parts() -> None:
    peaks = [MemoryPeak("a100-40", batch, 5 * 10**9 + batch * 3 * 10**8) for batch in (4, 8, 16)]
    memory = measured_memory(peaks, declared_memory(ModelSpec(1e10, activation_bytes=1e6), 4))
    assert memory is not None
    assert memory.base_bytes == pytest.approx(5e9)
    assert memory.example_bytes == pytest.approx(3e8)


def test_peaks_at_one_batch_give_what_the_declaration_leaves_open() -> None:
    peak = MemoryPeak("a100-40", 8, 9 * 10**9)
    declared = MemoryModel(5e9, 0.0)
    assert measured_memory([peak], declared) == MemoryModel(5e9, 5e8)
    too_much = measured_memory([peak], MemoryModel(2e10, 1e9))
    assert too_much == MemoryModel(9e9, 0.0)
    assert measured_memory([peak], None) is None
    assert measured_memory([], declared) == declared
    assert measured_memory([], None) is None
