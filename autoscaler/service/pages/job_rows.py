"""Rows of jobs on pages."""

from __future__ import annotations

from dataclasses import dataclass

from autoscaler.domain.instance import InstancePhase
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
    def measured_goodput(self) -> float | None:
        """Measured useful examples per second; None if none are reported."""
        return self.view.goodput_measured

    @property
    def goodput(self) -> float | None:
        """Useful examples per second: measured, or else by the model.

        Once all instances train, the model's figure is the one of its curve.
        """
        if self.measured_goodput is not None:
            return self.measured_goodput
        trains = all(held.phase is InstancePhase.TRAINING for held in self.view.instances)
        predicted = None if self.prospect is None else self.prospect.goodput
        return predicted if trains and predicted is not None else self.view.goodput_predicted
