"""Files of targets."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from autoscaler import plug_ins
from autoscaler.domain.errors import SpecError
from autoscaler.domain.notice import NoticeKey, NoticeKind
from autoscaler.notifications.base import Message, NoticeSender, TargetOptions
from autoscaler.notifications.targets import NoticeFilter, Target, load_targets, names_of
from tests.notifications.examples import SECRET, message, notice, private_file


def loaded(directory: Path, text: str) -> tuple[Target, ...]:
    path = directory / "notify.yaml"
    path.write_text(text)
    return load_targets(path)


def test_targets_of_all_kinds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    private_file(tmp_path, "webhook.key", SECRET)
    monkeypatch.setenv("ROOM", "https://hooks.example.org/T/B/x")
    path = tmp_path / "notify.yaml"
    path.write_text(
        """
targets:
  - {kind: webhook, url: "https://hooks.example.org/castor", secret_file: webhook.key}
  - {kind: slack, name: nlp-room, url_variable: ROOM, teams: [nlp], events: job.failed}
  - {kind: email, to: ops@example.org, from: castor@example.org, server: smtp.example.org}
"""
    )
    targets = load_targets(path)
    assert [(target.name, target.kind) for target in targets] == [
        ("webhook", "webhook"),
        ("nlp-room", "slack"),
        ("email", "email"),
    ]
    assert names_of(targets, notice()) == ("webhook", "nlp-room", "email")
    assert names_of(targets, notice(team="vision")) == ("webhook", "email")
    assert names_of(targets, notice(is_trial=True)) == ()


def test_each_problem_has_its_line_and_a_way_out(tmp_path: Path) -> None:
    with pytest.raises(SpecError) as refused:
        loaded(
            tmp_path,
            """targets:
  - kind: webhook
    url: http://hooks.example.org
    secret_file: none
  - kind: pager
  - kind: email
    to: nobody
    from: castor@example.org
    server: smtp.example.org
  - kind: slack
    url: https://hooks.slack.com/services/T/B/hush
  - kind: webhook
    url: https://hooks.example.org
    secret: hush
  - kind: webhook
    urls: https://hooks.example.org
""",
        )
    lines = str(refused.value).splitlines()
    file = str(tmp_path / "notify.yaml")
    assert [line.removeprefix(f"{file}:").partition(": ")[0] for line in lines] == [
        "3",
        "5",
        "7",
        "11",
        "14",
        "15",
    ]
    assert "targets.0.url: messages to" in lines[0]
    assert 'targets.1.kind: "pager" is unknown: write one of email, slack, webhook' in lines[1]
    assert "url_file" in lines[3]
    assert "name that as secret_file" in lines[4]
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("targets: []", "is empty"),
        ("targets: [{}]", "kind: is required"),
        ("[]", "must be a mapping with at least targets"),
        ("target: []", 'did you mean "targets"'),
        ("targets: [{kind: webhook, events: [job.ended]}]", "events.0: must be"),
        ("targets: [{kind: webhook, events: [test]}]", "events.0: must be job.finished"),
        ("targets: [{kind: webhook, name: A B}]", "name"),
        ("targets: [{kind: webhook, jobs: []}]", "is empty"),
    ],
)
def test_other_problems(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SpecError, match=words):
        loaded(tmp_path, text)


def test_two_targets_have_two_names(tmp_path: Path) -> None:
    private_file(tmp_path, "key", SECRET)
    entry = '{kind: webhook, url: "https://hooks.example.org", secret_file: key}'
    with pytest.raises(SpecError, match="name of another target"):
        loaded(tmp_path, f"targets: [{entry}, {entry}]")


def test_a_secret_that_others_can_read_is_refused(tmp_path: Path) -> None:
    private_file(tmp_path, "key", SECRET).chmod(0o644)
    entry = '{kind: webhook, url: "https://hooks.example.org", secret_file: key}'
    with pytest.raises(SpecError, match="chmod 600"):
        loaded(tmp_path, f"targets: [{entry}]")


class PagerSender(NoticeSender):
    """NoticeSender of another package."""

    def __init__(self, options: TargetOptions) -> None:
        self.number = options.values["number"]

    def send(self, message: Message, now_seconds: float) -> None:
        """Do nothing."""


def test_a_plug_in_adds_a_kind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = f"{__name__}:PagerSender"
    found = [EntryPoint("pager", place, "castor.notifiers")]
    monkeypatch.setattr(plug_ins, "entry_points", lambda group: found)
    (target,) = loaded(tmp_path, "targets: [{kind: pager, number: 7}]")
    assert target.notifier.number == "7"  # type: ignore[attr-defined]
    target.notifier.send(message(), 0.0)


def test_filters_by_event_and_pattern() -> None:
    failures = NoticeFilter(frozenset({NoticeKind.FAILED}), jobs=("dig*",), people=("ada", "bob"))
    assert failures.passes(notice())
    assert not failures.passes(notice(job="text"))
    assert not failures.passes(notice(job=None))
    assert not failures.passes(notice(person="eve"))
    other = notice()
    finished = type(other)(NoticeKey(NoticeKind.FINISHED, "digits"), 0.0, "done", "digits", "ada")
    assert not failures.passes(finished)
    test = type(other)(NoticeKey(NoticeKind.TEST, "test"), 0.0, "test")
    assert failures.passes(test)
