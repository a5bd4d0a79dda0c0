from __future__ import annotations

import csv
import io
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from autoscaler.domain.errors import Conflict, SpecError, UnknownJob
from autoscaler.domain.facts import Fact
from autoscaler.domain.instance import HeldInstance, InstancePhase
from autoscaler.domain.time_use import CostCategory, TimeCount, TimeUse
from autoscaler.service.jobs.receipts import Receipts
from autoscaler.wire.cost_messages import CostSplitView, receipt_fields
from autoscaler.wire.node_client import NodeClient
from tests.service.agents import SPEC, joined, node_report, training_report
from tests.service.conftest import Api


def seconds_of(split: CostSplitView) -> dict[str, float]:
    return {
        part.category.value: round(part.seconds, 3) for part in split.parts if part.seconds > 0.0
    }


def counted(api: Api, node: NodeClient, held: HeldInstance, use: TimeUse) -> None:
    """Report a count of time that began 2 s after the launch."""
    launched_seconds = api.world.store.instances.get(held.id).launched_seconds
    assert launched_seconds is not None
    count = TimeCount(launched_seconds + 2.0, use, CostCategory.USEFUL)
    node.heartbeat(node_report(held, job=held.job, time=count))


def test_a_receipt_divides_what_the_ledger_has(api: Api) -> None:
    held, node = joined(api)
    api.world.tick(1, seconds=100.0, agents=False)
    counted(api, node, held, TimeUse(70.0, 8.0, 3.0, 4.0, 5.0))
    receipt = api.client.receipt("job")
    spent_usd = api.client.job("job").spent_usd
    assert receipt.whole.usd == spent_usd > 0
    assert sum((part.usd for part in receipt.whole.parts), Decimal(0)) == spent_usd
    assert set(receipt.by_offer) == {"small"}
    assert receipt.by_offer["small"] == receipt.whole
    assert not receipt.is_final
    seconds = seconds_of(receipt.whole)
    assert seconds["useful"] == 70.0
    assert seconds["boot"] == 10.0
    assert (seconds["pause"], seconds["lost"]) == (4.0, 5.0)
    assert sum(seconds.values()) == pytest.approx(receipt.whole.billed_seconds, abs=0.01)
    assert sum(part.share for part in receipt.whole.parts) == pytest.approx(1.0)
    assert receipt.whole.productive_share == pytest.approx(70.0 / receipt.whole.billed_seconds)
    store, status = api.world.store, api.world.controller.status
    billed = Receipts(store, status).billed_seconds(store.jobs.get("job"), api.world.clock.now())
    assert {name: part for name, part in billed.items() if part} == pytest.approx(seconds)


def test_an_agent_that_does_not_count_leaves_time_unknown(api: Api) -> None:
    held, node = joined(api)
    node.heartbeat(node_report(held, job="job"))
    api.world.tick(1, seconds=100.0, agents=False)
    receipt = api.client.receipt("job")
    assert set(seconds_of(receipt.whole)) <= {"boot", "unknown", "idle"}
    assert seconds_of(receipt.whole)["unknown"] >= 99.0


def test_an_instance_that_never_trained_was_booting(api: Api) -> None:
    joined(api)
    api.world.tick(1, seconds=100.0, agents=False)
    assert "unknown" not in seconds_of(api.client.receipt("job").whole)


def test_the_time_of_a_script_without_a_session_is_unknown(api: Api) -> None:
    held, node = joined(api)
    api.world.tick(1, seconds=100.0, agents=False)
    begun = str(api.world.clock.now() - 90.0)
    facts = {Fact.UNOPENED: begun, Fact.WITHOUT_SESSION: begun}
    api.world.store.instances.note(held.id, facts)
    counted(api, node, held, TimeUse(boot_seconds=90.0))
    assert seconds_of(api.client.receipt("job").whole)["unknown"] >= 89.0


def test_steps_made_twice_are_in_the_receipt(api: Api) -> None:
    held, node = joined(api)
    api.world.tick(1, seconds=100.0, agents=False)
    told = training_report(100, steps=100, trained_seconds=50.0)
    node.heartbeat(node_report(held, job="job", reports=(told,)))
    again = training_report(90, steps=10, trained_seconds=5.0)
    second = node_report(held, job="job", attempt=2, started_seconds=2.0, reports=(again,))
    node.heartbeat(second)
    counted(api, node, held, TimeUse(80.0, 10.0))
    receipt = api.client.receipt("job")
    assert receipt.lost_steps == 20
    seconds = seconds_of(receipt.whole)
    assert (seconds["useful"], seconds["lost"]) == (70.0, 10.0)
    assert receipt.useful_examples == 90 * 32.0


