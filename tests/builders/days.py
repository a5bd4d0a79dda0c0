"""Days of a deployment on a virtual clock: jobs, trials, instances and files that come and end."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from sqlalchemy import MetaData, create_engine, func, select, text

from autoscaler.clock import VirtualClock
from autoscaler.domain.instance import CloudInstance, CloudState, HeldInstance, InstancePhase
from autoscaler.domain.job import JobPhase
from autoscaler.domain.plan import Plan
from autoscaler.domain.report import Failure, ReportOrigin
from autoscaler.domain.trial import GivenAnswer, TrialAnswer, TrialCall
from autoscaler.service.files.retention import FileRetention
from autoscaler.store.repositories.events import Event
from autoscaler.store.repositories.tokens import NodeToken
from autoscaler.store.store import Store
from tests.conformance.store_examples import NOW, decision, model, order, report, snapshot, spec

DAY_SECONDS: Final = 86_400.0
_CALLS = 20  # of each trial
_PLANS = 5  # in the life of a job
_FILE_BYTES = 2_000


@dataclass(frozen=True, slots=True)
class Sizes:
    """Rows by table, and bytes of the database and of all files of the state directory."""

    rows: dict[str, int]
    database_bytes: int
    state_bytes: int


class Days:
    """A deployment whose jobs each take one instance, an hour, and a file of each kind.

    Every second job is a trial of the day's study.
    """

    def __init__(self, store: Store, url: str, state: Path, keep_seconds: float) -> None:
        self.store = store
        self.clock = VirtualClock(NOW)
        self._engine = create_engine(url)
        self._url = url
        self._state = state
        self._keep_seconds = keep_seconds
        self._files = FileRetention(state, store, keep_seconds, self.clock)
        self._jobs = 0

    def pass_day(self, jobs: int) -> None:
        """Let a day pass in which that many jobs begin and end; delete what is old after each."""
        for _ in range(jobs):
            self.clock.advance(DAY_SECONDS / jobs)
            self._run_job()
            while self.store.retention.prune(self.clock.now() - self._keep_seconds):
                pass
        self._files.run()

    def sizes(self) -> Sizes:
        """Return what the deployment takes now."""
        known = MetaData()
        with self._engine.begin() as connection:
            known.reflect(connection)
            rows = {
                table.name: connection.scalar(select(func.count()).select_from(table)) or 0
                for table in known.sorted_tables
            }
        database_bytes = 0
        if self._engine.dialect.name == "sqlite":
            with self._engine.connect() as connection:
                connection.execute(text("PRAGMA wal_checkpoint(TRUNCATE)"))
            database_bytes = Path(str(self._engine.url.database)).stat().st_size
        paths = [path for path in self._state.rglob("*") if path.is_file()]
        return Sizes(rows, database_bytes, sum(path.stat().st_size for path in paths))

    def close(self) -> None:
        """Close the connections for `sizes`."""
        self._engine.dispose()

    def _run_job(self) -> None:
        self._jobs += 1
        is_trial = self._jobs % 2 == 0
        now_seconds = self.clock.now()
        study = f"study-{(now_seconds - NOW) // DAY_SECONDS:.0f}" if is_trial else None
        name = f"job-{self._jobs}"
        bundle = hashlib.sha256(name.encode()).hexdigest()
        job = self.store.jobs.add(replace(spec(name), study=study, bundle=bundle), now_seconds).id
        held = self._train(job, now_seconds)
        if study is not None:
            self._call(study, job, held.id, now_seconds)
        self._plan(job, now_seconds)
        self._end(job, held, now_seconds + 3600)
        log, archive = f"logs/{job}/{held.id}.log", f"bundles/{bundle}.tar.gz"
        self._write(log, archive, f"files/{study}/{job}")

    def _train(self, job: str, now_seconds: float) -> HeldInstance:
        """Launch an instance for a job; its agent joins, trains and reports."""
        store, held = self.store, order(self.store, job, now_seconds)
        store.tokens.issue(f"join {held.id}", held.id, now_seconds + 900)
        store.instances.observe_cloud(held.id, _listed(held.id, now_seconds), now_seconds)
        store.tokens.burn(f"join {held.id}", now_seconds + 60)
        token = NodeToken(held.id, now_seconds, now_seconds + 3600)
        store.tokens.put_node(f"node {held.id}", token)
        store.instances.record_node(held.id, InstancePhase.TRAINING, now_seconds + 60)
        store.jobs.set_phase(job, JobPhase.RUNNING, now_seconds + 60)
        origin = ReportOrigin(held.id, 1, now_seconds)
        store.reports.add(job, report(), origin, now_seconds + 90)
        store.measurements.save_models(job, {"cpu-core": model()})
        store.measurements.add_duration(job, "local-small", "start", 12.5)
        failure = Failure(held.id, 1, 1, "out of memory", "oom", 7, ("line",) * 20)
        store.reports.add_failure(job, failure, now_seconds + 100)
        return held

    def _call(self, study: str, job: str, instance: str, now_seconds: float) -> None:
        """Let a trial report to the driver of its study, which answers."""
        number = self.store.trials.begin(job, instance, now_seconds)
        calls = [TrialCall(call, f"report {call}: 0.5") for call in range(1, _CALLS + 1)]
        self.store.trials.tell(job, number, calls)
        answers = [GivenAnswer(job, number, TrialAnswer(call.number, "go on")) for call in calls]
        self.store.trials.answer(study, answers)
        self.store.leases.take(f"study of {job}", "driver", now_seconds, 60.0)

    def _plan(self, job: str, now_seconds: float) -> None:
        for tick in range(_PLANS):
            at_seconds = now_seconds + 100 * tick
            made = decision(job, f"grow {tick}")
            self.store.journal.add(
                tick, at_seconds, snapshot(at_seconds, 0.1 + tick), Plan((made,)), (made,)
            )
            self.store.events.add(Event(at_seconds, "resize", f"resize {job}", job))

    def _end(self, job: str, held: HeldInstance, now_seconds: float) -> None:
        self.store.jobs.set_phase(job, JobPhase.FINISHED, now_seconds)
        self.store.instances.request_termination(held.id, now_seconds)
        _, terminate = self.store.intents.of_instance(held.id)
        self.store.intents.done(terminate.id)
        seen = replace(
            _listed(held.id, held.requested_seconds),
            state=CloudState.TERMINATED,
            ended_seconds=now_seconds,
        )
        self.store.instances.observe_cloud(held.id, seen, now_seconds)

    def _write(self, *names: str) -> None:
        """Write files of the state directory at the present virtual time."""
        for name in names:
            path = self._state / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(b"x" * _FILE_BYTES)
            for changed in (path, path.parent):
                os.utime(changed, (self.clock.now(), self.clock.now()))


def _listed(instance: str, launched_seconds: float) -> CloudInstance:
    return CloudInstance(
        id=f"i-{instance}",
        token=f"token of {instance}",
        offer="local-small",
        state=CloudState.RUNNING,
        tags={},
        launched_seconds=launched_seconds,
    )
