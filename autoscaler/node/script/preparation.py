"""Preparation of a job's script: user, files, environment and image, in a thread of its own."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from autoscaler.back_off import BackOff
from autoscaler.domain.errors import CastorError, NotAllowed, SpecError, Unavailable
from autoscaler.domain.job import DataMount, JobSpec
from autoscaler.domain.report import Failure
from autoscaler.node.disk import Disk
from autoscaler.node.files.grants import Grants
from autoscaler.node.files.logs import last_lines, log_size
from autoscaler.node.files.outputs import save_laid_out
from autoscaler.node.instance import Instance
from autoscaler.node.script.account import give, make_writable, obstacle, own_user
from autoscaler.node.script.container_engine import login_environment, refusal
from autoscaler.node.script.environment import packages
from autoscaler.node.script.orders import Orders
from autoscaler.node.script.post_mortem import caused_failure, memory_kills, post_mortem
from autoscaler.node.script.setups import SetupEntry, Stopped
from autoscaler.node.shims.shim import ShimOrder
from autoscaler.node.state import Prepared
from autoscaler.objects import granted, open_grant
from autoscaler.spec.bundle import unpack
from autoscaler.wire.messages import Assignment
from autoscaler.wire.node_client import NodeClient

_log = logging.getLogger(__name__)

Answer = TypeVar("Answer")

_POLL_SECONDS = 0.25
_PYTHON_IN_IMAGE = "python"


@dataclass(frozen=True, slots=True)
class Ready:
    """Successful preparation of an attempt. `notes` are messages for people."""

    attempt: int
    assignment: Assignment
    prepared: Prepared
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Need:
    """Request for the preparation of an attempt.

    `known` is the assignment with its secrets; None fetches it from the controller. `prepared` is
    an earlier result for the same job, which is used again. `before` is the result for the
    previous job of the study, if the instance moves to another job.
    """

    attempt: int
    known: Assignment | None
    prepared: Prepared | None
    before: Prepared | None = None


class SetupFailed(CastorError):
    """Failure of the job's set-up or of fetching its image; the log has the reason."""

    def __init__(self, exit_code: int) -> None:
        super().__init__(f"set-up ended with exit code {exit_code}")
        self.exit_code = exit_code


