"""What kind of failure it was, and the one line that a person sees.

The categories are those that Jeon et al. (USENIX ATC'19) found in two months of failures of a
shared cluster, Table 7, with a full disk added; explicit signs count before general ones.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from autoscaler.failures.evidence import Evidence, Raised, raised_of, read_evidence

_LONGEST: Final = 1000
_LONGEST_ERROR: Final = 800
_LINES_SEARCHED: Final = 30


class Category(StrEnum):
    """Kinds of failures."""

    HOST_MEMORY = "out of host memory"
    DEVICE_MEMORY = "out of device memory"
    DISK_FULL = "disk full"
    INCORRECT_INPUT = "incorrect input"
    SEMANTIC_ERROR = "semantic error"
    SYNTAX_ERROR = "syntax error"
    IMPORT_ERROR = "import error"
    PERMISSION_ERROR = "permission error"
    CHECKPOINT_ERROR = "checkpoint error"
    DIVERGED = "model diverged"
    COMMUNICATION = "communication failure"
    CUDA_FAILURE = "CUDA failure"
    CUDA_START = "CUDA does not start"
    CUDA_VERSION = "CUDA version mismatch"
    DEVICE_BROKEN = "broken device"
    INVALID_MEMORY_ACCESS = "invalid memory access"
    CORE_DUMP = "core dump"
    ENDED_FROM_OUTSIDE = "ended from outside"
    EXCEPTION = "exception"
    UNKNOWN = "no signature"


@dataclass(frozen=True, slots=True)
class Cause:
    """Why a start failed: `words` are one line that a person reads."""

    category: Category
    words: str


@dataclass(frozen=True, slots=True)
class _Rule:
    """What the text of a failure holds, and the words for it.

    `words` may use the pattern's named groups, `{error}` for the exception or the line that
    matched, and `{place}` for " (file:line, in function)".
    """

    category: Category
    pattern: re.Pattern[str]
    words: str


def _rule(category: Category, pattern: str, words: str) -> _Rule:
    return _Rule(category, re.compile(pattern, re.MULTILINE), words)


_RAISED_WORDS: Final = "the script raised {error}{place}"

_RULES: Final = (
    _rule(Category.DEVICE_MEMORY, r"^DeviceMemoryError: (?P<said>.+)", "{said}"),
    _rule(
        Category.DEVICE_MEMORY,
        r"CUDA out of memory|HIP out of memory|CUBLAS_STATUS_ALLOC_FAILED|^OutOfMemoryError",
        "a device ran out of memory{place}: lower device_max under batch",
    ),
    _rule(
        Category.DEVICE_BROKEN,
        r"uncorrectable ECC|ECC_UNCORRECTABLE|fallen off the bus",
        "a device is broken: {error}",
    ),
    _rule(
        Category.CUDA_VERSION,
        r"no kernel image is available|driver version is insufficient|driver .*is too old",
        "the CUDA of the environment does not go with the device or its driver: {error}",
    ),
    _rule(
        Category.CUDA_START,
        r"No CUDA GPUs are available|CUDA unknown error|CUDA error: initialization error"
        r"|CUDA_ERROR_NOT_INITIALIZED|CUDA driver initialization failed|not compiled with CUDA",
        "CUDA does not start: {error}",
    ),
    _rule(
        Category.INVALID_MEMORY_ACCESS,
        r"illegal memory access|misaligned address|device-side assert",
        "a kernel accessed memory wrongly, perhaps by an index out of range{place}: {error}",
    ),
    _rule(
        Category.COMMUNICATION,
        r"NCCL|\bgloo\b|Watchdog caught|Rendezvous\w*(?:Timeout|Connection)|DistNetworkError"
        r"|[Ll]ighthouse|\b[Qq]uorum\b",
        "lost contact with another worker: {error}",
    ),
    _rule(
        Category.CUDA_FAILURE,
        r"CUDA error|CUDNN_STATUS|CUBLAS_STATUS|cuDNN error",
        "CUDA failed{place}: {error}",
    ),
    _rule(
        Category.HOST_MEMORY,
        r"DataLoader worker .*signal: Bus error",
        "a DataLoader worker ran out of shared memory{place}: lower num_workers",
    ),
    _rule(
        Category.HOST_MEMORY,
        r"DataLoader worker .*signal: Killed",
        "a DataLoader worker was killed, probably out of memory{place}: lower num_workers",
    ),
    _rule(
        Category.HOST_MEMORY,
        r"^MemoryError|std::bad_alloc|Cannot allocate memory|DefaultCPUAllocator",
        "the instance ran out of memory{place}: {error}",
    ),
    _rule(
        Category.DISK_FULL,
        r"No space left on device|\[Errno 28\]|Disk quota exceeded",
        "the disk is full{place}: {error}",
    ),
    _rule(
        Category.CHECKPOINT_ERROR,
        r"PytorchStreamReader|PytorchStreamWriter|inline_container|CheckpointError",
        "a checkpoint can't be read or written{place}: {error}",
    ),
    _rule(
        Category.SEMANTIC_ERROR,
        r"Error\(s\) in loading state_dict for (?P<model>\w+)",
        "the checkpoint does not fit the model {model}{place}",
    ),
    _rule(
        Category.IMPORT_ERROR,
        r"No module named '?(?P<module>[\w.]+)'?",
        "no module named '{module}'{place}: add it to setup",
    ),
    _rule(
        Category.IMPORT_ERROR,
        r"^(?:ImportError|ModuleNotFoundError): (?P<said>.*)",
        "an import failed{place}: {said}",
    ),
    _rule(
        Category.IMPORT_ERROR,
        r"^ERROR: (?P<said>Could not find a version .*|No matching distribution .*)",
        "pip found no such package: {said}",
    ),
    _rule(
        Category.SYNTAX_ERROR,
        r"^(?:SyntaxError|IndentationError|TabError): (?P<said>.*)",
        "the script is not valid Python{place}: {said}",
    ),
    _rule(
        Category.PERMISSION_ERROR,
        r"^PermissionError|[Pp]ermission denied|AccessDenied|40[13] Client Error|40[13] Forbidden",
        "something is not permitted{place}: {error}",
    ),
    _rule(
        Category.INCORRECT_INPUT,
        r"No such file or directory: '(?P<file>.*)'",
        "there is no {file}{place}",
    ),
    _rule(
        Category.INCORRECT_INPUT,
        r"can't open file '(?P<file>.*?)'",
        "there is no script {file}: see command and working_directory",
    ),
    _rule(
        Category.INCORRECT_INPUT,
        r"^(?:.*: )?(?P<program>\S+): (?:command )?not found",
        "there is no program {program}: install it in setup",
    ),
    _rule(
        Category.INCORRECT_INPUT,
        r"error: (?P<said>unrecognized arguments.*|the following arguments are.*|argument .*)",
        "the script does not take its command line: {said}",
    ),
    _rule(
        Category.INCORRECT_INPUT,
        r"^FileNotFoundError|No such file|NoSuchKey|NoSuchBucket|404 Client Error"
        r"|^\w*DecodeError|^BadZipFile|^IsADirectoryError|^NotADirectoryError",
        "an input can't be read{place}: {error}",
    ),
    _rule(
        Category.COMMUNICATION,
        r"Connection (?:reset|refused|closed|timed out)|Broken pipe|Max retries exceeded"
        r"|[Nn]ame resolution|^(?:Connection|Timeout)\w*Error",
        "a network connection failed{place}: {error}",
    ),
    _rule(
        Category.DIVERGED,
        r"^(?:FloatingPoint|Diverged)Error|(?i:\bloss\b.{0,40}\b(?:nan|inf|infinite)\b|\bnan\b.{0,20}\bloss)",
        "training diverged{place}: {error}",
    ),
    _rule(
        Category.ENDED_FROM_OUTSIDE,
        r"^SignalException: .*signal: (?P<number>\d+)",
        "the launcher was told to end (signal {number})",
    ),
    _rule(
        Category.SEMANTIC_ERROR,
        r"^(?:TypeError|AttributeError|NameError|UnboundLocalError|AssertionError)"
        r"|shapes? .*(?:invalid|cannot be multiplied|mismatch)|size mismatch|must match the size"
        r"|Expected all tensors|expected scalar type",
        _RAISED_WORDS,
    ),
)


def classify(exit_code: int, last_lines: Sequence[str]) -> Cause:
    """The cause of a failure, as far as what was printed tells it.

    Args:
        exit_code: of the process that was waited for, torchrun's too; negative for a signal.
        last_lines: what was printed last.
    """
    evidence = read_evidence(exit_code, last_lines)
    if evidence.was_killed:
        return _signalled(-evidence.exit_code)
    return _explicit(evidence) or _general(evidence)


def _explicit(evidence: Evidence) -> Cause | None:
    """The first rule that an exception of the chain fits or, without one, one of the lines."""
    raised = evidence.raised
    if raised is not None:
        texts = {str(error): error.whole for error in (raised.root, raised)}
        place = f" ({raised.place})"
    else:
        texts = {line: line for line in reversed(evidence.lines[-_LINES_SEARCHED:])}
        place = ""
    for rule in _RULES:
        for text, whole in texts.items():
            if match := rule.pattern.search(text):
                words = rule.words.format(
                    error=_one_line(whole, _LONGEST_ERROR), place=place, **match.groupdict()
                )
                return Cause(rule.category, _one_line(words))
    return None


def _general(evidence: Evidence) -> Cause:
    if evidence.raised is not None:
        words = f"the script raised {_whole(evidence.raised)} ({evidence.raised.place})"
        return Cause(Category.EXCEPTION, words)
    if evidence.exit_code < 0:
        return _signalled(-evidence.exit_code)
    said = evidence.last_line or "it printed nothing"
    return Cause(Category.UNKNOWN, _one_line(f"ended with exit code {evidence.exit_code}: {said}"))


def caught_words(error: BaseException) -> str:
    """Return one line for an exception: its message, and where the caller's own code raised it."""
    raised = raised_of(error)
    place = "" if raised.own_place is None else f" ({raised.own_place})"
    return f"{_whole(raised)}{place}"


def _whole(raised: Raised) -> str:
    return _one_line(raised.whole, _LONGEST_ERROR)


def _signalled(number: int) -> Cause:
    if number == signal.SIGKILL:
        return Cause(Category.HOST_MEMORY, "killed by signal 9 (out of memory?)")
    name = next((known.name for known in signal.Signals if known == number), "unknown")
    if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        return Cause(Category.ENDED_FROM_OUTSIDE, f"told to end by signal {number} ({name})")
    return Cause(Category.CORE_DUMP, f"crashed with signal {number} ({name})")


def _one_line(words: str, longest: int = _LONGEST) -> str:
    line = " ".join(words.split())
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"
