"""The signature of a failure: equal for failures of one cause, on any instance, in any run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from autoscaler.failures.evidence import read_evidence

_LONGEST: Final = 200
_DIRECTORIES: Final = re.compile(r"(?:~|\.{1,2})?(?:/[^\s/'\":,()\[\]]+)+/|(?<!\w)/")
_MIXED: Final = re.compile(r"(?<![a-zA-Z\d])(?=[a-zA-Z\d]*\d[a-zA-Z])[a-zA-Z\d]{7,}")
_NUMBER: Final = re.compile(r"[+-]?\b0x[0-9a-fA-F]+|[+-]?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?")
_SERIES: Final = re.compile(r"#(?:[\s,.:;x_/-]*#)+")


def signature(exit_code: int, last_lines: Sequence[str]) -> str:
    """What stays of a failure when everything that changes from run to run is taken out.

    It is made of the root exception's type, its message without numbers, times, addresses,
    random names and directories, and the innermost function of the script's own code; without
    an exception, of the signal, or of the exit code and the last line. One function only, and no
    line number, so that a deeper recursion or a comment more is still the same failure.

    Args:
        exit_code: of the process that was waited for, torchrun's too; negative for a signal.
        last_lines: what was printed last.
    """
    evidence = read_evidence(exit_code, last_lines)
    if evidence.raised is not None:
        return f"{_constant(str(evidence.raised.root))} ({evidence.raised.place.constant})"
    if evidence.exit_code < 0:
        return f"signal {-evidence.exit_code}"
    return f"exit code {evidence.exit_code}: {_constant(evidence.last_line)}".removesuffix(": ")


def _constant(text: str) -> str:
    for variable, constant in ((_DIRECTORIES, ""), (_MIXED, "#"), (_NUMBER, "#"), (_SERIES, "#")):
        text = variable.sub(constant, text)
    return " ".join(text.split())[:_LONGEST]
