"""Whole lives of agents: real processes on a real local cloud, a stand-in for the controller."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest

from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobSpec
from autoscaler.domain.report import Ending, Failure, FailureReason
from autoscaler.node.script.post_mortem import memory_kills
from autoscaler.wire.messages import NodeReport, Wanted
from tests.node.controller import FakeController
from tests.node.site import STEADY, LaunchedInstance, Site, wait_until

FOR_EVER = JobSpec("job", STEADY)


def job(*command: str, **environment: str) -> JobSpec:
    return JobSpec("job", command or STEADY, environment=environment)


def the_failure(controller: FakeController) -> Failure:
    wait_until(lambda: controller.failures, "a failure")
    (failure,) = controller.failures
    return failure


def fill_disk(instance: LaunchedInstance) -> Path:
    """Let the agent's state not be written any more, until what is returned is removed."""
    full = instance.disk / "agent.json.unfinished"

    def takes_the_place() -> bool:
        with suppress(FileExistsError):  # just now it is being written
            full.mkdir()
        return full.is_dir()

    wait_until(takes_the_place)
    return full


def steps_told(reports: list[NodeReport]) -> list[int]:
    """The steps of all observations, in the order in which they were told."""
    told = [training for report in reports for training in report.reports]
    return [observation.steps for training in told for observation in training.observations]


def test_a_script_that_ends_well_completes_the_job(site: Site) -> None:
    controller = site.serve(job(STEPS="50"))
    instance = site.launch()
    wait_until(lambda: instance.is_complete, "the end")
    assert [join.instance for join in controller.joins] == ["job-0"]
    assert controller.phases("job-0") == [
        InstancePhase.PREPARING,
        InstancePhase.STARTING,
        InstancePhase.TRAINING,
        InstancePhase.DRAINED,
    ]
    assert controller.log == "attempt on 0\n"
    assert controller.training[-1].step == 50
    assert controller.training[-1].metrics == {"step": 50.0}, "JSON has no word for NaN"
    assert steps_told(controller.reports) == [1] * 50
    heard = len(controller.reports)
    wait_until(lambda: len(controller.reports) > heard + 2, "heartbeats until it is terminated")
    assert controller.reports[-1].is_complete
    assert not controller.failures


def test_all_is_ready_before_it_may_start(site: Site) -> None:
    """Others of its job, which it can't reach, have to leave first."""
    controller = site.serve(job(STEPS="10"))
    controller.want(may_start=False)
    instance = site.launch()
    instance.wait_for(InstancePhase.READY)
    heard = len(controller.reports)
    wait_until(lambda: len(controller.reports) > heard + 2, "heartbeats while it waits")
    assert controller.phases("job-0")[-1] is InstancePhase.READY
    assert controller.log == ""
    controller.want(may_start=True)
    wait_until(lambda: instance.is_complete, "the end")
    assert controller.log == "attempt on 0\n"


def test_what_was_ready_for_an_earlier_attempt_asks_for_its_work_again(site: Site) -> None:
    """Fetch the assignment again, because its files may exist now."""
    controller = site.serve(job(STEPS="10"))
    controller.want(may_start=False)
    instance = site.launch()
    instance.wait_for(InstancePhase.READY)
    assert controller.assignments_asked == 0, "what it was told when it joined was of now"
    controller.want(attempt=2)
    wait_until(lambda: controller.assignments_asked == 1, "its work for the second attempt")
    instance.wait_for(InstancePhase.READY)
    controller.want(may_start=True)
    wait_until(lambda: instance.is_complete, "the end")
    assert controller.assignments_asked == 1
    assert controller.reports[-1].attempt == 2


def test_one_that_can_not_be_made_ready_is_not(site: Site) -> None:
    controller = site.serve(replace(FOR_EVER, setup=("exit 3",)))
    controller.want(may_start=False)
    instance = site.launch()
    assert the_failure(controller).exit_code == 3
    instance.wait_for(InstancePhase.WAITING)


