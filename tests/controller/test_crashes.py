"""A controller that is killed at every point where it leaves a mark, and started again.

The points are before and after every commit to the store and every call to the cloud. At each of
them the files of a running deployment are copied as SIGKILL would leave them, and a new controller
finds the copy: it must leak nothing, double nothing, lose nothing. At some of them a child, forked
from this warm process, is really killed there.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from autoscaler.domain.job import JobPhase
from autoscaler.store.sql.database import Database
from tests.controller.world import World


class Marks:
    """Counts the marks that a controller leaves, and does something at each."""

    def __init__(self, world: World, at_mark: Callable[[int], None]) -> None:
        self.passed = 0
        self._world = world
        self._at_mark = at_mark

    def __call__(self, *_: object) -> None:
        if self._world.is_ticking:
            self._at_mark(self.passed)
            self.passed += 1


@contextmanager
def _counted(world: World, marks: Marks) -> Iterator[None]:
    """Have every mark that this world leaves counted."""
    world.cloud.before_call = world.cloud.after_call = marks
    write = Database.write

    @contextmanager
    def counted_write(self: Database) -> Iterator[Session]:
        with write(self) as session:
            yield session
            marks()
        marks()

    Database.write = counted_write  # type: ignore[method-assign]
    try:
        yield
    finally:
        Database.write = write  # type: ignore[method-assign]


def _live(world: World) -> None:
    """A job's life: one instance, then three, then one on another offer, one lost, the end."""
    job = world.submit()
    world.set_target(job, 1)
    world.tick(5)
    world.set_target(job, 3)
    world.tick(5)
    world.set_target(job, 1, "large")
    world.tick(6)
    world.cloud.lose(world.training(job)[0].cloud_id or "")
    world.tick(5)
    for held in world.training(job):
        world.complete(held)
    world.tick(5)


class Images:
    """Files that a process leaves behind when it is killed at each mark.

    Shared memory ends with the process. A mark with the same files as an earlier one has no image.
    """

    def __init__(self, directory: Path, images: Path) -> None:
        self.marks: list[int] = []
        self._directory = directory
        self._images = images
        self._known: set[bytes] = set()

    def take(self, mark: int) -> None:
        files = [path for path in self._directory.iterdir() if not path.name.endswith("-shm")]
        content = b"".join(path.name.encode() + path.read_bytes() for path in sorted(files))
        if (digest := hashlib.sha256(content).digest()) in self._known:
            return
        self._known.add(digest)
        self.marks.append(mark)
        self.of(mark).mkdir()
        for path in files:
            shutil.copy(path, self.of(mark))

    def of(self, mark: int) -> Path:
        return self._images / str(mark)


def _die_at(directory: Path, template: Path, mark: int) -> None:
    child = os.fork()
    if child == 0:
        world = World(directory, template=template)

        def die(passed: int) -> None:
            if passed == mark:
                os.kill(os.getpid(), signal.SIGKILL)

        with _counted(world, Marks(world, die)):
            _live(world)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), f"mark {mark} was not reached"


def _until(world: World, is_done: Callable[[], bool], ticks: int, otherwise: str) -> None:
    """Let time pass until it is so, for that long at most."""
    for _ in range(ticks):
        if is_done():
            return
        world.tick()
    assert is_done(), otherwise


def _recover(directory: Path, mark: int) -> None:
    world = World(directory)
    world.clock.advance(60.0)
    world.tick(2)
    world.assert_nothing_leaked()
    for job in world.store.jobs.alive():
        world.set_target(job.id, 2)
        world.tick(2)  # who was to leave has heard so by then
        _until(
            world,
            lambda job=job.id: len(world.training(job)) == 2,  # type: ignore[misc]
            6,  # what stood by has to make room first
            f"killed at {mark}: it does not train again",
        )
        for held in world.training(job.id):
            world.complete(held)
    _until(
        world,
        lambda: (
            all(job.phase is JobPhase.FINISHED for job in world.store.jobs.all())
            and not world.cloud.running()
            and not world.lighthouses.running
        ),
        5,
        f"killed at {mark}: something still runs",
    )
    world.assert_nothing_leaked()
    world.store.close()


@pytest.mark.parametrize("each", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_killed_anywhere_nothing_is_leaked_doubled_or_lost(
    tmp_path: Path, template: Path, each: int
) -> None:
    """Kill at every third mark, or with the slow tests at every mark."""
    directory = tmp_path / "live"
    directory.mkdir()
    world = World(directory, template=template)
    images = Images(directory, tmp_path)
    marks = Marks(world, images.take)
    with _counted(world, marks):
        _live(world)
    assert world.store.jobs.all()[0].phase is JobPhase.FINISHED
    world.assert_nothing_leaked()
    assert marks.passed > 50
    assert len(images.marks) > 30
    for mark in list(images.marks)[::each]:
        _recover(images.of(mark), mark)


@pytest.mark.parametrize("mark", [5, 17, 29, 41, 53, 65])
def test_a_process_that_is_really_killed_leaves_the_same(
    tmp_path: Path, template: Path, mark: int
) -> None:
    _die_at(tmp_path, template, mark)
    _recover(tmp_path, mark)
