"""Kinds of devices, and a prior for the ratio of their speeds.

Figures are the makers' for one device: dense half precision (fp16 or bf16) with fp32
accumulation, on tensor cores if it has any. A job's own measurements replace the prior.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from typing import Final

from autoscaler.domain.errors import CastorError
from autoscaler.domain.text import quoted


class UnknownDeviceKind(CastorError):
    """The kind of device is not in the table."""


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """A kind of device. `memory_bytes` is the nominal size, which no device falls short of."""

    name: str
    flops_per_second: float
    memory_bandwidth_bytes_per_second: float
    memory_bytes: int


def _kind(name: str, teraflops: float, gigabytes_per_second: float, gigabytes: int) -> DeviceKind:
    return DeviceKind(name, teraflops * 1e12, gigabytes_per_second * 1e9, gigabytes * 10**9)


# Sources: NVIDIA's data sheets; the Turing white paper for rtx2080ti (53.8: reference clocks, fp32
# accumulation); the Pascal white paper for p100 (PCIe; no tensor cores); the HGX pages for the
# Blackwells, half of the figures stated with sparsity.
_KINDS: Final = {
    kind.name: kind
    for kind in (
        _kind("p100", 18.7, 732, 16),
        _kind("v100", 125, 900, 16),
        _kind("v100-32", 125, 900, 32),
        _kind("rtx2080ti", 53.8, 616, 11),
        _kind("t4", 65, 320, 16),
        _kind("a10g", 70, 600, 24),
        _kind("a100-40", 312, 1555, 40),
        _kind("a100-80", 312, 2039, 80),
        _kind("l4", 121, 300, 24),
        _kind("l40s", 362, 864, 48),
        _kind("h100", 989, 3350, 80),
        _kind("h200", 989, 4800, 141),
        _kind("b200", 2250, 8000, 180),
        _kind("b300", 2250, 8000, 268),
    )
}


def device_kind(name: str) -> DeviceKind:
    """Return the data of a kind of device.

    Raises:
        UnknownDeviceKind: the kind is unknown; the error lists the known kinds.
    """
    if name in _KINDS:
        return _KINDS[name]
    similar = difflib.get_close_matches(name.lower(), _KINDS, n=1)
    suggestion = f'did you mean "{similar[0]}"? ' if similar else ""
    known_kinds = ", ".join(_KINDS)
    raise UnknownDeviceKind(
        f"unknown kind of device {quoted(name)}: {suggestion}known are {known_kinds}"
    )


def kinds_named(name: str) -> tuple[str, ...]:
    """Return the kinds that a name stands for: `a100` for `a100-40` and `a100-80`.

    Raises:
        UnknownDeviceKind: no kind has this name; the error lists the known kinds.
    """
    name = name.removesuffix("gb")
    names = tuple(kind for kind in _KINDS if kind == name or kind.startswith(f"{name}-"))
    return names or (device_kind(name).name,)


def kinds_with_memory(least_bytes: int) -> frozenset[str]:
    """Return the kinds whose devices have at least this much memory."""
    return frozenset(kind.name for kind in _KINDS.values() if kind.memory_bytes >= least_bytes)


def speed_ratio(kind: str, other: str) -> float:
    """Return the expected speed of one device of `kind` relative to one of `other`, for any job.

    ``sqrt(FLOP/s ratio * memory bandwidth ratio)``: between a job bound by computation and one
    bound by memory. It is a prior only: `goodput.prior.prior_from_kind` holds its uncertainty.

    Raises:
        UnknownDeviceKind: one of the kinds is unknown.
    """
    device, reference = device_kind(kind), device_kind(other)
    flops = device.flops_per_second / reference.flops_per_second
    bandwidth = (
        device.memory_bandwidth_bytes_per_second / reference.memory_bandwidth_bytes_per_second
    )
    return math.sqrt(flops * bandwidth)
