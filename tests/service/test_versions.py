"""Versions of objects on writes, and dry runs that write nothing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Final

import httpx
import pytest

from autoscaler.clock import VirtualClock
from autoscaler.domain.access import Person, Role
from autoscaler.domain.budget import Budget, BudgetScope, ScopeKind
from autoscaler.domain.errors import Conflict, Outdated, SpecError
from autoscaler.domain.job import InstanceBounds, JobPhase
from autoscaler.domain.objective import Objective
from autoscaler.domain.terms import StudyTerms
from autoscaler.service.access.people import PeopleAccess
from autoscaler.service.versions import (
    Precondition,
    budget_version,
    person_version,
    study_version,
)
from autoscaler.store.memory.store import memory_store
from autoscaler.store.opening import open_store
from autoscaler.store.store import Store
from autoscaler.wire.access_messages import NewPerson, PersonChange
from autoscaler.wire.budget_messages import BudgetRequest
from autoscaler.wire.client import StudyClient
from autoscaler.wire.messages import Change, Resumption
from autoscaler.wire.study_messages import StudyLease, StudyStatement
from tests.service.agents import SPEC, joined
from tests.service.conftest import TOKEN, Api

HEADERS: Final = {"Authorization": f"Bearer {TOKEN}"}


def test_a_change_of_another_version_is_refused(api: Api) -> None:
    read = api.client.submit(SPEC)
    changed = api.client.change("job", Change(priority=2.0), version=read.version)
    assert changed.version != read.version
    with pytest.raises(Outdated, match="job has changed since it was read"):
        api.client.change("job", Change(priority=3.0), version=read.version)
    with pytest.raises(Outdated):
        api.client.stop("job", version=read.version)
    assert api.client.job("job").priority == 2.0
    assert api.client.job("job").phase is JobPhase.PENDING
    assert api.client.stop("job", version=changed.version).phase is JobPhase.STOPPING
    with pytest.raises(Outdated):
        api.client.resume("job", Resumption(), version=changed.version)


def test_the_version_is_checked_again_where_the_job_is_stored(api: Api) -> None:
    version = api.client.submit(SPEC).version
    store = api.world.store
    before = store.jobs.get("job")
    store.jobs.change_spec("job", priority=2.0)

    def require(record: object) -> None:
        if record != before:
            raise Outdated("job has changed")

    with pytest.raises(Outdated):
        store.jobs.change_spec("job", priority=5.0, precondition=require)
    with pytest.raises(Outdated):
        store.jobs.request_stop("job", 1.0, require)
    assert store.jobs.get("job").spec.priority == 2.0
    assert api.client.job("job").version != version


def test_progress_does_not_change_the_version(api: Api) -> None:
    joined(api)
    before = api.client.job("job").version
    api.world.tick(3)
    store = api.world.store
    store.jobs.set_lighthouse("job", "http://elsewhere")
    after = api.client.job("job")
    assert (after.version == before) is (after.phase is JobPhase.PENDING)


@pytest.mark.parametrize("header", ['"old"', "old", 'W/"old", "older"'])
def test_the_header_is_as_http_has_it(api: Api, header: str) -> None:
    version = api.client.submit(SPEC).version
    address = f"{api.url}/v1/jobs/job"
    shown = httpx.get(address, headers=HEADERS)
    assert shown.headers["ETag"] == f'"{version}"' and shown.json()["version"] == version
    refused = httpx.patch(address, json={"priority": 2}, headers={**HEADERS, "If-Match": header})
    assert (refused.status_code, refused.json()["error"]) == (412, "Outdated")
    for accepted in ("*", f'{header}, "{version}"'):
        headers = {**HEADERS, "If-Match": accepted}
        assert httpx.patch(address, json={}, headers=headers).status_code == 200


def test_people_have_versions_too(api: Api) -> None:
    api.client.add_person(NewPerson("ada"))
    address = f"{api.url}/v1/people/ada"
    changed = httpx.patch(address, json={"role": "operator"}, headers=HEADERS)
    stale = {**HEADERS, "If-Match": '"old"'}
    assert httpx.patch(address, json={"role": "viewer"}, headers=stale).status_code == 412
    assert httpx.delete(address, headers=stale).status_code == 412
    assert [p.role for p in api.client.people() if p.name == "ada"] == [Role.OPERATOR]
    current = {**HEADERS, "If-Match": changed.headers["ETag"]}
    assert httpx.delete(address, headers=current).status_code == 204


def test_the_version_of_a_person_is_in_the_list(api: Api) -> None:
    api.client.add_person(NewPerson("ada"))
    read = {person.name: person.version for person in api.client.people()}
    api.client.change_person("ada", PersonChange(Role.VIEWER), version=read["ada"])
    with pytest.raises(Outdated, match="ada has changed since it was read"):
        api.client.change_person("ada", PersonChange(Role.ADMIN), version=read["ada"])
    with pytest.raises(Outdated):
        api.client.remove_person("ada", version=read["ada"])
    now = {person.name: person for person in api.client.people()}["ada"]
    assert now.role is Role.VIEWER
    api.client.remove_person("ada", version=now.version)
    assert not api.world.store.people.get("ada")


def test_a_refused_removal_leaves_no_trace(api: Api) -> None:
    api.client.add_person(NewPerson("ada"))
    with pytest.raises(Outdated):
        api.client.remove_person("ada", version="old")
    assert not api.world.store.settings.was_removed("ada")
    assert len([row for row in api.client.audit() if row.action == "remove person"]) == 0


@pytest.mark.parametrize("scope", ["study:sweep", "team:nlp", "fleet"])
def test_budgets_have_versions(api: Api, scope: str) -> None:
    first = api.client.set_budget(scope, BudgetRequest(Decimal("100.50")))
    address = f"{api.url}/v1/budgets/{scope}"
    assert httpx.get(address, headers=HEADERS).headers["ETag"] == f'"{first.version}"'
    assert api.client.budget(scope).version == first.version
    assert [view.version for view in api.client.budgets()] == [first.version]
    second = api.client.set_budget(scope, BudgetRequest(Decimal(7)), version=first.version)
    assert second.version != first.version
    with pytest.raises(Outdated, match=f"the budget of {scope} has changed"):
        api.client.set_budget(scope, BudgetRequest(Decimal(8)), version=first.version)
    with pytest.raises(Outdated):
        api.client.remove_budget(scope, version=first.version)
    assert api.client.budget(scope).month_usd == Decimal(7)
    api.client.remove_budget(scope, version=second.version)
    with pytest.raises(Outdated, match="the budget has changed"):
        api.client.set_budget(scope, BudgetRequest(Decimal(9)), version=second.version)
    assert api.client.budgets() == ()


def test_the_budget_of_a_study_has_a_version(api: Api) -> None:
    study = StudyClient(api.url, TOKEN, "sweep")
    study.lease(StudyLease("laptop", 60.0))
    assert study.view().version == ""
    terms = StudyTerms(Objective(budget_usd=Decimal(50)), to_begin=5)
    study.state(StudyStatement("laptop", terms))
    first = study.view().version
    study.state(StudyStatement("laptop", replace(terms, to_begin=4)))
    assert study.view().version == first  # progress
    study.set_budget(Decimal(60), version=first)
    with pytest.raises(Outdated, match="the study has changed"):
        study.set_budget(Decimal(70), version=first)
    shown = study.view()
    assert shown.terms is not None and shown.terms.objective.budget_usd == Decimal(60)
    assert httpx.get(f"{api.url}/v1/studies/sweep", headers=HEADERS).headers["ETag"] == (
        f'"{shown.version}"'
    )
    study.set_budget(Decimal(80), version=shown.version)
    rows = [row for row in api.client.audit() if row.subject == "sweep" and row.before]
    assert [(row.before, row.after) for row in rows] == [("$60", "$80"), ("$50", "$60")]


Write = Callable[[Store, Precondition], object]
ADA: Final = Person("ada", Role.SUBMITTER)
BUDGET: Final = Budget(BudgetScope(ScopeKind.STUDY, "sweep"), Decimal(5))
TERMS: Final = StudyTerms(Objective(budget_usd=Decimal(50)))


def _people(store: Store) -> PeopleAccess:
    return PeopleAccess(store, VirtualClock(1e9))


# Two writes of each kind that both require the version which the store has at first.
WRITES: Final[dict[str, tuple[str, Write, Write]]] = {
    "two roles of a person": (
        person_version(ADA),
        lambda store, required: _people(store).change(
            "ada", PersonChange(Role.VIEWER), required.of_person
        ),
        lambda store, required: _people(store).change(
            "ada", PersonChange(Role.ADMIN), required.of_person
        ),
    ),
    "a role of a person, and the removal": (
        person_version(ADA),
        lambda store, required: _people(store).change(
            "ada", PersonChange(Role.VIEWER), required.of_person
        ),
        lambda store, required: _people(store).remove("ada", required.of_person),
    ),
    "two budgets of a scope": (
        budget_version(BUDGET),
        lambda store, required: store.budgets.put(
            replace(BUDGET, month_usd=Decimal(6)), required.of_budget
        ),
        lambda store, required: store.budgets.remove(BUDGET.scope, required.of_budget),
    ),
    "two budgets of a study": (
        study_version(TERMS),
        lambda store, required: store.studies.set_budget("sweep", Decimal(6), required.of_study),
        lambda store, required: store.studies.set_budget("sweep", Decimal(7), required.of_study),
    ),
}


class Meanwhile(Precondition):
    """Precondition that lets another writer try, before the first one stores anything."""

    __slots__ = ("_other",)

    def __init__(self, version: str, other: Callable[[], None]) -> None:
        super().__init__(frozenset([version]))
        object.__setattr__(self, "_other", other)

    def _require(self, version: str, name: str) -> None:
        super()._require(version, name)
        self._other()


@pytest.fixture(params=["memory", "sqlite", "postgresql"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    """Yield the stores of two processes on one database; in memory it is the same one."""
    if request.param == "memory":
        store = memory_store()
        yield store, store
        return
    url = f"sqlite:///{tmp_path / 'castor.db'}"
    if request.param == "postgresql":
        url = request.getfixturevalue("postgresql")()
    with closing(open_store(url)) as first, closing(open_store(url)) as second:
        yield first, second


@pytest.mark.parametrize("kind", WRITES)
def test_of_two_writers_at_once_with_one_version_one_is_refused(
    stores: tuple[Store, Store], kind: str
) -> None:
    first, second = stores
    first.people.put(ADA)
    first.budgets.put(BUDGET)
    first.studies.state("sweep", TERMS)
    version, write, other_write = WRITES[kind]
    has_read = threading.Event()
    refusals: list[Outdated] = []

    def write_too() -> None:
        try:
            other_write(second, Meanwhile(version, has_read.set))
        except Outdated as error:
            refusals.append(error)

    other = threading.Thread(target=write_too)

    def meanwhile() -> None:
        other.start()
        assert not has_read.wait(0.1), "another writer reads what is about to change"

    write(first, Meanwhile(version, meanwhile))
    other.join()
    assert len(refusals) == 1 and not has_read.is_set()


def test_a_dry_run_answers_what_would_be_submitted_and_stores_nothing(api: Api) -> None:
    planned = api.client.try_submit(SPEC)
    assert planned.spec.person == "owner" and planned.plan.job == "job"
    assert api.client.jobs() == () and api.client.audit() == ()
    api.client.submit(SPEC)
    with pytest.raises(Conflict, match="choose another name"):
        api.client.try_submit(SPEC)
    with pytest.raises(SpecError, match="instances"):
        api.client.try_submit(replace(SPEC, instances=InstanceBounds(5, 2)))


def test_a_dry_run_of_a_change_answers_the_job_as_it_would_be(api: Api) -> None:
    api.client.submit(SPEC)
    rows = len(api.client.audit())
    tried = api.client.try_change("job", Change(priority=4.0)).job
    assert tried.priority == 4.0
    assert api.client.job("job").priority == 1.0
    assert api.client.job("job").version != tried.version
    assert len(api.client.audit()) == rows
    with pytest.raises(SpecError, match="instances"):
        api.client.try_change("job", Change(instances=InstanceBounds(5, 2)))
    with pytest.raises(Outdated):
        api.client.try_change("job", Change(priority=4.0), version="old")
