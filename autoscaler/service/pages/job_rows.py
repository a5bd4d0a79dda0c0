"""Rows of jobs on pages."""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.service.pages.fleet_summary import BlockGroup
from autoscaler.service.pages.prospects import Prospect
from autoscaler.wire.messages import JobView


@dataclass(frozen=True, slots=True)
class ShownJob:
    """Row of a job: its view, its instances as blocks, and its predictions; None: not yet."""

    view: JobView
    groups: tuple[BlockGroup, ...]
    prospect: Prospect | None

    @property
    def progress(self) -> float | None:
        """Share of the job's work that is done; None if its length is unknown."""
        report = self.view.report
        if report is None or not report.total_examples:
            return None
        return min(report.progress_examples / report.total_examples, 1.0)

    @property
    def goodput(self) -> float | None:
        """Useful examples per second, measured or else predicted."""
        report = self.view.report
        measured = None if report is None else report.goodput_measured
        return self.view.goodput_predicted if measured is None else measured
