"""Versions of jobs, people, budgets and studies, by which a writer notices an earlier change.

A version is a hash of what people change. Progress does not change a version.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Annotated

from fastapi import Header

from autoscaler.domain.access import Person
from autoscaler.domain.budget import Budget
from autoscaler.domain.errors import Outdated
from autoscaler.domain.job import JobRecord, JobSpec
from autoscaler.domain.objective import Objective
from autoscaler.domain.terms import StudyTerms
from autoscaler.wire.codec import encode

_CHARACTERS = 20
_Versions = Annotated[
    str | None,
    Header(
        alias="If-Match",
        max_length=1000,
        description="Versions as in the ETag of an answer; refused with 412 if the object has "
        "none of them any more. Without it, or with `*`, any version is changed.",
    ),
]


@dataclass(frozen=True, slots=True)
class Precondition:
    """Versions that an object must have for a change; None permits any."""

    versions: frozenset[str] | None

    def of_job(self, job: JobRecord) -> None:
        """Check the version of a job. `Outdated`: it has another one."""
        self._require(job_version(job), f"job {job.id}")

    def of_spec(self, job: JobRecord) -> None:
        """Check the version of a job's spec. `Outdated`: it has another one."""
        self._require(spec_version(job), f"job {job.id}")

    def of_person(self, person: Person) -> None:
        """Check the version of a person. `Outdated`: it has another one."""
        self._require(person_version(person), person.name)

    def of_budget(self, budget: Budget | None) -> None:
        """Check the version of a budget. `Outdated`: it has another one, or None is left."""
        if budget is None:
            self._require("", "the budget")
        else:
            self._require(budget_version(budget), f"the budget of {budget.scope}")

    def of_study(self, terms: StudyTerms) -> None:
        """Check the version of a study's terms. `Outdated`: they have another one."""
        self._require(study_version(terms), "the study")

    def _require(self, version: str, name: str) -> None:
        if self.versions is not None and version not in self.versions:
            raise Outdated(
                f"{name} has changed since it was read: read it again, then repeat the change"
            )


async def precondition(versions: _Versions = None) -> Precondition:
    """Return the versions that a request requires, as a dependency of its route."""
    if versions is None or versions.strip() == "*":
        return Precondition(None)
    parts = (part.strip().removeprefix("W/").strip('"') for part in versions.split(","))
    return Precondition(frozenset(parts))


def job_version(job: JobRecord) -> str:
    """Return the version of a job: of its spec and its phase."""
    return _digest(encode(JobSpec, job.spec) + f"{job.id} {job.phase}".encode())


def spec_version(job: JobRecord) -> str:
    """Return the version of a job's spec, which its phase does not change."""
    return _digest(encode(JobSpec, job.spec))


def person_version(person: Person) -> str:
    """Return the version of a person: of role and team."""
    return _digest(encode(Person, person))


def budget_version(budget: Budget) -> str:
    """Return the version of a budget: of its limits and its zone."""
    return _digest(encode(Budget, budget))


def study_version(terms: StudyTerms) -> str:
    """Return the version of a study: of its objective with the budget in force."""
    return _digest(encode(Objective, terms.objective))


def etag(version: str) -> str:
    """Return the value of an ETag header for a version."""
    return f'"{version}"'


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:_CHARACTERS]
