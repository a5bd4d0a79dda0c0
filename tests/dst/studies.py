"""A study: the real driver in lives that faults end, over a storage that outlives them."""

from __future__ import annotations

import itertools
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import httpcore
import optuna
from optuna.trial import TrialState

from autoscaler.domain.errors import CastorError
from autoscaler.domain.job import InstanceBounds, JobPhase, JobSpec
from autoscaler.domain.objective import Objective
from autoscaler.domain.trial import WORKER_COMMAND
from autoscaler.wire.client import Client, StudyClient
from autoscaler.wire.node_client import NodeClient
from autoscaler.wire.study_messages import StudyBudget
from hpo.driver.driver import Driver
from hpo.driver.lease import LEASE_SECONDS
from hpo.driver.run_limits import ANY_ERROR, RunLimits
from hpo.driver.study_end import BudgetUsedUp
from hpo.protocol import attributes
from hpo.samplers_and_pruners.synchronous_halving import SynchronousHalvingPruner
from hpo.storage.trial_counts import count_trials
from hpo.worker.epochs import epochs
from tests.dst.line import Life
from tests.dst.network import TOKEN, URL, Network, path_of
from tests.dst.scenario import StudyPlan
from tests.dst.scheduler import Scheduler, Task
from tests.dst.scripts import Script, TaskClock
from tests.dst.trial_agents import TrialAgent

if TYPE_CHECKING:
    from tests.dst.world import World

NAME: Final = "study"
_FAILING: Final = 0.85  # objectives above this value of x raise an error
_WRITE_PAUSES: Final = 0.05
_LATER_SECONDS: Final = (1, 20, 60)
_AFTER_LEASE_SECONDS: Final = int(LEASE_SECONDS) + 5
_FIRST_MACHINE: Final = 1_000  # owners of tasks below 0: first drivers, then machines
_WRITES: Final = frozenset(
    {
        *("create_new_trial", "set_trial_param", "set_trial_state_values"),
        *("set_trial_intermediate_value", "set_trial_user_attr", "set_trial_system_attr"),
        "set_study_user_attr",
    }
)


@dataclass
class Course:
    """Acts of scripts and drivers so far, by number of the trial.

    `reported` has the values of each step, `returned` the results, `pruned` the trials whose
    script ended at the pruner's word, `failures` the workers that failed by themselves, and `ends`
    each end in the storage.
    """

    reported: defaultdict[tuple[int, int], set[float]] = field(
        default_factory=lambda: defaultdict(set)
    )
    returned: defaultdict[int, set[float]] = field(default_factory=lambda: defaultdict(set))
    pruned: set[int] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    ends: defaultdict[int, list[TrialState]] = field(default_factory=lambda: defaultdict(list))


class DriverStorage:
    """Storage of the study as one driver sees it, who may die before and after each write."""

    def __init__(self, inner: Any, life: Life, scheduler: Scheduler, course: Course) -> None:
        self._inner = inner
        self._life = life
        self._scheduler = scheduler
        self._course = course

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in _WRITES:
            return method

        def write(*arguments: Any, **options: Any) -> Any:
            self._life.mark()
            self._scheduler.pause(_WRITE_PAUSES)
            self._life.mark()
            result = method(*arguments, **options)
            if name == "set_trial_state_values" and result:
                self._record(*arguments)
            self._life.mark()
            return result

        return write

    def _record(self, trial_id: int, state: TrialState, values: Any = None) -> None:
        if state.is_finished():
            self._course.ends[self._inner.get_trial(trial_id).number].append(state)


@dataclass(eq=False)
class DriverRun:
    """One process of a driver; `end` is how it ended, None while it runs.

    It freezes for `freeze_seconds` before it submits its next job.
    """

    life: Life
    task: Task
    end: str | None = None
    freeze_seconds: int = 0


class DriverNetwork(Network):
    """Connections of a driver, which may freeze between its checks and a submission."""

    def __init__(self, world: World, run: DriverRun, on_freeze: Callable[[], None]) -> None:
        super().__init__(world, "driver", run.life)
        self._scheduler = world.scheduler
        self._run = run
        self._on_freeze = on_freeze

    def handle_request(self, request: httpcore.Request) -> httpcore.Response:
        """Return the reply to a request of the driver; errors as `Network`."""
        is_submission = request.method == b"POST" and path_of(request).startswith("/v1/jobs?")
        if is_submission and self._run.freeze_seconds:
            seconds, self._run.freeze_seconds = self._run.freeze_seconds, 0
            self._on_freeze()
            self._scheduler.sleep(seconds)
        return super().handle_request(request)


