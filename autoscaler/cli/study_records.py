"""What a controller knows of a study, while it runs and from its database after its end."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import TypeVar

from autoscaler.clock import SystemClock
from autoscaler.controller.study_spending import StudySpending
from autoscaler.domain.errors import NotFound, Unavailable
from autoscaler.domain.rules import require_amount
from autoscaler.domain.study_stay import StudyStay
from autoscaler.service.study_stays import stays_of_study
from autoscaler.service.views import decision_view
from autoscaler.store.opening import open_store
from autoscaler.store.store import Store
from autoscaler.wire.client import Client, StudyClient
from autoscaler.wire.messages import DecisionView, FleetView
from autoscaler.wire.study_messages import StudyView

Value = TypeVar("Value")


def decisions_of(study_name: str, job: str, number: int) -> tuple[DecisionView, ...]:
    """The last decisions for a trial's job, the latest first.

    Raises:
        Unavailable: there is neither a controller nor the database of one of ours.
        UnknownJob: it has no such job.
    """

    def read(store: Store) -> tuple[DecisionView, ...]:
        entries = store.journal.decisions(store.jobs.find(job).id, number)
        return tuple(decision_view(entry) for entry in entries)

    return _told(study_name, {}, lambda client, _: client.decisions(job, number), read)


def view_of(study_name: str, names: Mapping[str, str]) -> StudyView | None:
    """The study as its controller knows it, or knew it at the end; None if none does.

    `names` is what controllers call it.
    """

    def read(store: Store) -> StudyView:
        return _view_in(store, study_name, names)

    try:
        return _told(study_name, names, lambda _, line: line.view(), read)
    except (NotFound, Unavailable):
        return None


def command_budget(study_name: str, names: Mapping[str, str], budget_usd: Decimal) -> StudyView:
    """Let a study cost so much from now on, and return it; where it does not run, from then on.

    Raises:
        Unavailable: there is neither a controller nor the database of one of ours, or the one
            that CASTOR_URL names does not answer.
        NotFound: nobody has run it there.
        SpecError: it is no amount.
    """

    def tell(_: Client, line: StudyClient) -> StudyView:
        line.set_budget(budget_usd)
        return line.view()

    def write(store: Store) -> StudyView:
        if "CASTOR_URL" in os.environ:
            raise Unavailable("the controller that CASTOR_URL names does not answer")
        require_amount(budget_usd, "budget_usd")
        store.studies.set_budget(_name_in(store, study_name, names), budget_usd)
        return _view_in(store, study_name, names)

    return _told(study_name, names, tell, write)


def name_of(study_name: str) -> str:
    """What controllers call the first study of this name."""
    from hpo.naming import slug

    return slug(study_name)


def stays_of(study_name: str, names: Mapping[str, str]) -> tuple[StudyStay, ...]:
    """What the trials of a study held and when. `names` is what controllers call it.

    Raises:
        Unavailable: there is neither a controller nor the database of one of ours.
    """

    def read(store: Store) -> tuple[StudyStay, ...]:
        return stays_of_study(store, _name_in(store, study_name, names))

    return _told(study_name, names, lambda _, line: line.stays(), read)


def fleet_of(study_name: str) -> FleetView | None:
    """What the controller sells that would run the study; None if one of our own would.

    Raises:
        Unavailable: the one that CASTOR_URL names does not answer.
    """
    from hpo.running import line_to

    try:
        with line_to(study_name, {}) as (client, _):
            return client.fleet()
    except Unavailable:
        if "CASTOR_URL" in os.environ:
            raise
        return None


def _view_in(store: Store, study_name: str, names: Mapping[str, str]) -> StudyView:
    """Return a study as the controller that had this store knew it at its end."""
    name = _name_in(store, study_name, names)
    spent_usd = StudySpending(store).spent(name, (), SystemClock().now())
    terms, trials = store.studies.terms(name), store.studies.trials(name)
    return StudyView(name, None, terms, trials, spent_usd, Decimal(0))


def _name_in(store: Store, study_name: str, names: Mapping[str, str]) -> str:
    """What the controller that had this store calls a study."""
    from hpo.naming import name_at

    return name_at(study_name, names, store.settings.controller_id())


def _told(
    study_name: str,
    names: Mapping[str, str],
    ask: Callable[[Client, StudyClient], Value],
    read: Callable[[Store], Value],
) -> Value:
    """What the study's controller says, or the database of one of ours that has ended.

    Raises:
        Unavailable: there is neither.
    """
    from hpo.running import database_of, line_to

    try:
        with line_to(study_name, names) as (client, line):
            return ask(client, line)
    except Unavailable:
        database = database_of(study_name)
        if not database.exists():
            raise
        store = open_store(f"sqlite:///{database}")
        try:
            return read(store)
        finally:
            store.close()
