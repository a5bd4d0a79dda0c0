from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from autoscaler.failures.causes import cause_of_failure
from autoscaler.failures.signature import signature
from tests.failures.texts import ELSEWHERE, HERE, TEXTS, Run, killed_among_ranks, traceback

each_text = pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS.keys())


@each_text
def test_one_cause_has_one_signature(text: Callable[[Run], list[str]]) -> None:
    assert signature(1, text(HERE)) == signature(1, text(ELSEWHERE))


def test_different_causes_have_different_signatures() -> None:
    signatures = {name: signature(1, text(HERE)) for name, text in TEXTS.items()}
    assert len(set(signatures.values())) == len(TEXTS), signatures


@each_text
def test_nothing_of_torchrun_is_in_a_signature(text: Callable[[Run], list[str]]) -> None:
    assert "ChildFailedError" not in signature(1, text(HERE))


def test_a_signature_can_be_read() -> None:
    assert signature(1, TEXTS["wrong_shape"](HERE)) == (
        "RuntimeError: mat# and mat# shapes cannot be multiplied (# and #) (train.py, in step)"
    )


def test_the_root_of_a_chain_is_the_signature() -> None:
    assert signature(1, TEXTS["raised_from"](HERE)) == "KeyError: 'session-#' (train.py, in read)"


def test_torchrun_around_a_script_changes_nothing() -> None:
    bare = traceback(HERE, "ValueError: bad shape", "step")
    assert signature(1, bare) == signature(1, TEXTS["value_error"](HERE))


def test_the_rank_before_each_line_changes_nothing() -> None:
    plain = TEXTS["value_error"](HERE)
    ranked = [f"[rank0]: {line}" for line in traceback(HERE, "ValueError: bad shape", "step")]
    assert signature(1, [*ranked, *plain[len(ranked) :]]) == signature(1, plain)


def test_two_ranks_that_print_into_each_other_change_nothing() -> None:
    one = TEXTS["wrong_shape"](HERE)
    length = one.index(
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x800 and 784x10)"
    )
    mixed = [*one[: length - 4], *one[: length + 1], *one[length - 4 :]]
    assert signature(1, mixed) == signature(1, one)


def test_the_end_of_a_cut_traceback_is_enough() -> None:
    whole = TEXTS["value_error"](HERE)
    assert signature(1, whole[6:]) == signature(1, whole)


def test_a_deeper_recursion_is_the_same_failure() -> None:
    error = "RecursionError: maximum recursion depth exceeded"
    assert signature(1, traceback(HERE, error, *["walk"] * 3)) == signature(
        1, traceback(HERE, error, *["walk"] * 30)
    )


def test_another_ranks_lost_connection_is_not_the_cause() -> None:
    lost = [
        f"[rank1]: {line}" for line in traceback(HERE, "RuntimeError: Connection reset by peer")
    ]
    own = traceback(HERE, "ValueError: bad shape", "step")
    assert signature(1, [*own, *lost]) == signature(1, [*lost, *own]) == signature(1, own)


def test_a_signal_counts_before_what_the_other_ranks_print() -> None:
    assert signature(1, killed_among_ranks(HERE)) == "signal 9"


@pytest.mark.parametrize("exit_code", [-9, 137])
def test_a_kill_without_any_text(exit_code: int) -> None:
    assert signature(exit_code, []) == "signal 9"


def test_an_exception_that_python_ignored_is_not_the_cause() -> None:
    own = traceback(HERE, "ValueError: bad shape", "step")
    ignored = ["Exception ignored in: <function Pool.__del__>", *traceback(HERE, "OSError: late")]
    assert signature(1, [*own, *ignored]) == signature(1, own)


def test_an_exception_that_was_handled_earlier_is_not_the_cause() -> None:
    handled = traceback(HERE, "KeyError: 'cache'", "load")
    own = traceback(HERE, "ValueError: bad shape", "step")
    assert signature(1, [*handled, "step 7 loss 0.3", *own]) == signature(1, own)


def test_frames_of_a_traceback_that_never_ended_are_not_the_place() -> None:
    own = traceback(HERE, "ValueError: bad shape", "step")
    lost = traceback(HERE, "OSError: cut off", "load", "read")[:-1]
    library = [
        "Traceback (most recent call last):",
        '  File "/opt/lib/python3.11/a.py", line 1, in f',
    ]
    assert signature(1, [*lost, *own]) == signature(1, own)
    assert signature(1, [*lost, *library, "OSError: x"]) == "OSError: x (a.py, in f)"


def test_a_progress_bar_is_seen_as_it_was_last_drawn() -> None:
    bar = "\r".join(f"epoch {i}: {10 * i}%" for i in range(9)) + "\rno data left"
    assert signature(3, [bar]) == signature(3, ["\x1b[31mno data left\x1b[0m"])


@given(st.integers(-70, 255), st.lists(st.text(max_size=80), max_size=20))
def test_any_text_has_a_signature_and_a_cause_of_one_line(
    exit_code: int, lines: list[str]
) -> None:
    found = [signature(exit_code, lines), cause_of_failure(exit_code, lines)]
    assert all(text and len(text.splitlines()) == 1 for text in found)


@given(
    st.from_regex(
        r"(bad|no such|lost) [a-z]{1,8}: \d{1,9}(\.\d{1,3})?( at 0x[0-9a-f]{6})?", fullmatch=True
    ),
    st.text("0123456789", min_size=1, max_size=9),
)
def test_numbers_do_not_count(message: str, number: str) -> None:
    words, _, rest = message.partition(": ")
    changed = f"{words}: {number}" + (" at 0x12ab" if " at " in rest else "")
    assert signature(1, traceback(HERE, f"ValueError: {message}")) == signature(
        1, traceback(HERE, f"ValueError: {changed}")
    )


def test_the_torchrun_of_this_machine_is_seen_through(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="needs the training extra")
    script = tmp_path / "train.py"
    script.write_text("def step():\n    raise ValueError('bad shape')\n\nstep()\n")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    lines = done.stderr.splitlines()
    assert "ChildFailedError" in done.stderr
    assert signature(done.returncode, lines) == "ValueError: bad shape (train.py, in step)"