@pytest.mark.parametrize("agent_dies", [False, True])
def test_a_script_that_has_done_its_part_does_not_complete_the_job(
    site: Site, agent_dies: bool
) -> None:
    controller = site.serve(job(STEPS="10", DONE="0.5"))
    instance = site.launch()
    if agent_dies:
        instance.wait_for(InstancePhase.TRAINING)
        state = instance.disk / "agent.json"
        wait_until(lambda: '"is_done":true' in state.read_text(), "its being written down")
        instance.kill_agent()
    wait_until(lambda: any(report.is_done for report in controller.reports), "its end")
    heard = len(controller.reports)
    wait_until(lambda: len(controller.reports) > heard + 2, "heartbeats in which nothing starts")
    assert controller.reports[-1].phase is InstancePhase.WAITING
    assert not instance.is_complete
    controller.want(attempt=2)
    wait_until(lambda: instance.is_complete, "the end that another did not come to")
    assert len(instance.starts()) == 2
    assert not controller.failures


def test_a_script_that_fails_tells_why_and_waits_for_the_next_attempt(site: Site) -> None:
    controller = site.serve(job(FAIL_AT="4", STEPS="8"))
    instance = site.launch()
    failure = the_failure(controller)
    assert failure.exit_code == 1
    assert failure.steps == 3
    assert failure.attempt == 1
    assert not failure.during_setup
    assert failure.cause == (
        "the script raised ValueError: step 4 is one too many (steady.py:40, in <module>)"
    )
    assert failure.last_lines[-1] == "ValueError: step 4 is one too many"
    assert "ValueError: step 4" in controller.log, "the log is there before the failure is told"
    instance.wait_for(InstancePhase.WAITING)
    assert len(instance.starts()) == 1
    controller.want(attempt=2, start_seconds=time.time() + 0.5)
    wait_until(lambda: instance.is_complete, "the second attempt")
    assert len(instance.starts()) == 2
    assert controller.reports[-1].attempt == 2
    assert len(controller.failures) == 1


@pytest.mark.parametrize(
    ("command", "environment", "ending", "has_session"),
    [
        ((), {"STEPS": "5"}, Ending.COMPLETE, True),
        ((), {"STEPS": "50", "EXITS_AT": "5"}, Ending.EARLY, True),
        (("echo", "hello"), {}, Ending.WITHOUT_SESSION, False),
    ],
)
def test_how_a_script_that_exits_with_status_0_has_ended_is_reported(
    site: Site,
    command: tuple[str, ...],
    environment: dict[str, str],
    ending: Ending,
    has_session: bool,
) -> None:
    controller = site.serve(job(*command, **environment))
    instance = site.launch()
    wait_until(lambda: instance.is_complete, "the end")
    wait_until(lambda: controller.reports[-1].is_complete, "its report")
    assert controller.reports[-1].ending is ending
    assert any(report.has_session for report in controller.reports) == has_session


def test_a_script_whose_training_diverged_reports_that_reason(site: Site) -> None:
    controller = site.serve(job(FAIL_AT="4", DIVERGES="1"))
    site.launch()
    failure = the_failure(controller)
    assert failure.reason is FailureReason.DIVERGED
    assert failure.steps == 3


def test_a_command_that_does_not_exist_is_said_to_be_missing(site: Site) -> None:
    controller = site.serve(job("no-such-program", "--fast"))
    site.launch()
    failure = the_failure(controller)
    assert failure.exit_code == 127
    assert failure.cause == "there is no program no-such-program: install it in setup"


UNKNOWN_KILL = "killed by signal 9 (out of memory?)"


@pytest.mark.parametrize(
    ("text", "count"),
    [("pgfault 5\noom_kill 3\noom_kill_x 9\n", 3), ("pgfault 5\n", None), ("oom_kill x\n", None)],
)
def test_the_kernel_counts_what_it_ends_for_lack_of_memory(
    tmp_path: Path, text: str, count: int | None
) -> None:
    (tmp_path / "vmstat").write_text(text)
    assert memory_kills(tmp_path / "vmstat") == count
    assert memory_kills(tmp_path / "missing") is None


@pytest.mark.parametrize("is_of_earlier_agent", [False, True])
def test_a_killed_rank_is_a_failure_by_signal(site: Site, is_of_earlier_agent: bool) -> None:
    controller = site.serve(FOR_EVER)
    instance = site.launch()
    instance.wait_for(InstancePhase.TRAINING)
    if is_of_earlier_agent:
        instance.kill_agent()
    psutil.Process(instance.starts()[-1]).kill()
    failure = the_failure(controller)
    known = "killed by signal 9, not for lack of memory"
    assert failure.cause == (known if memory_kills() is not None else UNKNOWN_KILL)
    assert failure.steps > 0


