"""Evidence of a failure in the last lines of a script's output, below torchrun's report and noise.

torchrun always ends with exit code 1 and a report. The first failure's exit code, and its
traceback if the script records errors, are under "Root Cause" in that report
(``torch.distributed.elastic.multiprocessing.errors``). The lines before it are the script's.
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
# Names of the process that printed a line: Ray's, docker compose's, mpirun's, torchrun's.
_RANK = re.compile(
    r"^(?:\((?:\w+ )?pid=\d+[^)]*\) |[\w.-]+ +\| |\[\d+(?:,\d+)?\](?:<\w+>:| ))?"
    r"(?:\[[A-Za-z]\w*\]: ?)?"
)
_NATIVE_FRAME = re.compile(r"^\s*(?:frame #\d+: |(?:#?\d+ +|@ +)?0x[0-9a-f]{6,}\b|@ +\(nil\))")
# Ray lists what may have ended a process that it did not see end.
_GUESSES = re.compile(r"There are some potential root causes\..*")
_LAUNCHER_LOG = re.compile(r"^[IWEF]\d{4} [\d:.]+ +\d+ (?:\S*/)?torch/distributed/(?:elastic|run)")
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
    r"|/hpo/(?:objective|protocol|study_file|worker)/\w+\.py$"
)
_STORAGE = re.compile(r"/torch/(?:serialization\.py|distributed/checkpoint/)|/safetensors/")
_LOST_CONTACT = re.compile(r"gloo|nccl|connection (?:reset|refused|closed)|broken pipe", re.I)
_WORD = re.compile(r"[^\W\d]")
# Lines after an exception that are not part of its message: logs and warnings of libraries.
_NOT_MESSAGE = re.compile(
    r"^(?:\[?[WIEF]\d{4} |\[?\d{4}-\d\d-\d\d|wandb: |\S+:\d+: \w*Warning: |Exception ignored in)"
)
_SHELL_SIGNAL_BASE = 128


@dataclass(frozen=True, slots=True)
class Frame:
    """A stack frame: base name of the file, line and function; no function for a syntax error.

    `is_library` is True for frames of Python, installed packages, Castor and Optuna, `is_of_group`
    for those of PyTorch's process groups and launcher, `is_of_storage` for those that read or
    write a checkpoint's tensors.
    """

    file: str
    line: int
    function: str
    is_library: bool
    is_of_group: bool = False
    is_of_storage: bool = False

    @property
    def constant(self) -> str:
        """File and function without the line: unchanged by edits elsewhere in the file."""
        return f"{self.file}{self._within}"

    @property
    def _within(self) -> str:
        return f", in {self.function}" if self.function else ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}{self._within}"


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception in a traceback: type without module, and first line of the message.

    `rest` holds the other lines of the message, joined. `raised_from` is the direct cause.
    `source` is the line of code of the innermost frame; empty if the traceback does not show it.
    """

    type: str
    message: str
    frames: tuple[Frame, ...]
    raised_from: Raised | None = None
    rest: str = ""
    source: str = ""

    @property
    def root(self) -> Raised:
        """The first exception of the `raise ... from` chain that ends with this one."""
        return self if self.raised_from is None else self.raised_from.root

    @property
    def own_place(self) -> Frame | None:
        """The innermost frame of the script's own code, preferably at the root; None if none."""
        place_of_cause = None if self.raised_from is None else self.raised_from.own_place
        own_frames = (frame for frame in reversed(self.frames) if not frame.is_library)
        return place_of_cause or next(own_frames, None)

    @property
    def is_of_group(self) -> bool:
        """Whether the training's process group raised the exception."""
        return self.frames[-1].is_of_group

    @property
    def is_of_storage(self) -> bool:
        """Whether the exception was raised while tensors of a checkpoint were read or written."""
        return self.frames[-1].is_of_storage

    @property
    def is_of_environment(self) -> bool:
        """Whether an environment variable is missing, which `os.environ` says by a KeyError."""
        frame = self.frames[-1]
        is_lookup = frame.file in ("os.py", "<frozen os>") and frame.function == "__getitem__"
        return self.type == "KeyError" and is_lookup

    @property
    def place(self) -> Frame:
        """`own_place`, or the innermost library frame."""
        return self.own_place or self.frames[-1]

    @property
    def assertion(self) -> str:
        """The type and the line of code of an assertion without a message; else empty."""
        is_bare = self.type == "AssertionError" and not self.message
        return f"{self.type}: {self.source}" if is_bare and self.source else ""

    @property
    def whole(self) -> str:
        """The type and the whole message."""
        message = " ".join(part for part in (self.message, self.rest) if part)
        return f"{self.type}: {message}" if message else self.type

    def __str__(self) -> str:
        return f"{self.type}: {self.message}" if self.message else self.type


@dataclass(frozen=True, slots=True)
class Evidence:
    """Exit code, exception and output of a failure.

    `exit_code` is that of the process that failed first, negative for a signal. `lines` are the
    script's own last lines, without those of the launcher.
    """

    exit_code: int
    raised: Raised | None
    lines: tuple[str, ...]

    @property
    def was_killed(self) -> bool:
        """Whether SIGKILL or SIGTERM ended the process.

        Its output then does not show the reason.
        """
        return self.exit_code in (-signal.SIGKILL, -signal.SIGTERM)

    @property
    def last_line(self) -> str:
        """The last line that contains a letter; empty if there is none."""
        return next((line.strip() for line in reversed(self.lines) if _WORD.search(line)), "")


