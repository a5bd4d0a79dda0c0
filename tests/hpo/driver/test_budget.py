"""The budget of a run: its own, or a larger one that was commanded."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal

import pytest

from autoscaler.clock import SystemClock
from autoscaler.domain.objective import Objective as Goal
from autoscaler.domain.terms import StudyTerms
from autoscaler.wire.client import StudyClient
from hpo.driver.driver import Driver
from hpo.driver.run_limits import RunLimits
from tests.hpo.lines import Objective
from tests.hpo.objectives import curve
from tests.hpo.site import TEMPLATE, Site, study_of
from tests.service.conftest import TOKEN


@pytest.mark.parametrize(
    ("own", "commanded", "expected"),
    [
        ("0.05", "0.0001", "0.05"),  # as in the file that ended by it
        ("0.05", "0.08", "0.08"),
        ("0.05", None, "0.05"),
        (None, "0.0001", "0.0001"),
    ],
)
def test_a_rerun_has_the_larger_of_its_own_and_the_commanded_budget(
    own: str | None,
    commanded: str | None,
    expected: str,
    site_of: Callable[[Objective], Site],
) -> None:
    site = site_of(curve)
    studies = site.api.world.store.studies
    goal = Goal(budget_usd=None if own is None else Decimal(own))
    studies.state("sweep", StudyTerms(goal))
    if commanded is not None:
        studies.set_budget("sweep", Decimal(commanded))
    line = StudyClient(site.api.url, TOKEN, "sweep")
    Driver(study_of(), TEMPLATE, site.api.client, line, "ada", SystemClock(), goal).run(
        RunLimits(0)
    )
    terms = studies.terms("sweep")
    assert terms is not None and terms.objective.budget_usd == Decimal(expected)


def test_a_smaller_budget_that_is_commanded_meanwhile_holds(
    site_of: Callable[[Objective], Site],
) -> None:
    site = site_of(curve)
    studies = site.api.world.store.studies
    line = StudyClient(site.api.url, TOKEN, "sweep")
    goal = Goal(budget_usd=Decimal(5))
    driver = Driver(study_of(), TEMPLATE, site.api.client, line, "ada", SystemClock(), goal)
    driver.on_end = lambda ended: studies.set_budget("sweep", Decimal(3))
    driver.run(RunLimits(trials=2, at_once=1))
    terms = studies.terms("sweep")
    assert terms is not None and terms.objective.budget_usd == Decimal(3)
