"""What the last lines of a failed script say of it, seen through torchrun and through noise.

torchrun ends with code 1 and a report of its own whatever happened. The exit code that counts,
and the traceback if the script records its errors, stand under "Root Cause" in that report
(``torch.distributed.elastic.multiprocessing.errors``); what came before it is the script's own.
"""

from __future__ import annotations

import re
import signal
import textwrap
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import PurePath

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_RANK = re.compile(r"^\[[A-Za-z]\w*\]: ?")
_LAUNCHER_LOG = re.compile(r"^[IWEF]\d{4} [\d:.]+ +\d+ torch/distributed/(?:elastic|run)")
_REPORT = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
_REPORTED_EXIT = re.compile(r"^\s+exitcode\s*:\s*(-?\d+)")
_REPORTED_TRACEBACK = re.compile(r"^\s+traceback\s*:\s*Traceback ")

_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'^ +File "(?P<file>[^"]+)", line (?P<line>\d+)(?:, in (?P<function>.+))?$')
_RAISED = re.compile(r"^(?:\w+\.)*(?P<type>[A-Z_]\w*)(?:: ?(?P<message>.*))?$")
_FROM = "The above exception was the direct cause of the following exception:"
_IGNORED = "Exception ignored in"
_LIBRARY = re.compile(
    r"/(?:site|dist)-packages/|/lib/python\d|^<|/autoscaler/training/|/optuna/optuna/"
    r"|/hpo/(?:calls|catching|command|crew|distributed|epochs|line|rank|trial|worker)\.py$"
)
_LOST_CONTACT = re.compile(r"gloo|nccl|connection (?:reset|refused|closed)|broken pipe", re.I)
_WORD = re.compile(r"[^\W\d]")
# Lines after an exception that others than the exception print: libraries, warnings, logs.
_NO_MESSAGE = re.compile(
    r"^(?:\[?[WIEF]\d{4} |\[?\d{4}-\d\d-\d\d|wandb: |\S+:\d+: \w*Warning: |Exception ignored in)"
)
_SHELL_SIGNAL_BASE = 128


