from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from autoscaler.node.shims.redaction import Redactor


def redact(secrets: list[str], *chunks: bytes) -> bytes:
    redactor = Redactor(secrets)
    return b"".join(redactor.feed(chunk) for chunk in chunks) + redactor.finish()


def test_a_secret_is_replaced_wherever_it_is_cut() -> None:
    text = b"token=hunter2secret; again hunter2secret\n"
    for cut in range(len(text)):
        assert redact(["hunter2secret"], text[:cut], text[cut:]) == b"token=***; again ***\n"


def test_nothing_is_held_back_that_can_not_be_a_secret() -> None:
    redactor = Redactor(["hunter2secret"])
    assert redactor.feed(b"epoch 1\nhunt") == b"epoch 1\n"
    assert redactor.feed(b"ing\n") == b"hunting\n"


def test_a_secret_that_begins_another_waits_for_it() -> None:
    assert redact(["abcd", "abcdef"], b"abcd", b"ef") == b"***"
    assert redact(["abcd", "abcdef"], b"abcd", b"xy") == b"***xy"


def test_no_part_of_an_overlapping_secret_is_left() -> None:
    assert redact(["xabc", "abcdef"], b"-xabcdef-") == b"-***-"


def test_each_line_of_a_secret_counts() -> None:
    assert redact(["first line\nsecond line"], b"> second line\n") == b"> ***\n"


def test_short_values_stay() -> None:
    assert redact(["abc", ""], b"abc") == b"abc"


@given(
    secrets=st.lists(st.text("ab\n", min_size=1, max_size=7), max_size=4),
    text=st.text("abc\n", max_size=60).map(str.encode),
    cuts=st.lists(st.integers(0, 60), max_size=6),
)
def test_chunks_make_no_difference_and_no_secret_is_left(
    secrets: list[str], text: bytes, cuts: list[int]
) -> None:
    edges = sorted([0, *(min(cut, len(text)) for cut in cuts), len(text)])
    chunks = [text[start:stop] for start, stop in pairwise(edges)]
    clean = redact(secrets, *chunks)
    assert clean == redact(secrets, text)
    for secret in secrets:
        if len(secret) >= 4:
            assert secret.encode() not in clean
