"""Progress display of a demo: a live view in a terminal, plain lines elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live

from autoscaler.cli.live import panels
from autoscaler.clock import Clock
from autoscaler.domain.errors import Unavailable
from autoscaler.wire.client import Client
from autoscaler.wire.messages import DecisionView

_DECISIONS_SHOWN = 8


class Audience:
    """Progress display of the jobs of one controller.

    Attributes:
        decisions: all decisions displayed so far, in order of time.
    """

    def __init__(self, client: Client, console: Console, clock: Clock) -> None:
        self._client = client
        self._console = console
        self._clock = clock
        self._live: Live | None = None
        self._title = ""
        self._began_seconds = clock.now()
        self.decisions: list[DecisionView] = []

    @contextmanager
    def watching(self) -> Iterator[Audience]:
        """Show the live view until the block ends, if the console is a terminal."""
        if not self._console.is_terminal:
            yield self
            return
        with Live(console=self._console, auto_refresh=False) as self._live:
            yield self
        self._live = None

    def say(self, line: str) -> None:
        """Set the title of the live view, or print it as a line outside a terminal."""
        self._title = line
        if self._live is None:
            self._print(line)

    def refresh(self) -> None:
        """Update the display. It stays as it is while no controller answers."""
        try:
            jobs = tuple(reversed(self._client.jobs()))
            new_decisions = [
                decision
                for job in jobs
                for decision in reversed(self._client.decisions(job.id, 50))
                if decision not in self.decisions
            ]
            fleet = self._client.fleet()
        except Unavailable:
            return
        self.decisions.extend(sorted(new_decisions, key=lambda decision: decision.at_seconds))
        if self._live is not None:
            shown = self.decisions[-_DECISIONS_SHOWN:]
            view = panels(jobs, shown, fleet, self._clock.now(), self._title)
            self._live.update(view, refresh=True)
            return
        for decision in new_decisions:
            self._print(decision.reason)

    def _print(self, line: str) -> None:
        elapsed_seconds = self._clock.now() - self._began_seconds
        self._console.print(
            f"[{elapsed_seconds:5.1f} s] {line}", markup=False, highlight=False, soft_wrap=True
        )
