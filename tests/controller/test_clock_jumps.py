"""A wall clock that is set forward or back by a day, at every point of a job's life."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import pytest

from autoscaler.clock import VirtualClock
from autoscaler.controller.clock_jumps import JumpDetector, SteadyTimes
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.errors import InsufficientCapacity, Throttled, Unavailable
from autoscaler.domain.instance import CloudInstance
from autoscaler.domain.job import JobPhase
from tests.controller.world import World

DAY_SECONDS = 86_400.0
SETTINGS = ControllerSettings(orphan_seconds=10.0, replan_seconds=5.0, listing_seconds=1.0)


class SteppedClock(VirtualClock):
    """Virtual clock whose wall clock a test can set; the monotonic clock goes on."""

    def __init__(self, start_seconds: float) -> None:
        super().__init__(start_seconds)
        self.offset_seconds = 0.0

    def now(self) -> float:
        return super().now() + self.offset_seconds

    def monotonic(self) -> float:
        return super().now()


class SteppedWorld(World):
    """World with a clock that can be set, whose cloud and agents have the right time."""

    def __init__(self, *arguments: object, **options: object) -> None:
        super().__init__(*arguments, **options)  # type: ignore[arg-type]
        self.right_clock = self.clock
        self.clock = SteppedClock(self.right_clock.now())
        self.listed_seconds: list[float] = []
        instances = self.cloud.instances

        def listed() -> Sequence[CloudInstance]:
            if self.is_ticking:
                self.listed_seconds.append(self.right_clock.now())
            return instances()

        self.cloud.instances = listed  # type: ignore[method-assign]
        self.restart()

    def step(self, seconds: float) -> None:
        """Set the controller's wall clock forward or back."""
        assert isinstance(self.clock, SteppedClock)
        self.clock.offset_seconds += seconds

    def live(self, seconds: float, each_seconds: float = 2.0) -> None:
        """Tick for a while of right time."""
        for _ in range(int(seconds / each_seconds)):
            self.right_clock.advance(each_seconds)
            self.tick(1, each_seconds)

    def kinds(self) -> list[str]:
        return [event.kind for event in self.store.events.latest()]


@pytest.fixture
def stepped(tmp_path: object) -> SteppedWorld:
    return SteppedWorld(tmp_path, SETTINGS)


def assert_listed_every_five_seconds(world: SteppedWorld, since_seconds: float) -> None:
    times = [since_seconds, *(at for at in world.listed_seconds if at > since_seconds)]
    gaps = [after - before for before, after in itertools.pairwise(times)]
    assert gaps and max(gaps) <= 5.0, f"no listing for {max(gaps, default=0.0)} s"


@pytest.mark.parametrize("step_seconds", [DAY_SECONDS, -DAY_SECONDS])
@pytest.mark.parametrize("after_seconds", range(0, 24, 2))
def test_a_step_and_its_correction_at_any_point_leave_the_job_as_it_is(
    stepped: SteppedWorld, step_seconds: float, after_seconds: int
) -> None:
    job = stepped.submit()
    stepped.set_target(job, 2)
    stepped.live(after_seconds)
    began_seconds = stepped.right_clock.now()
    for seconds in (step_seconds, -step_seconds):
        stepped.step(seconds)
        stepped.live(16.0)
    stepped.live(10.0)
    assert len(stepped.training(job)) == 2
    assert stepped.cloud.launch_calls == 2, "nothing was taken for lost"
    assert "instance given up" not in stepped.kinds()
    assert stepped.kinds().count("clock jump") == (2 if after_seconds else 1)
    assert_listed_every_five_seconds(stepped, began_seconds)


@pytest.mark.parametrize("step_seconds", [DAY_SECONDS, -DAY_SECONDS])
@pytest.mark.parametrize("after_seconds", [0, 2, 4, 6, 30, 60, 88])
@pytest.mark.parametrize("is_restarted", [False, True])
def test_whatever_the_clock_does_nothing_runs_long_after_the_stop(
    stepped: SteppedWorld, step_seconds: float, after_seconds: int, is_restarted: bool
) -> None:
    job = stepped.submit()
    stepped.set_target(job, 2)
    stepped.live(20.0)
    stepped.report_from_agents = lambda: None  # type: ignore[method-assign]  # no script leaves
    stopped_seconds = stepped.right_clock.now()
    stepped.store.jobs.request_stop(job, stepped.clock.now())
    stepped.live(after_seconds)
    stepped.step(step_seconds)
    if is_restarted:  # another process, which never knew the other time
        stepped.restart()
    # 90 s for the script, 30 s for the agent, and three ticks.
    limit_seconds = 126.0 + (after_seconds if is_restarted and step_seconds < 0 else 0.0)
    while stepped.cloud.running():
        stepped.live(2.0)
        assert stepped.right_clock.now() - stopped_seconds <= limit_seconds
    stepped.live(4.0)
    assert stepped.store.jobs.get(job).phase is JobPhase.STOPPED


