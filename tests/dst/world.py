"""One run: the whole controller, two clouds, trainers and users, step by step.

All that is random comes from the seed. The controller is `autoscaler.main.Deployment`, with its
composition as in `castor serve`; only threads, sockets and SDK clients are replaced.
"""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any, Final
from unittest import mock

from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.job import JobSpec, ParallelismSpec
from autoscaler.main import Deployment, ServeSettings
from autoscaler.main import deployment as composition
from autoscaler.policies.registry import create_policy
from autoscaler.store.memory.store import memory_store
from autoscaler.store.opening import open_store
from autoscaler.store.store import Store
from autoscaler.wire.codec import encode
from autoscaler.wire.messages import Submission
from tests.controller.world import RecordedLighthouses
from tests.dst import aws, gcp, studies
from tests.dst.api import application
from tests.dst.cloud import CloudTruth, Machine
from tests.dst.durable import durable_store, empty_database, fast_directory
from tests.dst.faults import Faults
from tests.dst.invariants import Invariants, Violation
from tests.dst.limits import Limits, bounds_of, objective_of
from tests.dst.line import Life, Line, Weather
from tests.dst.network import TOKEN
from tests.dst.scenario import STEPS, JobPlan, Scenario
from tests.dst.scheduler import (
    ControllerClock,
    CooperativeLock,
    CooperativeNotifier,
    Scheduler,
    Task,
    TaskPool,
)
from tests.dst.studies import SimulatedStudy
from tests.dst.trainers import LEASE_SECONDS, Agent, Training
from tests.dst.whims import Whims

_KEY: Final = b"k" * 32
_CONTROLLER: Final = "c0000000-0000-4000-8000-000000000000"
_LOOKS: Final = 0.05  # probability that a user looks at a page after a step
_PAGES: Final = ("/v1/jobs", "/v1/fleet", "/v1/offers", "/v1/costs", "/v1/people")
_MOST_PICKS: Final = 40
_MOST_MORE_PICKS: Final = 300
_SPEED: Final = 100.0  # examples a second on one instance
_HEALING_ROUNDS: Final = 500
_LIFTING_ROUND: Final = 40  # of the healing, at which an admin lifts budgets and ceilings
_LAST_STEPS: Final = 3


@dataclass
class Process:
    """One controller process."""

    life: Life
    deployment: Deployment
    pools: list[TaskPool]
    tick: Task | None = None


