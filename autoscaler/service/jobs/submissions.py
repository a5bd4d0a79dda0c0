"""Requests that change jobs: submissions, changes, stops; checked before they take effect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from decimal import Decimal
from typing import Final

from autoscaler.clock import Clock
from autoscaler.controller.act.shutdown import stop_everything
from autoscaler.controller.controller import ControllerStatus
from autoscaler.controller.jobs.fitting import require_fit, with_shard
from autoscaler.controller.jobs.programs import recalled
from autoscaler.controller.observe.snapshots import allowed_offers, missing_gpus
from autoscaler.controller.predict.circumstances import circumstances_of
from autoscaler.controller.predict.shards import choose_shard
from autoscaler.domain.access import Identity, Owner
from autoscaler.domain.errors import (
    Conflict,
    NotFound,
    SpecError,
    Unavailable,
)
from autoscaler.domain.job import InstanceBounds, JobRecord, JobSpec
from autoscaler.domain.job_rules import (
    require_settable,
    require_settable_objective,
    require_valid_bounds,
    require_valid_job,
    require_valid_objective,
    require_valid_priority,
)
from autoscaler.domain.offer import Offer
from autoscaler.domain.restart_rules import require_restartable_bounds
from autoscaler.domain.shards import ShardChoice
from autoscaler.domain.study_rules import require_valid_driver
from autoscaler.domain.text import did_you_mean
from autoscaler.ledger.ledger import Ledger
from autoscaler.service.access.gate import claim_study, has_bundle, require_on_subject
from autoscaler.service.access.permissions import AccessAction, require_permitted
from autoscaler.service.files.uploads import Bundles, unknown_bundle
from autoscaler.service.instances.assignments import Assignments
from autoscaler.service.jobs.objective_rules import require_above_spent, require_reachable
from autoscaler.service.jobs.program_names import claim_program, renamed_note, with_program
from autoscaler.service.jobs.results import Results
from autoscaler.service.jobs.resuming import require_ended, require_own_checkpoints, resumed_spec
from autoscaler.store.repositories.events import Event
from autoscaler.store.repositories.jobs import JobCheck, accept, new_id, with_changes
from autoscaler.store.repositories.owners import OwnedKind
from autoscaler.store.repositories.settings import Freeze
from autoscaler.store.store import Store
from autoscaler.wire.messages import Change, Resumption

_CHANGEABLE = tuple(field.name for field in fields(Change))
# Longest wait of a request for the first listing of a controller that has just started.
_FIRST_OFFERS_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.05


class Submissions:
    """Receiver of jobs and of changes to them."""

    def __init__(
        self,
        store: Store,
        bundles: Bundles,
        assignments: Assignments,
        status: ControllerStatus,
        wake: Callable[[], None],
        clock: Clock,
        results: Results,
        job_usd: Decimal | None = None,
    ) -> None:
        self._store = store
        self._bundles = bundles
        self._assignments = assignments
        self._results = results
        self._job_usd = job_usd
        self._status = status
        self.wake = wake
        self._clock = clock

    def checked(self, spec: JobSpec, requester: Identity) -> JobSpec:
        """Return the spec that `submit` stores. Nothing is stored.

        Raises:
            SpecError, Conflict, NotFound, Unavailable, Forbidden: as `submit`.
        """
        spec = replace(self.planned(spec, requester), person=requester.person, team=requester.team)
        self._check(spec)
        self._require_own(spec, requester)
        return spec

    def tried(self, spec: JobSpec, requester: Identity) -> JobSpec:
        """Return the spec that `submit` would store now. Nothing is stored.

        Raises:
            SpecError, Conflict, NotFound, Unavailable, Forbidden: as `submit`.
        """
        spec = self.checked(spec, requester)
        new_id(spec.name, self._store.jobs.of_name(spec.name))
        choice = self._shard_of(spec)
        return spec if choice is None else with_shard(spec, choice.shard)

    def submit(self, spec: JobSpec, requester: Identity, driver: str | None = None) -> JobRecord:
        """Add a job. It belongs to the requester and the requester's team.

        `driver` is the driver of its study that submits it; None: a person does.

        Raises:
            SpecError: the job can't run here; the message names the key of the job file.
            Conflict: the name is in use, or the study has another driver.
            NotFound: its bundle was not uploaded by the requester or the team.
            Unavailable: it names offers, and the offers are not known yet.
            Forbidden: its study, its program, or the checkpoints that it adopts, belong to another
                person.
        """
        person, requested = requester.person, spec
        require_valid_driver(driver, spec)
        spec = self.checked(spec, requester)
        choice = self._shard_of(spec)
        if choice is not None:
            spec = with_shard(spec, choice.shard)
        if spec.study is not None:
            claim_study(self._store, spec.study, requester)
        claim_program(self._store, spec, requester)
        job = self._store.jobs.add(spec, self._clock.now(), driver)
        notes = f"{renamed_note(requested, spec)}{self._memory_note(spec)}"
        self._add_event("submitted", f"by {person}{notes}", job)
        if choice is not None:
            self._add_event("sharded", str(choice), job)
        return job

    def _shard_of(self, spec: JobSpec) -> ShardChoice | None:
        """Return the choice of an undecided job's shard; None for a decided job.

        Raises:
            Unavailable: the offers are not known yet.
        """
        if not spec.parallelism.is_undecided:
            return None
        self._await_offers()
        return choose_shard(
            spec,
            lambda decided: recalled(self._store, decided),
            circumstances_of(self._status),
            self._clock.now(),
        )

    def planned(self, spec: JobSpec, requester: Identity) -> JobSpec:
        """Return a requester's job with the deployment's default budget and its program.

        Raises:
            SpecError: the job is invalid, or sets a value that only the controller may set.
            Forbidden: it names a program of another person.
        """
        require_settable(spec)
        require_valid_job(spec)
        owner = Owner(requester.person, requester.team)
        return self.capped(with_program(self._store, spec, owner, requester))

    def capped(self, spec: JobSpec) -> JobSpec:
        """Return a job with the deployment's default budget, if it has none and no study.

        The budget of its study limits a trial.
        """
        if spec.study is not None and self._store.studies.terms(spec.study) is not None:
            return spec
        return replace(spec, objective=spec.objective.capped(self._job_usd))

    def resume(self, job: JobRecord, resumption: Resumption, requester: Identity) -> JobRecord:
        """Add the next run of a job that was stopped or has failed.

        It continues from the newest checkpoint of the earlier runs. It has their owner, and their
        bundle and settings, or those of the resumption's spec.

        Raises:
            Conflict: the phase of the job does not allow it.
            NotFound: the job left no checkpoint.
            SpecError, Forbidden, Unavailable: as `submit`; or the budget is used up; or the spec
                is of another job.
        """
        if resumption.spec is not None:
            require_settable(resumption.spec)
        if resumption.objective is not None:
            require_settable_objective(resumption.objective)
        now_seconds = self._clock.now()
        require_ended(job, self._store.instances.of_job(job.id, include_ended=True))
        origin = self._origin(job)
        spent_usd = self._spent_usd(job, resumption, now_seconds)
        person, owner = requester.person, job.spec.owner
        spec = resumed_spec(job, resumption, spent_usd)
        requested = self.capped(replace(spec, person=owner.person, team=owner.team))
        require_valid_job(requested)
        self._check(requested)
        spec = with_program(self._store, requested, owner, requester)
        self._require_own(spec, requester, job.spec)
        claim_program(self._store, spec, requester)
        resumed = self._store.jobs.add(spec, now_seconds)
        self._add_event("resumed", f"by {person}: {resumed.id} goes on from {origin}", job)
        note = renamed_note(requested, spec)
        text = f"by {person}: goes on from {origin} of {job.id}{note}"
        self._add_event("submitted", text, resumed)
        return resumed

    def _spent_usd(self, job: JobRecord, resumption: Resumption, now_seconds: float) -> Decimal:
        """Return the amount spent of the budget of the next run.

        The budget of a job file covers all runs; that of an earlier run covers this run alone.
        """
        runs: tuple[JobRecord, ...] = (job,)
        if resumption.spec is not None:
            runs = self._store.jobs.runs(job)
        ledger = Ledger(self._store.ledger.of_jobs([run.id for run in runs]))
        return sum((ledger.spent(run.id, now_seconds) for run in runs), Decimal(0))

    def _origin(self, job: JobRecord) -> str:
        """Return the checkpoint that the next run continues from, as text.

        The command of a restartable job finds it, or begins anew.
        """
        if job.spec.restart is not None:
            return "the newest checkpoint"
        return f"step {self._newest_step(job)}"

    def _newest_step(self, job: JobRecord) -> int:
        """Return the step of the checkpoint that the next run of a session continues from."""
        try:
            return self._results.checkpoint(job).step
        except NotFound as error:
            step = job.report.checkpoint.step if job.report is not None else None
            is_out_of_sight = self._results.has_disk_of_instances(job)
            if step is not None and is_out_of_sight:
                return step
            raise NotFound(
                f"{error}: there is nothing to go on from; submit the job again to start from "
                "the beginning"
            ) from None

    def _check(self, spec: JobSpec) -> None:
        """Check that a valid job can run here.

        Raises:
            SpecError, Conflict, NotFound, Unavailable: as `submit`.
        """
        if spec.bundle is not None:
            self._bundles.path(spec.bundle)
        self._assignments.check(spec)
        offers = self._check_instances(spec.instances)
        if not spec.parallelism.is_undecided:
            require_fit(spec, offers, self._status.offers, self._status.limits)
        require_reachable(spec.objective, offers, self._clock.now())

    def _require_own(
        self, spec: JobSpec, requester: Identity, earlier: JobSpec | None = None
    ) -> None:
        """Check that a requester may use the bundle, the study and the checkpoints of a job.

        The bundle of an earlier run needs no check.

        Raises:
            NotFound: neither the requester nor the team has uploaded the bundle.
            Forbidden: the study or the adopted checkpoints belong to another person.
            SpecError, Conflict: the directory has or gets the checkpoints of another job.
        """
        bundle = spec.bundle
        is_new = earlier is None or earlier.bundle != bundle
        if bundle is not None and is_new and not has_bundle(self._store, requester, bundle):
            raise unknown_bundle(bundle)
        if spec.study is not None:
            require_on_subject(self._store, requester, AccessAction.JOIN_STUDY, spec.study)
        origin = require_own_checkpoints(spec, self._store.jobs.of_directory)
        if origin is not None:
            owners = (origin.spec.owner,)
            require_permitted(requester, AccessAction.ADOPT_CHECKPOINTS, origin.id, owners)

    def change(
        self,
        job: JobRecord,
        change: Change,
        person: str,
        precondition: JobCheck = accept,
    ) -> JobRecord:
        """Change a job that has not ended and that `precondition` accepts.

        Raises:
            SpecError, Conflict, Unavailable: as `changed`.
        """
        spec = self.changed(job, change).spec
        objective = None if change.objective is None else spec.objective
        job = self._store.jobs.change_spec(
            job.id, objective, change.instances, change.priority, precondition
        )
        changed = [name for name in _CHANGEABLE if getattr(change, name) is not None]
        if changed:
            self._add_event("changed", f"{' and '.join(changed)} by {person}", job)
        return job

    def changed(self, job: JobRecord, change: Change) -> JobRecord:
        """Return a job as it is after a change, which is not stored.

        Raises:
            SpecError, Conflict: the change is invalid.
            Unavailable: the change names offers, and the offers are not known yet.
        """
        if change.instances is not None:
            require_valid_bounds(change.instances)
            require_restartable_bounds(job.spec.restart, change.instances)
        if change.objective is not None:
            require_settable_objective(change.objective)
            require_valid_objective(change.objective)
        if change.priority is not None:
            require_valid_priority(change.priority)
        offers = self._check_instances(change.instances or job.spec.instances)
        if change.instances is not None:
            changed_spec = replace(job.spec, instances=change.instances)
            require_fit(changed_spec, offers, self._status.offers, self._status.limits)
        if change.objective is not None:
            require_reachable(change.objective, offers, self._clock.now())
            self._require_above_spent(job, change.objective.budget_usd)
        objective = change.objective
        if objective is not None:
            objective = self.capped(replace(job.spec, objective=objective)).objective
        return with_changes(job, objective, change.instances, change.priority)

    def freeze(self, person: str) -> None:
        """Suspend launches and terminations until `unfreeze`, across restarts too."""
        self._store.settings.freeze(Freeze(self._clock.now(), person))
        self._store.events.add(Event(self._clock.now(), "frozen", f"by {person}", None))
        self.wake()

    def unfreeze(self, person: str) -> None:
        """Resume launches and terminations."""
        self._store.settings.unfreeze()
        self._store.events.add(Event(self._clock.now(), "released", f"by {person}", None))
        self.wake()

    def drain(self, person: str) -> None:
        """Stop every job with a checkpoint, and every study."""
        now_seconds = self._clock.now()
        if stopped := stop_everything(self._store, now_seconds):
            text = f"asked for by {person}: {stopped} jobs"
            self._store.events.add(Event(now_seconds, "drained", text, None))
        self.wake()

    def stop(
        self,
        job: JobRecord,
        person: str,
        precondition: JobCheck = accept,
        driver: str | None = None,
    ) -> JobRecord:
        """Stop a job with a checkpoint, if `precondition` accepts it.

        Raises:
            Conflict: the job has ended, or its study has another driver than `driver`.
            SpecError: a driver stops a job without a study.
        """
        require_valid_driver(driver, job.spec)
        if job.phase.is_final:
            raise Conflict(f"job {job.id} has ended already: it is {job.phase}")
        job = self._store.jobs.request_stop(job.id, self._clock.now(), precondition, driver)
        self._add_event("stop", f"asked for by {person}", job)
        return job

    def forget_program(self, program: str, person: str) -> None:
        """Delete the measurements of a program; running jobs add new ones.

        The program keeps its owner while such a job runs.

        Raises:
            NotFound: there are none.
        """
        if not self._store.programs.forget(program):
            raise unknown_program(program)
        if all(job.spec.program_name != program for job in self._store.jobs.alive()):
            self._store.owners.release(OwnedKind.PROGRAM, program)
        text = f"what was learnt of {program}, by {person}"
        self._store.events.add(Event(self._clock.now(), "forgotten", text, None))
        self.wake()

    def _memory_note(self, spec: JobSpec) -> str:
        memory = recalled(self._store, spec)
        if memory is None:
            return ""
        of_jobs = "a job" if memory.jobs == 1 else f"{memory.jobs} jobs"
        return f"; it begins with what {of_jobs} of {memory.program} taught"

    def _await_offers(self) -> None:
        """Wait for the first offers of a controller that has just started.

        Raises:
            Unavailable: their providers do not answer.
        """
        end_seconds = self._clock.monotonic() + _FIRST_OFFERS_SECONDS
        while not self._status.offers:
            trouble = self._status.trouble
            if trouble is not None or self._clock.monotonic() >= end_seconds:
                cause = trouble or "the controller has just started"
                raise Unavailable(f"no offer is known yet ({cause}): try again in a moment")
            self._clock.sleep(_LOOK_SECONDS)

    def _check_instances(self, bounds: InstanceBounds) -> tuple[Offer, ...]:
        """Return the offers that the bounds allow; check that the minimum fits the limits."""
        offer_names = (*(bounds.offers or ()), *(name for name, _ in bounds.maxima))
        if offer_names:
            self._await_offers()
        known = {offer.id for offer in self._status.offers}
        known |= {offer.instance_type for offer in self._status.offers}
        for name in offer_names:
            if name not in known:
                hint = did_you_mean(name, sorted(known), f"there are {_listed(known)}")
                key = "offers" if name in (bounds.offers or ()) else "max_of"
                raise SpecError(
                    f"no offer or instance type is called {name!r}: {hint}", f"instances.{key}"
                )
        offers = allowed_offers(bounds, self._status.offers)
        if not offers and self._status.offers:
            raise _nothing_allowed(bounds, self._status.offers)
        for limit in self._status.limits:
            least = min((limit.use(offer) for offer in offers), default=0.0)
            if least * bounds.minimum > limit.maximum:
                raise SpecError(
                    f"{bounds.minimum} instances need {_number(least * bounds.minimum)} of "
                    f"{limit.name!r}, which has {_number(limit.maximum)}: ask for fewer",
                    "instances.min",
                )
        return offers

    def _require_above_spent(self, job: JobRecord, budget_usd: Decimal | None) -> None:
        if budget_usd is not None:
            ledger = Ledger(self._store.ledger.entries(job.id))
            require_above_spent(budget_usd, ledger.spent(job.id, self._clock.now()), job.id)

    def _add_event(self, kind: str, text: str, job: JobRecord) -> None:
        self._store.events.add(Event(self._clock.now(), kind, text, job.id))
        self.wake()


def job_text(spec: JobSpec) -> str:
    """Return what the audit log says of a new job."""
    bounds, objective = spec.instances, spec.objective
    budget = "no budget" if objective.budget_usd is None else f"${objective.budget_usd}"
    bundle = "" if spec.bundle is None else f", bundle {spec.bundle[:12]}"
    study = "" if spec.study is None else f", study {spec.study}"
    return f"{bounds.minimum} to {bounds.maximum} instances, {budget}{study}{bundle}"


def unknown_program(program: str) -> NotFound:
    """Return the error for a program without measurements."""
    return NotFound(f"nothing is remembered of {program!r}: `castor programs` lists what is")


def _nothing_allowed(bounds: InstanceBounds, offers: Sequence[Offer]) -> SpecError:
    """Return the error of bounds that permit none of the offers."""
    if (missing := missing_gpus(bounds, offers)) is not None:
        return SpecError(missing, "instances.gpu")
    any_price = replace(bounds, max_usd_per_hour=None, max_instance_usd_per_hour=None)
    dearer = allowed_offers(any_price, offers) if bounds.has_ceiling else ()
    if dearer:
        cheapest = min(offer.usd_per_hour for offer in dearer)
        is_of_job = bounds.max_usd_per_hour is not None
        return SpecError(
            f"{bounds.minimum} instances of no offer cost at most {bounds.ceiling_text}: the "
            f"cheapest costs ${cheapest}/h each; raise the ceiling",
            "instances.max_usd_per_hour" if is_of_job else "instances.max_instance_usd_per_hour",
        )
    return SpecError(
        "no offer is allowed: only spot offers are named, and spot is false", "instances.spot"
    )


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


def _number(value: float) -> str:
    return f"{value:g}"
