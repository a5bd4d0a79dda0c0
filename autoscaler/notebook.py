"""Jobs in a notebook: a table that stays up to date, and a line of text elsewhere.

Only what IPython itself offers is used, so neither ipywidgets nor an extension is needed.
"""

from __future__ import annotations

import html
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from autoscaler.clock import Clock, SystemClock
from autoscaler.domain.errors import Unavailable
from autoscaler.spec.quantities import format_duration
from autoscaler.wire.client import Client
from autoscaler.wire.connection import connect
from autoscaler.wire.messages import JobView

_REFRESH_SECONDS: Final = 2.0
_PERCENT: Final = 100.0


@dataclass(frozen=True, slots=True)
class Shown:
    """Content in two forms; a notebook takes the HTML, everything else the text."""

    text: str
    html: str

    def __repr__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return self.html


class LiveOutput:
    """Place in the output whose content is replaced: in a notebook, or a terminal's last line.

    Elsewhere each new text is a line of its own.
    """

    def __init__(self) -> None:
        self._display = notebook_display()
        self._handle: Any = None
        self._last = ""

    def show(self, content: Shown) -> None:
        """Show the content in place of that before."""
        if self._display is not None:
            if self._handle is None:
                self._handle = self._display(content, display_id=True)
            else:
                self._handle.update(content)
        elif content.text != self._last:
            is_terminal = sys.stdout.isatty()
            start = "\r\x1b[2K" if is_terminal and self._last else ""
            print(f"{start}{content.text}", end="" if is_terminal else "\n", flush=True)
        self._last = content.text

    def close(self) -> None:
        """End the line of a terminal."""
        if self._display is None and self._last and sys.stdout.isatty():
            print()


def notebook_display() -> Callable[..., Any] | None:
    """Return IPython's `display` in a notebook's kernel; None elsewhere."""
    ipython = sys.modules.get("IPython")  # a kernel has imported it
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return None
    display: Callable[..., Any] = ipython.display.display  # type: ignore[union-attr]
    return display


class NotebookJob:
    """A job of the controller, as the last expression of a cell, or live with `watch`."""

    def __init__(self, name: str, client: Client | None = None) -> None:
        self.name = name
        self._client = connect() if client is None else client

    def view(self) -> JobView:
        """Return the state of the job now.

        Raises:
            UnknownJob: there is no such job.
            Unavailable: no controller answers.
        """
        return self._client.job(self.name)

    def watch(self, clock: Clock | None = None) -> JobView:
        """Show the job until it ends, and return its last state.

        An interrupt ends the watch, and not the job. While no controller answers, the last state
        stays.

        Raises:
            UnknownJob: there is no such job.
        """
        clock, output = clock or SystemClock(), LiveOutput()
        view = self.view()
        try:
            while True:
                output.show(shown_job(view))
                if view.phase.is_final:
                    return view
                clock.sleep(_REFRESH_SECONDS)
                view = self._newer(view)
        except KeyboardInterrupt:
            return view
        finally:
            output.close()

    def _newer(self, view: JobView) -> JobView:
        try:
            return self.view()
        except Unavailable:
            return view

    def __repr__(self) -> str:
        return shown_job(self.view()).text

    def _repr_html_(self) -> str:
        return shown_job(self.view()).html


def job(name: str) -> NotebookJob:
    """Return a job by its name or id, of the controller that the command `castor` uses.

    Raises:
        Unavailable: there is no controller.
    """
    return NotebookJob(name)


def shown_job(view: JobView) -> Shown:
    """Return a job as a line of text, and as a table with a progress bar."""
    facts = _facts(view)
    text = f"{view.id}: {', '.join(f'{name} {value}' for name, value in facts.items())}"
    return Shown(text, _table(view.id, facts, _done(view)))


def shown_text(title: str, text: str) -> Shown:
    """Return a line of text with a title, such as the status of a study."""
    return Shown(f"{title}: {text}", f"<b>{html.escape(title)}</b>: {html.escape(text)}")


def _facts(view: JobView) -> dict[str, str]:
    report, facts = view.report, {"phase": view.phase_text}
    if view.instances:
        facts["instances"] = str(len(view.instances))
    if (done := _done(view)) is not None:
        facts["progress"] = f"{done:.0%}"
    if view.goodput_measured:
        facts["goodput"] = f"{view.goodput_measured:,.0f} examples/s"
    if view.eta_seconds is not None:
        facts["left"] = format_duration(view.eta_seconds)
    facts["cost"] = f"${view.spent_usd:,.2f} (${view.usd_per_hour:,.2f}/h)"
    if report is not None:
        facts |= {name: f"{value:.4g}" for name, value in report.metrics.items()}
    for name, text in (("stalled", view.stall), ("cause", view.cause), ("error", view.trouble)):
        if text is not None:
            facts[name] = text
    if view.decision is not None and not view.phase.is_final:
        facts["decision"] = view.decision.reason
    return facts


def _done(view: JobView) -> float | None:
    """Return the part of the job that is done, 0 to 1; None if its length is unknown."""
    report = view.report
    if report is None or not report.total_examples:
        return None
    return min(report.progress_examples / report.total_examples, 1.0)


def _table(title: str, facts: Mapping[str, str], done: float | None) -> str:
    """Return a table of facts as HTML; all texts are escaped."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{html.escape(name)}</th>"
        f"<td style='text-align:left'>{html.escape(value)}</td></tr>"
        for name, value in facts.items()
    )
    bar = ""
    if done is not None:
        bar = (
            f"<progress max='100' value='{done * _PERCENT:.1f}' "
            f"aria-label='progress of {html.escape(title)}' style='width:20em'></progress>"
        )
    return f"<div><b>{html.escape(title)}</b> {bar}<table>{rows}</table></div>"