class Preparation:
    """One preparation in a thread. `outcome` is None until it ends, and if it was stopped."""

    def __init__(self, instance: Instance, client: NodeClient, grants: Grants, need: Need) -> None:
        self._instance = instance
        self._disk = instance.disk
        self._client = client
        self._grants = grants
        self._need = need
        self._process = instance.process(instance.disk.setup)
        self._log_offset = log_size(instance.disk.log)
        self._kills_before = memory_kills()
        self._notes: list[str] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="castor-preparation", daemon=True)
        self.assignment: Assignment | None = None
        self.outcome: Ready | Failure | None = None
        self.on_news: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Start the thread. Call only once."""
        self._thread.start()

    def stop(self) -> None:
        """Request the end of the preparation as soon as possible."""
        self._stopped.set()

    @property
    def is_alive(self) -> bool:
        """Whether the preparation is running."""
        return self._thread.is_alive()

    def _run(self) -> None:
        self._set_outcome()
        self.on_news()

    def _set_outcome(self) -> None:
        try:
            self.outcome = self._prepare()
        except Stopped:
            return
        except SetupFailed as error:
            self.outcome = self._failure(error.exit_code)
        except (CastorError, OSError) as error:
            self.outcome = self._caused_failure(str(error))
        except Exception as error:  # thread boundary: a bundle may be damaged in unknown ways
            _log.exception("preparation failed")
            self.outcome = self._caused_failure(f"{type(error).__name__}: {error}")

    def _failure(self, exit_code: int) -> Failure:
        failure = post_mortem(
            *(self._instance, self._need.attempt, self._log_offset, exit_code),
            kills_before=self._kills_before,
        )
        return replace(failure, during_setup=True)

    def _caused_failure(self, cause: str) -> Failure:
        failure = caused_failure(self._instance, self._need.attempt, self._log_offset, cause)
        return replace(failure, during_setup=True)

    def _prepare(self) -> Ready:
        known = self._need.known or self._retry_until_answered(self._client.assignment)
        self.assignment = assignment = placed(known, self._disk)
        self._grants.take(assignment.job, assignment.grant)
        self.on_news()
        prepared = self._need.prepared or self._prepare_all(assignment)
        return Ready(self._need.attempt, assignment, prepared, tuple(self._notes))

    def _prepare_all(self, assignment: Assignment) -> Prepared:
        while self._process.is_alive:  # started by an earlier agent
            self._process.stop()
            self._pause(_POLL_SECONDS)
        shutil.rmtree(self._disk.registry_login, ignore_errors=True)  # of a killed agent
        spec, work = assignment.spec, self._disk.work
        _require_sources(spec.data)
        user = self._choose_user(assignment)
        self._grants.let_in(user)
        checkpoints = Path(assignment.checkpoint_directory)
        if assignment.depot is not None and checkpoints.exists():  # of an earlier job
            shutil.rmtree(checkpoints)
        make_writable(checkpoints, user)
        _clear(work)
        prepared = (
            self._set_up(assignment, user) if spec.setup else self._lay_out(assignment, user)
        )
        _link_data(work, spec.data)
        save_laid_out(self._disk.laid_out, work)
        if user is not None:
            give(work, user)
        return prepared

    def _choose_user(self, assignment: Assignment) -> int | None:
        if self._need.before is not None:
            return self._need.before.user
        home = self._disk.home
        home.mkdir(mode=0o700, exist_ok=True)
        user = own_user(assignment.user_number or assignment.job_number)
        if user is None:
            return None
        give(home, user)
        if assignment.spec.image is not None:
            return user
        cache = self._instance.metadata.cache_directory
        cache.mkdir(parents=True, exist_ok=True)
        if (reason := obstacle(user, sys.executable, (home, cache, *packages()))) is None:
            return user
        give(home, os.geteuid())
        self._notes.append(
            "this job and other jobs on this machine can read and change each other's files: user "
            f"{user}, made for this job, can't use the agent's Python ({reason}), so the job runs "
            "as the agent's user. If you trust all jobs, nothing is to be done. To separate them, "
            "install Castor where all users can read it, such as /opt/castor, and start castor "
            "serve from there"
        )
        return None

    def _lay_out(self, assignment: Assignment, user: int | None) -> Prepared:
        """Unpack the job's files into `work`, and fetch the job's image if it names one."""
        spec, work = assignment.spec, self._disk.work
        self._unpack(spec.bundle, work, keeps=spec.study is not None)
        if spec.image is None:
            return Prepared(sys.executable, user)
        prepared = Prepared(_PYTHON_IN_IMAGE, user, spec.image)
        self._fetch_image(spec.image, Orders(self._instance, assignment, prepared))
        return prepared

    def _set_up(self, assignment: Assignment, user: int | None) -> Prepared:
        """Copy the job's files after set-up into `work`; run the set-up if no cache entry fits."""
        spec = assignment.spec
        entry = SetupEntry(self._instance.metadata.cache_directory / "setup", spec)
        prepared = (
            Prepared(str(entry.python), user)
            if spec.image is None
            else Prepared(_PYTHON_IN_IMAGE, user, entry.image)
        )
        with entry.locked(self._stopped) as lock:
            if not entry.is_complete:
                orders = Orders(self._instance, assignment, prepared)
                self._run_setup(entry, spec, orders, lock)
            shutil.copytree(entry.tree, self._disk.work, symlinks=True)
        return prepared

    def _run_setup(self, entry: SetupEntry, spec: JobSpec, orders: Orders, lock: int) -> None:
        if spec.image is not None:
            self._fetch_image(spec.image, orders, lock)
        entry.discard()
        entry.venv.mkdir(parents=True)
        try:
            self._unpack(spec.bundle, entry.tree)
            order = orders.set_up(entry)
            with _owned((entry.tree, entry.venv), order.user):
                self._execute(order, lock)
            entry.complete()
        finally:
            if not entry.is_complete:
                entry.discard()

    def _fetch_image(self, image: str, orders: Orders, *held: int) -> None:
        """Fetch an image; its registry's credentials are on the disk only until it is there.

        Raises:
            NotAllowed: the registry refused to hand the image out.
            SetupFailed: the image could not be fetched for another reason.
        """
        offset = log_size(self._disk.log)
        host = self._instance.metadata.registries.host(image)
        login: AbstractContextManager[dict[str, str]] = (
            nullcontext({}) if host is None else login_environment(self._disk.registry_login)
        )
        try:
            with login as environment:
                self._execute(orders.fetch_image(image, environment), *held)
        except SetupFailed:
            reason = "".join(last_lines(self._disk.log, offset, 1))
            if (why := refusal(image, host, reason)) is not None:
                raise NotAllowed(why) from None
            raise

    def _unpack(self, bundle: str | None, directory: Path, keeps: bool = False) -> None:
        """Create `directory` with the files of the bundle; empty if there is no bundle.

        If it `keeps` the archive, the next job with the same files need not fetch it.
        """
        if bundle is None:
            directory.mkdir()
            return
        archive = self._disk.bundle(bundle)
        if not archive.exists():
            self._disk.forget_bundles()
            partial = archive.with_suffix(".partial")
            self._fetch_bundle(partial)
            partial.rename(archive)
        unpack(archive, directory, bundle)
        if not keeps:
            archive.unlink()

    def _fetch_bundle(self, path: Path) -> None:
        """Download the job's archive to `path`, from storage or else from the controller."""
        file = self._grants.path
        place = None if file is None else granted(file)().bundle
        if file is not None and place is not None:
            folder, _, name = place.rpartition("/")
            try:
                open_grant(file, folder, meter=self._grants.meter).download(name, path)
                return
            except CastorError as error:
                _log.warning("fetching the bundle from the controller, not storage: %s", error)
        self._retry_until_answered(lambda: self._client.fetch_bundle(path))

    def _execute(self, order: ShimOrder, *held: int) -> None:
        """Run `order` to its end. The file descriptors `held` stay open until then.

        Raises:
            SetupFailed: the exit code is not 0.
            Stopped: the preparation was stopped.
        """
        self._process.start(order, held)
        while not self._process.wait(_POLL_SECONDS):
            if self._stopped.is_set():
                self._process.stop()
        if self._stopped.is_set():
            raise Stopped
        if exit_code := self._process.exit_code:
            raise SetupFailed(exit_code)

    def _retry_until_answered(self, request: Callable[[], Answer]) -> Answer:
        """Repeat a request, with back-off, until the controller answers."""
        back_off = BackOff()
        while True:
            try:
                return request()
            except (Unavailable, NotAllowed):
                self._pause(back_off.next_seconds())

    def _pause(self, seconds: float) -> None:
        if self._stopped.wait(seconds):
            raise Stopped


