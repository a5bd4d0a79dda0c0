from __future__ import annotations

import os
import subprocess
import sys
import types

import pytest

from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.node.script.activity_meter import ActivityMeter, Use, use_of_devices


def meter(clock: VirtualClock, share: float | None = 0.5) -> ActivityMeter:
    def begin() -> Use:
        return lambda: share

    return ActivityMeter(clock, begin)


def test_a_script_that_makes_steps_has_nothing_to_report() -> None:
    clock = VirtualClock(0.0)
    measured = meter(clock)
    for step in range(1, 200):
        clock.advance(1.0)
        measured.stepped(step)
        assert measured.activity(has_session=True) is None


def test_a_quiet_script_reports_its_pace_and_rounded_times() -> None:
    clock = VirtualClock(0.0)
    measured = meter(clock)
    for step in (1, 3, 5, 7):
        clock.advance(1.0)
        measured.stepped(step)
    clock.advance(100.0)
    activity = measured.activity(has_session=True)
    assert activity is not None
    assert (activity.quiet_seconds, activity.steps, activity.step_seconds) == (90.0, 7, 0.5)
    clock.advance(10.0)
    assert measured.activity(has_session=True) == activity, "a report only each 30 s"
    measured.stepped(8)
    assert measured.activity(has_session=True) is None


def test_a_script_waits_for_others_until_its_next_step() -> None:
    clock = VirtualClock(0.0)
    measured = meter(clock)
    measured.stepped(1)
    measured.wait_for_others()
    clock.advance(60.0)
    activity = measured.activity(has_session=True)
    assert activity is not None
    assert activity.waits_for_others
    measured.stepped(2)
    clock.advance(60.0)
    activity = measured.activity(has_session=True)
    assert activity is not None
    assert not activity.waits_for_others


def test_a_script_without_a_session_has_no_steps() -> None:
    clock = VirtualClock(0.0)
    measured = meter(clock)
    clock.advance(60.0)
    activity = measured.activity(has_session=False)
    assert activity is not None
    assert activity.steps is None


def test_a_phase_has_its_rest_and_its_end_starts_the_time_anew() -> None:
    clock = VirtualClock(0.0)
    measured = meter(clock)
    measured.declare("evaluation", 600.0)
    clock.advance(540.0)
    activity = measured.activity(has_session=True)
    assert activity is not None
    assert (activity.phase, activity.phase_seconds) == ("evaluation", 60.0)
    clock.advance(120.0)
    overdue = measured.activity(has_session=True)
    assert overdue is not None
    assert overdue.phase_seconds == -60.0
    measured.declare(None, 0.0)
    assert measured.activity(has_session=True) is None


def test_a_checkpoint_within_a_phase_does_not_end_it() -> None:
    clock = VirtualClock(0.0)
    measured = meter(clock)
    measured.declare("evaluation", 600.0)
    measured.declare("checkpoint", 3600.0)
    clock.advance(300.0)
    during = measured.activity(has_session=True)
    assert during is not None
    assert (during.phase, during.phase_seconds) == ("checkpoint", 3300.0)
    measured.declare(None, 0.0)
    after = measured.activity(has_session=True)
    assert after is not None
    assert (after.phase, after.phase_seconds) == ("evaluation", 300.0)
    measured.declare(None, 0.0)
    measured.declare(None, 0.0)
    assert measured.activity(has_session=True) is None


@pytest.mark.parametrize(("share", "idle_seconds"), [(0.0, 60.0), (0.5, None), (None, None)])
def test_idle_time_counts_while_devices_do_nothing(
    share: float | None, idle_seconds: float | None
) -> None:
    clock = VirtualClock(0.0)
    measured = meter(clock, share)
    clock.advance(60.0)
    for _ in range(4):
        activity = measured.activity(has_session=True)
        clock.advance(30.0)
    assert activity is not None
    assert activity.idle_seconds == idle_seconds


def test_a_new_start_forgets_the_last_one() -> None:
    clock = VirtualClock(0.0)
    measured = meter(clock)
    measured.stepped(500)
    measured.declare("evaluation", 600.0)
    clock.advance(90.0)
    measured.begin()
    assert measured.activity(has_session=True) is None
    clock.advance(60.0)
    activity = measured.activity(has_session=True)
    assert activity is not None
    assert (activity.steps, activity.phase) == (0, None)


def test_processor_time_of_the_jobs_processes_is_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    name, clock = f"CASTOR_TEST_{os.getpid()}", SystemClock()
    script = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end: pass"
    with subprocess.Popen(
        [sys.executable, "-c", script], env={**os.environ, name: "busy"}
    ) as process:
        use = use_of_devices(name, "busy", clock)
        other = use_of_devices(name, "nobody", clock)
        clock.sleep(1.0)
        share, none = use(), other()
        process.kill()
    assert share is not None
    assert share > 0.02
    assert none == 0.0


def test_gpus_are_asked_where_nvml_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {0: 0, 1: 37}
    nvml = types.SimpleNamespace(
        NVMLError=OSError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetUtilizationRates=lambda index: types.SimpleNamespace(gpu=rates[index]),
        nvmlDeviceGetMemoryInfo=lambda index: types.SimpleNamespace(used=1 << 30, total=80 << 30),
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    use = use_of_devices("NAME", "value", SystemClock())
    assert use() == pytest.approx(0.185)
    rates[1] = 0
    assert use() == 0.0
