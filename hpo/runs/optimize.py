"""`hpo.optimize`: run a study's trials on cloud instances."""

from __future__ import annotations

import copy
import logging
import secrets
import socket
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path

import optuna
from tqdm.auto import tqdm

from autoscaler.clock import SystemClock
from autoscaler.domain.errors import CastorError, Unavailable
from autoscaler.domain.job import JobSpec
from autoscaler.domain.objective import Objective as Goal
from autoscaler.domain.trial import WORKER_COMMAND
from autoscaler.wire.client import Client, StudyClient
from autoscaler.wire.connection import Address, address_and_token
from hpo.driver.artifacts import StudyArtifacts
from hpo.driver.checkpoints import remove_checkpoints
from hpo.driver.driver import Driver
from hpo.driver.ended_trials import EndedTrial, log_trial_end
from hpo.driver.error_origin import error_origin
from hpo.driver.run_limits import RunLimits, fatal_message
from hpo.objective.distributed import trial_job
from hpo.objective.packaging import Objective, import_root, pack_objective
from hpo.optuna_internals import check_release
from hpo.protocol.artifact_store import ArtifactStore
from hpo.runs.arguments import (
    Callback,
    existing_directory,
    job_template,
    parse_callbacks,
    parse_error_classes,
    parse_run_limits,
    parse_study_objective,
    with_max_failures,
)
from hpo.runs.controllers import DATABASE, controller_for, embedded_state, running_controller
from hpo.runs.process import logging_above_bar, logging_to_stderr
from hpo.runs.status_line import count_trials_to_end, status_line
from hpo.samplers_and_pruners.registry import require_packages
from hpo.storage.controller_names import assign_controller_name, controller_name, exists, slug
from hpo.storage.retrying import retry_until_available
from hpo.storage.studies import check_writable, is_persistent, sqlite_file

_log = logging.getLogger(__name__)


class TrialFailed(CastorError):
    """A trial failed with an error that is not tolerated; the next run continues the study."""


def optimize(
    study: optuna.Study,
    objective: Objective,
    n_trials: int | None = None,
    timeout: float | None = None,
    n_jobs: int | None = None,
    catch: Iterable[type[Exception]] | type[Exception] = (),
    callbacks: Iterable[Callback] | None = None,
    gc_after_trial: bool = False,
    show_progress_bar: bool = False,
    *,
    budget_usd: Decimal | float | str | None = None,
    deadline: str | float | None = None,
    goal: Goal = Goal(),
    offers: Iterable[str] | None = None,
    spot: bool = True,
    files: str | Path | None = None,
    environment: dict[str, str] | None = None,
    retries: int = 1,
    artifact_store: ArtifactStore | None = None,
    keep_checkpoints: bool = False,
    max_failures: int | None = None,
) -> None:
    """Run `study.optimize(objective, ...)` with each trial on one or more instances of its own.

    The controller is the one that CASTOR_URL and CASTOR_TOKEN name, or that `castor serve` runs
    here. Without one, a controller runs on this machine's cores for the duration of the call.
    Ctrl-C ends the jobs and leaves their trials open; the next call continues them. Only this
    process writes to the study's storage.

    Args:
        study: an Optuna study with any sampler, pruner and storage.
        objective: as for `study.optimize`. It is called on an instance, so it is pickled
            (cloudpickle), and the modules beside it are sent along.
        n_trials: trials to begin; None for no limit.
        timeout: seconds after which no trial begins.
        n_jobs: maximum of concurrent trials; None for as many as get an instance.
        catch: errors of the objective that fail their trial only.
        callbacks: called in this process with the study and each ended trial.
        gc_after_trial: run each trial in a process of its own. Otherwise a process may run several
            short trials.
        show_progress_bar: show a progress bar.
        budget_usd: maximum cost of the whole study in USD. Before the study costs more its jobs
            end, and a call with a larger budget continues its trials. None applies the
            deployment's default budget; "none" disables it.
        deadline: end of the study: seconds from now, or a duration such as "4h".
        goal: weights of money and time besides budget and deadline, as in a job file.
        offers: ids of offers or instance types that may be used; None for any.
        spot: whether spot instances may be used.
        files: directory that is sent to the instances; None for that of the objective's module.
        environment: environment variables of the objective.
        retries: maximum retries of a trial whose job fails, as a new trial with the same
            parameters. A job fails if its process, set-up or instances fail, not by an error of
            the objective.
        artifact_store: a store of `optuna.artifacts` for `hpo.upload_artifact`. Only this process
            writes to it.
        keep_checkpoints: keep the checkpoints of all trials. Otherwise those of ended trials are
            removed at the end, except the best trial's.
        max_failures: failed trials of this call after which it ends with an error. Without
            `catch`, any error of the objective counts. None for no limit to those in `catch`.

    Raises:
        Exception: an error of the sampler, the pruner or `constraints_func`.
        TrialFailed: an objective raised an error that is not in `catch`, or more than
            `max_failures` trials failed.
        BudgetUsedUp: the budget is used up.
        NothingRan: the deadline lets no trial begin.
        DeadlineReached: the deadline lets no further trial begin, and open trials are left.
        SpecError: an argument is invalid; the message names it.
        Conflict: another driver holds the study's lease.
        StoreError: the study's storage can't be written, or was unavailable for too long.
        StudyStopped: a user called `castor study stop --now`.
        Unavailable: the controller that CASTOR_URL names was unavailable for too long.
    """
    template = job_template(environment, offers, spot, goal)
    limits = parse_run_limits(n_trials, n_jobs, timeout, parse_error_classes(catch), retries)
    limits = replace(limits, shares_processes=not gc_after_trial)
    options = RunOptions(
        with_max_failures(limits, max_failures),
        parse_study_objective(goal, budget_usd, deadline),
        parse_callbacks(callbacks),
        show_progress_bar,
        artifact_store,
        keep_checkpoints,
    )
    directory = import_root(objective) if files is None else existing_directory(files)
    run_study(study, objective, directory, template, options)


