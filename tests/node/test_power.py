from __future__ import annotations

import os
import signal

import pytest

from autoscaler.node.power import PowerButton


def test_only_the_machine_that_started_the_agent_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda *call: told.append(call))
    button = PowerButton()
    button.press()
    assert told == [(os.getppid(), signal.SIGTERM)]
    monkeypatch.setattr(os, "getppid", lambda: 1)
    with pytest.raises(SystemExit):
        button.press()
    assert len(told) == 1, "the machine has died, and somebody else is the parent now"
