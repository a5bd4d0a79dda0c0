from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import pytest

from autoscaler.cli.check import run
from autoscaler.cli.check.run import (
    CheckResult,
    Finding,
    check_provider,
    check_sources,
    print_findings,
)
from autoscaler.clock import VirtualClock
from autoscaler.domain.errors import PermissionDenied
from autoscaler.domain.instance import CloudInstance
from autoscaler.domain.offer import Limit, LimitUnit, Purchase
from providers.base import Condition, SpotScores
from tests.controller.cloud import FileCloud, offer

NOW = 1_800_000_000.0
DAY = 86_400.0


class Cloud(FileCloud):
    """A cloud with a condition; without permission it refuses lists."""

    left_out: Mapping[str, str] = {}
    troubles: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    strangers: Mapping[str, int] = {}
    begins: Mapping[str, float] = {}
    scores: SpotScores | PermissionDenied | None = None
    bounds: tuple[Limit, ...] = ()
    may_list = True
    refuses_launches = False
    rehearses = True

    def rehearse(self, offer_id: str) -> bool:
        if self.refuses_launches:
            raise PermissionDenied("you are not authorised to perform CreateFleet")
        return self.rehearses

    def spot_scores(self, pool: str) -> SpotScores | None:
        if isinstance(self.scores, PermissionDenied):
            raise self.scores
        return self.scores

    def condition(self) -> Condition:
        return Condition(
            self.left_out,
            self.troubles,
            strangers=self.strangers,
            begins=self.begins,
            notes=self.notes,
        )

    def limits(self) -> tuple[Limit, ...]:
        return self.bounds

    def instances(self) -> list[CloudInstance]:
        if not self.may_list:
            raise PermissionDenied("you are not authorised to perform DescribeInstances")
        return []


@pytest.fixture
def cloud(tmp_path: Path) -> Cloud:
    cloud = Cloud(tmp_path / "cloud.json", VirtualClock(NOW))
    cloud.sold = [replace(offer("a/g6/zone/spot"), price_source="list", priced_seconds=NOW)]
    return cloud


def findings_of(cloud: Cloud) -> dict[str, Finding]:
    return {finding.subject: finding for finding in check_provider("file", cloud, NOW)}


def test_what_works_is_ok_with_the_cheapest_price(cloud: Cloud) -> None:
    cloud.bounds = (Limit("quota", LimitUnit.DEVICES, 8.0),)
    found = findings_of(cloud)
    assert {finding.verdict for finding in found.values()} == {CheckResult.OK}
    assert found["pool a"].text == ("1 of 1 offers can be bought, from $0.10/h (a/g6/zone/spot)")
    assert found["quota"].text == "at most 8 devices"
    assert found["prices"].text == "from list"


def test_without_permission_nothing_else_is_asked(cloud: Cloud) -> None:
    cloud.may_list = False
    (found,) = check_provider("file", cloud, NOW)
    assert found.verdict is CheckResult.FAILED
    assert found.text == "you are not authorised to perform DescribeInstances"


def test_offers_left_out_are_named_by_reason(cloud: Cloud) -> None:
    zones = {f"a/p5/zone-{letter}/spot": "p5 is not available" for letter in "bc"}
    cloud.left_out = {**zones, "b/g6/zone/spot": "its price is unknown"}
    found = findings_of(cloud)
    assert found["pool a"].verdict is CheckResult.WARNING
    assert found["pool a"].text.endswith("; left out: p5 is not available (2 offers)")
    assert found["pool b"] == Finding(
        "pool b", CheckResult.FAILED, "nothing can be bought; left out: its price is unknown"
    )


def test_a_pool_whose_reservation_will_begin_is_in_order(cloud: Cloud) -> None:
    """Use the start time that the provider reports, not the text of its reason."""
    cloud.left_out = {"b/p5/zone/reserved": "cr-1 begins soon"}
    assert findings_of(cloud)["pool b"].verdict is CheckResult.FAILED
    cloud.begins = {"b/p5/zone/reserved": NOW + DAY}
    assert findings_of(cloud)["pool b"] == Finding(
        "pool b",
        CheckResult.OK,
        "in order, but nothing can be launched before 2027-01-16 08:00 UTC; left out: cr-1 begins "
        "soon",
    )


def test_a_quota_that_admits_no_instance_fails(cloud: Cloud) -> None:
    cloud.sold += [offer("a/p5/zone/spot", devices=8, usd_per_hour="98")]
    cloud.bounds = (
        Limit("none", LimitUnit.DEVICES, 0.0),
        Limit("few", LimitUnit.DEVICES, 4.0),
        Limit("money", LimitUnit.USD_PER_HOUR, 100.0),
        Limit("others", LimitUnit.DEVICES, 0.0, frozenset({"elsewhere"})),
    )
    found = findings_of(cloud)
    verdicts = {name: found[name].verdict for name in ("none", "few", "money")}
    assert verdicts == {
        "none": CheckResult.FAILED,
        "few": CheckResult.WARNING,
        "money": CheckResult.OK,
    }
    assert found["none"].text.startswith("at most 0 devices: no instance fits: ask the cloud")
    assert "a/p5/zone/spot" in found["few"].text
    assert "others" not in found


