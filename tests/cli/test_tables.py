"""Tables in narrow terminals and without a terminal."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from types import SimpleNamespace

import pytest
from rich.console import Console
from typer.testing import CliRunner

from autoscaler.cli.app import app
from autoscaler.cli.compare.run import print_comparison
from autoscaler.cli.live import job_detail, print_whole
from autoscaler.cli.submit.waiting import details_of
from autoscaler.cli.tables import (
    JobsTable,
    costs_table,
    instances_text,
    objective_text,
    progress_text,
)
from autoscaler.domain.alarm import AlarmCode, ModelAlarm
from autoscaler.domain.errors import NotFound
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import InstanceBounds, JobPhase
from autoscaler.domain.objective import Objective
from autoscaler.domain.trial import TrialEnding
from autoscaler.simulator.comparison import Estimate, Figure, PolicyFigures
from autoscaler.wire.messages import CostView, EventView, InstanceView, JobView, TransferView

JOB = JobView(
    id="a-job-of-mine",
    phase=JobPhase.FINISHED,
    objective=Objective(deadline_seconds=7200.0),
    bounds=InstanceBounds(),
    submitted_seconds=0.0,
    started_seconds=10.0,
    ended_seconds=3600.0,
    instances=(),
    spent_usd=Decimal("1.25"),
    usd_per_hour=Decimal(0),
    report=None,
    reported_seconds=None,
    goodput_predicted=None,
    eta_seconds=None,
    decision=None,
    attempt=1,
    cause=None,
    last_lines=(),
    checkpoint_directory="/checkpoints",
)


@pytest.mark.parametrize("width", [60, 65, 80, 100, 120, 200])
def test_columns_are_left_out_rather_than_cut_off(width: int) -> None:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(JobsTable([JOB], 0.0))
    lines = capture.get().splitlines()
    assert len(lines) == 2
    assert "…" not in capture.get()
    for word in ("a-job-of-mine", "finished", "$1.25"):
        assert word in lines[1]
    assert ("noise scale" in lines[0]) == (width >= 120)


def test_what_a_job_waits_for_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    offer = "gpu/g2-standard-4/us-central1-a/flex-start"
    queued = InstanceView("a-0-1", JOB.id, offer, InstancePhase.QUEUED, 1, Decimal("0.5"), 100.0)
    trains = replace(queued, id="a-1-1", phase=InstancePhase.TRAINING)
    job = replace(JOB, phase=JobPhase.PENDING, instances=(queued, trains))
    print_whole(job_detail(job, "gcp does not answer", 3_740.0))
    told = capsys.readouterr().out
    assert f"a-0-1: {offer}, queued for 1h\n" in told
    assert f"a-1-1: {offer}, training\n" in told
    assert "error of the fleet: gcp does not answer\n" in told


def test_the_gangs_of_a_job_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    phase = InstancePhase.TRAINING
    instances = tuple(
        InstanceView(f"a-{number}-1", JOB.id, "small", phase, 1, Decimal(1), 0.0, gang=seat)
        for number, seat in enumerate(("gang 1, 1 of 2", "gang 1, 2 of 2", "gang 2, 1 of 2"))
    )
    assert instances_text(replace(JOB, instances=instances)) == "3 x small in 2 gangs"
    assert instances_text(replace(JOB, instances=instances[:2])) == "2 x small in 1 gang"
    print_whole(job_detail(replace(JOB, instances=instances), None, 0.0))
    assert "a-2-1: small, gang 2, 1 of 2, training\n" in capsys.readouterr().out


def test_what_fails_for_a_job_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    job = replace(JOB, phase=JobPhase.RUNNING, trouble="can't be planned: int too large")
    print_whole(job_detail(job, None, 3_740.0))
    assert "error of this job: can't be planned: int too large\n" in capsys.readouterr().out


FAILED_CAUSE = "the script raised ValueError: step 4 is one too many (train.py:4, in inner)"


def test_a_failed_job_shows_its_cause_once_and_the_command_for_the_rest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    after = "failed after 1 retry, all that `retries` allows"
    events = (
        EventView(40.0, JOB.id, "failed", f"{FAILED_CAUSE} ({after})"),
        EventView(39.0, JOB.id, "failure", f"a-0-2: {FAILED_CAUSE}"),
        EventView(20.0, JOB.id, "retry", f"retry 1 of 1 in 2 s: {FAILED_CAUSE}"),
        EventView(19.0, JOB.id, "failure", "a-0-1: killed by signal 9 (out of memory?)"),
        EventView(0.0, JOB.id, "submitted", "by owner"),
    )
    lines = ("Traceback (most recent call last):", "ValueError: step 4 is one too many")
    job = replace(
        JOB, phase=JobPhase.FAILED, cause=events[0].text, last_lines=lines, events=events
    )
    print_whole(job_detail(job, None, 3_740.0))
    told = capsys.readouterr().out
    assert told.count(FAILED_CAUSE) == 1 and "Traceback" not in told
    assert f"castor logs {JOB.id} prints the whole log\n" in told
    assert "  failure: a-0-2\n" in told and "  retry: retry 1 of 1 in 2 s\n" in told
    assert "  failed\n" in told and "a-0-1: killed by signal 9 (out of memory?)\n" in told


def test_a_job_that_printed_nothing_names_no_logs(capsys: pytest.CaptureFixture[str]) -> None:
    job = replace(JOB, phase=JobPhase.STOPPED, cause="its deadline can't be met")
    print_whole(job_detail(job, None, 3_740.0))
    assert "castor logs" not in capsys.readouterr().out


def test_an_alarm_of_a_job_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    words = "measured 11 s a step, predicted 1.2 s (0.9-1.6) at 4 x large"
    alarm = ModelAlarm(AlarmCode.MODEL_CONTRADICTED, words, 3_000.0, 11.0, 1.2, 0.9, 1.6)
    job = replace(JOB, phase=JobPhase.RUNNING, alarm=alarm)
    print_whole(job_detail(job, None, 3_300.0))
    assert f"alarm for 5m: {words}\n" in capsys.readouterr().out


def test_why_ends_with_the_alarm_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """Print the alarm in the table only; --json has decisions alone."""
    alarm = ModelAlarm(AlarmCode.MODEL_CONTRADICTED, "measured 11 s", 3_000.0, 11.0, 1.2, 0.9, 1.6)
    job = replace(JOB, phase=JobPhase.RUNNING, alarm=alarm)
    client = SimpleNamespace(decisions=lambda job, number: (), job=lambda name: job)
    monkeypatch.setattr("autoscaler.wire.connection.connect", lambda: client)
    lines = CliRunner().invoke(app, ["why", "job"]).stdout.splitlines()
    assert lines[-1].endswith(": measured 11 s") and lines[-1].startswith("alarm for ")
    assert json.loads(CliRunner().invoke(app, ["why", "job", "--json"]).stdout) == []


def test_why_names_a_zone_that_was_not_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    events = (
        EventView(3.0, JOB.id, "other zone", "job-0-1: the cloud chose b; a was planned"),
        EventView(2.0, JOB.id, "submitted", "by owner"),
    )
    client = SimpleNamespace(
        decisions=lambda job, number: (), job=lambda name: replace(JOB, events=events)
    )
    monkeypatch.setattr("autoscaler.wire.connection.connect", lambda: client)
    lines = CliRunner().invoke(app, ["why", "job"]).stdout.splitlines()
    assert lines[-1] == events[0].text and "by owner" not in lines


def test_a_script_without_a_session_is_shown_as_running(monkeypatch: pytest.MonkeyPatch) -> None:
    held = InstanceView(
        "job-0-1", "job", "small", InstancePhase.STARTING, 1, Decimal(1), 0.0, reclaim_seconds=None
    )
    job = replace(JOB, phase=JobPhase.RUNNING, instances=(held,), cause="no session, so one")
    assert instances_text(job).endswith("(starting)")
    job = replace(job, is_sessionless=True)
    assert instances_text(job).endswith("(running, no session)")
    assert progress_text(job) == "unknown"
    console = Console(width=120)
    with console.capture() as shown:
        console.print(job_detail(job, None, now_seconds=0.0))
    assert "job-0-1: small, running, no session" in shown.get()
    client = SimpleNamespace(decisions=lambda job, number: (), job=lambda name: job)
    monkeypatch.setattr("autoscaler.wire.connection.connect", lambda: client)
    lines = CliRunner().invoke(app, ["why", "job"]).stdout.splitlines()
    assert lines[-1] == "a-job-of-mine: no session, so one"


@pytest.mark.parametrize(
    ("newest", "words"),
    [
        (SimpleNamespace(name="step-0000000080"), "the newest checkpoint is step-0000000080 in"),
        (NotFound("none"), "no checkpoint was saved"),
    ],
)
def test_the_details_of_an_ended_job_name_its_checkpoint(newest: object, words: str) -> None:
    def checkpoint(name: str) -> object:
        if isinstance(newest, Exception):
            raise newest
        return newest

    job = replace(JOB, phase=JobPhase.STOPPED, report=None)
    client = SimpleNamespace(
        job=lambda name: job, checkpoint=checkpoint, fleet=lambda: SimpleNamespace(trouble=None)
    )
    console = Console(width=200)
    with console.capture() as shown:
        console.print(details_of(client, "job", 0.0))  # type: ignore[arg-type]
    assert words in shown.get()


def test_an_ended_job_s_deadline_counts_from_its_end() -> None:
    assert objective_text(JOB, 1e9) == objective_text(JOB, 3600.0)


def test_long_lines_are_whole_in_a_file(capsys: pytest.CaptureFixture[str], monkeypatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    print_whole("word " * 100)
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_weights_are_shown_where_they_differ() -> None:
    console = Console(width=200)
    with console.capture() as capture:
        console.print(JobsTable([JOB, replace(JOB, weight=2.5)], 0.0))
    header, first, second = capture.get().splitlines()
    assert "weight" in header and first.split()[-1] == "1" and second.split()[-1] == "2.5"


def test_reports_are_whole_at_eighty_columns(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    figure = Figure(Estimate(12_345.0, 1_234.0), Estimate(1.5, 0.25))
    names = ("avg_jct_s", "p99_jct_s", "makespan_s", "gpu_hours", "worst_ftf_rho", "restarts")
    policies = [f"gandiva-fair-by-{number}" for number in range(5)]
    print_comparison([PolicyFigures(name, dict.fromkeys(names, figure), ()) for name in policies])
    told = capsys.readouterr().out
    assert max(map(len, told.splitlines())) <= 80 and "…" not in told
    assert all(name in told for name in policies)
    assert told.count("12,300 s ± 1,230 s") == 3 * len(policies)
    assert told.count("x1.50 ± 0.25") == len(names) * (len(policies) - 1)


def test_transfer_has_a_column_where_there_was_any() -> None:
    usd, day = Decimal("1.50"), "2026-11-01"
    offers = {"own": Decimal(0), "away": usd}
    costs = CostView(usd, Decimal(0), {"words": usd}, offers, {day: usd}, frozenset({"own"}))
    assert "transfer" not in shown(costs)
    sent_usd = Decimal("0.25")
    sent = TransferView(sent_usd, {"words": sent_usd}, {"away": sent_usd}, {day: sent_usd})
    lines = shown(replace(costs, transfer=sent)).splitlines()
    assert lines[0].split() == ["spent", "of", "which", "transfer"]
    assert [line.split()[-1] for line in lines[1:]] == [
        *("$0.2500", "$0.2500", "already", "$0.2500", "$0.2500", "$0.0000")
    ]


def test_months_and_persons_have_rows_where_there_are_several() -> None:
    usd = Decimal("1.50")
    months, persons = {"2026-10": usd}, {"ada": usd, "owner": Decimal(0)}
    costs = CostView(usd, Decimal(0), {}, {}, {}, by_month=months, by_person=persons)
    lines = [line.split() for line in shown(costs).splitlines()[1:3]]
    assert lines == [["person", "ada", "$1.50"], ["person", "owner", "$0.0000"]]
    assert "month 2026-11" in shown(replace(costs, by_month=months | {"2026-11": usd}))


def shown(costs: CostView) -> str:
    console = Console(width=80)
    with console.capture() as capture:
        console.print(costs_table(costs))
    return capture.get()


def test_a_trial_that_was_pruned_is_called_so(capsys: pytest.CaptureFixture[str]) -> None:
    pruned = replace(JOB, phase=JobPhase.STOPPED, trial_ending=TrialEnding.PRUNED)
    print_whole(JobsTable([pruned, replace(JOB, phase=JobPhase.STOPPED)], 0.0))
    print_whole(job_detail(pruned, None, 3_740.0))
    told = capsys.readouterr().out
    assert told.count("pruned") == 2 and told.count("stopped") == 1
