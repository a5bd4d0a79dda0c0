"""The controller that a study uses: the one that serves here, or one of its own."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from autoscaler.clock import SystemClock
from autoscaler.domain.errors import Unavailable
from autoscaler.domain.job import JobSpec
from autoscaler.supervision import SupervisedController, cores_here, secret_options
from autoscaler.wire.client import Client
from autoscaler.wire.connection import address_and_token, state_directory
from hpo.runs.process import terminated_in_order

_log = logging.getLogger(__name__)

DATABASE: Final = "castor.db"
CHECKPOINTS: Final = "jobs"
_EMBEDDED_OPTIONS: Final = ("--boot-seconds", "0")


@contextmanager
def controller_for(
    study: str, template: JobSpec, is_lasting: bool
) -> Iterator[tuple[tuple[str, str], Callable[[], None]]]:
    """Yield the address of a controller for a study, and a function that keeps it alive.

    The controller is the one that serves here, or else one of the study's own. That one serves
    nobody else, so it may read the secrets that `template` names. Its state stays if the study is
    cut short, so that the trials can go on; its record of decisions and costs stays always. Of a
    study that is in memory (`is_lasting` false) both go with this process.
    """
    address = serving()
    if address is not None:
        yield address, lambda: None
        return
    state = embedded_state(study) if is_lasting else _passing_state(study)
    state.mkdir(parents=True, exist_ok=True)
    options = (*_EMBEDDED_OPTIONS, *secret_options(template.secrets))
    controller = SupervisedController(state, cores_here(), SystemClock(), options)
    _log.info("no controller serves here: one runs on this machine's cores until the end")
    with controller.alone():
        is_done = False
        try:
            with terminated_in_order(), controller.running():
                yield address_and_token(state), controller.keep_alive
            is_done = True
        finally:
            if not controller.terminate_all():
                _log.error("instances may still run: castor serve --state %s takes them up", state)
            elif not is_lasting:
                _remove_at_exit(state)
            elif is_done:
                _keep_record(state)


def _keep_record(state: Path) -> None:
    """Remove what a controller leaves behind but for its database and checkpoints.

    The caller holds the state directory, so no other controller claims the database meanwhile.
    """
    with closing(sqlite3.connect(state / DATABASE)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    kept = {DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm"}
    for path in state.iterdir():
        if path.name == CHECKPOINTS:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name not in kept:
            path.unlink(missing_ok=True)


def _passing_state(study: str) -> Path:
    """Return the state directory for a study that is in this process's memory."""
    return state_directory() / "studies" / f"memory-{os.getpid()}-{zlib.crc32(study.encode()):08x}"


def _remove_at_exit(state: Path) -> None:
    """Remove a state directory, in which nothing is held, when this process ends."""
    process = os.getpid()

    def remove() -> None:
        if os.getpid() == process:
            shutil.rmtree(state, ignore_errors=True)

    atexit.register(remove)


def embedded_state(study: str) -> Path:
    """Return the state directory of a study's own controller."""
    return state_directory() / "studies" / study


def serving() -> tuple[str, str] | None:
    """Return the address and token of the controller that serves here; None without one.

    A controller that CASTOR_URL names is waited for, not replaced.
    """
    try:
        address = address_and_token()
    except Unavailable:
        return None
    if "CASTOR_URL" in os.environ:
        return address
    client = Client(*address)
    try:
        client.fleet()
    except Unavailable:
        return None
    finally:
        client.close()
    return address
