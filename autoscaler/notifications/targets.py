"""Targets of notices: read from a file, with the notifier of each kind."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Final

from pydantic import ConfigDict, Field

from autoscaler.domain.errors import SpecError
from autoscaler.domain.notice import NoticeKind, UserNotice
from autoscaler.domain.rules import require_name
from autoscaler.domain.text import quoted
from autoscaler.notifications.base import NoticeSender, TargetOptions
from autoscaler.plug_ins import PlugIns
from autoscaler.spec.form_file import located, read_document, validated
from autoscaler.spec.forms import Form, Problem, obeys, one_or_many

ENTRY_POINTS: Final = "castor.notifiers"

_MOST_TARGETS: Final = 20
_NOT_BY_DEFAULT: Final = frozenset({NoticeKind.RETRIED, NoticeKind.LEADER, NoticeKind.TEST})
_EVENTS: Final = tuple(kind for kind in NoticeKind if kind is not NoticeKind.TEST)
_NOTIFIERS: Final = PlugIns(
    ENTRY_POINTS,
    {
        "email": "autoscaler.notifications.mail:MailSender",
        "slack": "autoscaler.notifications.webhook:SlackSender",
        "webhook": "autoscaler.notifications.webhook:WebhookSender",
    },
    NoticeSender,
)

Pattern = Annotated[str, Field(min_length=1, max_length=100)]


class TargetForm(Form):
    """Keys that all targets have. Others are those of its kind."""

    model_config = ConfigDict(extra="allow", frozen=True)

    kind: Annotated[str, Field(min_length=1)]
    name: Annotated[str, obeys(require_name)] | None = None
    events: Annotated[tuple[NoticeKind, ...], one_or_many(), Field(min_length=1)] | None = None
    jobs: Annotated[tuple[Pattern, ...], one_or_many(), Field(min_length=1)] | None = None
    people: Annotated[tuple[Pattern, ...], one_or_many(), Field(min_length=1)] | None = None
    teams: Annotated[tuple[Pattern, ...], one_or_many(), Field(min_length=1)] | None = None
    trials: bool = False


class TargetsForm(Form):
    """Form of a whole file of targets."""

    targets: Annotated[tuple[TargetForm, ...], Field(min_length=1, max_length=_MOST_TARGETS)]


@dataclass(frozen=True, slots=True)
class NoticeFilter:
    """Notices that a target gets.

    `jobs`, `people` and `teams` are patterns, of which one must match the notice's job, person or
    team; None: any notice, also one about the whole deployment.
    """

    events: frozenset[NoticeKind]
    jobs: tuple[str, ...] | None = None
    people: tuple[str, ...] | None = None
    teams: tuple[str, ...] | None = None
    trials: bool = False

    def passes(self, notice: UserNotice) -> bool:
        """Return whether the target gets a notice. Each gets a test."""
        if notice.key.kind is NoticeKind.TEST:
            return True
        if notice.key.kind not in self.events or (notice.is_trial and not self.trials):
            return False
        values = (
            (self.jobs, notice.job),
            (self.people, notice.person),
            (self.teams, notice.team),
        )
        return all(_matches(patterns, value) for patterns, value in values)


@dataclass(frozen=True, slots=True)
class Target:
    """Target of notices: its name in the store, its kind, its filter and its notifier."""

    name: str
    kind: str
    filter: NoticeFilter
    notifier: NoticeSender


def names_of(targets: Iterable[Target], notice: UserNotice) -> tuple[str, ...]:
    """Return the names of the targets that get a notice."""
    return tuple(target.name for target in targets if target.filter.passes(notice))


def load_targets(path: Path) -> tuple[Target, ...]:
    """Read a file of targets, and check the options and secrets of each. Nothing is sent.

    Raises:
        SpecError: the file can't be read or used. The message has a line for each problem: file,
            line number, key, problem and remedy.
    """
    document = read_document(path, "a file of targets (docs/notifications.md)")
    form = validated(document, TargetsForm)
    targets: list[Target] = []
    problems = []
    for index, entry in enumerate(form.targets):
        try:
            name = _name(entry, {target.name for target in targets})
            notice_filter = _filter(entry)
            notifier = _notifier(entry, path.absolute().parent)
            targets.append(Target(name, entry.kind, notice_filter, notifier))
        except SpecError as error:
            parts = (error.field or "kind").split(".")
            keys = [int(part) if part.isdigit() else part for part in parts]
            problems.append(Problem(("targets", index, *keys), error.message))
    if problems:
        raise located(problems, document)
    return tuple(targets)


def _name(entry: TargetForm, taken: Collection[str]) -> str:
    """Return the name of a target, which no other has; without one in its file, its kind."""
    name = entry.name or entry.kind
    if name in taken:
        raise SpecError(f"{quoted(name)} is the name of another target: write another", "name")
    return name


def _filter(entry: TargetForm) -> NoticeFilter:
    for index, kind in enumerate(entry.events or ()):
        if kind is NoticeKind.TEST:
            raise SpecError(f"must be {', '.join(_EVENTS)}", f"events.{index}")
    events = entry.events or [kind for kind in NoticeKind if kind not in _NOT_BY_DEFAULT]
    return NoticeFilter(frozenset(events), entry.jobs, entry.people, entry.teams, entry.trials)


def _notifier(entry: TargetForm, folder: Path) -> NoticeSender:
    if entry.kind not in _NOTIFIERS:
        names = ", ".join(_NOTIFIERS.names())
        raise SpecError(f"{quoted(entry.kind)} is unknown: write one of {names}", "kind")
    kind: Any = _NOTIFIERS.load(entry.kind, "kind")
    notifier: NoticeSender = kind(TargetOptions(dict(entry.model_extra or {}), folder))
    return notifier


def _matches(patterns: tuple[str, ...] | None, value: str | None) -> bool:
    if patterns is None:
        return True
    return value is not None and any(fnmatchcase(value, pattern) for pattern in patterns)
