"""Controller on two kinds of local instances, whose policy tries one kind and returns.

python -m tests.controller.look_and_return STATE
"""

from __future__ import annotations

import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from autoscaler.controller.act import standby
from autoscaler.domain.allocation import Allocation
from autoscaler.domain.plan import Action, Decision, Plan
from autoscaler.domain.snapshot import JobSnapshot, Snapshot
from autoscaler.main import ServeSettings, deployment, serving
from providers.local.settings import LocalSettings, default_catalogue

HOME, AWAY = "local-home", "local-away"
AWAY_KIND = "cpu-other"


class LookAndReturn:
    """Policy that starts at home, measures one instance away once, and returns."""

    weighs_boots = True

    def __init__(self) -> None:
        self._returning: set[str] = set()

    def plan(self, snapshot: Snapshot) -> Plan:
        """Return the plan for a snapshot; see `Policy.plan`."""
        return Plan(tuple(self._decide(job) for job in snapshot.jobs))

    def _decide(self, job: JobSnapshot) -> Decision:
        away = job.models.get(AWAY_KIND)
        is_measured = away is not None and (1, 1) in away.measured
        if is_measured and job.standby is not None:
            self._returning.add(job.id)
        is_settled = job.held is not None and job.held == job.trained
        target = Allocation(HOME, 1, 1)
        if job.id not in self._returning and (is_settled or _is_away(job.held)):
            target = Allocation(AWAY, 1, 1)
        action = Action.HOLD if target == job.held else Action.MOVE
        return Decision(job.id, action, job.held, target, f"{action} {job.id}")


def _is_away(held: Allocation | None) -> bool:
    return held is not None and held.offer == AWAY


def serve(state: Path) -> None:
    """Run the controller; standby lasts long enough for a busy machine."""
    small = replace(default_catalogue(0.1)[0], usd_per_hour=Decimal("0.0450"))
    catalogue = (
        replace(small, id=HOME, instance_type=HOME),
        replace(small, id=AWAY, instance_type=AWAY, device_kind=AWAY_KIND),
    )
    standby.STANDBY_SECONDS = 120.0  # type: ignore[misc]
    deployment.planning_policy = lambda name: LookAndReturn()
    serving.serve(ServeSettings(state=state, port=0, local=LocalSettings(catalogue=catalogue)))


if __name__ == "__main__":
    serve(Path(sys.argv[1]))
