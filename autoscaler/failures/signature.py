"""Signatures of failures, equal for failures with the same cause on any instance, in any run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from autoscaler.failures.evidence import read_evidence

_LONGEST_SIGNATURE: Final = 200
_DIRECTORIES: Final = re.compile(r"(?:~|\.{1,2})?(?:/[^\s/'\":,()\[\]]+)+/|(?<!\w)/")
_RANDOM_NAMES: Final = re.compile(r"(?<![a-zA-Z\d])(?=[a-zA-Z\d]*\d[a-zA-Z])[a-zA-Z\d]{7,}")
_NUMBERS: Final = re.compile(r"[+-]?\b0x[0-9a-fA-F]+|[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_UNITS: Final = re.compile(r"(?<=#) ?(?:[KMGTP]i?B|[kMG]?B|bytes?|%|[mun]?s|(?:milli)?seconds?)\b")
_REPEATED_MARKS: Final = re.compile(r"#(?:[\s,.:;x_/-]*#)+")


def signature(exit_code: int, last_lines: Sequence[str]) -> str:
    """Return the part of a failure that does not change from run to run.

    The signature holds the root exception's type, its message without numbers, units, times,
    addresses, random names and directories, and the innermost function of the script's own code.
    Without an exception, it holds the signal, or the exit code and the last line. Line numbers and
    outer functions are left out, so that deeper recursion or an edit elsewhere gives the same
    signature.

    Args:
        exit_code: the exit code of the process, also of torchrun; negative for a signal.
        last_lines: the last lines of the output.
    """
    evidence = read_evidence(exit_code, last_lines)
    if evidence.raised is not None:
        return f"{_normalized(str(evidence.raised.root))} ({evidence.raised.place.constant})"
    if evidence.exit_code < 0:
        return f"signal {-evidence.exit_code}"
    return f"exit code {evidence.exit_code}: {_normalized(evidence.last_line)}".removesuffix(": ")


def _normalized(text: str) -> str:
    for variable, constant in (
        (_DIRECTORIES, ""),
        (_RANDOM_NAMES, "#"),
        (_NUMBERS, "#"),
        (_UNITS, ""),
        (_REPEATED_MARKS, "#"),
    ):
        text = variable.sub(constant, text)
    return " ".join(text.split())[:_LONGEST_SIGNATURE]
