from __future__ import annotations

import pytest

from autoscaler.domain.activity import Activity
from autoscaler.failures.stalls import (
    FIRST_STEP_SECONDS,
    IDLE_SECONDS,
    LossReport,
    Observation,
    ReplicaActivity,
    StallKind,
    find_stall,
)

LONG = 100_000.0


def quiet(
    seconds: float, steps: int | None = 500, step_seconds: float | None = 0.2, **facts: object
) -> Activity:
    pace = step_seconds if steps else None
    return Activity(seconds, steps, pace, **facts)  # type: ignore[arg-type]


def seen(*activities: Activity | None, settled: float = LONG) -> Observation:
    replicas = tuple(ReplicaActivity(f"i-{n}", activity) for n, activity in enumerate(activities))
    return Observation(replicas, settled)


def trained(*reports: tuple[int, int, float | None]) -> Observation:
    trainings = tuple(LossReport(step, skipped, loss) for step, skipped, loss in reports)
    return Observation((ReplicaActivity("i-0"),), LONG, trainings)


PLANTED = {
    "deadlock": (seen(quiet(150, step_seconds=0.2)), StallKind.NO_STEP),
    "deadlock of slow steps": (seen(quiet(630, step_seconds=30.0)), StallKind.NO_STEP),
    "lost collective": (seen(quiet(300), quiet(300)), StallKind.NO_STEP),
    "hung rank": (seen(None, quiet(180), None), StallKind.HUNG_REPLICA),
    "hung rank that another waits for": (
        seen(quiet(90, waits_for_others=True), quiet(150)),
        StallKind.HUNG_REPLICA,
    ),
    "all wait": (
        seen(quiet(150, waits_for_others=True), quiet(150, waits_for_others=True)),
        StallKind.NO_STEP,
    ),
    "hung joiner": (
        seen(None, quiet(FIRST_STEP_SECONDS + 30, 0), None),
        StallKind.HUNG_REPLICA,
    ),
    "endless first step": (seen(quiet(FIRST_STEP_SECONDS + 30, 0)), StallKind.NO_STEP),
    "endless second step": (
        seen(quiet(FIRST_STEP_SECONDS + 30, 1, None)),
        StallKind.NO_STEP,
    ),
    "evaluation without end": (
        seen(quiet(4000, phase="evaluation", phase_seconds=-60.0)),
        StallKind.NO_STEP,
    ),
    "idle devices": (
        seen(quiet(IDLE_SECONDS + 60, None, idle_seconds=IDLE_SECONDS)),
        StallKind.IDLE_DEVICES,
    ),
    "loss not a number": (
        trained((100, 0, None), (160, 60, None)),
        StallKind.NOT_FINITE,
    ),
    "loss exploding": (
        trained(*((n, 0, 2.0) for n in range(10)), *((n, 0, 900.0) for n in range(10, 15))),
        StallKind.EXPLODING,
    ),
}

HEALTHY = {
    "trains": seen(None, None),
    "one slow step": seen(quiet(90, step_seconds=0.2)),
    "slow steps": seen(quiet(500, step_seconds=30.0)),
    "slow second step": seen(quiet(FIRST_STEP_SECONDS - 30, 1, None)),
    "slow data": seen(quiet(570, step_seconds=30.0, idle_seconds=540.0)),
    "evaluation": seen(quiet(4000, phase="evaluation", phase_seconds=60.0)),
    "checkpoint": seen(quiet(1500, phase="checkpoint", phase_seconds=2100.0)),
    "long compilation": seen(quiet(FIRST_STEP_SECONDS - 30, 0)),
    "declared compilation": seen(quiet(5000, 0, phase="compile", phase_seconds=30.0)),
    "quorum wait while others boot": seen(quiet(1200), quiet(1200), settled=0.0),
    "first quorum while others boot": seen(quiet(4000, 0), quiet(4000, 0), settled=60.0),
    "just after the others have booted": seen(quiet(1200), quiet(1200), settled=100.0),
    "no session, and busy": seen(quiet(50_000, None)),
    "no session, one of two idle": seen(
        quiet(5000, None, idle_seconds=IDLE_SECONDS), quiet(5000, None)
    ),
    "idle in an evaluation": seen(
        quiet(4000, phase="evaluation", phase_seconds=60.0, idle_seconds=3000.0)
    ),
    "a few skipped steps": trained((100, 0, None), (160, 6, None)),
    "a spike of the loss": trained(
        *((n, 0, 2.0) for n in range(10)), *((n, 0, 900.0) for n in range(10, 13)), (13, 0, 2.0)
    ),
    "a loss that falls": trained(*((n, 0, 900.0 / (n + 1)) for n in range(20))),
    "a loss below 0": trained(*((n, 0, -1.0) for n in range(10)), *((20, 0, 5.0),) * 5),
    "first report": trained((1, 0, None)),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_stall_is_found(name: str) -> None:
    observation, kind = PLANTED[name]
    stall = find_stall(observation)
    assert stall is not None
    assert stall.kind is kind
    assert stall.words


@pytest.mark.parametrize("name", HEALTHY)
def test_a_healthy_job_is_no_stall(name: str) -> None:
    assert find_stall(HEALTHY[name]) is None


def test_words_name_the_time_the_limit_and_the_replica() -> None:
    stall = find_stall(seen(None, quiet(150, step_seconds=0.25)))
    assert stall is not None
    assert stall.words == ("i-1 of 2: no step for 150 s, more than 120 s; a step took 0.25 s")


def test_a_replica_that_waits_for_another_is_not_named() -> None:
    """A replica's steps are those of its own start, so fewer of them say nothing."""
    waits = quiet(150, 70, waits_for_others=True)
    hung = find_stall(seen(waits, quiet(150, 700)))
    assert hung is not None
    assert hung.words == "i-1 of 2: no step for 150 s, more than 120 s; a step took 0.2 s"
    assert find_stall(seen(waits, quiet(90, 700))) is None, "the other one is not late yet"
    in_collective = find_stall(seen(quiet(150, 70), quiet(150, 700)))
    assert in_collective is not None
    assert in_collective.words == "no step for 150 s, more than 120 s; a step took 0.2 s"


def test_the_end_of_a_boot_starts_the_time_anew() -> None:
    waited = quiet(1200, step_seconds=1.0)
    assert find_stall(seen(waited, settled=119.0)) is None
    assert find_stall(seen(waited, settled=121.0)) is not None
