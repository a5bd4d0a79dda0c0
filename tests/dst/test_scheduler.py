"""Cooperative tasks: pauses, locks, sleeps and deaths."""

from __future__ import annotations

from random import Random

import pytest

from tests.dst.scheduler import CooperativeLock, Deadlock, Killed, Scheduler, TaskPool


def _scheduler() -> Scheduler:
    return Scheduler(Random(0), pauses=1.0)


def test_a_task_runs_until_it_pauses() -> None:
    scheduler, passed = _scheduler(), []

    def work() -> None:
        passed.append("before")
        scheduler.pause()
        passed.append("after")

    task = scheduler.spawn("work", 1, work)
    scheduler.run(task)
    assert passed == ["before"]
    scheduler.run(task)
    assert passed == ["before", "after"]
    assert task.has_ended
    assert scheduler.tasks == []


def test_a_lock_is_passed_on_when_its_holder_releases_it() -> None:
    scheduler, passed = _scheduler(), []
    lock = CooperativeLock(scheduler)

    def work(name: str) -> None:
        with lock:
            scheduler.pause()
            passed.append(name)

    first = scheduler.spawn("first", 1, lambda: work("first"))
    second = scheduler.spawn("second", 1, lambda: work("second"))
    scheduler.run(first)
    scheduler.run(second)
    assert scheduler.runnable() == [first]
    scheduler.run(first)
    assert scheduler.runnable() == [second]
    scheduler.run(second)
    scheduler.run(second)
    assert passed == ["first", "second"]


def test_a_lock_that_nobody_can_release_is_a_deadlock() -> None:
    lock = CooperativeLock(_scheduler())
    lock.acquire()
    with pytest.raises(Deadlock):
        lock.acquire()


def test_a_sleeping_task_runs_again_at_its_time() -> None:
    scheduler = _scheduler()
    task = scheduler.spawn("sleeper", 1, lambda: scheduler.sleep(4.2))
    scheduler.run(task)
    scheduler.now_seconds += 4
    assert scheduler.runnable() == []
    scheduler.now_seconds += 1
    assert scheduler.runnable() == [task]


def test_the_death_of_a_controller_ends_its_tasks_where_they_are() -> None:
    scheduler, passed = _scheduler(), []

    def work(name: str) -> None:
        try:
            scheduler.pause()
            passed.append(name)
        except Killed:
            passed.append(f"{name} is killed")
            raise

    tasks = [scheduler.spawn("task", owner, lambda owner=owner: work(owner)) for owner in (1, 2)]
    for task in tasks:
        scheduler.run(task)
    scheduler.kill(1)
    assert passed == ["1 is killed"]
    assert scheduler.runnable() == [tasks[1]]


def test_an_error_stays_with_its_task() -> None:
    scheduler = _scheduler()
    task = scheduler.spawn("broken", 1, lambda: 1 / 0)
    scheduler.run(task)
    assert isinstance(task.error, ZeroDivisionError)


def test_a_pool_runs_as_many_calls_as_it_has_threads() -> None:
    scheduler = _scheduler()
    pool = TaskPool(scheduler, 1, "pool", size=2)
    for _ in range(3):
        pool.submit(scheduler.pause)
    pool.start()
    assert len(scheduler.tasks) == 2
    for task in list(scheduler.tasks):
        scheduler.run(task)
        scheduler.run(task)
    pool.start()
    assert len(scheduler.tasks) == 1
    assert not pool.is_idle
