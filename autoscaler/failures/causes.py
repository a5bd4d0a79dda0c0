"""The one-line cause of a failure that users see.

The signatures follow Jeon et al. (USENIX ATC'19), Table 7, observed in two months of failures of a
shared cluster, with a full disk added. Specific signatures precede general ones.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from autoscaler.failures.evidence import Evidence, Raised, raised_of, read_evidence

_LONGEST_CAUSE: Final = 1000
_LONGEST_ERROR: Final = 800
_LINES_SEARCHED: Final = 30


@dataclass(frozen=True, slots=True)
class _Rule:
    """A pattern in the text of a failure, with the line for the user.

    `words` may use the pattern's named groups, `{error}` for the exception or the line that
    matched, and `{place}` for " (file:line, in function)".
    """

    pattern: re.Pattern[str]
    words: str


def _rule(pattern: str, words: str) -> _Rule:
    return _Rule(re.compile(pattern, re.MULTILINE), words)


_RAISED_WORDS: Final = "the script raised {error}{place}"

_RULES: Final = (
    _rule(r"^DeviceMemoryError: (?P<said>.+)", "{said}"),
    _rule(
        r"CUDA out of memory|HIP out of memory|CUBLAS_STATUS_ALLOC_FAILED|^OutOfMemoryError",
        "a device ran out of memory{place}: lower device_max under batch",
    ),
    _rule(
        r"uncorrectable ECC|ECC_UNCORRECTABLE|fallen off the bus",
        "a device is broken: {error}",
    ),
    _rule(
        r"no kernel image is available|driver version is insufficient|driver .*is too old",
        "the CUDA version of the environment does not match the device or its driver: {error}",
    ),
    _rule(
        r"No CUDA GPUs are available|CUDA unknown error|CUDA error: initialization error"
        r"|CUDA_ERROR_NOT_INITIALIZED|CUDA driver initialization failed|not compiled with CUDA",
        "CUDA does not start: {error}",
    ),
    _rule(
        r"illegal memory access|misaligned address|device-side assert",
        "a kernel accessed invalid memory, perhaps by an index out of range{place}: {error}",
    ),
    _rule(
        r"NCCL|\bgloo\b|Watchdog caught|Rendezvous\w*(?:Timeout|Connection)|DistNetworkError"
        r"|[Ll]ighthouse|\b[Qq]uorum\b",
        "lost contact with another worker: {error}",
    ),
    _rule(
        r"CUDA error|CUDNN_STATUS|CUBLAS_STATUS|cuDNN error",
        "CUDA failed{place}: {error}",
    ),
    _rule(
        r"DataLoader worker .*signal: Bus error",
        "a DataLoader worker ran out of shared memory{place}: lower num_workers",
    ),
    _rule(
        r"DataLoader worker .*signal: Killed",
        "a DataLoader worker was killed, probably out of memory{place}: lower num_workers",
    ),
    _rule(
        r"^MemoryError|std::bad_alloc|Cannot allocate memory|DefaultCPUAllocator",
        "the instance ran out of memory{place}: {error}",
    ),
    _rule(
        r"No space left on device|\[Errno 28\]|Disk quota exceeded",
        "the disk is full{place}: {error}",
    ),
    _rule(
        r"PytorchStreamReader|PytorchStreamWriter|inline_container|CheckpointError",
        "a checkpoint can't be read or written{place}: {error}",
    ),
    _rule(
        r"Error\(s\) in loading state_dict for (?P<model>\w+)",
        "the checkpoint does not fit the model {model}{place}",
    ),
    _rule(
        r"No module named '?(?P<module>[\w.]+)'?",
        "no module named '{module}'{place}: add it to setup",
    ),
    _rule(
        r"^(?:ImportError|ModuleNotFoundError): (?P<said>.*)",
        "an import failed{place}: {said}",
    ),
    _rule(
        r"^ERROR: (?P<said>Could not find a version .*|No matching distribution .*)",
        "pip found no such package: {said}",
    ),
    _rule(
        r"^(?:SyntaxError|IndentationError|TabError): (?P<said>.*)",
        "the script is not valid Python{place}: {said}",
    ),
    _rule(
        r"^PermissionError|[Pp]ermission denied|AccessDenied|40[13] Client Error|40[13] Forbidden",
        "something is not permitted{place}: {error}",
    ),
    _rule(
        r"No such file or directory: '(?P<file>.*)'",
        "there is no {file}{place}",
    ),
    _rule(
        r"can't open file '(?P<file>.*?)'",
        "there is no script {file}: check command and working_directory",
    ),
    _rule(
        r"^(?:.*: )?(?P<program>\S+): (?:command )?not found",
        "there is no program {program}: install it in setup",
    ),
    _rule(
        r"error: (?P<said>unrecognized arguments.*|the following arguments are.*|argument .*)",
        "the script does not accept its command line: {said}",
    ),
    _rule(
        r"^FileNotFoundError|No such file|NoSuchKey|NoSuchBucket|404 Client Error"
        r"|^\w*DecodeError|^BadZipFile|^IsADirectoryError|^NotADirectoryError",
        "an input can't be read{place}: {error}",
    ),
    _rule(
        r"Connection (?:reset|refused|closed|timed out)|Broken pipe|Max retries exceeded"
        r"|[Nn]ame resolution|^(?:Connection|Timeout)\w*Error",
        "a network connection failed{place}: {error}",
    ),
    _rule(
        r"^(?:FloatingPoint|Diverged)Error|(?i:\bloss\b.{0,40}\b(?:nan|inf|infinite)\b|\bnan\b.{0,20}\bloss)",
        "training diverged{place}: {error}",
    ),
    _rule(
        r"^SignalException: .*signal: (?P<number>\d+)",
        "the launcher was ended by signal {number}",
    ),
    _rule(
        r"^(?:TypeError|AttributeError|NameError|UnboundLocalError|AssertionError)"
        r"|shapes? .*(?:invalid|cannot be multiplied|mismatch)|size mismatch|must match the size"
        r"|Expected all tensors|expected scalar type",
        _RAISED_WORDS,
    ),
)


def cause_of_failure(exit_code: int, last_lines: Sequence[str]) -> str:
    """Return the cause of a failure from the exit code and the output.

    Args:
        exit_code: the exit code of the process, also of torchrun; negative for a signal.
        last_lines: the last lines of the output.
    """
    evidence = read_evidence(exit_code, last_lines)
    if evidence.was_killed:
        return _cause_of_signal(-evidence.exit_code)
    return _match_rules(evidence) or _describe_unmatched(evidence)


def _match_rules(evidence: Evidence) -> str | None:
    """Return the cause by the first rule that matches; None if no rule matches.

    The rules search the root exception and the last one, or without a traceback the last lines.
    """
    raised = evidence.raised
    if raised is not None:
        whole_texts = {str(error): error.whole for error in (raised.root, raised)}
        place = f" ({raised.place})"
    else:
        whole_texts = {line: line for line in reversed(evidence.lines[-_LINES_SEARCHED:])}
        place = ""
    for rule in _RULES:
        for text, whole in whole_texts.items():
            if match := rule.pattern.search(text):
                text_of_cause = rule.words.format(
                    error=_one_line(whole, _LONGEST_ERROR), place=place, **match.groupdict()
                )
                return _one_line(text_of_cause)
    return None


def _describe_unmatched(evidence: Evidence) -> str:
    if evidence.raised is not None:
        return f"the script raised {_shortened_error(evidence.raised)} ({evidence.raised.place})"
    if evidence.exit_code < 0:
        return _cause_of_signal(-evidence.exit_code)
    last_line = evidence.last_line or "it printed nothing"
    return _one_line(f"ended with exit code {evidence.exit_code}: {last_line}")


def caught_words(error: BaseException) -> str:
    """Return one line for an exception: its message, and where the caller's own code raised it."""
    raised = raised_of(error)
    place = "" if raised.own_place is None else f" ({raised.own_place})"
    return f"{_shortened_error(raised)}{place}"


def _shortened_error(raised: Raised) -> str:
    return _one_line(raised.whole, _LONGEST_ERROR)


def _cause_of_signal(number: int) -> str:
    if number == signal.SIGKILL:
        return "killed by signal 9 (out of memory?)"
    name = next(
        (known_signal.name for known_signal in signal.Signals if known_signal == number), "unknown"
    )
    if number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        return f"ended by signal {number} ({name})"
    return f"crashed with signal {number} ({name})"


def _one_line(text: str, longest: int = _LONGEST_CAUSE) -> str:
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"
