"""Workers in which the controller makes its calls, by kind of call and provider."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, Protocol


class Workers(Protocol):
    """Executor of calls: in threads, or immediately where time is simulated."""

    def submit(self, call: Callable[[], None]) -> object:
        """Run `call`, now or soon."""
        ...


class InlineWorkers:
    """Workers that run a call before `submit` returns."""

    def submit(self, call: Callable[[], None]) -> object:
        """Run `call`."""
        call()
        return None


class CallKind(StrEnum):
    """Kind of a call to a provider."""

    LAUNCH = "launch"
    TERMINATE = "terminate"
    PRICE = "price"
    LIST = "list"
    CONSOLE = "console"


class CallWorkers(Protocol):
    """Workers by kind of call and provider, so that a call that hangs delays no other kind."""

    def of(self, kind: CallKind, provider: str) -> Workers:
        """Return the workers for calls of this kind; `provider` is empty if it is unknown."""
        ...


@dataclass(frozen=True, slots=True)
class SharedWorkers:
    """Workers that all providers share. The providers are asked for prices and lists inline.

    This is right only where no call can hang: on a virtual clock, and in tests.
    """

    launches: Workers
    terminations: Workers

    def of(self, kind: CallKind, provider: str) -> Workers:
        """Return the workers for calls of this kind."""
        if kind in (CallKind.PRICE, CallKind.LIST):
            return InlineWorkers()
        return self.launches if kind is CallKind.LAUNCH else self.terminations


_THREADS: Final = {
    CallKind.LAUNCH: 8,
    CallKind.TERMINATE: 8,
    CallKind.PRICE: 3,  # `offers.rounds.MOST_ROUNDS`, as for lists
    CallKind.LIST: 3,
    CallKind.CONSOLE: 2,
}


@dataclass(frozen=True, slots=True)
class _InContext:
    """Threads whose calls log and trace as parts of the activity that submits them."""

    threads: ThreadPoolExecutor

    def submit(self, call: Callable[[], None]) -> object:
        """Run `call` in a thread, in a copy of the caller's context."""
        return self.threads.submit(copy_context().run, call)


class ThreadWorkers:
    """Threads for each kind of call and each provider.

    `pool` makes an executor from its number of threads and their name.
    """

    def __init__(
        self, providers: Iterable[str], pool: Callable[[int, str], ThreadPoolExecutor]
    ) -> None:
        self._pools = {
            (kind, provider): pool(threads, f"castor-{kind}-{provider or 'any'}")
            for kind, threads in _THREADS.items()
            for provider in (*providers, "")
        }

    def of(self, kind: CallKind, provider: str) -> Workers:
        """Return the threads for calls of this kind to a provider."""
        return _InContext(self._pools[kind, provider])

    def close(self) -> None:
        """Wait for launches and terminations that are under way, and for no question."""
        for (kind, _), pool in self._pools.items():
            is_change = kind in (CallKind.LAUNCH, CallKind.TERMINATE)
            pool.shutdown(wait=is_change, cancel_futures=True)