def test_a_launch_of_each_pool_and_purchase_is_rehearsed(cloud: Cloud) -> None:
    subject = "launch of a, on-demand"
    cloud.sold += [offer("a/p5/zone/on-demand", usd_per_hour="98")]
    found = findings_of(cloud)[subject]
    assert found.verdict is CheckResult.OK
    assert "a dry run of a/g6/zone/spot is permitted" in found.text, "of the cheapest offer"
    cloud.rehearses = False
    assert findings_of(cloud)[subject].verdict is CheckResult.UNPROVEN
    cloud.refuses_launches = True
    assert findings_of(cloud)[subject].verdict is CheckResult.FAILED
    assert "CreateFleet" in findings_of(cloud)[subject].text


def test_spot_scores_are_told_and_never_fail(cloud: Cloud) -> None:
    subject = "spot capacity of a"
    assert subject not in findings_of(cloud), "of a cloud that has no scores"
    cloud.sold = [replace(cloud.sold[0], purchase=Purchase.SPOT)]
    cloud.scores = SpotScores(8, {"zone-a": 9, "zone-b": 2}, "of few types they are low")
    found = findings_of(cloud)[subject]
    assert found.verdict is CheckResult.UNPROVEN
    assert found.text == (
        "scores of a launch of 8 in one zone now, 1 (not likely to succeed) to 10 (highly likely),"
        " without guarantee: zone-a 9, zone-b 2; of few types they are low"
    )
    cloud.scores = PermissionDenied("allow it to your own credentials")
    assert findings_of(cloud)[subject] == Finding(
        subject, CheckResult.UNPROVEN, "no scores: allow it to your own credentials"
    )


def test_old_prices_and_troubles_are_warnings(cloud: Cloud) -> None:
    cloud.sold = [replace(cloud.sold[0], priced_seconds=NOW - 15 * DAY, usd_per_hour=Decimal(1))]
    cloud.troubles = ("us-east-1 does not answer",)
    found = findings_of(cloud)
    assert found["prices"].verdict is found["file"].verdict is CheckResult.WARNING
    assert "older than 14 days (list)" in found["prices"].text


def test_a_quota_to_raise_is_a_warning(cloud: Cloud) -> None:
    cloud.notes = ("L-DB2E81BA: the quota is too small for one: request an increase",)
    found = findings_of(cloud)["file"]
    assert (found.verdict, found.text) == (CheckResult.WARNING, *cloud.notes)


def test_instances_of_the_running_controller_are_no_trouble(cloud: Cloud) -> None:
    cloud.strangers = {"1f0c2d34": 3}
    found = findings_of(cloud)["file"]
    assert found.verdict is CheckResult.OK
    assert found.text == "3 instances have the controller 1f0c2d34: right while it runs"


def test_a_source_that_can_not_be_read_is_a_finding(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "240")  # the path may be long
    findings = check_sources([str(tmp_path / "none.json")], "controller", VirtualClock(NOW))
    assert [finding.verdict for finding in findings] == [CheckResult.FAILED]
    print_findings(findings, as_json=False)
    assert "no such file" in capsys.readouterr().out
    print_findings(findings, as_json=True)
    assert '"verdict": "failed"' in capsys.readouterr().out


def test_a_second_source_of_one_cloud_is_refused_as_by_serve(
    monkeypatch: pytest.MonkeyPatch, cloud: Cloud
) -> None:
    monkeypatch.setattr(run, "open_providers", lambda local, sources, context: {"aws": cloud})
    monkeypatch.setattr(run, "open_storage", lambda sources, context: None)
    findings = check_sources(["a.json", "b.json"], "controller", VirtualClock(NOW))
    failed = [finding for finding in findings if finding.verdict is CheckResult.FAILED]
    assert [finding.subject for finding in failed] == ["b.json"]
    assert failed[0].text == "b.json: pools of aws were named before: merge the two sources"


def test_ids_of_offers_are_whole_at_eighty_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    offer_id = "gpu/g4dn.xlarge/us-east-1b/on-demand"
    limit = "us-east-1: Running On-Demand G and VT instances (L-DB2E81BA) of g4dn.xlarge"
    print_findings(
        [Finding(limit, CheckResult.UNPROVEN, f"a dry run of {offer_id} is permitted")],
        as_json=False,
    )
    assert offer_id in capsys.readouterr().out
