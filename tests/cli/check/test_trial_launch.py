from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.cli.check.findings import CheckResult
from autoscaler.cli.check.trial_launch import offer_to_try, trial_usd, try_launch
from autoscaler.clock import VirtualClock
from autoscaler.domain.errors import InsufficientCapacity, PermissionDenied, SpecError, Unavailable
from autoscaler.domain.instance import CloudState
from autoscaler.domain.offer import Offer, Purchase
from tests.controller.cloud import FileCloud, offer

NOW = 1_800_000_000.0


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock(NOW)


@pytest.fixture
def cloud(tmp_path: Path, clock: VirtualClock) -> FileCloud:
    return FileCloud(tmp_path / "cloud.json", clock)


def alive(cloud: FileCloud) -> list[str]:
    return [seen.id for seen in cloud.instances() if seen.state is not CloudState.TERMINATED]


def small(cloud: FileCloud) -> Offer:
    return cloud.offers()[0]


def test_the_cheapest_offer_that_costs_a_dollar_at_most_is_tried() -> None:
    dear, cheap = offer("dear", usd_per_hour="4.1"), offer("cheap", usd_per_hour="3.9")
    queued = replace(offer("queued", usd_per_hour="0.1"), purchase=Purchase.FLEX_START)
    assert offer_to_try([dear, cheap, queued]) == cheap
    assert trial_usd(cheap) <= Decimal(1) < trial_usd(dear)
    assert offer_to_try([dear, queued]) is None


def test_an_instance_is_launched_runs_and_ends(cloud: FileCloud, clock: VirtualClock) -> None:
    findings = try_launch(cloud, small(cloud), clock)
    assert [finding.verdict for finding in findings] == [CheckResult.OK] * 4
    texts = " ".join(finding.text for finding in findings)
    assert "is accepted in" in texts and "it runs after" in texts and "it has ended" in texts
    assert alive(cloud) == [] and cloud.launch_calls == 1


def test_a_refused_launch_is_a_finding_and_leaves_nothing(
    cloud: FileCloud, clock: VirtualClock
) -> None:
    cloud.refusals = [PermissionDenied("you may not")]
    (finding,) = try_launch(cloud, small(cloud), clock)
    assert finding.verdict is CheckResult.FAILED and "is not launched: you may not" in finding.text


def test_a_launch_of_unknown_outcome_is_learnt_with_the_same_token(
    cloud: FileCloud, clock: VirtualClock
) -> None:
    failed: list[str] = []

    def lose_the_answer(call: str) -> None:
        if call == "launch" and not failed:
            failed.append(call)
            raise Unavailable("the answer is lost")

    cloud.after_call = lose_the_answer
    findings = try_launch(cloud, small(cloud), clock)
    assert {finding.verdict for finding in findings} == {CheckResult.OK}
    assert len(cloud.instances()) == 1 and alive(cloud) == []


@pytest.mark.parametrize("error", [KeyboardInterrupt, InsufficientCapacity])
def test_whatever_happens_after_a_launch_it_is_ended(
    cloud: FileCloud, clock: VirtualClock, error: type[BaseException]
) -> None:
    def fail_after_the_launch(call: str) -> None:
        if call == "launch":
            raise error

    cloud.after_call = fail_after_the_launch
    if error is KeyboardInterrupt:
        with pytest.raises(KeyboardInterrupt):
            try_launch(cloud, small(cloud), clock)
    else:
        try_launch(cloud, small(cloud), clock)
    assert len(cloud.instances()) == 1 and alive(cloud) == []


def test_an_end_that_is_refused_for_long_is_told_with_what_to_do(
    cloud: FileCloud, clock: VirtualClock
) -> None:
    def refuse(call: str) -> None:
        if call == "terminate":
            raise PermissionDenied("you may not end it")

    cloud.before_call = refuse
    *_, finding = try_launch(cloud, small(cloud), clock)
    assert finding.verdict is CheckResult.FAILED
    assert "castor:controller=castor-check, and end it by hand" in finding.text


def test_consent_without_a_trial_launch_is_refused() -> None:
    result = CliRunner().invoke(app, ["check", "pools.yaml", "--yes"])
    assert isinstance(result.exception, SpecError)
    assert str(result.exception).startswith("--yes: answers the question of --account")
