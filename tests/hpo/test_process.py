from __future__ import annotations

import logging
import os
import signal

import pytest

from hpo.process import quiet_requests, terminated_in_order


def test_requests_are_not_told_unless_that_was_asked_for() -> None:
    requests = logging.getLogger("httpx")
    before = requests.level
    try:
        for level, meanwhile in (
            (logging.NOTSET, logging.WARNING),
            (logging.DEBUG, logging.DEBUG),
        ):
            requests.setLevel(level)
            with quiet_requests():
                assert requests.level == meanwhile
            assert requests.level == level
    finally:
        requests.setLevel(before)


def test_sigterm_unwinds_the_process() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, terminated_in_order():
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == before
