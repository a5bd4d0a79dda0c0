"""Use of this instance's GPUs, by NVML: the library of the driver, through nvidia-ml-py.

Without the package, without a driver, and where the driver does not say (MIG), nothing is known.
"""

from __future__ import annotations

import importlib
import logging
import threading
from collections.abc import Callable
from typing import Any, Final

from autoscaler.clock import Clock
from autoscaler.domain.gpu_use import GpuUse

_log = logging.getLogger(__name__)

_INTERVAL_SECONDS: Final = 15.0
# A driver that hangs leaves its last answer here, which is no answer any more after this time.
_FRESH_SECONDS: Final = 60.0


def gpu_use() -> GpuUse | None:
    """Return the present use of all GPUs; None where it can't be asked."""
    try:
        nvml: Any = importlib.import_module("pynvml")
    except ImportError:
        return None
    try:
        nvml.nvmlInit()
        count = nvml.nvmlDeviceGetCount()
        handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(count)]
        shares = [nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100.0 for handle in handles]
        memories = [nvml.nvmlDeviceGetMemoryInfo(handle) for handle in handles]
    except nvml.NVMLError as error:
        _log.debug("NVML does not answer: %s", error)
        return None
    if not shares:
        return None
    return GpuUse(
        gpus=len(shares),
        mean_share=round(sum(shares) / len(shares), 4),
        busiest_share=max(shares),
        memory_used_bytes=sum(int(memory.used) for memory in memories),
        memory_bytes=sum(int(memory.total) for memory in memories),
    )


class GpuMeter:
    """Use of the GPUs, asked every few seconds in a thread of its own: a driver may hang."""

    def __init__(self, clock: Clock, ask: Callable[[], GpuUse | None] = gpu_use) -> None:
        self._clock = clock
        self._ask = ask
        self._last: tuple[float, GpuUse | None] | None = None

    def start(self) -> None:
        """Start the thread, where there are GPUs to ask. Call only once."""
        threading.Thread(target=self._run, name="castor-gpus", daemon=True).start()

    def look(self) -> bool:
        """Ask once; return whether there was an answer."""
        use = self._ask()
        self._last = self._clock.monotonic(), use
        return use is not None

    def use(self) -> GpuUse | None:
        """Return the last answer; None without one, or if it is too old."""
        if self._last is None or self._clock.monotonic() - self._last[0] > _FRESH_SECONDS:
            return None
        return self._last[1]

    def _run(self) -> None:
        if not self.look():  # no driver, and none will come
            return
        while True:
            self._clock.sleep(_INTERVAL_SECONDS)
            self.look()
