"""One count of what an instance's time is for, through starts of scripts and agents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.clock import VirtualClock
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.time_use import CostCategory, TimeUse
from autoscaler.node.state import Start
from autoscaler.node.time_meter import StartTimes, TimeMeter

START = Start(attempt=1, devices_used=1, started_seconds=1010.0, log_offset=0)
TIMES = StartTimes(1010.0, 1)


class Agent:
    """One life of an agent after the other, on one disk."""

    def __init__(self, directory: Path) -> None:
        self.clock = VirtualClock(1000.0)
        self.path = directory / "time.json"
        self.start()

    def start(self, job: str = "job") -> None:
        self.meter = TimeMeter(self.path, self.clock, job)

    def works(self, seconds: float, times: StartTimes = TIMES) -> None:
        """Spend time at work; `times` are those at its end."""
        self.meter.turn_at_work(replace(times, paused_seconds=0, lost_seconds=0, idle_seconds=0))
        self.clock.advance(seconds)
        self.meter.turn_at_work(times)

    def is_in(self, phase: InstancePhase, seconds: float, start: Start | None = None) -> None:
        self.meter.turn_off_work(phase, start, stands_by=False)
        self.clock.advance(seconds)

    @property
    def use(self) -> TimeUse:
        count = self.meter.count("job")
        assert count is not None
        return count.use


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return Agent(tmp_path)


def test_time_until_the_first_step_is_boot_and_work_is_useful(agent: Agent) -> None:
    agent.is_in(InstancePhase.PREPARING, 5.0)
    agent.is_in(InstancePhase.STARTING, 5.0, START)
    agent.works(60.0)
    assert agent.use == TimeUse(60.0, 10.0)
    count = agent.meter.count(None)
    assert count is not None
    assert (count.begun_seconds, count.present) == (1000.0, CostCategory.USEFUL)


def test_pauses_and_lost_steps_that_the_script_counts_are_not_useful(agent: Agent) -> None:
    agent.works(60.0, replace(TIMES, paused_seconds=6.0, lost_seconds=2.0))
    assert agent.use == TimeUse(52.0, 0.0, 0.0, 6.0, 2.0)
    # No more than the time there was.
    agent.meter.turn_at_work(replace(TIMES, paused_seconds=600.0, lost_seconds=2.0))
    assert agent.use == TimeUse(0.0, 0.0, 0.0, 58.0, 2.0)


def test_devices_that_stand_still_are_idle_also_after_steps_go_on(agent: Agent) -> None:
    agent.works(100.0, replace(TIMES, idle_seconds=40.0))
    assert agent.use == TimeUse(60.0, 0.0, 40.0)
    agent.works(50.0)
    agent.works(50.0, replace(TIMES, idle_seconds=10.0))
    assert agent.use == TimeUse(150.0, 0.0, 50.0)


@pytest.mark.parametrize(
    ("ended", "then", "expected"),
    [
        (replace(START, has_ended=True, is_leaving=True), START, TimeUse(60.0, pause_seconds=9.0)),
        (replace(START, has_ended=True), START, TimeUse(60.0, lost_seconds=9.0)),
        (
            replace(START, has_ended=True, is_leaving=True),
            replace(START, attempt=2),
            TimeUse(60.0, pause_seconds=4.0, lost_seconds=5.0),
        ),
    ],
    ids=["a resize", "a failure", "a failure elsewhere"],
)
def test_a_later_start_is_a_pause_or_a_loss(
    agent: Agent, ended: Start, then: Start, expected: TimeUse
) -> None:
    agent.works(50.0)
    agent.is_in(InstancePhase.WAITING, 4.0, ended)
    agent.is_in(InstancePhase.STARTING, 5.0, then)
    agent.works(10.0, replace(TIMES, started_seconds=1100.0))
    assert agent.use == expected


def test_pauses_of_each_start_are_counted_for_themselves(agent: Agent) -> None:
    agent.works(50.0, replace(TIMES, paused_seconds=5.0))
    agent.works(50.0, replace(TIMES, started_seconds=1100.0, paused_seconds=7.0))
    assert agent.use == TimeUse(88.0, pause_seconds=12.0)


def test_an_instance_without_work_is_idle(agent: Agent) -> None:
    agent.is_in(InstancePhase.WAITING, 3.0)
    agent.works(10.0)
    agent.is_in(InstancePhase.DRAINED, 7.0, replace(START, has_ended=True, is_leaving=True))
    agent.meter.turn_off_work(InstancePhase.READY, START, stands_by=True)
    agent.clock.advance(2.0)
    assert agent.use == TimeUse(10.0, idle_seconds=12.0)


def test_a_later_agent_goes_on_with_the_time_between(agent: Agent) -> None:
    agent.works(10.0)
    agent.clock.advance(1.0)
    agent.start()
    assert agent.use == TimeUse(11.0)
    agent.path.write_text("torn")
    agent.start()
    assert agent.use == TimeUse()


def test_another_job_has_a_count_of_its_own(agent: Agent) -> None:
    agent.works(10.0)
    agent.meter.begin("other")
    agent.is_in(InstancePhase.PREPARING, 3.0)
    assert agent.use == TimeUse(10.0)
    other = agent.meter.count("other")
    assert other is not None
    assert (other.begun_seconds, other.use) == (1010.0, TimeUse(boot_seconds=3.0))


def test_a_member_that_follows_its_gang_has_no_count(agent: Agent) -> None:
    agent.meter.turn_at_work(TIMES, follows=True)
    assert agent.meter.count("job") is None
