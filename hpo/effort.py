"""What one run of a study's driver is to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effort:
    """How much a study is to do: trials that begin in this run, how many at once, how long.

    `trials` None: until it is stopped. `at_once` None: as many as get an instance. After
    `timeout_seconds` none begins any more, and those that run go on to their ends. So it is after
    an error of an objective that is not in `catch`, and after more than `max_failures` failed
    trials. A trial whose job fails is retried up to `retries` times beyond the `trials`.
    `shares_processes`: short trials may follow each other in one process.
    """

    trials: int | None = None
    at_once: int | None = None
    timeout_seconds: float | None = None
    catch: frozenset[str] = frozenset()
    retries: int = 1
    max_failures: int | None = None
    shares_processes: bool = True