def test_a_count_that_makes_no_sense_is_refused_and_loses_nothing_else(api: Api) -> None:
    held, node = joined(api)
    bad = TimeCount(1.0, TimeUse(useful_seconds=-5.0))
    node.heartbeat(node_report(held, job="job", phase=InstancePhase.TRAINING, time=bad))
    assert api.world.store.time_uses.of_job("job") == {}
    assert api.world.store.instances.get(held.id).phase is InstancePhase.TRAINING
    (event,) = (each for each in api.client.job("job").events if each.kind == "report refused")
    assert "time.use.useful_seconds" in event.text


def test_the_receipt_of_no_job_is_refused(api: Api) -> None:
    with pytest.raises(UnknownJob):
        api.client.receipt("nothing")


def focus_of(api: Api, first: date, last: date, path: Path) -> list[dict[str, str]]:
    api.client.download_focus(first, last, path)
    return list(csv.DictReader(io.StringIO(path.read_text())))


def test_the_focus_file_adds_up_to_the_costs(api: Api, tmp_path: Path) -> None:
    held, node = joined(api, replace(SPEC, person=None))
    api.world.tick(1, seconds=100.0, agents=False)
    counted(api, node, held, TimeUse(70.0, 8.0))
    today = datetime.fromtimestamp(api.world.clock.now(), UTC).date()
    rows = focus_of(api, today - timedelta(days=1), today, tmp_path / "focus.csv")
    costs = api.client.costs()
    assert sum(Decimal(row["BilledCost"]) for row in rows) == costs.total_usd
    assert {row["x_Job"] for row in rows} == {"job"}
    assert {row["x_Person"] for row in rows} == {"owner"}
    assert sum(float(row["x_UsefulSeconds"]) for row in rows) == pytest.approx(70.0, abs=0.01)
    assert costs.by_team == {"none": costs.total_usd}
    later = today + timedelta(days=1)
    assert focus_of(api, later, later, tmp_path / "later.csv") == []


def test_days_out_of_order_are_refused(api: Api, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="is after the last day"):
        api.client.download_focus(date(2026, 2, 1), date(2026, 1, 1), tmp_path / "none.csv")
    assert not (tmp_path / "none.csv").exists()


def test_the_fleet_shows_the_productive_share_of_today(api: Api) -> None:
    held, node = joined(api)
    assert api.client.fleet().productive_share is None
    api.world.tick(1, seconds=100.0, agents=False)
    counted(api, node, held, TimeUse(75.0, 23.0))
    fleet = api.client.fleet()
    assert fleet.time_today == TimeUse(75.0, 25.0)  # with 2 s before the agent began
    assert fleet.productive_share == pytest.approx(0.75)


def test_a_counterfactual_bill_stands_beside_the_ledgers(api: Api) -> None:
    held, node = joined(api)
    with pytest.raises(Conflict, match="no progress"):
        api.client.counterfactual("job")
    api.world.tick(2, seconds=100.0, agents=False)
    told = training_report(100, progress_examples=1e5)
    node.heartbeat(node_report(held, job="job", reports=(told,)))
    bill = api.client.counterfactual("job")
    assert bill.billed_usd == api.client.job("job").spent_usd
    assert bill.examples == 1e5
    assert {found.name for found in bill.alternatives} >= {"marginal", "pollux", "throughput"}
    with pytest.raises(UnknownJob):
        api.client.counterfactual("nothing")


def test_fields_for_trackers_are_flat_and_finite(api: Api) -> None:
    held, node = joined(api)
    api.world.tick(1, seconds=100.0, agents=False)
    counted(api, node, held, TimeUse(70.0, 8.0))
    fields = receipt_fields(api.client.receipt("job"))
    assert fields["castor/useful_seconds"] == pytest.approx(70.0)
    assert fields["castor/usd"] == pytest.approx(float(api.client.job("job").spent_usd))
    assert set(fields) >= {"castor/productive_share", "castor/transfer_usd", "castor/lost_usd"}
    assert "castor/transfer_seconds" not in fields