@pytest.mark.parametrize("step_seconds", [DAY_SECONDS, -DAY_SECONDS])
def test_a_script_has_its_time_to_leave_whatever_the_clock_does(
    stepped: SteppedWorld, step_seconds: float
) -> None:
    job = stepped.submit()
    stepped.set_target(job, 1)
    stepped.live(20.0)
    stepped.report_from_agents = lambda: None  # type: ignore[method-assign]
    stepped.store.jobs.request_stop(job, stepped.clock.now())
    stepped.live(10.0)
    stepped.step(step_seconds)
    stepped.live(70.0)
    assert len(stepped.cloud.running()) == 1, "it has 90 s to save its state"


def test_terminations_that_were_written_in_the_future_are_made(stepped: SteppedWorld) -> None:
    job = stepped.submit()
    stepped.set_target(job, 2)
    stepped.live(20.0)
    for held in stepped.store.instances.alive():
        stepped.store.instances.request_termination(held.id, stepped.clock.now() + DAY_SECONDS)
    stepped.store.jobs.request_stop(job, stepped.clock.now() + DAY_SECONDS)
    stepped.restart()
    stepped.live(4.0)
    assert stepped.cloud.running() == []


def test_a_termination_that_failed_before_the_clock_was_set_back_is_made_again(
    stepped: SteppedWorld,
) -> None:
    job = stepped.submit()
    stepped.set_target(job, 1)
    stepped.live(20.0)
    stepped.step(DAY_SECONDS)
    terminate = stepped.cloud.terminate
    stepped.cloud.terminate = lambda ids: None  # type: ignore[method-assign]  # without effect
    stepped.store.jobs.request_stop(job, stepped.clock.now())
    stepped.live(20.0)
    stepped.cloud.terminate = terminate  # type: ignore[method-assign]
    stepped.step(-DAY_SECONDS)
    stepped.live(120.0)
    assert stepped.cloud.running() == []


def test_a_lost_instance_is_noticed_after_the_clock_was_set_back(stepped: SteppedWorld) -> None:
    job = stepped.submit()
    stepped.set_target(job, 1)
    stepped.step(DAY_SECONDS)
    stepped.live(20.0)
    stepped.step(-DAY_SECONDS)
    stepped.set_target(job, 0)
    stepped.live(2.0)
    stepped.set_target(job, 1)
    report = stepped.report_from_agents
    stepped.report_from_agents = lambda: None  # type: ignore[method-assign]
    stepped.live(150.0)
    stepped.report_from_agents = report  # type: ignore[method-assign]
    assert "instance given up" in stepped.kinds(), "silent for 120 s"


def test_a_refused_offer_is_asked_for_again_though_its_back_off_is_in_the_future(
    stepped: SteppedWorld,
) -> None:
    job = stepped.submit()
    stepped.set_target(job, 1)
    stepped.step(DAY_SECONDS)
    stepped.cloud.refusals = [InsufficientCapacity("none"), Throttled("slow", 1e6)]
    stepped.live(4.0)
    stepped.step(-DAY_SECONDS)
    stepped.live(10.0)
    assert stepped.cloud.refusals == []
    stepped.live(320.0)
    assert len(stepped.training(job)) == 1, "no back-off of a call is longer than 300 s"


def test_a_launch_of_unknown_outcome_is_not_dropped_because_of_a_step(
    stepped: SteppedWorld,
) -> None:
    job = stepped.submit()
    stepped.set_target(job, 1)

    def lose_reply(call: str) -> None:
        stepped.cloud.after_call = lambda name: None
        stepped.cloud.unlisted = {"cloud-0"}
        raise Unavailable("the reply was lost")

    stepped.cloud.after_call = lose_reply
    stepped.live(4.0)
    stepped.cloud.answers = True
    stepped.store.jobs.request_stop(job, stepped.clock.now())
    stepped.live(4.0)
    stepped.step(DAY_SECONDS)
    stepped.live(20.0)
    assert "launch dropped" not in stepped.kinds(), "it was sent less than 120 s ago"


def test_jumps_are_told_from_drift_and_from_long_ticks() -> None:
    detector = JumpDetector()
    assert detector.jumped_seconds(100.0, 5.0) == 0.0, "there is nothing to compare with"
    assert detector.jumped_seconds(4000.0, 3905.0) == 0.0, "a tick of an hour"
    assert detector.jumped_seconds(4030.0, 3906.0) == 0.0, "29 s are drift"
    assert detector.jumped_seconds(4131.0, 3907.0) == 100.0
    assert detector.jumped_seconds(32.0, 3908.0) == -4100.0


def test_ages_count_from_the_first_look() -> None:
    times = SteadyTimes()
    assert times.now_since("a", 100.0, 110.0) == 110.0
    times.add_jump(DAY_SECONDS)
    assert times.now_since("a", 100.0, 120.0 + DAY_SECONDS) == 120.0
    assert times.now_since("b", 100.0, 120.0 + DAY_SECONDS) == 120.0 + DAY_SECONDS
    assert times.now_since("c", 9e9, 120.0) == 9e9, "a time in the future is written now"
    assert times.now_since("c", 9e9, 130.0) == 9e9 + 10.0
    times.forget_unused()
    assert times.now_since("a", 100.0, 130.0 + DAY_SECONDS) == 130.0
    times.forget_unused()
    assert times.now_since("c", 9e9, 140.0) == 9e9, "it was forgotten"
    assert times.now_since("a", 100.0, 140.0 + DAY_SECONDS) == 140.0
