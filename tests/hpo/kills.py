"""Kills of workers, found by the state directory of their instances."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import optuna
import psutil


def kill_workers(study: optuna.Study, state: Path, reports: int) -> None:
    """Kill the worker of the first trial once it has so many reports."""
    while not (study.trials and len(study.trials[0].intermediate_values) >= reports):
        time.sleep(0.05)
    workers = [
        process
        for process in psutil.process_iter(["cmdline", "cwd"])
        if (process.info["cmdline"] or [])[-2:] == ["-m", "hpo.worker"]
        and Path(process.info["cwd"] or "/").is_relative_to(state)
    ]
    assert workers
    for process in workers:
        process.send_signal(signal.SIGKILL)
