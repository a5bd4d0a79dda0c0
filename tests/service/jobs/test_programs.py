from __future__ import annotations

import re
from dataclasses import dataclass, replace

import pytest

from autoscaler.domain.access import Identity, Owner, Role
from autoscaler.domain.errors import Conflict, Forbidden, NotFound
from autoscaler.domain.job import JobSpec
from autoscaler.domain.job_rules import require_valid_job
from autoscaler.service.jobs.program_names import claim_program, with_program
from autoscaler.store.repositories.owners import OwnedKind
from autoscaler.wire.access_messages import InvitationRequest
from autoscaler.wire.client import Client
from tests.conformance.store_programs import memory
from tests.service.conftest import Api

SPEC = JobSpec("next", ("python", "train.py"), program="digits")


def test_what_is_remembered_is_listed_shown_and_forgotten(api: Api) -> None:
    for program in ("words", "digits"):
        api.world.store.programs.remember(memory(program))
    assert api.client.programs() == (memory("digits"), memory("words"))
    assert api.client.program("digits") == memory("digits")
    api.client.forget_program("digits")
    assert api.client.programs() == (memory("words"),)
    told = api.world.store.events.latest(None, 1)[0]
    assert (told.kind, told.text) == ("forgotten", "what was learnt of digits, by owner")


def test_what_is_not_remembered_is_refused_by_name(api: Api) -> None:
    with pytest.raises(NotFound, match="'digits'"):
        api.client.program("digits")
    with pytest.raises(NotFound, match="'digits'"):
        api.client.forget_program("digits")


@pytest.mark.parametrize(("jobs", "words"), [(1, "a job of digits"), (2, "2 jobs of digits")])
def test_a_job_tells_that_it_begins_with_what_others_taught(
    api: Api, jobs: int, words: str
) -> None:
    api.world.store.programs.remember(replace(memory("digits"), jobs=jobs))
    texts = [event.text for event in api.client.job(api.client.submit(SPEC).id).events]
    assert f"by owner; it begins with what {words} taught" in texts
    alone = api.client.submit(replace(SPEC, name="alone", program=None))
    (event,) = api.client.job(alone.id).events
    assert event.text == "by owner"


@dataclass(frozen=True)
class People:
    """Clients of a submitter, of one of the same team, of one of another team, and an operator."""

    ada: Client
    amy: Client
    bob: Client
    oscar: Client


@pytest.fixture
def people(api: Api) -> People:
    def member(name: str, team: str | None, role: Role = Role.SUBMITTER) -> Client:
        return api.stranger(api.client.invite(name, InvitationRequest(role, team)).token)

    return People(
        member("ada", "nlp"),
        member("amy", "nlp"),
        member("bob", "vision"),
        member("oscar", None, Role.OPERATOR),
    )


def program_of(api: Api, job: str) -> str:
    return api.world.store.jobs.get(job).spec.program_name


def own(name: str, program: str | None = None, study: str | None = None) -> JobSpec:
    return replace(SPEC, name=name, program=program, study=study)


def test_a_job_uses_no_program_of_another_team(api: Api, people: People) -> None:
    people.ada.submit(own("first", "digits"))
    api.world.store.programs.remember(memory("digits"))
    for act in (people.bob.submit, people.bob.plan):
        with pytest.raises(
            Forbidden, match=r"^program: digits belongs to ada of team nlp, .*: leave the key out"
        ):
            act(own("second", "digits"))
    for client, name in ((people.amy, "of-team"), (people.oscar, "of-operator")):
        assert program_of(api, client.submit(own(name, "digits")).id) == "digits"
    assert [job.id for job in api.client.jobs()] == ["of-operator", "of-team", "first"]
    assert str(api.world.store.owners.of(OwnedKind.PROGRAM, "digits")[0]) == "ada of team nlp"


