"""The default budget of a deployment, as the driver of a study says it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from autoscaler.clock import SystemClock
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.objective import Objective
from autoscaler.wire.client import StudyClient
from hpo.driver.driver import Driver
from hpo.driver.run_limits import RunLimits
from tests.controller.world import World
from tests.hpo.site import TEMPLATE, study_of
from tests.service.conftest import TOKEN, served

WORDS = (
    "study sweep: default budget of this deployment: $200; write objective: {budget: none} to "
    'remove it (in hpo.optimize: budget_usd="none")'
)


@pytest.mark.parametrize(
    ("default_usd", "objective", "expected"),
    [
        (Decimal(200), Objective(), [WORDS]),
        (Decimal(200), Objective(budget_usd=Decimal(5)), []),
        (None, Objective(), []),
    ],
)
def test_the_default_budget_is_said_at_the_start(
    tmp_path: Path,
    template: Path,
    caplog: pytest.LogCaptureFixture,
    default_usd: Decimal | None,
    objective: Objective,
    expected: list[str],
) -> None:
    caplog.set_level("INFO", "hpo")
    settings = ControllerSettings(replan_seconds=0.0, study_usd=default_usd)
    with served(World(tmp_path, settings, template=template), tmp_path) as api:
        line = StudyClient(api.url, TOKEN, "sweep")
        driver = Driver(study_of(), TEMPLATE, api.client, line, "ada", SystemClock(), objective)
        driver.run(RunLimits(trials=0))
    assert [
        record.message for record in caplog.records if record.name == "hpo.driver.budget"
    ] == expected