def placed(assignment: Assignment, disk: Disk) -> Assignment:
    """Return the assignment with its checkpoint directory on this instance."""
    directory = disk.checkpoints(assignment.checkpoint_directory)
    return replace(assignment, checkpoint_directory=str(directory))


@contextmanager
def _owned(directories: Sequence[Path], user: int | None) -> Iterator[None]:
    """Give the directories to `user`, and back to the agent's user after the context."""
    if user is None:
        yield
        return
    for directory in directories:
        give(directory, user)
    yield
    for directory in directories:
        give(directory, os.geteuid())


def _clear(work: Path) -> None:
    """Delete the directory `work`, if it exists."""
    if work.exists():
        shutil.rmtree(work)


def _require_sources(mounts: Sequence[DataMount]) -> None:
    """Check that the sources of all mounts exist.

    Raises:
        SpecError: a source is missing; the message names it.
    """
    for number, mount in enumerate(mounts):
        if not Path(mount.source).exists():
            raise SpecError(
                f"{mount.source} is not on this instance: put it there, or correct the path",
                f"data[{number}].source",
            )


def _link_data(work: Path, mounts: Sequence[DataMount]) -> None:
    """Create a link in `work` from the target of each mount to its source.

    A link can't make its source read-only: the job's user must have no permission to write there.

    Raises:
        SpecError: a target can't be created; the message names it.
    """
    for number, mount in enumerate(mounts):
        target, field = work / mount.target, f"data[{number}].target"
        if not _is_inside(target, work):
            raise SpecError(f"{mount.target} leads out of the job's tree", field)
        if target.is_symlink() or target.exists():
            raise SpecError(
                f"{mount.target} is in the working directory already: choose another name", field
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        target.symlink_to(mount.source)


def _is_inside(target: Path, work: Path) -> bool:
    return target != work and target.parent.resolve().is_relative_to(work.resolve())
