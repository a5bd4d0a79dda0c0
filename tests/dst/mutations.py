"""Planted defects: each must break an invariant within some seeds.

python -m tests.dst.mutations                 all of them
python -m tests.dst.mutations "budgets" ...   those whose names contain a word
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import count
from typing import Any, Final
from unittest import mock

from optuna.trial import TrialState

from autoscaler.controller.act import job_lifecycle, reconciler
from autoscaler.controller.act.intents import IntentExecutor
from autoscaler.controller.act.job_lifecycle import JobLifecycle
from autoscaler.controller.act.reconciler import Reconciler
from autoscaler.controller.budgets import guard
from autoscaler.controller.budgets.accounts import BudgetStanding
from autoscaler.controller.budgets.guard import BudgetGuard, Budgets, LaunchGate
from autoscaler.controller.budgets.spending import _Sums
from autoscaler.controller.controller import Controller
from autoscaler.controller.jobs.gangs import Gang
from autoscaler.controller.observe.instance_sync import Observer
from autoscaler.controller.plan.isolation import IsolatedPlanning
from autoscaler.domain.budget import BudgetScope, ScopeKind
from autoscaler.domain.job import InstanceBounds
from autoscaler.ledger import bill
from autoscaler.ledger.ledger import Ledger
from autoscaler.store.memory.instances import MemoryInstances
from autoscaler.store.memory.tables import Tables
from autoscaler.store.memory.tokens import MemoryTokens
from hpo.driver import driver, retries
from hpo.driver.lease import DriverLease
from hpo.driver.trial_jobs import TrialJobs
from hpo.protocol import attributes
from providers.aws.launching import Launching as AwsLaunching
from providers.gcp.launching import Launching as GcpLaunching
from tests.dst.scenario import FIRST_WITH_GANGS, FIRST_WITH_LIMITS, FIRST_WITH_STUDIES, scenario_of

MOST_SEEDS: Final = 300

Mutation = Callable[[], AbstractContextManager[Any]]


def _nothing(*_: Any, **__: Any) -> None:
    return None


def _no_op(owner: Any, name: str, result: Any = None) -> Mutation:
    """Return the mutation by which a method does nothing and returns `result`."""
    return lambda: mock.patch.object(owner, name, lambda *_, **__: result)


def _forgotten_order() -> AbstractContextManager[Any]:
    """Make calls without recording before that they are sent."""
    return mock.patch.object(MemoryInstances, "begin_launch", lambda *_: True)


def _new_token_each_time() -> AbstractContextManager[Any]:
    """Send each try of a launch with another client token and name."""
    numbers = count()
    token = mock.patch.object(AwsLaunching, "_client_token", lambda *_: f"token {next(numbers)}")
    return token


def _new_name_each_time() -> AbstractContextManager[Any]:
    """Give each try of a launch on Compute Engine another name."""
    numbers = count()
    return mock.patch.object(GcpLaunching, "name_of", lambda *_: f"castor-dst-{next(numbers)}")


def _failed_end_is_done() -> AbstractContextManager[Any]:
    """Take a failed termination for a done one, and end the instance in the store."""

    def end(self: Any, intent: Any, held: Any) -> None:
        try:
            if held.cloud_id is not None:
                self._market.terminate(held.offer, held.cloud_id)
        except Exception:
            pass
        self._store.intents.done(intent.id)

    again = mock.patch.object(Observer, "_terminate_again", _nothing)
    return _both(mock.patch.object(IntentExecutor, "_terminate", end), again)


def _both(*patches: Any) -> AbstractContextManager[Any]:
    from contextlib import ExitStack

    stack = ExitStack()
    for patch in patches:
        stack.enter_context(patch)
    return stack


def _reused_join_token() -> AbstractContextManager[Any]:
    """Accept a join token again."""
    return mock.patch.object(MemoryTokens, "burn", lambda *_, **__: True)


def _repeated_retries() -> AbstractContextManager[Any]:
    """Enqueue the retry of each failed trial whenever a trial may begin."""

    def enqueue(study: Any) -> None:
        for trial in study.get_trials(deepcopy=False):
            if trial.state is TrialState.FAIL and attributes.RETRIED in trial.user_attrs:
                study.enqueue_trial(trial.params, user_attrs=retries._retry_attributes(trial))

    return mock.patch.object(driver, "enqueue_retries", enqueue)


def _silent_waits() -> AbstractContextManager[Any]:
    """Decide only once that a job holds nothing: later plans have no decision for it."""
    plan, known = IsolatedPlanning.plan, set[tuple[int, str]]()

    def without_waits(self: Any, snapshot: Any) -> Any:
        made, planned = plan(self, snapshot)
        kept = []
        for decision in made.decisions:
            if decision.current is not None or (id(self), decision.job) not in known:
                kept.append(decision)
            if decision.current is None:
                known.add((id(self), decision.job))
        return replace(made, decisions=tuple(kept)), planned

    return mock.patch.object(IsolatedPlanning, "plan", without_waits)


def _uncounted_teams() -> AbstractContextManager[Any]:
    """Count no job in the budget of a team."""
    covers = BudgetScope.covers

    def covers_others(self: BudgetScope, owner: Any, study: Any) -> bool:
        return self.kind is not ScopeKind.TEAM and covers(self, owner, study)

    return mock.patch.object(BudgetScope, "covers", covers_others)


MUTATIONS: Final[dict[str, Mutation]] = {
    "launches are not recorded before their call": _forgotten_order,
    "EC2: each try has a new client token": _new_token_each_time,
    "GCE: each try has a new name": _new_name_each_time,
    "failed terminations count as done": _failed_end_is_done,
    "limits are not checked in the pass": _no_op(Reconciler, "_has_room", True),
    "limits count only what is launched": lambda: mock.patch.object(
        reconciler, "_most_use", lambda limit, held, offers: 0.0
    ),
    "budgets are not enforced": _no_op(BudgetGuard, "enforce"),
    "budgets do not count the cost of leaving": lambda: mock.patch.object(
        BudgetGuard, "is_used_up", lambda self, now_seconds: False
    ),
    "instances that end are not noticed": lambda: mock.patch.object(
        Observer, "_apply_instance", _nothing
    ),
    "silent agents are kept": _no_op(Observer, "_check_agent"),
    "billing does not resume": _no_op(Observer, "_resume_billing"),
    "unlisted instances end at once": lambda: mock.patch.object(
        Observer, "_end_vanished", _end_all_unlisted
    ),
    "scripts get no time to leave": lambda: mock.patch.object(
        job_lifecycle,
        "end_seconds",
        lambda store, job, held, least: held.draining_seconds or math.inf,
    ),
    "completed jobs do not end": _no_op(JobLifecycle, "_complete"),
    "instances of ended jobs are kept": _no_op(JobLifecycle, "give_back"),
    "lighthouses are kept": _no_op(JobLifecycle, "release_lighthouse"),
    "stops are ignored": _no_op(JobLifecycle, "_stop"),
    "a freeze is ignored": lambda: _both(
        mock.patch("autoscaler.controller.controller.hands_off", lambda *_: None),
        mock.patch.object(guard, "hands_off", lambda *_: None),
    ),
    "gangs that lost a member count as whole": lambda: mock.patch.object(
        Gang, "is_whole", property(lambda self: True)
    ),
    "join tokens are good for ever": _reused_join_token,
    "budgets of studies are not enforced": lambda: _both(
        mock.patch.object(Budgets, "enforce_on_studies", _nothing),
        mock.patch.object(LaunchGate, "_is_study_used_up", lambda *_: False),
    ),
    "idle instances of ended trials cost nothing": lambda: _both(
        mock.patch.object(Ledger, "is_open", lambda self, job: False),
        mock.patch.object(
            _Sums, "take", lambda self, lines, number: setattr(self, "number", number)
        ),
    ),
    "drivers forget the trials that run": _no_op(TrialJobs, "resume_running_trials"),
    "drivers stop the jobs of their successors": lambda: mock.patch.object(
        DriverLease, "is_lost", property(lambda self: False, _nothing), create=True
    ),
    "drivers that were overtaken may submit": _no_op(Tables, "require_driver"),
    "retries are enqueued again": _repeated_retries,
    "plans forget the jobs that wait": _silent_waits,
    "budgets of teams count no job": _uncounted_teams,
    "shared budgets that are used up pause nobody": lambda: _both(
        mock.patch.object(BudgetStanding, "used_up", None),
        mock.patch.object(BudgetStanding, "left_usd", lambda self: []),
    ),
    "ceilings for an instance are ignored": lambda: mock.patch.object(
        InstanceBounds, "_affords", lambda self, offer: True
    ),
    "ceilings for all instances are ignored": lambda: mock.patch.object(
        InstanceBounds, "_most_affordable", lambda self, offer: self.maximum
    ),
    "jobs go on after their deadline": lambda: mock.patch.object(Controller, "_stop", _nothing),
    "no minimum is billed": lambda: mock.patch.object(
        bill.PricePeriod, "minimum_billed_seconds", 0
    ),
}


OF_GANGS: Final = frozenset({"gangs that lost a member count as whole"})
"""Defects that only seeds with gangs can show."""
OF_LIMITS: Final = frozenset(
    {
        "budgets of teams count no job",
        "shared budgets that are used up pause nobody",
        "ceilings for an instance are ignored",
        "ceilings for all instances are ignored",
        "jobs go on after their deadline",
    }
)
"""Defects that only seeds with shared budgets, price ceilings and deadlines can show."""
OF_STUDIES: Final = frozenset(
    {
        "budgets of studies are not enforced",
        "idle instances of ended trials cost nothing",
        "drivers forget the trials that run",
        "drivers stop the jobs of their successors",
        "drivers that were overtaken may submit",
        "retries are enqueued again",
    }
)
"""Defects that only seeds with studies can show."""


def _end_all_unlisted(self: Any, listing: Any, alive: Any, now_seconds: float) -> None:
    listed = {instance.id for instance in listing.instances}
    for held in alive.values():
        if held.cloud_id is not None and held.cloud_id not in listed:
            self._end_unlisted(held, now_seconds)


def caught_by(name: str, most_seeds: int = MOST_SEEDS) -> tuple[int, str] | None:
    """Return the first seed that breaks an invariant under a mutation, and the violation."""
    from tests.dst.world import run

    first = FIRST_WITH_GANGS if name in OF_GANGS else 0
    first = FIRST_WITH_STUDIES if name in OF_STUDIES else first
    first = FIRST_WITH_LIMITS if name in OF_LIMITS else first
    for seed in range(first, first + most_seeds):
        scenario = scenario_of(seed)
        if scenario.store != "memory":
            continue
        with MUTATIONS[name]():
            violation, _ = run(scenario)
        if violation is not None and run(scenario)[0] is None:
            return seed, violation
    return None


def main(words: Sequence[str]) -> int:
    """Run the mutations; return 1 if one is not caught."""
    names = [name for name in MUTATIONS if not words or any(word in name for word in words)]
    began_seconds = time.monotonic()
    missed = 0
    with ProcessPoolExecutor() as pool:
        futures = {pool.submit(caught_by, name): name for name in names}
        for future in as_completed(futures):
            name, caught = futures[future], future.result()
            missed += caught is None
            text = "NOT CAUGHT" if caught is None else f"seed {caught[0]}: {caught[1][:110]}"
            print(f"{name}: {text}", flush=True)
    seconds = time.monotonic() - began_seconds
    print(f"{len(names) - missed} of {len(names)} mutations caught in {seconds:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
