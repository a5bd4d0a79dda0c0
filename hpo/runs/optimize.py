"""`hpo.optimize`: a study as it is, on instances that come and go."""

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
from autoscaler.wire.connection import address_and_token
from hpo.driver.artifacts import StudyArtifacts
from hpo.driver.checkpoints import remove_ended
from hpo.driver.driver import Driver
from hpo.driver.ended_trials import EndedTrial, log_end
from hpo.driver.error_origin import origin_of
from hpo.driver.run_limits import Effort, fatal_message
from hpo.methods.registry import require_packages
from hpo.objective.distributed import trial_job
from hpo.objective.packaging import Objective, home_of, pack_objective
from hpo.optuna_internals import check_release
from hpo.protocol.artifact_store import ArtifactStore
from hpo.runs.arguments import (
    Callback,
    callbacks_of,
    classes_of,
    directory_of,
    effort_of,
    goal_of,
    template_of,
    tolerating,
)
from hpo.runs.controllers import DATABASE, controller_for, embedded_state, serving
from hpo.runs.process import heard, lines_above_bar
from hpo.runs.status_line import standing_beside, trials_to_come
from hpo.storage.controller_names import is_known, name_at, settle_name, slug
from hpo.storage.retrying import patiently
from hpo.storage.studies import check_writable, is_lasting, own_file

_log = logging.getLogger(__name__)


class TrialFailed(CastorError):
    """A failed trial that the caller does not tolerate; the next run goes on from there."""


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
    """As `study.optimize(objective, ...)`, with each trial on an instance, or several, of its own.

    The controller is the one that CASTOR_URL and CASTOR_TOKEN name or that `castor serve` runs
    here; where there is none, one is started for as long as this takes, on the cores of this
    machine. Ctrl-C ends the jobs and leaves their trials as they are: the next call goes on with
    them. The study's storage is written to from here only.

    Args:
        study: any study of Optuna's, with its own sampler, pruner and storage.
        objective: as for `study.optimize`. It is called on an instance, so what it refers to
            must travel (cloudpickle), and the modules beside it go with it.
        n_trials: how many trials to begin; None for as many as there are until it is stopped.
        timeout: the seconds after which none begins any more.
        n_jobs: the most trials at once; None for as many as get an instance.
        catch: errors of the objective that fail their trial only.
        callbacks: called here with the study and each trial that has ended.
        gc_after_trial: let each trial have a process of its own. Else a process may run short
            trials one after the other.
        show_progress_bar: show one.
        budget_usd: what the whole study may cost. Before it costs more its jobs are ended, and
            its trials go on when it is called with a larger one. None is the default budget of
            the deployment, if it has one, and "none" is no budget.
        deadline: when it is to be done: seconds from now, or a text such as "4h".
        goal: how money is weighed against time beside those two, as in a job file.
        offers: ids of offers or instance types to keep to; None for any.
        spot: whether spot instances may be used.
        files: the directory that goes to the instances; None for that of the objective's module.
        environment: variables for the objective.
        retries: how often a trial is begun again, as another trial with the same parameters, if
            its job fails: its process is lost, its set-up fails, its instances are. An error that
            the objective raises is none of these.
        artifact_store: one of `optuna.artifacts`, for what `hpo.upload_artifact` is given. It is
            written to from here only, as the storage is.
        keep_checkpoints: keep those of all trials; else at the end those of trials that have ended
            are removed, but for the best's.
        max_failures: failed trials of this call after which it ends with an error; without
            `catch`, any error of the objective counts. None: no limit to those in `catch`.

    Raises:
        Exception: what the study's sampler, its pruner or `constraints_func` raised.
        TrialFailed: an objective raised an error that is not in `catch`, or more than
            `max_failures` trials failed.
        BudgetUsedUp: as it says.
        NothingRan: the deadline lets no trial begin.
        DeadlineReached: it lets no further trial begin, and trials were left to run.
        SpecError: an argument can't be used; the message names it.
        Conflict: another driver has the study.
        StoreError: the study's storage can't be written, or was away for too long.
        StudyStopped: somebody has said `castor study stop --now`.
        Unavailable: the controller that CASTOR_URL names was away for too long.
    """
    template = template_of(environment, offers, spot, goal)
    effort = effort_of(n_trials, n_jobs, timeout, classes_of(catch), retries)
    effort = replace(effort, shares_processes=not gc_after_trial)
    todo = Todo(
        tolerating(effort, max_failures),
        goal_of(goal, budget_usd, deadline),
        callbacks_of(callbacks),
        show_progress_bar,
        artifact_store,
        keep_checkpoints,
    )
    directory = home_of(objective) if files is None else directory_of(files)
    run_study(study, objective, directory, template, todo)


