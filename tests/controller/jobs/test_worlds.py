"""Worlds of restartable jobs: when they change, and what they never do."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.controller.jobs.worlds import (
    FRESH_SECONDS,
    GATHER_SECONDS,
    SETTLE_SECONDS,
    STOP_MARGIN_SECONDS,
    Candidate,
    Cause,
    WorldNeeds,
    next_world,
)
from autoscaler.domain.job_world import JobWorld

WORLD = JobWorld(3, 1, 1000.0, ("a", "b"))
RUNNING = WorldNeeds(
    attempt=1,
    minimum=1,
    candidates=(Candidate("a", True, 900.0), Candidate("b", True, 900.0)),
    grace_seconds=30.0,
    wait_seconds=600.0,
    has_begun=True,
)


def ready(name: str, differs_seconds: float = 1100.0) -> Candidate:
    return Candidate(name, True, differs_seconds, differs_seconds=differs_seconds)


def with_candidates(*candidates: Candidate, **changes: object) -> WorldNeeds:
    return replace(RUNNING, candidates=candidates, **changes)  # type: ignore[arg-type]


def members_after(
    world: JobWorld | None, needs: WorldNeeds, now_seconds: float
) -> tuple[str, ...]:
    formed = next_world(world, needs, now_seconds)
    assert formed is not None
    return formed[0].members


def cause_of(world: JobWorld | None, needs: WorldNeeds, now_seconds: float) -> Cause | None:
    formed = next_world(world, needs, now_seconds)
    return None if formed is None else formed[1]


def test_a_running_world_of_the_wanted_size_stays() -> None:
    assert next_world(WORLD, RUNNING, 9999.0) is None


class TestStart:
    def test_the_first_world_waits_for_all_that_boot(self) -> None:
        booting = Candidate("b", True, None)
        needs = with_candidates(ready("a", 1000.0), booting)
        assert next_world(None, needs, 1001.0) is None
        assert members_after(None, needs, 1000.0 + GATHER_SECONDS) == ("a",)
        both = with_candidates(ready("a", 1000.0), ready("b", 1010.0))
        assert members_after(None, both, 1010.0) == ("a", "b")

    def test_too_few_do_not_start(self) -> None:
        needs = with_candidates(ready("a"), Candidate("b", True, None), minimum=2)
        assert next_world(None, needs, 99_999.0) is None

    def test_a_retry_waits_for_its_time(self) -> None:
        needs = replace(RUNNING, attempt=2, start_seconds=2000.0)
        assert next_world(WORLD, needs, 1999.0) is None
        assert cause_of(WORLD, needs, 2000.0) is Cause.RETRY
        assert members_after(WORLD, needs, 2000.0) == ("a", "b")


class TestGrowth:
    needs = with_candidates(*RUNNING.candidates, ready("c"))

    def test_it_waits_for_a_new_checkpoint(self) -> None:
        old_save = replace(self.needs, saved_seconds=1100.0 - FRESH_SECONDS - 1)
        assert next_world(WORLD, old_save, 1101.0) is None
        assert cause_of(WORLD, replace(old_save, saved_seconds=1200.0), 1201.0) is Cause.SAVED

    def test_the_leader_stays(self) -> None:
        needs = replace(self.needs, saved_seconds=1200.0)
        assert members_after(replace(WORLD, members=("b", "a")), needs, 1201.0) == ("b", "a", "c")

    def test_it_waits_for_instances_that_boot(self) -> None:
        needs = replace(
            self.needs,
            candidates=(*self.needs.candidates, Candidate("d", True, None)),
            saved_seconds=1200.0,
        )
        assert next_world(WORLD, needs, 1201.0) is None

    def test_without_a_checkpoint_it_is_bounded(self) -> None:
        assert next_world(WORLD, self.needs, 1100.0 + 599.0) is None
        assert cause_of(WORLD, self.needs, 1100.0 + 600.0) is Cause.WAITED

    def test_before_the_command_began_nothing_is_lost(self) -> None:
        assert cause_of(WORLD, replace(self.needs, has_begun=False), 1101.0) is Cause.UNSTARTED


class TestShrinking:
    def test_an_unwanted_member_stays_until_a_checkpoint(self) -> None:
        leaving = replace(RUNNING.candidates[0], is_wanted=False, differs_seconds=1100.0)
        needs = with_candidates(leaving, RUNNING.candidates[1])
        assert next_world(WORLD, needs, 1101.0) is None
        assert members_after(WORLD, replace(needs, saved_seconds=1150.0), 1151.0) == ("b",)

    def test_below_the_minimum_it_stays(self) -> None:
        leaving = replace(RUNNING.candidates[0], is_wanted=False, differs_seconds=1100.0)
        needs = with_candidates(leaving, RUNNING.candidates[1], minimum=2, saved_seconds=1150.0)
        assert next_world(WORLD, needs, 1151.0) is None

    def test_a_reclaim_is_its_deadline(self) -> None:
        leaving = replace(
            RUNNING.candidates[0], is_wanted=False, end_seconds=1220.0, differs_seconds=1100.0
        )
        needs = with_candidates(leaving, RUNNING.candidates[1])
        last_seconds = 1220.0 - needs.grace_seconds - STOP_MARGIN_SECONDS
        assert next_world(WORLD, needs, last_seconds - 0.1) is None
        assert cause_of(WORLD, needs, last_seconds) is Cause.RECLAIM
        assert members_after(WORLD, needs, last_seconds) == ("b",)


class TestLoss:
    def test_the_others_restart_at_once(self) -> None:
        needs = with_candidates(RUNNING.candidates[1], Candidate("c", True, None))
        assert cause_of(WORLD, needs, 1001.0) is Cause.LOSS
        assert members_after(WORLD, needs, 1001.0) == ("b",)

    def test_below_the_minimum_none_runs_until_there_are_enough(self) -> None:
        needs = with_candidates(RUNNING.candidates[1], Candidate("c", True, None), minimum=2)
        stopped, cause = next_world(WORLD, needs, 1001.0) or (WORLD, None)
        assert cause is Cause.TOO_FEW and stopped.members == ()
        assert next_world(stopped, needs, 1002.0) is None
        enough = with_candidates(RUNNING.candidates[1], ready("c", 1300.0), minimum=2)
        assert members_after(stopped, enough, 1300.0) == ("b", "c")

    def test_an_ended_command_restarts_after_a_moment(self) -> None:
        needs = replace(RUNNING, over_seconds=1500.0)
        assert next_world(WORLD, needs, 1500.0) is None
        assert cause_of(WORLD, needs, 1500.0 + SETTLE_SECONDS) is Cause.ENDED
        assert members_after(WORLD, needs, 1500.0 + SETTLE_SECONDS) == ("a", "b")


@dataclass
class Job:
    """Instances of a job, on which a random history acts."""

    now_seconds: float = 0.0
    world: JobWorld | None = None
    instances: dict[str, Candidate] = field(default_factory=dict)
    saved_seconds: float | None = None
    begun: int = 0
    attempt: int = 1
    ordered: int = 0
    restarts_without_save: int = 0

    def act(self, event: str, which: int) -> None:
        names = sorted(self.instances)
        name = names[which % len(names)] if names else None
        if event == "order":
            self.ordered += 1
            new = f"i{self.ordered}"
            self.instances[new] = Candidate(new, True, None, differs_seconds=self.now_seconds)
        elif event == "save" and self.world is not None and self.begun == self.world.generation:
            self.saved_seconds = self.now_seconds
        elif event == "begin" and self.world is not None and self.world.members:
            self.begun = self.world.generation
        elif event == "fail":
            self.attempt += 1
        elif name is not None:
            self._change(event, name)

    def _change(self, event: str, name: str) -> None:
        candidate, now_seconds = self.instances[name], self.now_seconds
        if event == "lose":
            del self.instances[name]
        elif event == "prepare" and candidate.prepared_seconds is None:
            self.instances[name] = replace(
                candidate, prepared_seconds=now_seconds, differs_seconds=now_seconds
            )
        elif event == "release":
            self.instances[name] = replace(candidate, is_wanted=False, differs_seconds=now_seconds)
        elif event == "reclaim":
            self.instances[name] = replace(
                candidate,
                is_wanted=False,
                differs_seconds=now_seconds,
                end_seconds=now_seconds + 120,
            )

    def needs(self, minimum: int) -> WorldNeeds:
        is_present = self.world is not None and self.begun == self.world.generation
        return WorldNeeds(
            attempt=self.attempt,
            minimum=minimum,
            candidates=tuple(self.instances.values()),
            grace_seconds=10.0,
            wait_seconds=100.0,
            saved_seconds=self.saved_seconds if is_present else None,
            has_begun=is_present,
        )


EVENTS = ("order", "prepare", "prepare", "begin", "save", "release", "reclaim", "lose", "fail")
HISTORY = st.lists(
    st.tuples(st.sampled_from(EVENTS), st.integers(0, 5), st.floats(0.1, 60.0)), max_size=60
)


@given(history=HISTORY, minimum=st.integers(1, 3))
def test_worlds_of_any_history(history: list[tuple[str, int, float]], minimum: int) -> None:
    job = Job()
    for event, which, seconds in history:
        job.act(event, which)
        job.now_seconds += seconds
        needs = job.needs(minimum)
        formed = next_world(job.world, needs, job.now_seconds)
        if formed is None:
            continue
        world, cause = formed
        check_world(job, world, cause, needs)
        job.world = world
        assert next_world(world, needs, job.now_seconds) is None or not world.members
    settle(job, minimum)


def check_world(job: Job, world: JobWorld, cause: Cause, needs: WorldNeeds) -> None:
    """Check what holds for every new world."""
    before = job.world
    assert world.generation == (1 if before is None else before.generation + 1)
    assert world.attempt == job.attempt
    assert not world.members or len(world.members) >= needs.minimum
    for member in world.members:
        candidate = job.instances[member]
        assert candidate.is_wanted and candidate.prepared_seconds is not None
    is_running = before is not None and before.members and needs.has_begun
    if is_running and before is not None and cause in (Cause.SAVED, Cause.WAITED):
        assert set(before.members) <= job.instances.keys()
        assert set(before.members) != set(world.members)
        if cause is Cause.SAVED:
            assert needs.saved_seconds is not None
            assert job.now_seconds - needs.saved_seconds <= FRESH_SECONDS


def settle(job: Job, minimum: int) -> None:
    """Check that without further events the world becomes that of all wanted instances."""
    wanted = {name for name, candidate in job.instances.items() if candidate.is_wanted}
    for name in wanted:
        job.act("prepare", sorted(job.instances).index(name))
    for _ in range(4):
        job.now_seconds += 1000.0
        job.act("begin", 0)
        formed = next_world(job.world, job.needs(minimum), job.now_seconds)
        job.world = formed[0] if formed else job.world
    if len(wanted) >= minimum:
        assert job.world is not None and set(job.world.members) == wanted
