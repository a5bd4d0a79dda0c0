"""Memory of one device: states of the model, activations of examples, and a constant.

Estimates before a run follow from the owner's declaration. Measured peaks replace them: with two
numbers of examples both parts, with one the part that the declaration does not explain.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from autoscaler.domain.model import ModelSpec
from autoscaler.domain.report import MemoryPeak

# Bytes of the CUDA context, of libraries and of buffers of collectives on a device. Assumed.
CONSTANT_BYTES = 1e9
# Share of a copy's parameters that a device with a part of it holds whole at once: the layer in
# use and the next one, which FSDP gathers ahead. Assumed: 2 of about 30 layers.
GATHERED_SHARE = 2.0 / 30.0
# Share of a device's nominal memory that tensors can use. The rest is reserved or fragmented.
USABLE_SHARE = 0.92


@dataclass(frozen=True, slots=True)
class MemoryModel:
    """Memory that a job needs on one device, in bytes.

    `base_bytes` do not depend on the examples; each example at once adds `example_bytes`.
    """

    base_bytes: float
    example_bytes: float

    def bytes_with(self, examples: int) -> float:
        """Return the bytes that a device needs with so many examples at once."""
        return self.base_bytes + examples * self.example_bytes

    def most_examples(self, memory_bytes: float) -> int | None:
        """Return the most examples that fit a device at once; None: no bound is known."""
        if self.example_bytes <= 0:
            return None if self.bytes_with(1) <= USABLE_SHARE * memory_bytes else 0
        room = USABLE_SHARE * memory_bytes - self.base_bytes
        return max(int(room // self.example_bytes), 0)

    def fits(self, memory_bytes: float) -> bool:
        """Return whether a device can hold its part of the model and one example."""
        return self.bytes_with(1) <= USABLE_SHARE * memory_bytes


def declared_memory(model: ModelSpec, shard: int) -> MemoryModel:
    """Return the memory of a declared model, a copy of which `shard` devices hold.

    Unknown activations count nothing, so that they exclude no device.
    """
    base_bytes = CONSTANT_BYTES + model.state_bytes / shard
    if shard > 1:
        base_bytes += GATHERED_SHARE * model.parameters * model.precision.computed_bytes
    return MemoryModel(base_bytes, model.activation_bytes or 0.0)


def measured_memory(
    peaks: Sequence[MemoryPeak], declared: MemoryModel | None
) -> MemoryModel | None:
    """Return the memory model that measured peaks give, beside a declaration; None without both.

    Peaks at several numbers of examples give both parts by least squares. From peaks at one number
    the declared base is taken out, and the rest is that of its examples; without a declaration
    such peaks say nothing about other devices.
    """
    if not peaks:
        return declared
    examples = [float(peak.device_batch) for peak in peaks]
    sizes = [float(peak.peak_bytes) for peak in peaks]
    mean_examples, mean_bytes = sum(examples) / len(examples), sum(sizes) / len(sizes)
    spread = sum((count - mean_examples) ** 2 for count in examples)
    if spread > 0:
        products = zip(examples, sizes, strict=True)
        slope = sum((count - mean_examples) * (size - mean_bytes) for count, size in products)
        example_bytes = max(slope / spread, 0.0)
        base_bytes = max(mean_bytes - example_bytes * mean_examples, 0.0)
        return MemoryModel(base_bytes, example_bytes)
    if declared is None:
        return None
    example_bytes = max(mean_bytes - declared.base_bytes, 0.0) / max(mean_examples, 1.0)
    base_bytes = min(declared.base_bytes, mean_bytes)
    return MemoryModel(base_bytes, example_bytes)
