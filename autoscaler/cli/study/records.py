"""Records of a study in its controller: by its API, or from the database of an ended one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import TypeVar

from autoscaler.clock import SystemClock
from autoscaler.controller.budgets.spending import Spending
from autoscaler.domain.errors import NotFound, Unavailable
from autoscaler.domain.rules import require_amount
from autoscaler.domain.study_stay import StudyStay
from autoscaler.service.jobs.views import decision_view
from autoscaler.service.studies.courses import course_of_study
from autoscaler.service.studies.stays import stays_of_study
from autoscaler.store.opening import open_store, open_to_read
from autoscaler.store.sql.file_lock import hold_database
from autoscaler.store.store import Store
from autoscaler.wire.client import Client, StudyClient
from autoscaler.wire.messages import DecisionView, FleetView
from autoscaler.wire.study_messages import StudyView

Value = TypeVar("Value")
_LEAST_POINTS = 2


def decisions_of(study_name: str, job: str, number: int) -> tuple[DecisionView, ...]:
    """Return the last `number` decisions for a trial's job, the latest first.

    Raises:
        Unavailable: there is neither a controller nor the database of a local one.
        UnknownJob: the controller has no such job.
    """

    def read(store: Store) -> tuple[DecisionView, ...]:
        entries = store.journal.decisions(store.jobs.find(job).id, number)
        return tuple(decision_view(entry) for entry in entries)

    return _ask_or_read(study_name, {}, lambda client, _: client.decisions(job, number), read)


def view_of(study_name: str, names: Mapping[str, str]) -> StudyView | None:
    """Return the study as its controller reports it, or as its database recorded it.

    `names` maps controller ids to the study's name there. None means that no controller here has
    run the study.
    """

    def read(store: Store) -> StudyView:
        return _view_in(store, study_name, names)

    try:
        return _ask_or_read(study_name, names, lambda _, study_client: study_client.view(), read)
    except (NotFound, Unavailable):
        return None


def job_costs_of(study_name: str, names: Mapping[str, str]) -> Mapping[str, float]:
    """Return the cost of each job of a study in US dollars; empty if no controller here has any.

    `names` maps controller ids to the study's name there.
    """

    def read(store: Store) -> Mapping[str, float]:
        view = _view_in(store, study_name, names)
        return course_of_study(store, view, SystemClock().now(), _LEAST_POINTS).job_usd

    try:
        return _ask_or_read(
            *(study_name, names),
            *(lambda _, study_client: study_client.history(_LEAST_POINTS).job_usd, read),
        )
    except (NotFound, Unavailable):
        return {}


def command_budget(study_name: str, names: Mapping[str, str], budget_usd: Decimal) -> StudyView:
    """Set the budget of a study in US dollars, and return the study.

    The budget of a study that is not running applies to its next run.

    Raises:
        Unavailable: there is neither a controller nor the database of a local one, or the
            controller of CASTOR_URL does not answer.
        Conflict: the local controller runs and does not answer.
        NotFound: the study has never run on this controller.
        SpecError: the budget is not a valid amount.
    """

    def set_budget(_: Client, study_client: StudyClient) -> StudyView:
        study_client.set_budget(budget_usd)
        return study_client.view()

    def write(store: Store) -> StudyView:
        if "CASTOR_URL" in os.environ:
            raise Unavailable("the controller of CASTOR_URL does not answer")
        require_amount(budget_usd, "budget_usd")
        store.studies.set_budget(_name_in(store, study_name, names), budget_usd)
        return _view_in(store, study_name, names)

    return _ask_or_read(study_name, names, set_budget, write, _open_to_write)


def name_of(study_name: str) -> str:
    """Return the name that a controller gives the first study of this name."""
    from hpo.storage.controller_names import slug

    return slug(study_name)


def stays_of(study_name: str, names: Mapping[str, str]) -> tuple[StudyStay, ...]:
    """Return the intervals in which the trials of a study held instances.

    `names` maps controller ids to the study's name there.

    Raises:
        Unavailable: there is neither a controller nor the database of a local one.
    """

    def read(store: Store) -> tuple[StudyStay, ...]:
        return stays_of_study(store, _name_in(store, study_name, names))

    return _ask_or_read(study_name, names, lambda _, study_client: study_client.stays(), read)


def fleet_of(study_name: str) -> FleetView | None:
    """Return the fleet of the controller that would run the study.

    None means that a new controller on this machine would run it.

    Raises:
        Unavailable: the controller of CASTOR_URL does not answer.
    """
    from hpo.runs.optimize import connect_to_study

    try:
        with connect_to_study(study_name, {}) as (client, _):
            return client.fleet()
    except Unavailable:
        if "CASTOR_URL" in os.environ:
            raise
        return None


def _view_in(store: Store, study_name: str, names: Mapping[str, str]) -> StudyView:
    """Return a study as the controller of this store recorded it."""
    name = _name_in(store, study_name, names)
    spent_usd = Spending(store).of_study(name, (), SystemClock().now())
    terms, trials = store.studies.terms(name), store.studies.trials(name)
    return StudyView(name, None, terms, trials, spent_usd, Decimal(0))


def _name_in(store: Store, study_name: str, names: Mapping[str, str]) -> str:
    """Return the name of a study at the controller of this store."""
    from hpo.storage.controller_names import controller_name

    # The store of a controller that never ran has no id, and may be open to read only.
    return controller_name(study_name, names, store.settings.known("controller_id") or "")


def _ask_or_read(
    study_name: str,
    names: Mapping[str, str],
    ask: Callable[[Client, StudyClient], Value],
    read: Callable[[Store], Value],
    opened: Callable[[str], AbstractContextManager[Store]] = lambda url: closing(
        open_to_read(url)
    ),
) -> Value:
    """Return the answer of the study's controller, or read an ended local one's database.

    `opened` opens that database by its URL.

    Raises:
        Unavailable: there is neither a controller nor a database.
    """
    from hpo.runs.optimize import connect_to_study, embedded_database

    try:
        with connect_to_study(study_name, names) as (client, study_client):
            return ask(client, study_client)
    except Unavailable:
        database = embedded_database(study_name)
        if not database.exists():
            raise
        with opened(f"sqlite:///{database}") as store:
            return read(store)


@contextmanager
def _open_to_write(url: str) -> Iterator[Store]:
    """Yield the store of a local controller that has ended, migrated if needed.

    Raises:
        Conflict: the controller runs.
    """
    directory = Path(url.removeprefix("sqlite:///")).parent
    with hold_database(url, directory), closing(open_store(url)) as store:
        yield store
