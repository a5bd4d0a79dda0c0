"""What kinds of device there are, and how fast one should be beside another.

Figures are the makers' for one device, of dense half precision (fp16 or bf16) accumulated in
fp32, on tensor cores where there are any. A job's own measurements take their place.
"""

from __future__ import annotations

import difflib
import math
from dataclasses import dataclass
from typing import Final

from autoscaler.domain.errors import CastorError


class UnknownDeviceKind(CastorError):
    """No device of that kind is known here."""


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """One kind of device. `memory_bytes` is nominal: there is never less."""

    name: str
    flops_per_second: float
    memory_bandwidth_bytes_per_second: float
    memory_bytes: int


def _kind(name: str, teraflops: float, gigabytes_per_second: float, gigabytes: int) -> DeviceKind:
    return DeviceKind(name, teraflops * 1e12, gigabytes_per_second * 1e9, gigabytes * 10**9)


# Sources: NVIDIA's data sheets of each; the white papers of Turing for rtx2080ti (53.8: reference
# clocks, fp32 accumulation) and of Pascal for p100 (PCIe; no tensor cores); the HGX pages for the
# Blackwells, half of the figures that they state with sparsity.
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
    """What is known of a kind of device.

    Raises:
        UnknownDeviceKind: nothing is; the error names the kinds that are known.
    """
    if name in _KINDS:
        return _KINDS[name]
    meant = difflib.get_close_matches(name.lower(), _KINDS, n=1)
    instead = f'did you mean "{meant[0]}"? ' if meant else ""
    known = ", ".join(_KINDS)
    raise UnknownDeviceKind(f'unknown kind of device "{name}": {instead}known are {known}')


def speed_ratio(kind: str, other: str) -> float:
    """How many times as fast one device of `kind` should be as one of `other`, on any job.

    ``sqrt(FLOP/s ratio * memory bandwidth ratio)``: between a job that only computes and one that
    only moves memory. A prior and no more: `goodput.prior.prior_from_kind` says how wide.

    Raises:
        UnknownDeviceKind: one of them is.
    """
    one, another = device_kind(kind), device_kind(other)
    flops = one.flops_per_second / another.flops_per_second
    bandwidth = one.memory_bandwidth_bytes_per_second / another.memory_bandwidth_bytes_per_second
    return math.sqrt(flops * bandwidth)