def test_nothing_is_left_of_a_start_whose_shim_was_killed(site: Site) -> None:
    controller = site.serve(FOR_EVER)
    instance = site.launch()
    instance.wait_for(InstancePhase.TRAINING)
    (shim,) = instance.processes("autoscaler.node.shims.shim")
    shim.kill()
    assert the_failure(controller).exit_code == -9
    wait_until(lambda: not instance.processes("steady.py"), "the end of the script")


def test_an_agent_that_was_killed_finds_what_runs(site: Site) -> None:
    controller = site.serve(job(STEPS="150"))
    instance = site.launch()
    instance.wait_for(InstancePhase.TRAINING)
    instance.kill_agent()
    wait_until(lambda: instance.is_complete, "the end")
    assert len(instance.starts()) == 1
    assert len(controller.joins) == 1
    assert controller.assignments_asked == 0
    assert not controller.failures
    assert controller.log == "attempt on 0\n"


def test_an_agent_that_was_killed_hears_how_the_script_ended_meanwhile(site: Site) -> None:
    controller = site.serve(job(FAIL_AT="20"))
    instance = site.launch()
    instance.wait_for(InstancePhase.TRAINING)
    controller.is_away = True
    instance.kill_agent()
    wait_until(lambda: not instance.processes("steady.py"), "the end of the script")
    instance.kill_agent()
    controller.is_away = False
    assert the_failure(controller).cause.startswith("the script raised ValueError: step 20")
    assert len(instance.starts()) == 1


def test_the_steps_of_a_start_outlive_its_agent(site: Site) -> None:
    """Host memory that runs out may end both; the end is then no failure of the first steps."""
    controller = site.serve(FOR_EVER)
    instance = site.launch()
    instance.wait_for(InstancePhase.TRAINING)
    wait_until(lambda: controller.training and controller.training[-1].step > 20, "some steps")
    agent = instance.agent()
    assert agent is not None
    agent.suspend()
    (shim,) = instance.processes("autoscaler.node.shims.shim")
    for each in (shim, *instance.processes("steady.py"), agent):
        with suppress(psutil.NoSuchProcess):  # the end of one is that of others
            each.kill()
    assert the_failure(controller).steps > 15


def test_an_agent_whose_disk_is_full_goes_on_and_tells(site: Site) -> None:
    controller = site.serve(FOR_EVER)
    instance = site.launch()
    instance.wait_for(InstancePhase.TRAINING)
    full = fill_disk(instance)
    agent = instance.agent()
    psutil.Process(instance.starts()[-1]).kill()
    assert the_failure(controller).exit_code == 137
    instance.wait_for(InstancePhase.WAITING)
    assert instance.agent() == agent
    notes = [note for report in controller.reports for note in report.notes]
    assert sum("can't save its state" in note for note in notes) == 1, notes
    full.rmdir()
    state = instance.disk / "agent.json"
    wait_until(lambda: '"failed_attempt":1' in state.read_text(), "what was kept in memory")


def test_a_restarted_agent_whose_disk_is_full_is_heard(site: Site) -> None:
    controller = site.serve(FOR_EVER)
    instance = site.launch()
    instance.wait_for(InstancePhase.TRAINING)
    fill_disk(instance)
    psutil.Process(instance.starts()[-1]).kill()
    instance.kill_agent()
    assert the_failure(controller).steps > 0
    instance.wait_for(InstancePhase.WAITING)


def test_a_start_that_can_not_be_made_is_a_failure_with_its_cause(site: Site) -> None:
    controller = site.serve(job(FAIL_AT="2"))
    instance = site.launch()
    the_failure(controller)
    instance.wait_for(InstancePhase.WAITING)
    fill_disk(instance)
    controller.want(attempt=2)
    wait_until(lambda: len(controller.failures) == 2, "the second failure")
    failure = controller.failures[-1]
    assert failure.attempt == 2
    assert failure.cause.startswith("the script can't be started: [Errno 21] Is a directory")
    assert failure.last_lines == (f"castor: {failure.cause}",)
    assert len(instance.starts()) == 1


