from __future__ import annotations

import sys
import threading
import types
from collections.abc import Iterator

import pytest

from autoscaler.clock import VirtualClock
from autoscaler.domain.gpu_use import GpuUse
from autoscaler.node.script.gpu_meter import GpuMeter, gpu_use

USE = GpuUse(1, 0.5, 0.5, 10, 80)


def driver(**changes: object) -> types.SimpleNamespace:
    """Return a driver of two GPUs that compute for 37 and 90 % of the time."""
    rates, used = {0: 37, 1: 90}, {0: 10 << 30, 1: 30 << 30}
    functions: dict[str, object] = {
        "NVMLError": RuntimeError,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetCount": lambda: 2,
        "nvmlDeviceGetHandleByIndex": lambda index: index,
        "nvmlDeviceGetUtilizationRates": lambda index: types.SimpleNamespace(gpu=rates[index]),
        "nvmlDeviceGetMemoryInfo": lambda index: types.SimpleNamespace(
            used=used[index], total=80 << 30
        ),
    }
    return types.SimpleNamespace(**{**functions, **changes})


def test_the_use_is_that_of_all_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", driver())
    assert gpu_use() == GpuUse(2, 0.635, 0.9, 40 << 30, 160 << 30)


def refuses(index: int) -> object:
    raise RuntimeError("Not Supported")


@pytest.mark.parametrize(
    "nvml",
    [
        None,
        driver(nvmlInit=lambda: refuses(0)),
        driver(nvmlDeviceGetUtilizationRates=refuses),
        driver(nvmlDeviceGetMemoryInfo=refuses),
        driver(nvmlDeviceGetCount=lambda: 0),
    ],
)
def test_nothing_is_known_without_an_answer(
    monkeypatch: pytest.MonkeyPatch, nvml: types.SimpleNamespace | None
) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    assert gpu_use() is None


def test_an_old_answer_is_none() -> None:
    clock = VirtualClock(0.0)
    meter = GpuMeter(clock, lambda: USE)
    assert meter.use() is None
    assert meter.look()
    assert meter.use() == USE
    clock.advance(61.0)
    assert meter.use() is None, "the driver hangs"


def test_the_thread_asks_again_only_where_there_are_gpus() -> None:
    def answers() -> Iterator[GpuUse | None]:
        yield from (USE, None, USE)
        enough.set()
        hold.wait()
        yield None

    enough, hold, given = threading.Event(), threading.Event(), answers()
    meter = GpuMeter(VirtualClock(0.0), lambda: next(given))
    meter.start()
    assert enough.wait(60)
    assert meter.use() == USE
    asked = threading.Event()

    def none() -> None:
        assert not asked.is_set()
        asked.set()

    without = GpuMeter(VirtualClock(0.0), none)
    without._run()
    assert asked.is_set()
    assert without.use() is None
