"""GPUs of an instance by name and number, such as `H100:8`, and by memory."""

from __future__ import annotations

import re
from collections.abc import Sequence

from autoscaler.domain.job import GpuKind
from autoscaler.domain.text import quoted
from autoscaler.market.device_kinds import UnknownDeviceKind, kinds_named, kinds_with_memory

_GPU = re.compile(r"(?P<name>[A-Za-z0-9-]+)(:(?P<devices>[1-9][0-9]{0,3}))?")


def parse_gpus(texts: Sequence[str], memory_bytes: int = 0) -> tuple[GpuKind, ...]:
    """Return the kinds of GPU that the texts name, with at least `memory_bytes` of memory each.

    A name is a kind, `a100-80`, or a family of kinds, `A100`. A number after it is the number of
    GPUs on an instance. Without texts, all known kinds with that memory are returned.

    Raises:
        ValueError: a text can't be parsed, or no known kind fits.
    """
    large = kinds_with_memory(memory_bytes)
    named = [gpu for text in texts for gpu in _gpus_named(text)]
    gpus = [gpu for gpu in named if gpu.name in large] if texts else [*map(GpuKind, sorted(large))]
    if not gpus:
        names = f"GPU named {', '.join(texts)}" if texts else "known GPU"
        raise ValueError(
            f"no {names} has {memory_bytes / 1e9:g} GB: lower gpu_memory, which is in makers' "
            "units, as 80GB"
        )
    return tuple(gpus)


def _gpus_named(text: str) -> list[GpuKind]:
    match = _GPU.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{quoted(text)}: write NAME or NAME:NUMBER, such as H100:8")
    devices = None if match["devices"] is None else int(match["devices"])
    try:
        return [GpuKind(kind, devices) for kind in kinds_named(match["name"].lower())]
    except UnknownDeviceKind as error:
        raise ValueError(str(error)) from error