class World:
    """Run of one scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.chance = Random(f"steps {scenario.seed}")
        self.scheduler = Scheduler(self.chance, scenario.pauses)
        self.clock = ControllerClock(self.scheduler)
        self.weather = Weather()
        self.truth = CloudTruth(
            self.scheduler, lag_seconds=scenario.lag_seconds, boot_seconds=scenario.boot_seconds
        )
        self.lighthouses = RecordedLighthouses()
        self.trainings: dict[str, Training] = {}
        self.plans: dict[str, JobPlan] = {}
        self.agents: dict[str, Agent] = {}
        self.processes: list[Process] = []
        self.lives = 0
        self.starts_at_seconds: int | None = None
        self.later: list[tuple[int, Callable[[], None]]] = []
        self.unsent: list[JobPlan] = []
        self.is_frozen = False
        self.whims = Whims(Random(f"whims {scenario.seed}"))
        self.directory = Path(tempfile.mkdtemp(prefix="castor-dst-", dir=fast_directory()))
        self.store: Store = self._open_store()
        self.store.settings.once("controller_id", lambda: _CONTROLLER)
        self.trace = hashlib.sha256()
        self.study = None if scenario.study is None else SimulatedStudy(self, scenario.study)
        self.limits = Limits(self, scenario.budgets)
        self.invariants = Invariants(self)
        self.faults = Faults(self)
        self.truth.on_create = self.invariants.on_create

    def run(self) -> None:
        """Run the scenario to its end.

        Raises:
            Violation: an invariant does not hold.
        """
        try:
            self.start_controller()
            for step in range(STEPS):
                for plan in self.scenario.jobs:
                    if plan.step == step:
                        self.unsent.append(plan)
                for fault in self.scenario.faults:
                    if fault.step == step:
                        self.faults.apply(fault)
                self.step(self.chance.choice((0, 1, 1, 2, 5, 10, 15)))
            self._heal()
        finally:
            self.close()

    def close(self) -> None:
        """Delete the files of the run."""
        for process in self.processes:
            process.life.is_dead = True
        for run in [] if self.study is None else self.study.runs:
            run.life.is_dead = True
        for owner in {task.owner for task in self.scheduler.tasks}:
            self.scheduler.kill(owner)
        self.store.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    @property
    def leader(self) -> Process | None:
        """Newest controller that lives."""
        return self.processes[-1] if self.processes else None

    def step(self, seconds: int) -> None:
        """Let time pass, then let everything that can happen do so, in random order."""
        self.scheduler.now_seconds += seconds
        now_seconds = self.scheduler.now_seconds
        self._end_tasks_of_the_dead()
        for due in [entry for entry in self.later if entry[0] <= now_seconds]:
            self.later.remove(due)
            due[1]()
        self.truth.pass_time()
        self._advance_trainings()
        if self.starts_at_seconds is not None and self.starts_at_seconds <= now_seconds:
            self.start_controller()
        self._submit_unsent()
        if self.study is not None:
            self.study.step()
        actions: list[Callable[[], None]] = []
        for process in self.processes:
            actions.append(lambda process=process: self._tick(process))  # type: ignore[misc]
        due_agents = [agent for agent in self.agents.values() if agent.is_due(now_seconds)]
        actions += [lambda agent=agent: self._beat(agent) for agent in due_agents]  # type: ignore[misc]
        self.chance.shuffle(actions)
        for action in actions:
            action()
            self._run_tasks(self.chance.choice((0, 1, 4)))
        self._run_tasks(_MOST_PICKS)
        if self.study is not None and (self.study.is_healing or self.chance.random() < 0.8):
            self._run_tasks(_MOST_MORE_PICKS)
        if self.chance.random() < _LOOKS:
            path = self.chance.choice(_PAGES)
            self.invariants.on_answer(path, self.ask("GET", path)[0])
        self._end_tasks_of_the_dead()
        self.note(f"{now_seconds} {len(self.truth.machines)} {len(self.scheduler.tasks)}")
        self.invariants.check(seconds)

    def ask(
        self, method: str, path: str, kind: Any = None, value: Any = None, token: str = TOKEN
    ) -> tuple[int, Any]:
        """Send a user's request outside the scheduling; return the status and the parsed reply."""
        process = self.leader
        if process is None:
            return 503, None
        body = b"" if value is None else encode(kind, value)
        app = application(process.life.number % 3)
        app.dependencies = process.deployment.app  # type: ignore[assignment]
        replies: list[tuple[int, bytes]] = []
        task = self.scheduler.spawn(
            "user",
            process.life.number,
            lambda: replies.append(app.request(method, path, token, body)),
        )
        while not task.has_ended:
            if task in self.scheduler.runnable():
                self.scheduler.run(task)
            else:
                self._run_tasks(5)
                self.scheduler.now_seconds += 0 if self.scheduler.runnable() else 1
        self._record_error("request", task)
        if not replies:
            return 503, None
        status, content = replies[0]
        return status, (json.loads(content) if content else None)

    # Controllers.

    def _open_store(self) -> Store:
        if self.scenario.store == "memory":
            return memory_store()
        template = empty_database()
        shutil.copy(template, self.directory / "castor.db")
        return open_store(f"sqlite:///{self.directory / 'castor.db'}")

    def start_controller(self) -> None:
        """Start a controller process, beside others if there are any."""
        self.starts_at_seconds = None
        self.lives += 1
        life = Life(self.lives)
        store = durable_store(self.store, life, self.weather, self.scheduler)
        pools: list[TaskPool] = []

        def pool(size: int, name: str) -> TaskPool:
            pools.append(TaskPool(self.scheduler, life.number, name, size))
            return pools[-1]

        replaced: dict[str, Any] = {
            "open_store": lambda url: store,
            "open_providers": lambda local, sources, context: self._providers(life, store),
            "open_storage": lambda sources, context: None,
            "ThreadPoolExecutor": lambda size, thread_name_prefix: pool(size, thread_name_prefix),
            "LighthouseHost": lambda *_: self.lighthouses,
            "create_app": lambda dependencies, release: dependencies,
            "load_key": lambda path: _KEY,
            "version": lambda name: "dst",
            "planning_policy": lambda name: self._policy(),
        }
        with ExitStack() as stack:
            stack.enter_context(mock.patch.multiple(composition, **replaced))
            stack.enter_context(
                mock.patch("threading.Lock", lambda: CooperativeLock(self.scheduler))
            )
            failing, self.weather.failing_writes = self.weather.failing_writes, 0
            full, self.weather.disk_full_until_seconds = self.weather.disk_full_until_seconds, 0
            deployment = Deployment(self._settings(), "http://controller:8470", self.clock)
            deployment.authentication.people.set_owner(TOKEN)
            self.weather.failing_writes, self.weather.disk_full_until_seconds = failing, full
        deployment.app.studies._notifier = CooperativeNotifier(self.scheduler)  # type: ignore[attr-defined]
        self.processes.append(Process(life, deployment, pools))
        self.note(f"controller {life.number}")

    def _settings(self) -> ServeSettings:
        scenario = self.scenario
        usd = scenario.fleet_usd
        return ServeSettings(
            state=self.directory,
            heartbeat_seconds=5.0,
            lease_seconds=float(LEASE_SECONDS),
            local=None,
            controller=ControllerSettings(
                fleet_usd_per_hour=scenario.fleet_usd_per_hour,
                fleet_usd=None if usd is None else Decimal(usd),
            ),
        )

    def _policy(self) -> Any:
        return self.whims if self.scenario.policy == "whims" else create_policy("marginal")

    def _providers(self, life: Life, store: Store) -> dict[str, Any]:
        controller, providers = store.settings.controller_id(), {}
        scenario = self.scenario
        caps = scenario.max_instances, scenario.max_usd_per_hour
        if "aws" in scenario.clouds:
            line = Line(self.scheduler, life, self.weather, aws.AwsErrors())
            providers["aws"] = aws.open_aws(
                self.truth, line, aws.settings_of(*caps), controller, self.clock
            )
        if "gcp" in scenario.clouds:
            from tests.dst import gcp

            line = Line(self.scheduler, life, self.weather, gcp.GcpErrors())
            providers["gcp"] = gcp.open_gcp(
                self.truth, line, gcp.settings_of(*caps), controller, self.clock, self.directory
            )
        return providers

    def _tick(self, process: Process) -> None:
        for pool in process.pools:
            pool.start()
        if process.life.is_dead or (process.tick is not None and not process.tick.has_ended):
            return
        self._record_error("tick", process.tick)
        process.tick = self.scheduler.spawn("tick", process.life.number, process.deployment.tick)

    def _run_tasks(self, most: int) -> None:
        """Run up to `most` stretches of tasks, in random order."""
        for _ in range(most):
            for process in self.processes:
                for pool in process.pools:
                    pool.start()
            tasks = self.scheduler.runnable()
            if not tasks:
                return
            task = self.chance.choice(tasks)
            self.scheduler.run(task)
            if task.has_ended:
                self._record_error(task.name, task)

    def _record_error(self, name: str, task: Task | None) -> None:
        """Remember an error that must not leave a task."""
        if task is None or task.error is None:
            return
        error, task.error = task.error, None
        self.invariants.on_error(name, error)

    def _end_tasks_of_the_dead(self) -> None:
        for process in [process for process in self.processes if process.life.is_dead]:
            self.note(f"death of {process.life.number}")
            self.scheduler.kill(process.life.number)
            self.processes.remove(process)
            if not self.processes and self.starts_at_seconds is None:
                self.starts_at_seconds = self.scheduler.now_seconds + 1

    # Agents and users.

    def _advance_trainings(self) -> None:
        now_seconds = self.scheduler.now_seconds
        for machine in self.truth.machines.values():
            if machine.id not in self.agents and machine.is_running(now_seconds):
                self.agents[machine.id] = self._agent_of(machine)
        for training in self.trainings.values():
            training.advance(now_seconds)
        for agent in self.agents.values():
            if not agent.is_off:
                agent.advance(now_seconds)
            if agent.is_lease_over(now_seconds) and agent.machine.is_billed:
                self._power_off(agent.machine)

    def _agent_of(self, machine: Machine) -> Agent:
        """Return the agent of a new machine, which runs trials or trains a job."""
        on_second_join = self.invariants.on_second_join
        if self.study is not None and machine.job.startswith(studies.NAME):
            return self.study.agent_of(machine, on_second_join=on_second_join)
        return Agent(machine, self.trainings, on_second_join=on_second_join)

    def _power_off(self, machine: Machine) -> None:
        self.lose(machine, "guestTerminate")
        if machine.cloud == "aws":
            aws.announce_end(self.truth, machine)

    def lose(self, machine: Machine, kind: str = "hostError") -> None:
        """End a machine without a call; `kind` is the operation on Compute Engine."""
        machine.has_known_end = machine.cloud == "gcp"
        if machine.cloud == "gcp":
            gcp.stop(self.truth, machine, kind)
        else:
            self.truth.end(machine)

    def _beat(self, agent: Agent) -> None:
        """Start one exchange of an agent with the controller."""
        process = self.leader
        agent.is_busy = True
        text = self.truth.objects.get(agent.machine.user_data_key)
        user_data = {} if text is None else json.loads(text)
        if process is None or not user_data:
            agent.is_busy = False
            return
        method, path, token, body = agent.request(user_data)
        app = application(process.life.number % 3)
        is_lost_before = self.loses()

        def exchange() -> None:
            try:
                if is_lost_before:
                    return
                app.dependencies = process.deployment.app  # type: ignore[assignment]
                status, reply = app.request(method, path, token, body)
                process.life.mark()
                if not self.loses():
                    now_seconds = self.scheduler.now_seconds
                    if agent.take(path, status, reply, now_seconds):
                        self._power_off(agent.machine)
                    self.note(f"{agent.machine.id} {path} {status} {agent.phase}")
            finally:
                agent.is_busy = False
                agent.beat_seconds = self.scheduler.now_seconds

        self.scheduler.spawn("agent", process.life.number, exchange)

    def loses(self) -> bool:
        """Return whether a message of the API is lost now."""
        if self.weather.lost_replies <= 0 or self.chance.random() < 0.5:
            return False
        self.weather.lost_replies -= 1
        return True

    def times_sent(self) -> int:
        """Return how many times a request of a study's driver or worker arrives now."""
        if self.weather.doubled_requests <= 0 or self.chance.random() < 0.5:
            return 1
        self.weather.doubled_requests -= 1
        return 2

    def _submit_unsent(self) -> None:
        """Submit the jobs whose submission has not been confirmed, once all budgets are set."""
        self.limits.set_budgets()
        if self.limits.unset:
            return
        for plan in list(self.unsent):
            spec = JobSpec(
                plan.name,
                ("python", "train.py"),
                instances=bounds_of(plan),
                objective=objective_of(plan, self.clock.now()),
                parallelism=ParallelismSpec(shard=plan.gang),
            )
            token = self.limits.token_of(plan)
            status, reply = self.ask("POST", "/v1/jobs", Submission, Submission(spec), token)
            self.note(f"submit {status}")
            if status == 409:  # the reply of an earlier submission was lost
                reply, status = {"id": plan.name}, 200
            if status == 200:
                self.unsent.remove(plan)
                self.plans[reply["id"]] = plan
                self.trainings[reply["id"]] = Training(
                    plan.work_seconds * _SPEED,
                    _SPEED,
                    plan.save_seconds,
                    plan.gang,
                    advanced_seconds=self.scheduler.now_seconds,
                )
            elif status == 422:
                self.unsent.remove(plan)

    # The end.

    def _heal(self) -> None:
        """End all faults, and require that all jobs end and nothing is left."""
        self.weather.clear()
        self.truth.closed.clear()
        self.truth.spot_text.clear()
        self.whims.settle()
        if self.study is not None:
            self.study.heal()
        self.invariants.is_healing = True
        for round_number in range(_HEALING_ROUNDS):
            if round_number >= _LIFTING_ROUND:
                self.limits.lift()
            for job in self._unfinishable():
                self.ask("POST", f"/v1/jobs/{job}/stop")
            is_quick = self.study is not None and not self.study.is_over
            self.step(5 if round_number < 60 else 20 if round_number < 200 or is_quick else 60)
            if self.invariants.is_all_over():
                break
        for _ in range(_LAST_STEPS):  # ends that no list has shown yet are booked
            self.step(30)
        self.invariants.check_end()

    def _unfinishable(self) -> list[str]:
        """Return the jobs whose remaining work would take long."""
        alive = {job.id for job in self.store.jobs.alive()}
        return [
            job
            for job, training in self.trainings.items()
            if job in alive
            and training.total - training.saved > 400 * _SPEED
            and self.store.jobs.get(job).phase != "stopping"
        ]

    def note(self, text: str) -> None:
        """Add an event to the trace."""
        self.trace.update(text.encode() + b"\n")
        if _SHOWS_TRACE:
            print(text)


_SHOWS_TRACE: list[bool] = []


def set_verbose(shows_trace: bool) -> None:
    """Set whether runs of this process print each event."""
    _SHOWS_TRACE[:] = [True] if shows_trace else []


def run(scenario: Scenario) -> tuple[str | None, str]:
    """Run a scenario; return the violated invariant with its text, None for none, and a digest."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with studies.replaced_randomness():
            world = World(scenario)
            world.run()
    except Violation as violation:
        return str(violation), world.trace.hexdigest()
    finally:
        logging.disable(disabled)
    return None, world.trace.hexdigest()