def test_a_name_whose_program_belongs_to_others_gets_a_program_of_its_own(
    api: Api, people: People
) -> None:
    people.ada.submit(own("train"))
    people.ada.stop("train")
    api.world.tick(2)
    api.world.store.programs.remember(memory("train"))
    people.bob.plan(own("train"))
    first = people.bob.submit(own("train"))
    program = program_of(api, first.id)
    assert re.fullmatch("train-[0-9a-f]{8}", program)
    text = f"by bob; its program is {program}, since train belongs to others"
    assert text in [event.text for event in people.bob.job(first.id).events]
    people.bob.stop("train")
    api.world.tick(2)
    second = people.bob.submit(own("train"))
    assert program_of(api, second.id) == program, "the next job shares its measurements"
    people.bob.stop("train")
    api.world.tick(2)
    with pytest.raises(Forbidden, match=f"program: {program} belongs to bob of team vision"):
        people.ada.submit(own("curious", program))
    third = people.ada.submit(own("train"))
    assert program_of(api, third.id) == "train"


def test_a_program_whose_name_another_person_took_on_purpose_has_another_one(
    api: Api, people: People
) -> None:
    people.ada.submit(own("train"))
    people.ada.stop("train")
    api.world.tick(2)
    owner = Owner("bob", "vision")
    taken = with_program(api.world.store, own("train"), owner, Identity("bob", Role.SUBMITTER))
    people.ada.submit(own("squatter", taken.program))
    program = program_of(api, people.bob.submit(own("train")).id)
    assert program.startswith("train-") and program != taken.program
    long = with_program(api.world.store, own("t" * 40), owner, Identity("bob", Role.SUBMITTER))
    assert long.program is None
    api.world.store.owners.claim(OwnedKind.PROGRAM, "t" * 40, Owner("ada"))
    long = with_program(api.world.store, own("t" * 40), owner, Identity("bob", Role.SUBMITTER))
    assert len(long.program_name) == 40
    require_valid_job(long)


def test_trials_of_a_study_share_a_program_also_if_its_name_belongs_to_others(
    api: Api, people: People
) -> None:
    people.ada.submit(own("sweep"))
    programs = {
        program_of(api, people.bob.submit(own(f"sweep-{number}", "sweep", "sweep")).id)
        for number in (1, 2)
    }
    assert len(programs) == 1 and "sweep" not in programs


def test_a_resumed_job_keeps_its_program_whoever_resumes_it(api: Api, people: People) -> None:
    people.ada.submit(own("train"))
    people.ada.stop("train")
    api.world.tick(2)
    store = api.world.store
    job = store.jobs.get("train")
    for requester in (Identity("oscar", Role.OPERATOR), Identity("amy", Role.SUBMITTER, "nlp")):
        resumed = with_program(store, job.spec, job.spec.owner, requester)
        assert resumed.program_name == "train"


def test_a_program_keeps_its_owner_while_a_job_adds_to_it(api: Api, people: People) -> None:
    people.ada.submit(own("first", "digits"))
    api.world.store.programs.remember(memory("digits"))
    people.ada.forget_program("digits")
    with pytest.raises(Forbidden, match="program: digits belongs to ada"):
        people.bob.submit(own("second", "digits"))
    people.ada.stop("first")
    api.world.tick(2)
    api.world.store.programs.remember(memory("digits"))
    people.ada.forget_program("digits")
    assert program_of(api, people.bob.submit(own("second", "digits")).id) == "digits"


def test_a_program_that_is_taken_meanwhile_is_not_used(api: Api) -> None:
    store = api.world.store
    store.owners.claim(OwnedKind.PROGRAM, "digits", Owner("ada"))
    spec = replace(SPEC, person="bob")
    with pytest.raises(
        Conflict, match=r"program: digits was used by ada .*: submit the job again"
    ):
        claim_program(store, spec, Identity("bob", Role.SUBMITTER))
    claim_program(store, spec, Identity("oscar", Role.OPERATOR))
