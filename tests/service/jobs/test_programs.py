from __future__ import annotations

from dataclasses import replace

import pytest

from autoscaler.domain.errors import NotFound
from autoscaler.domain.job import JobSpec
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
