"""Controller of a study: the running one, or an embedded one."""

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
from autoscaler.wire.connection import Address, address_and_token, state_directory
from hpo.runs.process import unwinding_on_sigterm

_log = logging.getLogger(__name__)

DATABASE: Final = "castor.db"
CHECKPOINTS: Final = "jobs"
# A finished study keeps its database and not the signing key: the next controller makes a new one.
_EMBEDDED_OPTIONS: Final = ("--boot-seconds", "0", "--new-key")


@contextmanager
def controller_for(
    study: str, template: JobSpec, is_persistent: bool
) -> Iterator[tuple[Address, Callable[[], None]]]:
    """Yield the (URL, token) of a controller for a study, and a function that keeps it alive.

    Without a running controller, an embedded one starts. It serves only this study, so it may read
    the secrets that `template` names. Its state stays if the study is interrupted, so that trials
    can continue. Its database always stays. For a study in memory (`is_persistent` false) both are
    removed when this process exits.
    """
    address = running_controller()
    if address is not None:
        yield address, lambda: None
        return
    state = embedded_state(study) if is_persistent else _temporary_state(study)
    state.mkdir(parents=True, exist_ok=True)
    options = (*_EMBEDDED_OPTIONS, *secret_options(template.secrets))
    controller = SupervisedController(state, cores_here(), SystemClock(), options)
    _log.info("no controller serves here: one runs on this machine's cores until the end")
    with controller.alone():
        is_done = False
        try:
            with unwinding_on_sigterm(), controller.running():
                yield address_and_token(state), controller.keep_alive
            is_done = True
        finally:
            if not controller.terminate_all():
                _log.error("instances may still run: castor serve --state %s takes them up", state)
            elif not is_persistent:
                _remove_at_exit(state)
            elif is_done:
                _keep_record(state)


def _keep_record(state: Path) -> None:
    """Remove the files of a controller except its database and checkpoints.

    The caller holds the state directory, so no other controller opens the database meanwhile.
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


def _temporary_state(study: str) -> Path:
    """Return the state directory for a study in memory."""
    return state_directory() / "studies" / f"memory-{os.getpid()}-{zlib.crc32(study.encode()):08x}"


def _remove_at_exit(state: Path) -> None:
    """Remove a state directory when this process exits."""
    process = os.getpid()

    def remove() -> None:
        if os.getpid() == process:
            shutil.rmtree(state, ignore_errors=True)

    atexit.register(remove)


def embedded_state(study: str) -> Path:
    """Return the state directory of a study's embedded controller."""
    return state_directory() / "studies" / study


def running_controller() -> Address | None:
    """Return the address of the running controller; None without one.

    A controller that CASTOR_URL names counts as running even while it is unavailable.
    """
    try:
        address = address_and_token()
    except Unavailable:
        return None
    if "CASTOR_URL" in os.environ:
        return address
    client = address.client()
    try:
        client.fleet()
    except Unavailable:
        return None
    finally:
        client.close()
    return address
