"""The category of a failure, and the one-line cause that users see."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from autoscaler.domain.report import FailureCategory, FailureReason
from autoscaler.failures.evidence import Evidence, Raised, raised_of, read_evidence
from autoscaler.failures.rules import (
    CODE_ERRORS,
    LOST_WORDS,
    REPORT_ERRORS,
    RULES,
    Beside,
    FailureRule,
)

_LONGEST_CAUSE: Final = 1000
_LONGEST_ERROR: Final = 800
_LINES_SEARCHED: Final = 30
_LINES_OF_ERROR: Final = 5
_OUTSIDE_EXIT_CODES: Final = (-signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)
_MODULE: Final = re.compile(r"^(?:\w+\.)+(?=_?[A-Z]\w*(?::|$))")
# An exception behind the prefix of a log.
_LOGGED_ERROR: Final = re.compile(r"[\s\])>|](?:\w+\.)*(?=_?[A-Z]\w*(?:Error|Exception): )")
_NAMED_ERROR: Final = re.compile(r"^(?:\w+\.)*(?P<type>_?[A-Z]\w*(?:Error|Exception))\b")
_OF_REASON: Final = {
    FailureReason.DIVERGED: FailureCategory.DIVERGED,
    FailureReason.OUT_OF_MEMORY: FailureCategory.DEVICE_MEMORY,
}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Category of a failure and its cause in one line."""

    category: FailureCategory
    cause: str


def diagnose(
    exit_code: int,
    last_lines: Sequence[str],
    reason: FailureReason | None = None,
    memory_kills: int | None = None,
) -> Diagnosis:
    """Return the category and the cause of a failure.

    A reason that the training library reported decides the category. Else a signal that leaves no
    text does, then the first rule that fits, then the exception or the signal.

    Args:
        exit_code: the exit code of the process, also of torchrun; negative for a signal.
        last_lines: the last lines of the output.
        reason: as the training process reported it, if it did.
        memory_kills: processes that the kernel has ended for lack of memory meanwhile; None:
            unknown.
    """
    evidence = read_evidence(exit_code, last_lines)
    diagnosis = _decisive(evidence)
    if diagnosis is None and not evidence.was_killed:
        diagnosis = _match_rules(evidence)
    diagnosis = diagnosis or _describe_unmatched(evidence, memory_kills)
    return diagnosis if reason is None else replace(diagnosis, category=_OF_REASON[reason])


def cause_of_failure(exit_code: int, last_lines: Sequence[str]) -> str:
    """Return the cause of a failure in one line; the arguments are those of `diagnose`."""
    return diagnose(exit_code, last_lines).cause


def _decisive(evidence: Evidence) -> Diagnosis | None:
    """Return the diagnosis by a printed line that outweighs a traceback; None without one."""
    rules = [rule for rule in RULES if rule.beside is Beside.DECISIVE]
    return _first_match(rules, _texts_of(evidence.lines), "")


def _match_rules(evidence: Evidence) -> Diagnosis | None:
    """Return the diagnosis by the first rule that matches; None if no rule matches.

    The rules search the root exception and the last one, or without a traceback the last lines.
    If no rule fits the exceptions, those that may stand beside a traceback search the lines.
    """
    raised = evidence.raised
    lines = _texts_of(evidence.lines[-_LINES_SEARCHED:])
    if raised is None:
        return _first_match(RULES, lines, "")
    texts = {str(error): error.whole for error in (raised.root, raised)}
    texts |= {error.whole: error.whole for error in (raised.root, raised)}
    texts |= {error.assertion: error.whole for error in (raised.root, raised) if error.assertion}
    beside = [rule for rule in RULES if rule.beside is not Beside.NEVER]
    by_text = _first_match(RULES, texts, f" ({raised.place})") or _first_match(beside, lines, "")
    return _by_frames(raised, None if by_text is None else by_text.category) or by_text


def _by_frames(raised: Raised, by_text: FailureCategory | None) -> Diagnosis | None:
    """Return what the code that raised an exception says better than its text; None if nothing.

    Args:
        raised: the exception.
        by_text: the category by its text; None if no rule fits.
    """
    if raised.root.is_of_environment:
        words = f"there is no environment variable {raised.root.message} ({raised.place})"
        return Diagnosis(FailureCategory.INPUT, _one_line(words))
    if raised.is_of_group and by_text is FailureCategory.NETWORK:
        return Diagnosis(FailureCategory.COMMUNICATION, _one_line(f"{LOST_WORDS}{raised.whole}"))
    if raised.root.is_of_storage and by_text in (None, FailureCategory.SEMANTIC):
        words = f"a checkpoint can't be read or written ({raised.place}): {raised.root.whole}"
        return Diagnosis(FailureCategory.CHECKPOINT, _one_line(words))
    return None


