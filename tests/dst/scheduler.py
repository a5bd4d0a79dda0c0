"""Cooperative tasks on a virtual clock, which stand for a controller's threads.

Only one task runs at a time, until it pauses: in a call to a cloud, before a write to the store,
on a lock that another task holds, or in a sleep. The world decides which paused task runs next.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Any, Final

import greenlet

START_SECONDS: Final = 1_790_000_000
FOREVER_SECONDS: Final = 10**9


class Killed(BaseException):
    """Death of the controller's process at this point of the code."""


class Deadlock(AssertionError):
    """Lock that no running task can release."""


@dataclass(eq=False)
class Task:
    """One thread of the controller whose number is `owner`; it may run from `due_seconds` on."""

    name: str
    owner: int
    body: greenlet.greenlet
    due_seconds: int
    awaits: CooperativeLock | None = None
    interruption: BaseException | None = None
    error: BaseException | None = None

    @property
    def has_ended(self) -> bool:
        """Whether the task's function has returned or raised."""
        return bool(self.body.dead)


@dataclass
class Scheduler:
    """Tasks of all controllers, and the true time in whole seconds since the Unix epoch.

    `chance` decides where a task pauses; `pauses` is the probability at an optional pause.
    """

    chance: Random
    pauses: float = 0.0
    now_seconds: int = START_SECONDS
    tasks: list[Task] = field(default_factory=list)
    current: Task | None = None
    _hub: greenlet.greenlet = field(default_factory=greenlet.getcurrent)

    def spawn(self, name: str, owner: int, function: Callable[[], object]) -> Task:
        """Return a new task that has not run yet."""
        task = Task(name, owner, greenlet.greenlet(function, self._hub), self.now_seconds)
        self.tasks.append(task)
        return task

    def runnable(self) -> list[Task]:
        """Return the tasks that can run now, in order of their creation."""
        return [
            task
            for task in self.tasks
            if task.due_seconds <= self.now_seconds
            and (task.awaits is None or not task.awaits.is_held)
        ]

    def run(self, task: Task) -> None:
        """Run a task until it pauses or ends. Its error, if any, is in `Task.error`."""
        interruption, task.interruption = task.interruption, None
        if interruption is None:
            self._switch(task, lambda: task.body.switch())
        else:
            self._switch(task, lambda: task.body.throw(interruption))

    def kill(self, owner: int) -> None:
        """End all tasks of one controller where they are."""
        for task in [task for task in self.tasks if task.owner == owner]:
            if task is not self.current:
                if task.body:
                    self._switch(task, lambda body=task.body: body.throw(Killed()))
                self.tasks.remove(task) if task in self.tasks else None

    def pause(self, probability: float = 1.0) -> None:
        """Let others run, with a probability, if this is called in a task."""
        if self.current is not None and self.chance.random() < probability:
            greenlet.getcurrent().parent.switch()

    def sleep(self, seconds: float) -> None:
        """Pause the current task for at least `seconds`; outside tasks let the time pass."""
        task, whole_seconds = self.current, max(int(-(-seconds // 1)), 0)
        if task is None:
            self.now_seconds += whole_seconds
            return
        task.due_seconds = self.now_seconds + whole_seconds
        greenlet.getcurrent().parent.switch()

    def wake(self, task: Task | None) -> None:
        """Let a task that sleeps run from now on; None has no effect."""
        if task is not None:
            task.due_seconds = min(task.due_seconds, self.now_seconds)

    def interrupt(self, task: Task, error: BaseException) -> None:
        """Let a task end, or raise an error where it is as soon as it runs if it has begun."""
        if task.body:
            task.interruption = error
            task.awaits = None
            self.wake(task)
        elif task in self.tasks:
            self.tasks.remove(task)

    def wait_for(self, lock: CooperativeLock) -> None:
        """Pause the current task until a lock is free.

        Raises:
            Deadlock: no task runs, so that nobody can release the lock.
        """
        if self.current is None:
            raise Deadlock("a lock is held while no task runs")
        self.current.awaits = lock
        greenlet.getcurrent().parent.switch()

    def _switch(self, task: Task, resume: Callable[[], object]) -> None:
        before, self.current, task.awaits = self.current, task, None
        try:
            resume()
        except Killed as error:
            task.error = error
        except Exception as error:
            task.error = error
        finally:
            self.current = before
            if task.has_ended and task in self.tasks:
                self.tasks.remove(task)


class CooperativeLock:
    """Stand-in for `threading.Lock` between tasks of one scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self.is_held = False

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        """Take the lock; pause while another task holds it."""
        while self.is_held:
            if not blocking:
                return False
            self._scheduler.wait_for(self)
        self.is_held = True
        return True

    def release(self) -> None:
        """Release the lock."""
        self.is_held = False

    def locked(self) -> bool:
        """Return whether a task holds the lock."""
        return self.is_held

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()


class CooperativeCondition:
    """Stand-in for `threading.Condition` between tasks of one scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._waiting: list[Task] = []

    def __enter__(self) -> None:
        """Do nothing: a task pauses in no block of its condition but in `wait_for`."""

    def __exit__(self, *_: object) -> None:
        """Do nothing."""

    def wait_for(self, is_true: Callable[[], bool], seconds: float | None = None) -> bool:
        """Pause the current task until a condition holds; return whether it does."""
        scheduler = self._scheduler
        until_seconds = scheduler.now_seconds + (FOREVER_SECONDS if seconds is None else seconds)
        while not (is_held := is_true()) and scheduler.now_seconds < until_seconds:
            assert scheduler.current is not None
            self._waiting.append(scheduler.current)
            scheduler.sleep(until_seconds - scheduler.now_seconds)
        return is_held

    def notify_all(self) -> None:
        """Let the tasks that wait look again."""
        for task in self._waiting:
            self._scheduler.wake(task)
        self._waiting.clear()


class CooperativeNotifier:
    """Stand-in for the `Notifier` of long polls, whose requests are tasks of one scheduler."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._polls: defaultdict[str, CooperativeCondition] = defaultdict(
            lambda: CooperativeCondition(scheduler)
        )

    def notify(self, name: str) -> None:
        """Wake the polls of a name."""
        self._polls[name].notify_all()

    async def wait_for(
        self, name: str, look: Callable[[], tuple[Any, ...]], wait_seconds: float
    ) -> tuple[Any, ...]:
        """Return the result of `look` once it is not empty, or empty after `wait_seconds`."""
        result: tuple[Any, ...] = ()

        def is_any() -> bool:
            nonlocal result
            result = look()
            return bool(result)

        self._polls[name].wait_for(is_any, wait_seconds)
        return result


@dataclass
class TaskPool:
    """Stand-in for a `ThreadPoolExecutor` of a controller: calls start in order of submission."""

    scheduler: Scheduler
    owner: int
    name: str
    size: int
    waiting: list[Callable[[], object]] = field(default_factory=list)
    running: list[Task] = field(default_factory=list)

    def submit(self, call: Callable[..., object], *arguments: Any) -> object:
        """Queue a call."""
        self.waiting.append(lambda: call(*arguments))
        return None

    def start(self) -> None:
        """Start queued calls while fewer than `size` run."""
        self.running = [task for task in self.running if not task.has_ended]
        while self.waiting and len(self.running) < self.size:
            call = self.waiting.pop(0)
            self.running.append(self.scheduler.spawn(self.name, self.owner, call))

    @property
    def is_idle(self) -> bool:
        """Whether no call waits or runs."""
        return not self.waiting and all(task.has_ended for task in self.running)

    def shutdown(self, wait: bool = True, cancel_futures: bool = False) -> None:
        """Do nothing: the world ends a controller's tasks."""


@dataclass
class ControllerClock:
    """Clock of a controller's host: the true time, off by `offset_seconds`."""

    scheduler: Scheduler
    offset_seconds: int = 0

    def now(self) -> float:
        """Return the host's seconds since the Unix epoch."""
        return float(self.scheduler.now_seconds + self.offset_seconds)

    def monotonic(self) -> float:
        """Return seconds that never jump."""
        return float(self.scheduler.now_seconds)

    def sleep(self, seconds: float) -> None:
        """Pause the current task."""
        self.scheduler.sleep(seconds)