@dataclass(frozen=True, slots=True)
class Frame:
    """A place in the code: the file's own name, the line and the function.

    The function is empty for a syntax error.
    """

    file: str
    line: int
    function: str
    is_library: bool

    @property
    def constant(self) -> str:
        """The place without its line: the same text after an edit elsewhere in the file."""
        return f"{self.file}{self._within}"

    @property
    def _within(self) -> str:
        return f", in {self.function}" if self.function else ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}{self._within}"


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception as a traceback shows it: type without module, first line of the message.

    `rest` is what follows in the message, on one line.
    """

    type: str
    message: str
    frames: tuple[Frame, ...]
    raised_from: Raised | None = None
    rest: str = ""

    @property
    def root(self) -> Raised:
        """The first of the exceptions that led to this one by `raise ... from`."""
        return self if self.raised_from is None else self.raised_from.root

    @property
    def own_place(self) -> Frame | None:
        """The innermost frame of the script's own code, at the root if there is one."""
        deeper = None if self.raised_from is None else self.raised_from.own_place
        own = (frame for frame in reversed(self.frames) if not frame.is_library)
        return deeper or next(own, None)

    @property
    def place(self) -> Frame:
        """Where to look first: `own_place`, or where a library raised it."""
        return self.own_place or self.frames[-1]

    @property
    def whole(self) -> str:
        """The type and the whole message."""
        message = " ".join(part for part in (self.message, self.rest) if part)
        return f"{self.type}: {message}" if message else self.type

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is left of a failure.

    `exit_code` is that of the process that failed first, negative for a signal; `lines` are the
    script's own last ones.
    """

    exit_code: int
    raised: Raised | None
    lines: tuple[str, ...]

    @property
    def was_killed(self) -> bool:
        """It was ended from outside, so nothing that was printed is the reason."""
        return self.exit_code in (-signal.SIGKILL, -signal.SIGTERM)

    @property
    def last_line(self) -> str:
        """The last line that says something, or nothing."""
        return next((line.strip() for line in reversed(self.lines) if _WORD.search(line)), "")


def raised_of(error: BaseException) -> Raised:
    """Return an exception that was caught, with those that it was raised from."""
    chain = [error]
    while (origin := chain[-1].__cause__) is not None and origin not in chain:
        chain.append(origin)
    raised = None
    for caught in reversed(chain):
        message, _, rest = str(caught).strip().partition("\n")
        frames = tuple(
            _frame(summary.filename, summary.lineno or 0, summary.name)
            for summary in traceback.extract_tb(caught.__traceback__)
        )
        name, rest = type(caught).__name__, " ".join(rest.split())
        raised = Raised(name, message.strip(), frames, raised, rest)
    assert raised is not None
    return raised


def read_evidence(exit_code: int, last_lines: Sequence[str]) -> Evidence:
    """Find the exit code and the exception that count.

    Args:
        exit_code: as the process that was waited for gave it: torchrun's, a shell's (128 + a
            signal), or Python's (negative for a signal).
        last_lines: what was printed last, standard output and error mixed. torchrun's report
            takes some 40 lines, so fewer than 100 may hide the cause.
    """
    lines = [_clean(line) for line in last_lines]
    report = max((i for i, line in enumerate(lines) if line.startswith(_REPORT)), default=None)
    reported: list[str] = []
    if report is not None:
        exit_code, reported = _read_report(lines[report:], exit_code)
        lines = lines[: _last_traceback(lines[:report])]
    own = tuple(line for line in lines if not _LAUNCHER_LOG.match(line))
    exit_code = _without_shell(exit_code)
    evidence = Evidence(exit_code, None, own)
    if evidence.was_killed:
        return evidence
    return replace(evidence, raised=_decisive(_exceptions(reported) or _exceptions(own)))


def _clean(line: str) -> str:
    last_drawn = line.rstrip().rpartition("\r")[2]
    return _RANK.sub("", _ESCAPE.sub("", last_drawn))


def _read_report(report: Sequence[str], exit_code: int) -> tuple[int, list[str]]:
    """The exit code of the first failure, and its traceback if the script recorded one."""
    root = next((i for i, line in enumerate(report) if line.startswith("Root Cause")), 0)
    for i, line in enumerate(report[root:], start=root):
        if match := _REPORTED_EXIT.match(line):
            exit_code = int(match[1])
        if _REPORTED_TRACEBACK.match(line):
            indented = takewhile(lambda line: line[:1] in ("", " "), report[i + 1 :])
            return exit_code, textwrap.dedent("\n".join(indented)).split("\n")
    return exit_code, []


def _last_traceback(lines: Sequence[str]) -> int:
    """Where the last traceback starts; 0 if its start is cut off."""
    return max((i for i, line in enumerate(lines) if line == _TRACEBACK), default=0)


def _without_shell(exit_code: int) -> int:
    number = exit_code - _SHELL_SIGNAL_BASE
    return -number if number in set(signal.Signals) else exit_code


def _exceptions(lines: Sequence[str]) -> list[Raised]:
    """Every exception that a traceback in `lines` ends with, but those that Python ignored."""
    found: list[Raised] = []
    frames: list[Frame] = []
    is_from = is_ignored = False
    for index, line in enumerate(lines):
        if line.endswith(_TRACEBACK):
            frames = []
        elif match := _FRAME.match(line):
            frames.append(_frame(match["file"], int(match["line"]), match["function"] or ""))
        elif not frames:
            is_from = is_from or line == _FROM
            is_ignored = is_ignored or line.startswith(_IGNORED)
        elif match := _RAISED.match(line):
            message, rest = (match["message"] or "").strip(), _rest_of_message(lines[index + 1 :])
            raised = Raised(match["type"], message, tuple(frames), rest=rest)
            if is_from and found:
                raised = replace(raised, raised_from=found.pop())
            if not is_ignored:
                found.append(raised)
            frames, is_from, is_ignored = [], False, False
    return found


def _rest_of_message(lines: Sequence[str]) -> str:
    """Return the lines that follow the first of a message, joined; a blank line ends it."""
    return " ".join(line.strip() for line in takewhile(_goes_on, lines))


def _goes_on(line: str) -> bool:
    """Return whether a line after an exception's first is of the same message."""
    return bool(line.strip()) and not line.endswith(_TRACEBACK) and not _NO_MESSAGE.match(line)


def _frame(path: str, line: int, function: str) -> Frame:
    return Frame(PurePath(path).name, line, function, is_library=bool(_LIBRARY.search(path)))


def _decisive(exceptions: Sequence[Raised]) -> Raised | None:
    """The last one, but rather a failure of its own than the loss of another worker.

    Where several ranks print at once, one of their tracebacks may have lost its first frames.
    """
    return max(
        reversed(exceptions),
        key=lambda raised: (not _LOST_CONTACT.search(str(raised)), raised.own_place is not None),
        default=None,
    )