def _texts_of(lines: Sequence[str]) -> dict[str, str]:
    """Return the lines, newest first, each as the text to search and the text to show.

    The text to search has no module before the type of an exception, as in `Raised`. An exception
    behind the prefix of a log is a text of its own.
    """
    texts = {}
    for line in reversed(lines):
        texts[_MODULE.sub("", line)] = line
        if match := _LOGGED_ERROR.search(line):
            texts.setdefault(line[match.end() :], line)
    return texts


def _first_match(
    rules: Iterable[FailureRule], whole_texts: Mapping[str, str], place: str
) -> Diagnosis | None:
    """Return the diagnosis by the first rule that matches a text, which stands for a whole one."""
    for rule in rules:
        for text, whole in whole_texts.items():
            if match := rule.pattern.search(text):
                cause = rule.words.format(
                    error=_one_line(whole, _LONGEST_ERROR), place=place, **match.groupdict()
                )
                return Diagnosis(rule.category, _one_line(cause))
    return None


def _describe_unmatched(evidence: Evidence, memory_kills: int | None) -> Diagnosis:
    if evidence.exit_code in _OUTSIDE_EXIT_CODES or evidence.was_killed:
        return _of_signal(-evidence.exit_code, memory_kills)
    if evidence.raised is not None:
        cause = f"the script raised {_shortened_error(evidence.raised)} ({evidence.raised.place})"
        return Diagnosis(_category_of_error(evidence.raised.root.type), cause)
    if evidence.exit_code < 0:
        return _of_signal(-evidence.exit_code, memory_kills)
    last_line = evidence.last_line
    named_errors = map(_NAMED_ERROR.match, reversed(evidence.lines[-_LINES_OF_ERROR:]))
    named = next(filter(None, named_errors), None)
    category = _category_of_error(named["type"]) if named else FailureCategory.UNKNOWN
    text = f"ended with exit code {evidence.exit_code}: {last_line or 'it printed nothing'}"
    return Diagnosis(category, _one_line(text))


def _category_of_error(name: str) -> FailureCategory:
    """Return the category of an exception that no rule fits, by the name of its type."""
    if REPORT_ERRORS.match(name):
        return FailureCategory.UNKNOWN
    is_of_code = CODE_ERRORS.match(name) is not None
    return FailureCategory.SEMANTIC if is_of_code else FailureCategory.EXCEPTION


def caught_words(error: BaseException) -> str:
    """Return one line for an exception: its message, and where the caller's own code raised it."""
    raised = raised_of(error)
    place = "" if raised.own_place is None else f" ({raised.own_place})"
    return f"{_shortened_error(raised)}{place}"


def _shortened_error(raised: Raised) -> str:
    return _one_line(raised.whole, _LONGEST_ERROR)


def _of_signal(number: int, memory_kills: int | None) -> Diagnosis:
    if number == signal.SIGKILL:
        return _of_kill(memory_kills)
    name = next(
        (known_signal.name for known_signal in signal.Signals if known_signal == number), "unknown"
    )
    if -number in _OUTSIDE_EXIT_CODES:
        return Diagnosis(FailureCategory.ENDED_FROM_OUTSIDE, f"ended by signal {number} ({name})")
    return Diagnosis(FailureCategory.CRASH, f"crashed with signal {number} ({name})")


def _of_kill(memory_kills: int | None) -> Diagnosis:
    """Return the diagnosis of SIGKILL, which the kernel sends for lack of memory, as others do."""
    if memory_kills is None:
        return Diagnosis(FailureCategory.HOST_MEMORY, "killed by signal 9 (out of memory?)")
    if memory_kills:
        return Diagnosis(FailureCategory.HOST_MEMORY, "killed by signal 9: out of memory")
    return Diagnosis(
        FailureCategory.ENDED_FROM_OUTSIDE, "killed by signal 9, not for lack of memory"
    )


def _one_line(text: str, longest: int = _LONGEST_CAUSE) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"
