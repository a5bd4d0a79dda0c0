from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys

import pytest
from tqdm import tqdm

from hpo.runs.process import logging_above_bar, logging_to_stderr, unwinding_on_sigterm


def test_the_log_is_printed_only_where_logging_is_not_configured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    log = logging.getLogger("hpo")
    monkeypatch.setattr(log, "propagate", False)  # pytest's own handlers are at the root
    with logging_to_stderr():
        log.info("trial 0: 0.5")
    assert "] trial 0: 0.5\n" in capsys.readouterr().err
    configured = logging.NullHandler()
    log.addHandler(configured)
    with logging_to_stderr():
        log.info("trial 1: 0.5")
    log.removeHandler(configured)
    assert log.handlers == [] and log.level == logging.NOTSET
    assert "trial 1" not in capsys.readouterr().err


@pytest.mark.parametrize("is_configured", [False, True])
def test_a_line_above_a_progress_bar_is_printed_once(
    is_configured: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root, log = logging.getLogger(), logging.getLogger("hpo")
    monkeypatch.setattr(root, "handlers", [logging.StreamHandler()] if is_configured else [])
    monkeypatch.setattr(log, "level", logging.INFO if is_configured else logging.NOTSET)
    with logging_to_stderr(), tqdm(total=1), logging_above_bar():
        log.info("trial 0: 0.5")
    out, err = capsys.readouterr()
    assert (out + err).count("trial 0: 0.5") == 1


def test_sigterm_unwinds_the_process() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, unwinding_on_sigterm():
        os.kill(os.getpid(), signal.SIGTERM)
        signal.pause()
    assert ended.value.code == 143
    assert signal.getsignal(signal.SIGTERM) == before


def test_a_worker_imports_nothing_that_runs_beside_the_study() -> None:
    """Check what a worker imports, and that each public name is there when it is used."""
    program = (
        "import sys, hpo.worker.process\n"
        "late = {'autoscaler.wire', 'httpcore', 'hpo.driver', 'hpo.runs', 'hpo.study_file'}\n"
        "late |= {'optuna.artifacts', 'pydantic'}\n"
        "assert not late & sys.modules.keys(), late & sys.modules.keys()\n"
        "import hpo\n"
        "assert set(hpo.__all__) <= set(dir(hpo))\n"
        "assert all(getattr(hpo, name) for name in hpo.__all__)\n"
    )
    subprocess.run([sys.executable, "-P", "-c", program], check=True)
