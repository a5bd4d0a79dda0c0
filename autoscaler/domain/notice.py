"""Notices to people, and their deliveries to targets outside: webhooks, chat rooms, e-mail."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from hashlib import sha256
from typing import Final


class NoticeKind(StrEnum):
    """Kind of a notice: an event of a job or a study, or a condition that lasts for a while."""

    FINISHED = "job.finished"
    FAILED = "job.failed"
    RETRIED = "job.retried"
    STOPPED = "job.stopped"
    STUDY = "study.finished"
    STALLED = "job.stalled"
    BUDGET = "budget.pace"
    DEADLINE = "deadline.danger"
    LEAK = "leak.suspected"
    LEADER = "controller.leader"
    TEST = "test"


LASTING: Final = frozenset(
    {NoticeKind.STALLED, NoticeKind.BUDGET, NoticeKind.DEADLINE, NoticeKind.LEAK}
)
"""Kinds of conditions. A condition that was over for a while and returns is a new episode."""


@dataclass(frozen=True, slots=True)
class NoticeKey:
    """Identity of a notice in its store: no two notices have the same one.

    `subject` is what the notice is about: a job's id, a study, a budget, a provider or an
    instance.
    `episode` numbers the notices of one kind about one subject, from 1.
    """

    kind: NoticeKind
    subject: str
    episode: int = 1


@dataclass(frozen=True, slots=True)
class UserNotice:
    """Message to people about an event or a condition.

    `text` is one sentence or two, with numbers. `job` is the id of its job, None for others;
    `person` and `team` own the job, the study or the budget. `figures` are the numbers in `text`
    by name.
    """

    key: NoticeKey
    at_seconds: float
    text: str
    job: str | None = None
    person: str | None = None
    team: str | None = None
    is_trial: bool = False
    figures: Mapping[str, float] = field(default_factory=dict)

    def id(self, deployment: str) -> str:
        """Return the id for receivers: the same for each attempt to deliver the notice."""
        key = self.key
        text = f"{deployment} {key.kind} {key.episode} {self.at_seconds!r} {key.subject}"
        return f"msg_{sha256(text.encode()).hexdigest()[:32]}"


class DeliveryState(StrEnum):
    """State of a delivery. A delivery that was given up is not tried again."""

    WAITING = "waiting"
    DELIVERED = "delivered"
    GIVEN_UP = "given up"


@dataclass(frozen=True, slots=True)
class Delivery:
    """Delivery of a notice to a target.

    `number` identifies it in its store. `attempts` counts calls of the target. The next one is due
    at `next_seconds`. `error` is that of the last attempt; None: it succeeded, or there was none.
    `done_seconds` is when it was delivered or given up; None while it waits.
    """

    number: int
    target: str
    notice: UserNotice
    state: DeliveryState
    attempts: int
    next_seconds: float
    error: str | None = None
    done_seconds: float | None = None