@dataclass(frozen=True, slots=True)
class RunOptions:
    """Options of one run of a study.

    Attributes:
        limits: trials, time and tolerated failures.
        goal: objective of the study as a whole.
        callbacks: called with the study and each ended trial.
        shows_bar: whether a progress bar is shown.
        artifact_store: store for uploaded files; None for no store.
        keeps_checkpoints: whether the checkpoints of all trials are kept.
    """

    limits: RunLimits
    goal: Goal = Goal()
    callbacks: tuple[Callback, ...] = ()
    shows_bar: bool = False
    artifact_store: ArtifactStore | None = None
    keeps_checkpoints: bool = False


def run_study(
    study: optuna.Study,
    objective: Objective,
    directory: Path | None,
    template: JobSpec,
    options: RunOptions,
) -> None:
    """Run a study's trials as jobs like `template`, with the files of a directory.

    Raises:
        TrialFailed, BudgetUsedUp, SpecError, Conflict, StoreError, StudyStopped: as `optimize`.
    """
    check_release(study)
    require_packages(study)
    check_writable(study)
    if (file := sqlite_file(study)) is not None:
        _log.info("the study's storage is %s", file)
    if not is_persistent(study):
        _log.warning("the study is in memory: its trials are lost if this process dies")
    template = trial_job(objective, template)
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch) / "bundle.tar.gz"
        bundle = pack_objective(objective, directory, archive, sqlite_file(study), study)
        with (
            logging_to_stderr(),
            controller_for(slug(study.study_name), template, is_persistent(study)) as (
                address,
                keep_alive,
            ),
        ):
            clock, client = SystemClock(), address.client()
            retry_until_available(lambda: client.upload(bundle.sha256, archive), clock, keep_alive)
            name = retry_until_available(
                lambda: _settled_name(study, client, address), clock, keep_alive
            )
            study_client = address.study_client(name)
            template = replace(
                template,
                name=name,
                command=WORKER_COMMAND,
                program=name,
                study=name,
                bundle=bundle.sha256,
            )
            driver = Driver(study, template, client, study_client, _holder(), clock, options.goal)
            driver.keep_alive = keep_alive
            if options.artifact_store is not None:
                driver.artifacts = StudyArtifacts(options.artifact_store, study_client)
            with _handling_ended_trials(study, options, address.study_client(name)) as tell:
                driver.on_end = tell
                fatal = _run_driver(driver, study, options.limits)
            if not options.keeps_checkpoints:
                remove_checkpoints(study, study_client)
            client.close()
            study_client.close()
    if fatal is not None:
        raise TrialFailed(fatal_message(fatal, options.limits.catch, options.limits.max_failures))


def _run_driver(driver: Driver, study: optuna.Study, limits: RunLimits) -> EndedTrial | None:
    """Run the driver; add a note to errors of the study's sampler or pruner."""
    try:
        return driver.run(limits)
    except Exception as error:
        origin = error_origin(error, study)
        if origin is not None:
            error.add_note(f"raised by {origin}")
        raise


def _settled_name(study: optuna.Study, client: Client, address: Address) -> str:
    """Return the study's name at the controller; assign it in the first run."""

    def is_taken(name: str) -> bool:
        with closing(address.study_client(name)) as study_client:
            return exists(study_client.view)

    return assign_controller_name(study, client.fleet().controller, is_taken)


@contextmanager
def connect_to_study(
    study_name: str, names: Mapping[str, str]
) -> Iterator[tuple[Client, StudyClient]]:
    """Yield clients for the controller of a running study, for commands of a user.

    `names` holds the study's names by controller id, from `names_by_controller`.

    Raises:
        Unavailable: no controller is running; `embedded_database` has the last state of an
            embedded one.
    """
    present = running_controller()
    try:
        address = present or address_and_token(embedded_state(slug(study_name)))
        client = address.client()
        controller = client.fleet().controller
    except Unavailable:
        if present is not None:
            raise
        raise Unavailable(
            f"study {study_name} does not run here: castor study run continues it; where it is "
            "run elsewhere, set CASTOR_URL and CASTOR_TOKEN to its controller's"
        ) from None
    study_client = address.study_client(controller_name(study_name, names, controller))
    try:
        yield client, study_client
    finally:
        client.close()
        study_client.close()


def embedded_database(study_name: str) -> Path:
    """Return the database of a study's embedded controller, which remains after the study."""
    return embedded_state(slug(study_name)) / DATABASE


def _holder() -> str:
    return f"{socket.gethostname()}-{secrets.token_hex(4)}"


@contextmanager
def _handling_ended_trials(
    study: optuna.Study, options: RunOptions, study_client: StudyClient
) -> Iterator[Callable[[EndedTrial], None]]:
    """Yield the function that logs each ended trial, updates the bar and calls the callbacks."""
    log_context = logging_above_bar if options.shows_bar else nullcontext
    total = count_trials_to_end(study, options.limits.trials)
    with (
        tqdm(total=total, unit="trial", disable=not options.shows_bar) as bar,
        log_context(),
        status_line(bar, study_client, SystemClock()),
    ):

        def handle(ended: EndedTrial) -> None:
            log_trial_end(ended, study)
            bar.update(not ended.is_retried)
            for callback in options.callbacks:
                callback(study, copy.deepcopy(ended.frozen))

        yield handle