def test_training_goes_on_while_the_controller_is_away_and_all_is_told_once(site: Site) -> None:
    controller = site.serve(job(STEPS="100"))
    instance = site.launch()
    instance.wait_for(InstancePhase.TRAINING)
    controller.is_away = True
    wait_until(lambda: not instance.processes("steady.py"), "the end of the script")
    heard = len(controller.reports)
    controller.is_away = False
    wait_until(lambda: instance.is_complete, "the end")
    assert steps_told(controller.reports) == [1] * 100
    later = [report.is_complete for report in controller.reports[heard:]]
    assert later.index(True) < 3, "what waited was told together"
    assert controller.log == "attempt on 0\n"


def test_a_report_whose_reply_was_lost_is_repeated_as_it_was(site: Site) -> None:
    """The controller takes in what it tells of a start's steps once."""
    controller = site.serve(job(STEPS="60"))
    instance = site.launch()
    instance.wait_for(InstancePhase.TRAINING)
    controller.loses_replies = True
    time.sleep(0.5)
    controller.loses_replies = False
    wait_until(lambda: instance.is_complete, "the end")
    assert steps_told(controller.reports) == [1] * 60
    assert controller.log == "attempt on 0\n"


def test_the_interval_of_checkpoints_reaches_the_script_and_can_be_taken_back(site: Site) -> None:
    controller = site.serve(FOR_EVER)
    site.launch().wait_for(InstancePhase.TRAINING)
    for interval_seconds in (40.0, 55.0, None):
        controller.want(checkpoint_interval_seconds=interval_seconds)
        wait_until(partial(_is_heard, controller, interval_seconds), "the interval")


def _is_heard(controller: FakeController, interval_seconds: float | None) -> bool:
    told = [report.metrics.get("interval") for report in controller.training]
    return told[-1:] == [interval_seconds]


def test_another_number_of_devices_is_a_new_start_and_no_failure(site: Site) -> None:
    controller = site.serve(FOR_EVER)
    instance = site.launch(devices=2)
    instance.wait_for(InstancePhase.TRAINING)
    assert controller.reports[-1].devices_used == 1
    controller.want(devices_used=2)
    wait_until(lambda: controller.log.count("attempt on 0,1") == 2, "two ranks")
    wait_until(lambda: controller.reports[-1].devices_used == 2)
    instance.wait_for(InstancePhase.TRAINING)
    assert len(instance.starts()) == 2
    assert controller.reports[-1].attempt == 1
    assert not controller.failures


def test_a_script_on_standby_leaves_and_is_started_again_when_it_may(site: Site) -> None:
    controller = site.serve(FOR_EVER)
    instance = site.launch()
    instance.wait_for(InstancePhase.TRAINING)
    controller.want(pauses=True, may_start=False)
    instance.wait_for(InstancePhase.READY)
    assert InstancePhase.DRAINING not in controller.phases("job-0"), "it does not leave its job"
    heard = len(controller.reports)
    wait_until(lambda: len(controller.reports) > heard + 2, "heartbeats while it stands by")
    assert controller.phases("job-0")[-1] is InstancePhase.READY
    assert len(instance.starts()) == 1
    controller.want(pauses=False, may_start=True)
    instance.wait_for(InstancePhase.TRAINING)
    assert len(instance.starts()) == 2
    assert controller.reports[-1].attempt == 1
    assert not controller.failures


def test_a_paused_instance_that_is_not_wanted_any_more_leaves(site: Site) -> None:
    controller = site.serve(FOR_EVER)
    instance = site.launch()
    instance.wait_for(InstancePhase.TRAINING)
    controller.want(pauses=True, may_start=False)
    instance.wait_for(InstancePhase.READY)
    controller.want(wanted=Wanted.DRAIN)
    instance.wait_for(InstancePhase.DRAINED)


def test_an_instance_that_is_not_let_in_powers_off(site: Site) -> None:
    site.serve(FOR_EVER).refuses_join = True
    instance = site.launch()
    wait_until(lambda: instance.is_off, "the end")
    assert "was used before" in instance.console


def test_joining_waits_for_a_controller_that_is_away(site: Site) -> None:
    controller = site.serve(job(STEPS="3"))
    controller.is_away = True
    instance = site.launch()
    wait_until(lambda: "can't join yet" in instance.console, "a try")
    controller.is_away = False
    wait_until(lambda: instance.is_complete, "the end")
