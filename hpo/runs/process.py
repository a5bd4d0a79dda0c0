"""Process-wide state while a study runs: signals and logging."""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tqdm.contrib.logging import logging_redirect_tqdm


@contextmanager
def unwinding_on_sigterm() -> Iterator[None]:
    """Raise SystemExit on SIGTERM, so that child processes are ended as with Ctrl-C."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _exit_now)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _exit_now(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


@contextmanager
def logging_to_stderr() -> Iterator[None]:
    """Print the log of `hpo` on standard error as Optuna does, unless logging is configured."""
    log = logging.getLogger("hpo")
    if log.hasHandlers() or log.level != logging.NOTSET:
        yield
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("[%(levelname).1s %(asctime)s] %(message)s"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    propagates, log.propagate = log.propagate, False  # a progress bar adds a handler to the root
    try:
        yield
    finally:
        log.propagate = propagates
        log.setLevel(logging.NOTSET)
        log.removeHandler(handler)


@contextmanager
def logging_above_bar() -> Iterator[None]:
    """Print the log of `hpo` above a progress bar, each line once."""
    log = logging.getLogger("hpo")
    with logging_redirect_tqdm([log] if log.handlers else None):
        yield
