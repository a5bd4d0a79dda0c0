"""The job that a name means to a person, where several people have used the name."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from autoscaler.domain.access import Identity, Role
from autoscaler.domain.errors import Conflict
from autoscaler.domain.job import JobPhase, JobRecord, JobSpec
from autoscaler.domain.job_names import (
    exact_name,
    first_of_name,
    meant_job,
    require_one_meaning,
)

ADA = Identity("ada", Role.SUBMITTER, "nlp")
RUNNING, FINISHED, STOPPED = JobPhase.RUNNING, JobPhase.FINISHED, JobPhase.STOPPED


def jobs(*rows: tuple[str, str | None, JobPhase]) -> list[JobRecord]:
    """Return jobs of one name: person, team and phase of each, the oldest first."""
    return [
        JobRecord(
            id=f"train.{number}" if number > 1 else "train",
            number=number,
            spec=JobSpec("train", ("true",), person=person, team=team),
            phase=phase,
            submitted_seconds=float(number),
        )
        for number, (person, team, phase) in enumerate(rows, start=1)
    ]


@pytest.mark.parametrize(
    ("rows", "meant"),
    [
        ([("bob", None, FINISHED)], "train"),
        ([("ada", None, STOPPED), ("ada", None, RUNNING)], "train.2"),
        ([("ada", None, STOPPED), ("bob", None, RUNNING)], "train"),
        ([("ada", None, STOPPED), ("bob", "nlp", RUNNING)], "train"),
        ([("eve", "nlp", STOPPED), ("bob", None, RUNNING)], "train"),
        ([("eve", None, STOPPED), ("bob", None, FINISHED)], "train.2"),
    ],
)
def test_one_s_own_jobs_come_first_then_those_of_the_team(
    rows: Sequence[tuple[str, str | None, JobPhase]], meant: str
) -> None:
    assert meant_job(jobs(*rows), ADA).id == meant


@pytest.mark.parametrize(
    "rows",
    [
        [("bob", None, FINISHED)],
        [("bob", None, FINISHED), ("ada", None, RUNNING)],
        [("bob", None, FINISHED), ("ada", None, STOPPED), ("bob", None, FINISHED)],
        [("eve", None, STOPPED), ("bob", None, RUNNING)],
        [("bob", None, STOPPED), ("bob", None, STOPPED)],
    ],
)
def test_a_name_with_one_meaning_is_changed(
    rows: Sequence[tuple[str, str | None, JobPhase]],
) -> None:
    named = jobs(*rows)
    require_one_meaning("train", named, meant_job(named, ADA), ADA)


@pytest.mark.parametrize(
    ("rows", "listed"),
    [
        (
            [("ada", None, STOPPED), ("bob", None, RUNNING)],
            "train.1 of ada (stopped), train.2 of bob (running)",
        ),
        (
            [("eve", None, STOPPED), ("eve", None, STOPPED), ("bob", None, FINISHED)],
            "train.2 of eve (stopped), train.3 of bob (finished)",
        ),
    ],
)
def test_a_name_that_may_mean_jobs_of_several_people_is_not_changed(
    rows: Sequence[tuple[str, str | None, JobPhase]], listed: str
) -> None:
    named = jobs(*rows)
    with pytest.raises(Conflict) as caught:
        require_one_meaning("train", named, meant_job(named, ADA), ADA)
    assert str(caught.value) == (
        f"train may mean one of several jobs: {listed}: name it by its id"
    )


def test_the_first_job_of_a_name_has_an_id_of_its_own() -> None:
    assert first_of_name("train.1") == "train"
    for text in ("train", "train.2", "train.11", ".1", ""):
        assert first_of_name(text) is None


def test_the_exact_name_of_a_first_job_has_a_number() -> None:
    first, second = jobs(("ada", None, STOPPED), ("ada", None, RUNNING))
    assert (exact_name(first.id), exact_name(second.id)) == ("train.1", "train.2")
    assert first_of_name(exact_name(first.id)) == first.spec.name