class SimulatedStudy:
    """Study of one world, and the user who starts its driver again."""

    def __init__(self, world: World, plan: StudyPlan) -> None:
        self._world = world
        self.plan = plan
        self.chance = Random(f"study of {world.scenario.seed}")
        self.course = Course()
        self.runs: list[DriverRun] = []
        self.starts_at_seconds: int | None = world.scheduler.now_seconds
        self.is_healing = self._is_budget_lifted = False
        self.budget_usd = None if plan.budget_usd is None else Decimal(plan.budget_usd)
        self._storage = optuna.storages.InMemoryStorage()
        self._machines = itertools.count(_FIRST_MACHINE)
        optuna.create_study(study_name=NAME, storage=self._storage)

    # The user.

    @property
    def trials(self) -> list[optuna.trial.FrozenTrial]:
        """Records of the trials in the storage."""
        return self._storage.get_all_trials(0, deepcopy=False)

    @property
    def driver(self) -> DriverRun | None:
        """Newest driver that runs."""
        alive = [run for run in self.runs if run.end is None]
        return alive[-1] if alive else None

    @property
    def is_over(self) -> bool:
        """Whether all trials have ended, and no driver runs."""
        has_run = any(run.end == "done" for run in self.runs)
        return has_run and self.driver is None and self.starts_at_seconds is None

    def step(self) -> None:
        """Start a driver if one is due; after the death of one, one is due."""
        if self.is_healing and not self._is_budget_lifted:
            self._lift_budget()
        for run in self.runs:
            if run.end is None and run.task.has_ended:
                self.end_driver(run)
        due_seconds = self.starts_at_seconds
        if due_seconds is not None and due_seconds <= self._world.scheduler.now_seconds:
            self.start_driver()

    def heal(self) -> None:
        """Lift the budget for good, so that the study can end."""
        self.budget_usd, self.is_healing = None, True

    def _lift_budget(self) -> None:
        budget = StudyBudget(Decimal(1000))
        path = f"/v1/studies/{NAME}/budget"
        status, _ = self._world.ask("POST", path, StudyBudget, budget)
        self._is_budget_lifted = status in (204, 404)

    def start_driver(self) -> None:
        """Start a driver, beside another one if there is one."""
        self.starts_at_seconds = None
        life = Life(-1 - len(self.runs))
        world = self._world
        task = world.scheduler.spawn("driver", life.number, lambda: self._drive(run))
        run = DriverRun(life, task)
        self.runs.append(run)
        world.note(f"driver {life.number}")

    def end_driver(self, run: DriverRun) -> None:
        """End the tasks of a driver that has died, and start another one later if none is due."""
        run.life.is_dead, run.end = True, run.end or "died"
        self._world.scheduler.kill(run.life.number)
        if self.starts_at_seconds is None:
            self.starts_at_seconds = self._world.scheduler.now_seconds + 1

    def _drive(self, run: DriverRun) -> None:
        """Run the driver in its task, as `castor study run` does."""
        clock = TaskClock(self._world.scheduler)
        network = DriverNetwork(self._world, run, self._succeed_later)
        study = self._study(run)
        to_begin = count_trials(study).to_begin(self.plan.trials)
        driver = Driver(
            study,
            self._template(),
            Client(URL, TOKEN, network),
            StudyClient(URL, TOKEN, NAME, network),
            f"driver{-run.life.number}",
            clock,
            Objective(budget_usd=self.budget_usd),
        )
        try:
            fatal = driver.run(self._limits(to_begin))
            run.end = "done" if fatal is None and self._has_ended(study) else "stopped"
        except KeyboardInterrupt:
            run.end = "interrupted"
        except CastorError as error:
            run.end = f"{type(error).__name__}: {error}"
            self._raise_budget(error)
        if run.end != "done" and self.driver is None and self.starts_at_seconds is None:
            later_seconds = 5 if self.is_healing else self.chance.choice(_LATER_SECONDS)
            self.starts_at_seconds = self._world.scheduler.now_seconds + later_seconds
        self._world.note(f"end of driver {run.life.number}: {run.end}")

    def _succeed_later(self) -> None:
        """Start another driver once the lease of one that freezes now is over."""
        self.starts_at_seconds = self._world.scheduler.now_seconds + _AFTER_LEASE_SECONDS

    def _raise_budget(self, error: CastorError) -> None:
        """Give the study more, as its user does at times."""
        if isinstance(error, BudgetUsedUp) and self.budget_usd and self.chance.random() < 0.5:
            self.budget_usd *= 3

    def _study(self, run: DriverRun) -> optuna.Study:
        storage = DriverStorage(self._storage, run.life, self._world.scheduler, self.course)
        seed = self.chance.randrange(1 << 30)
        return optuna.Study(
            NAME,
            storage,  # type: ignore[arg-type]
            sampler=optuna.samplers.RandomSampler(seed),
            pruner=_pruner(self.plan),
        )

    def _limits(self, to_begin: int) -> RunLimits:
        plan = self.plan
        return RunLimits(
            trials=to_begin,
            at_once=plan.at_once,
            catch=frozenset({ANY_ERROR}) if plan.catches else frozenset(),
            retries=plan.retries,
        )

    def _template(self) -> JobSpec:
        return JobSpec(
            NAME,
            WORKER_COMMAND,
            instances=InstanceBounds(1, 1, spot=self.plan.spot),
            retries=self.plan.job_retries,
            program=NAME,
            study=NAME,
        )

    def _has_ended(self, study: optuna.Study) -> bool:
        counts = count_trials(study)
        return counts.to_begin(self.plan.trials) == 0 and counts.open == 0

    # The instances.

    def agent_of(self, machine: Any, **options: Any) -> TrialAgent:
        """Return the agent of a new machine."""
        owner, scheduler = -next(self._machines), self._world.scheduler
        life = Life(owner)

        def end_tasks() -> None:
            life.is_dead = True
            scheduler.kill(owner)

        return TrialAgent(
            machine,
            self._world.trainings,
            new_script=lambda agent: self._script_of(agent, life),
            end_tasks=end_tasks,
            **options,
        )

    def _script_of(self, agent: TrialAgent, life: Life) -> Script:
        network = Network(self._world, agent.machine.instance, life)
        client = NodeClient(URL, agent.token, network)
        scheduler = self._world.scheduler
        script = Script(scheduler, life.number, self._world.directory, client, self._objective)
        job = agent.job
        script.on_failure = lambda cause: self._note_failure(job, cause)
        return script

    def _note_failure(self, job: str, cause: str) -> None:
        """Note that a worker failed by itself although its job goes on and runs a trial."""
        record = self._world.store.jobs.get(job)
        running = {
            trial.user_attrs.get(attributes.JOB)
            for trial in self.trials
            if trial.state is TrialState.RUNNING
        }
        is_at_work = record.phase in (JobPhase.PENDING, JobPhase.RUNNING)
        if is_at_work and running & {job, record.spec.name}:
            self.course.failures.append(f"{job}: {cause}")

    def _objective(self, trial: Any) -> float:
        """Train a trial; values differ from start to start, so that they name the script."""
        plan, course = self.plan, self.course
        x = trial.suggest_float("x", 0.0, 1.0)
        trial.suggest_categorical("kind", ("a", "b"))
        state: dict[str, float] = {"value": x}
        for epoch in epochs(trial, plan.epochs, {"state": state} if plan.saves else None):
            if plan.epoch_seconds:
                self._world.scheduler.sleep(plan.epoch_seconds)
            if x > _FAILING and epoch > 0:
                raise ValueError("the loss is infinite")
            state["value"] = round(x / (epoch + 1) + self.chance.random() / 10, 9)
            course.reported[trial.number, epoch + 1].add(state["value"])
            trial.report(state["value"], epoch + 1)
            if trial.should_prune():
                course.pruned.add(trial.number)
                raise optuna.TrialPruned
        course.returned[trial.number].add(state["value"])
        return state["value"]


def _pruner(plan: StudyPlan) -> optuna.pruners.BasePruner:
    match plan.pruner:
        case "median":
            return optuna.pruners.MedianPruner(n_startup_trials=1)
        case "halving":
            return optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=2)
        case "synchronous" if plan.epochs > 1:
            return SynchronousHalvingPruner(max(plan.trials, 2), 1, plan.epochs, 2)
    return optuna.pruners.NopPruner()


@contextmanager
def replaced_randomness() -> Iterator[None]:
    """Let the names of new trials repeat themselves, and silence tracebacks of objectives."""
    numbers = itertools.count()
    names = SimpleNamespace(token_hex=lambda size: f"{next(numbers):0{2 * size}x}")
    silent = SimpleNamespace(print_exc=lambda: None)
    with (
        warnings.catch_warnings(),
        mock.patch("hpo.storage.retrying.secrets", names),
        mock.patch("hpo.worker.objective_run.traceback", silent),
    ):
        warnings.simplefilter("ignore")
        yield