def raised_of(error: BaseException) -> Raised:
    """Return a caught exception with the chain of exceptions that caused it."""
    chain = [error]
    while (origin := chain[-1].__cause__) is not None and origin not in chain:
        chain.append(origin)
    raised = None
    for caught in reversed(chain):
        message, _, rest = str(caught).strip().partition("\n")
        frames = tuple(
            _frame_of(summary.filename, summary.lineno or 0, summary.name)
            for summary in traceback.extract_tb(caught.__traceback__)
        )
        name, rest = type(caught).__name__, " ".join(rest.split())
        raised = Raised(name, message.strip(), frames, raised, rest)
    assert raised is not None
    return raised


def read_evidence(exit_code: int, last_lines: Sequence[str]) -> Evidence:
    """Return the exit code of the first failure and its most relevant exception.

    Args:
        exit_code: the exit code of the process: torchrun's, a shell's (128 + signal), or Python's
            (negative for a signal).
        last_lines: the last lines of standard output and error, mixed. torchrun's report takes
            about 40 lines, so fewer than 100 lines may hide the cause.
    """
    lines = [_strip_terminal(line) for line in last_lines]
    report = max((i for i, line in enumerate(lines) if line.startswith(_REPORT)), default=None)
    recorded_traceback: list[str] = []
    if report is not None:
        exit_code, recorded_traceback = _read_report(lines[report:], exit_code)
        lines = lines[: _last_traceback(lines[:report])]
    lines = [line for line in lines if not _NATIVE_FRAME.match(line)]
    script_lines = tuple(line for line in lines if not _LAUNCHER_LOG.match(line))
    if report is None and not script_lines:
        script_lines = tuple(lines)
    exit_code = _decode_shell_signal(exit_code)
    evidence = Evidence(exit_code, None, script_lines)
    if evidence.was_killed:
        return evidence
    return replace(
        evidence,
        raised=_most_relevant(_exceptions(recorded_traceback) or _exceptions(script_lines)),
    )


def _strip_terminal(line: str) -> str:
    last_drawn = line.rstrip().rpartition("\r")[2]
    return _GUESSES.sub("", _RANK.sub("", _ESCAPE.sub("", last_drawn)))


def _read_report(report: Sequence[str], exit_code: int) -> tuple[int, list[str]]:
    """Return the first failure's exit code and the lines of its traceback, if recorded."""
    root = next((i for i, line in enumerate(report) if line.startswith("Root Cause")), 0)
    for i, line in enumerate(report[root:], start=root):
        if match := _REPORTED_EXIT.match(line):
            exit_code = int(match[1])
        if _REPORTED_TRACEBACK.match(line):
            indented = takewhile(lambda line: line[:1] in ("", " "), report[i + 1 :])
            return exit_code, textwrap.dedent("\n".join(indented)).split("\n")
    return exit_code, []


def _last_traceback(lines: Sequence[str]) -> int:
    """Return the index at which the last traceback starts; 0 if its start is cut off."""
    return max((i for i, line in enumerate(lines) if line == _TRACEBACK), default=0)


def _decode_shell_signal(exit_code: int) -> int:
    number = exit_code - _SHELL_SIGNAL_BASE
    return -number if number in set(signal.Signals) else exit_code


def _exceptions(lines: Sequence[str]) -> list[Raised]:
    """Return the exceptions that end the tracebacks in `lines`, without those that Python ignored.

    An exception raised from another one replaces it and holds it as `raised_from`.
    """
    exceptions: list[Raised] = []
    frames: list[Frame] = []
    source = ""
    is_from = is_ignored = False
    for index, line in enumerate(lines):
        if line.endswith(_TRACEBACK):
            frames = []
        elif match := _FRAME.match(line):
            frames.append(_frame_of(match["file"], int(match["line"]), match["function"] or ""))
            source = lines[index + 1].strip() if index + 1 < len(lines) else ""
        elif not frames:
            is_from = is_from or line == _FROM
            is_ignored = is_ignored or line.startswith(_IGNORED)
        elif match := _RAISED.match(line):
            message, rest = (match["message"] or "").strip(), _rest_of_message(lines[index + 1 :])
            raised = Raised(match["type"], message, tuple(frames), None, rest, source)
            if is_from and exceptions:
                raised = replace(raised, raised_from=exceptions.pop())
            if not is_ignored:
                exceptions.append(raised)
            frames, is_from, is_ignored = [], False, False
    return exceptions


def _rest_of_message(lines: Sequence[str]) -> str:
    """Return the lines of a message after its first one, joined; a blank line ends the message."""
    return " ".join(line.strip() for line in takewhile(_continues_message, lines))


def _continues_message(line: str) -> bool:
    """Return whether a line after an exception's first line belongs to the same message."""
    return bool(line.strip()) and not line.endswith(_TRACEBACK) and not _NOT_MESSAGE.match(line)


def _frame_of(path: str, line: int, function: str) -> Frame:
    is_library, is_of_storage = bool(_LIBRARY.search(path)), bool(_STORAGE.search(path))
    is_of_group = "/torch/distributed/" in path and not is_of_storage
    return Frame(PurePath(path).name, line, function, is_library, is_of_group, is_of_storage)


def _most_relevant(exceptions: Sequence[Raised]) -> Raised | None:
    """Return the last exception that is not a lost connection and has a frame of the script.

    A failure of the script ranks above a lost connection to another worker, and then one with a
    frame of the script's code above one without: ranks that print at once may cut a traceback.
    """
    return max(
        reversed(exceptions),
        key=lambda raised: (not _LOST_CONTACT.search(str(raised)), raised.own_place is not None),
        default=None,
    )