@dataclass(frozen=True, slots=True)
class Todo:
    """What is to be done of a study, what it may take as a whole, and who is told how it goes."""

    effort: Effort
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
    todo: Todo,
) -> None:
    """Run a study's trials as jobs like `template`, with the files of a directory.

    Raises:
        TrialFailed, BudgetUsedUp, SpecError, Conflict, StoreError, StudyStopped: as
            `optimize`.
    """
    check_release(study)
    require_packages(study)
    check_writable(study)
    if (file := own_file(study)) is not None:
        _log.info("the study's storage is %s", file)
    if not is_lasting(study):
        _log.warning("the study is in memory: its trials are lost if this process dies")
    template = trial_job(objective, template)
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch) / "bundle.tar.gz"
        bundle = pack_objective(objective, directory, archive, own_file(study), study)
        with (
            heard(),
            controller_for(slug(study.study_name), template, is_lasting(study)) as (
                address,
                keep_alive,
            ),
        ):
            clock, client = SystemClock(), Client(*address)
            patiently(lambda: client.upload(bundle.sha256, archive), clock, keep_alive)
            name = patiently(lambda: _settled_name(study, client, address), clock, keep_alive)
            line = StudyClient(*address, name)
            template = replace(
                template,
                name=name,
                command=WORKER_COMMAND,
                program=name,
                study=name,
                bundle=bundle.sha256,
            )
            driver = Driver(study, template, client, line, _holder(), clock, todo.goal)
            driver.keep_alive = keep_alive
            if todo.artifact_store is not None:
                driver.artifacts = StudyArtifacts(todo.artifact_store, line)
            with _told(study, todo, StudyClient(*address, name)) as tell:
                driver.on_end = tell
                fatal = _driven(driver, study, todo.effort)
            if not todo.keeps_checkpoints:
                remove_ended(study, line)
            client.close()
            line.close()
    if fatal is not None:
        raise TrialFailed(fatal_message(fatal, todo.effort.catch, todo.effort.max_failures))


def _driven(driver: Driver, study: optuna.Study, effort: Effort) -> EndedTrial | None:
    """Run the driver; errors of the study's sampler or pruner name it in a note."""
    try:
        return driver.run(effort)
    except Exception as error:
        origin = origin_of(error, study)
        if origin is not None:
            error.add_note(f"raised by {origin}")
        raise


def _settled_name(study: optuna.Study, client: Client, address: tuple[str, str]) -> str:
    """What the controller there calls the study."""

    def is_taken(name: str) -> bool:
        with closing(StudyClient(*address, name)) as line:
            return is_known(line.view)

    return settle_name(study, client.fleet().controller, is_taken)


@contextmanager
def line_to(study_name: str, names: Mapping[str, str]) -> Iterator[tuple[Client, StudyClient]]:
    """The controller of a study that is run somewhere, for what a person says from elsewhere.

    `names` is what controllers call it, as `names_of` has it.

    Raises:
        Unavailable: there is none; what one of our own knew is in `database_of`.
    """
    present = serving()
    try:
        address = present or address_and_token(embedded_state(slug(study_name)))
        client = Client(*address)
        controller = client.fleet().controller
    except Unavailable:
        if present is not None:
            raise
        raise Unavailable(
            f"nobody runs study {study_name} here: castor study run goes on with it; where it is "
            "run elsewhere, set CASTOR_URL and CASTOR_TOKEN to its controller's"
        ) from None
    line = StudyClient(*address, name_at(study_name, names, controller))
    try:
        yield client, line
    finally:
        client.close()
        line.close()


def database_of(study_name: str) -> Path:
    """What a controller of our own remembers of a study, also after its end."""
    return embedded_state(slug(study_name)) / DATABASE


def _holder() -> str:
    return f"{socket.gethostname()}-{secrets.token_hex(4)}"


@contextmanager
def _told(
    study: optuna.Study, todo: Todo, line: StudyClient
) -> Iterator[Callable[[EndedTrial], None]]:
    """What is done with each trial that has ended: it is logged, counted and called back for."""
    lines_above = lines_above_bar if todo.shows_bar else nullcontext
    total = trials_to_come(study, todo.effort.trials)
    with (
        tqdm(total=total, unit="trial", disable=not todo.shows_bar) as bar,
        lines_above(),
        standing_beside(bar, line, SystemClock()),
    ):

        def tell(ended: EndedTrial) -> None:
            log_end(ended, study)
            bar.update(not ended.is_retried)
            for callback in todo.callbacks:
                callback(study, copy.deepcopy(ended.frozen))

        yield tell
