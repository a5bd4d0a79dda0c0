"""Everything that a seed decides before a run: deployment, jobs, and faults with their steps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Final

from tests.dst.trainers import Vice

STEPS: Final = 70
FIRST_WITH_GANGS: Final = 100_000
"""First seed whose jobs may train in gangs; earlier seeds have none."""
FIRST_WITH_STUDIES: Final = 200_000
"""First seed with a study; from here on no jobs train in gangs."""
FIRST_WITH_LIMITS: Final = 300_000
"""First seed with shared budgets, price ceilings and deadlines, and without a study."""

_LAST_FAULT_SHARE: Final = 0.9
# Actions of clouds' calls, and ways to disturb them; the first ones are the likeliest.
_ACTIONS: Final = {
    "launch": 5,
    "end": 3,
    "list": 2,
    "get": 1,
    "put": 1,
    "market": 1,
    "notices": 1,
    "*": 2,
}
_WAYS: Final = {
    "lost after": 5,
    "refused": 1,
    "throttled": 1,
    "denied": 1,
    "lost before": 1,
    "doubled": 1,
    "slow before": 1,
    "slow after": 2,
}
_VICES: Final = (*Vice, Vice.HANGS, Vice.HANGS, Vice.MUTE)
SCOPES: Final = ("fleet", "person:ada", "person:owner", "team:nlp")
PRUNERS: Final = ("none", "median", "halving", "synchronous")
PRICES: Final = ("0.0001", "9999", "-1", "NaN", "0", "tenth", "rises")


@dataclass(frozen=True)
class JobPlan:
    """One job that a user submits at a step. `work_seconds` is its length on one instance.

    Every `gang` instances hold one copy of the model together. A job `is_of_team` if a member of
    the team submits it. `deadline_seconds` count from its submission.
    """

    name: str
    step: int
    minimum: int
    maximum: int
    work_seconds: int
    save_seconds: int
    budget_usd: str | None
    spot: bool
    gang: int = 1
    is_of_team: bool = False
    deadline_seconds: int | None = None
    stops_late: bool = False
    max_usd_per_hour: str | None = None
    max_instance_usd_per_hour: str | None = None


@dataclass(frozen=True)
class BudgetPlan:
    """Budget that the jobs of a scope share, in US dollars. None: no such limit."""

    scope: str
    month_usd: str | None = None
    total_usd: str | None = None
    hourly_usd: str | None = None


@dataclass(frozen=True)
class StudyPlan:
    """Study that a user drives to its end, with as many drivers as that takes.

    Each trial makes `epochs` epochs of `epoch_seconds`, and saves its state after each if it
    `saves`. `retries` are those of a trial, `job_retries` those of its job.
    """

    trials: int
    at_once: int | None
    epochs: int
    epoch_seconds: int
    saves: bool
    pruner: str
    retries: int
    job_retries: int
    catches: bool
    budget_usd: str | None
    spot: bool


@dataclass(frozen=True)
class Fault:
    """Disturbance at one step; the arguments depend on the kind (`World`)."""

    step: int
    kind: str
    arguments: tuple[object, ...] = ()

    def __str__(self) -> str:
        words = ",".join(str(argument) for argument in self.arguments)
        return f"{self.step}:{self.kind}({words})"


@dataclass(frozen=True)
class Scenario:
    """Run of one seed."""

    seed: int
    clouds: tuple[str, ...]
    policy: str
    store: str
    pauses: float
    lag_seconds: int
    boot_seconds: int
    max_instances: int
    max_usd_per_hour: str
    fleet_usd_per_hour: float | None
    fleet_usd: str | None
    jobs: tuple[JobPlan, ...]
    faults: tuple[Fault, ...]
    study: StudyPlan | None = None
    budgets: tuple[BudgetPlan, ...] = ()


def scenario_of(seed: int) -> Scenario:
    """Return the scenario of a seed."""
    chance = Random(f"scenario {seed}")
    clouds = chance.choice((("aws",), ("gcp",), ("aws", "gcp")))
    scenario = Scenario(
        seed=seed,
        clouds=clouds,
        policy=chance.choice(("whims", "whims", "marginal")),
        store="sql" if chance.random() < 0.04 else "memory",
        pauses=chance.choice((0.0, 0.5, 1.0)),
        lag_seconds=chance.choice((0, 5, 20, 50, 50)),
        boot_seconds=chance.choice((10, 30, 60)),
        max_instances=chance.choice((3, 6, 10)),
        max_usd_per_hour=chance.choice(("2.5", "6", "20")),
        fleet_usd_per_hour=chance.choice((None, 1.6, 3.0)),
        fleet_usd=chance.choice((None, None, "0.12")),
        jobs=tuple(_job(chance, number) for number in range(chance.choice((1, 2, 2, 3)))),
        faults=_faults(chance, clouds),
    )
    if seed >= FIRST_WITH_LIMITS:
        return _with_limits(scenario)
    if seed >= FIRST_WITH_STUDIES:
        return _with_study(scenario)
    return scenario if seed < FIRST_WITH_GANGS else _with_gangs(scenario)


def _with_limits(scenario: Scenario) -> Scenario:
    """Return a scenario with shared budgets, and jobs with price ceilings and deadlines."""
    chance = Random(f"limits {scenario.seed}")
    scopes = chance.sample(SCOPES, chance.choice((1, 1, 2, 3)))
    return replace(
        scenario,
        fleet_usd=None,
        budgets=tuple(_budget(chance, scope) for scope in sorted(scopes)),
        jobs=tuple(_limited(chance, job) for job in scenario.jobs),
    )


def _budget(chance: Random, scope: str) -> BudgetPlan:
    usd = chance.choice(("0.005", "0.02", "0.08"))
    kind = chance.choice(("month", "total", "hour", "month and hour"))
    return BudgetPlan(
        scope,
        month_usd=usd if "month" in kind else None,
        total_usd=usd if kind == "total" else None,
        hourly_usd=chance.choice(("0.6", "1.1", "2.2")) if "hour" in kind else None,
    )


def _limited(chance: Random, job: JobPlan) -> JobPlan:
    return replace(
        job,
        is_of_team=chance.random() < 0.6,
        deadline_seconds=chance.choice((None, None, 150, 600, 3600)),
        stops_late=chance.random() < 0.5,
        max_usd_per_hour=chance.choice((None, None, "1.1", "2.2")),
        max_instance_usd_per_hour=chance.choice((None, None, "0.6", "0.9")),
    )


def _with_study(scenario: Scenario) -> Scenario:
    """Return a scenario with a study, faults of its drivers, and at most one job beside it."""
    chance = Random(f"study {scenario.seed}")
    last = int(STEPS * _LAST_FAULT_SHARE)
    steps = sorted(chance.randrange(last) for _ in range(chance.choice((0, 1, 3, 6))))
    pruner = chance.choice(PRUNERS)
    # Trials of a group may outnumber the instances: then those at a barrier have to pause.
    is_synchronous = pruner == "synchronous"
    faults = tuple(_fault(chance, step, scenario.clouds, _KINDS_OF_STUDIES) for step in steps)
    return replace(
        scenario,
        policy="marginal" if is_synchronous else scenario.policy,
        fleet_usd=chance.choice((None, None, None, None, "0.3")),
        jobs=scenario.jobs[: chance.choice((0, 0, 1))],
        faults=tuple(sorted((*scenario.faults, *faults), key=lambda fault: fault.step)),
        study=StudyPlan(
            trials=chance.choice((2, 3, 5, 8)),
            at_once=chance.choice((None, None, 1, 2)),
            epochs=chance.choice((1, 3, 4, 6)),
            epoch_seconds=chance.choice((0, 4, 15, 40)),
            saves=is_synchronous or chance.random() < 0.6,
            pruner=pruner,
            retries=chance.choice((0, 1, 1, 2)),
            job_retries=chance.choice((0, 0, 0, 3)),
            catches=chance.random() < 0.7,
            budget_usd=chance.choice((None, None, "0.03", "0.08", "0.2")),
            spot=chance.random() < 0.7,
        ),
    )


def _with_gangs(scenario: Scenario) -> Scenario:
    """Return a scenario whose caps leave room for the gangs that most of its jobs train in."""
    chance = Random(f"gangs {scenario.seed}")
    return replace(
        scenario,
        max_instances=max(scenario.max_instances, 6),
        max_usd_per_hour="20",
        fleet_usd_per_hour=None,
        jobs=tuple(_in_gangs(job, chance.choice((1, 2, 2, 3))) for job in scenario.jobs),
    )


def _in_gangs(job: JobPlan, gang: int) -> JobPlan:
    """Return a job with whole gangs of this size: one, or up to two."""
    most = gang * min(job.maximum, 2)
    return job if gang == 1 else replace(job, minimum=gang, maximum=most, gang=gang)


def _job(chance: Random, number: int) -> JobPlan:
    maximum = chance.choice((1, 2, 4))
    return JobPlan(
        name=f"job{number}",
        step=0 if number == 0 else chance.randrange(STEPS // 2),
        minimum=min(chance.choice((1, 1, 2)), maximum),
        maximum=maximum,
        work_seconds=chance.choice((60, 200, 600, 1500)),
        save_seconds=chance.choice((1, 5, 25)),
        budget_usd=chance.choice((None, None, "0.02", "0.06", "0.2")),
        spot=chance.random() < 0.7,
    )


def _faults(chance: Random, clouds: tuple[str, ...]) -> tuple[Fault, ...]:
    last = int(STEPS * _LAST_FAULT_SHARE)
    count = chance.choice((1, 3, 6, 10, 16))
    steps = sorted(chance.randrange(last) for _ in range(count))
    return tuple(_fault(chance, step, clouds, _KINDS) for step in steps)


def _fault(chance: Random, step: int, clouds: tuple[str, ...], kinds: Mapping[str, Kind]) -> Fault:
    kind = chance.choices(list(kinds), [weight for weight, _ in kinds.values()])[0]
    return Fault(step, kind, kinds[kind][1](chance, clouds))


Arguments = Callable[[Random, tuple[str, ...]], tuple[object, ...]]
Kind = tuple[float, Arguments]

# Kind of fault: how often, and its arguments.
_KINDS: Final[dict[str, Kind]] = {
    "call": (
        5.0,
        lambda chance, clouds: (
            *chance.choices(list(_ACTIONS), list(_ACTIONS.values())),
            *chance.choices(list(_WAYS), list(_WAYS.values())),
            chance.choice((1, 2, 6, 40)),
            chance.choice((20, 90, 300)),
        ),
    ),
    "kill": (4.0, lambda chance, clouds: (chance.randrange(60), chance.choice((1, 15, 90, 500)))),
    "usurp": (0.7, lambda chance, clouds: (chance.choice((1, 3, 8)),)),
    "writes fail": (1.5, lambda chance, clouds: (chance.choice((1, 2, 5, 20)),)),
    "disk full": (0.7, lambda chance, clouds: (chance.choice((5, 30, 120)),)),
    "replies lost": (1.5, lambda chance, clouds: (chance.choice((1, 3, 10)),)),
    "clock jumps": (
        0.8,
        lambda chance, clouds: (
            chance.choice((-86400, -3600, -40, 40, 3600, 86400)),
            chance.choice((5, 60, 300)),
        ),
    ),
    "reclaim": (
        2.0,
        lambda chance, clouds: (chance.choice((1, 1, 2, 9)), chance.choice((0, 0, 60, 150))),
    ),
    "machine dies": (1.0, lambda chance, clouds: (chance.choice((1, 1, 3)),)),
    "zone fails": (
        0.7,
        lambda chance, clouds: (
            chance.choice(clouds),
            chance.randrange(2),
            chance.choice((60, 300)),
        ),
    ),
    "no capacity": (
        1.5,
        lambda chance, clouds: (
            chance.choice(clouds),
            chance.choice((0, 1, None)),
            chance.choice((30, 120, 400)),
        ),
    ),
    "price": (
        1.0,
        lambda chance, clouds: (
            chance.choice(clouds),
            chance.randrange(4),
            chance.choice(PRICES),
        ),
    ),
    "poison": (0.4, lambda chance, clouds: ()),
    "hidden": (0.7, lambda chance, clouds: (chance.choice((90, 250, 800)),)),
    "vice": (3.0, lambda chance, clouds: (chance.choice(_VICES).name, chance.randrange(6))),
    "script fails": (2.0, lambda chance, clouds: (chance.randrange(6),)),
    "stop": (0.8, lambda chance, clouds: (chance.randrange(3),)),
    "change": (0.8, lambda chance, clouds: (chance.randrange(3), chance.choice((1, 2, 4)))),
    "freeze": (0.4, lambda chance, clouds: (chance.choice((3, 10)),)),
    "drain": (0.2, lambda chance, clouds: ()),
}

# Faults of a study's drivers, its worker's requests, and its user.
_KINDS_OF_STUDIES: Final[dict[str, Kind]] = {
    "driver dies": (
        4.0,
        lambda chance, clouds: (chance.randrange(40), chance.choice((1, 10, 45, 120))),
    ),
    "driver sleeps": (3.0, lambda chance, clouds: (chance.choice((20, 60, 120)),)),
    "driver freezes": (2.0, lambda chance, clouds: (chance.choice((60, 120, 300)),)),
    "driver is interrupted": (1.0, lambda chance, clouds: (chance.choice((1, 20, 60)),)),
    "study stops": (1.0, lambda chance, clouds: (chance.random() < 0.5,)),
    "study budget": (1.0, lambda chance, clouds: (chance.choice(("0.01", "0.05", "0.5")),)),
    "replies lost": (2.0, lambda chance, clouds: (chance.choice((1, 3, 10)),)),
    "requests doubled": (2.0, lambda chance, clouds: (chance.choice((1, 3, 10)),)),
    "reclaim": (1.0, lambda chance, clouds: (chance.choice((1, 2)), chance.choice((0, 60)))),
    "machine dies": (1.0, lambda chance, clouds: (1,)),
    "script fails": (4.0, lambda chance, clouds: (chance.randrange(6),)),
    "hidden": (1.0, lambda chance, clouds: (chance.choice((250, 800)),)),
}
