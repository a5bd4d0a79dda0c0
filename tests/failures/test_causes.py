from __future__ import annotations

import pytest

from autoscaler.failures.causes import caught_words, cause_of_failure
from tests.failures.texts import HERE, TEXTS, killed_among_ranks, traceback

EXPECTED = {
    "wrong_shape": "the script raised RuntimeError: mat1 and mat2 shapes cannot be multiplied "
    "(64x800 and 784x10) (train.py:13, in step)",
    "value_error": "the script raised ValueError: bad shape (train.py:13, in step)",
    "value_error_elsewhere": "the script raised ValueError: bad shape (train.py:13, in evaluate)",
    "raised_from": "the script raised RuntimeError: no session (train.py:13, in read)",
    "no_module": "no module named 'foo' (train.py:12, in main): add it to setup",
    "no_name_in_module": "cannot import name 'Adam2'",
    "syntax_error": "the script is not valid Python (train.py:11): invalid syntax",
    "device_memory": "a device ran out of memory (train.py:13, in step): lower device_max under "
    "batch",
    "loader_killed": "a DataLoader worker was killed",
    "loader_error": "the script raised KeyError: 'sample 800' (data.py:11, in __getitem__)",
    "killed": "killed by signal 9 (out of memory?)",
    "crashed": "crashed with signal 11 (SIGSEGV)",
    "lost_contact": "lost contact with another worker",
    "nccl_watchdog": "lost contact with another worker",
    "no_file": "there is no /datasets/digits/train.npz (train.py:13, in load)",
    "no_script": "there is no script /srv/jobs/digits-1/tree/trian.py",
    "wrong_arguments": "unrecognized arguments: --lrr 3",
    "disk_full": "the disk is full (train.py:13, in save)",
    "broken_checkpoint": "a checkpoint can't be read or written",
    "unfitting_checkpoint": "the checkpoint does not fit the model Net (train.py:13, in restore)",
    "diverged": "training diverged (train.py:13, in step)",
    "not_permitted": "'/datasets/private'",
    "broken_device": "a device is broken",
    "old_driver": "no kernel image",
    "no_device": "CUDA does not start",
    "bad_index": "a kernel accessed invalid memory, perhaps by an index out of range (train.py:13",
    "host_memory": "the instance ran out of memory (train.py:13, in step)",
    "recorded_only": "the script raised KeyError: 'lr' (train.py:12, in main)",
    "own_exit_code": "ended with exit code 3: ",
}


@pytest.mark.parametrize("name", TEXTS)
def test_cause(name: str) -> None:
    assert EXPECTED[name] in cause_of_failure(1, TEXTS[name](HERE))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("bash: line 1: nvcc: command not found", "no program nvcc"),
        (
            "ERROR: No matching distribution found for foo==9",
            "pip found no such package: No matching distribution found for foo==9",
        ),
        ("cp: error: No space left on device", "the disk is full"),
        ("", "ended with exit code 1: it printed nothing"),
    ],
)
def test_setup_commands_have_causes_too(line: str, words: str) -> None:
    assert words in cause_of_failure(1, ["Collecting things", line] if line else [])


def test_a_handled_exception_and_its_cause_are_both_looked_at() -> None:
    link = "The above exception was the direct cause of the following exception:"
    root = traceback(HERE, "KeyError: 'lr'", "read")
    outer = traceback(HERE, "RuntimeError: CUDA out of memory", "step")
    cause = cause_of_failure(1, [*root, "", link, "", *outer])
    assert cause.startswith("a device ran out of memory")


def test_memory_that_one_example_exceeds_is_told_with_its_way_out() -> None:
    link = "The above exception was the direct cause of the following exception:"
    root = traceback(HERE, "torch.OutOfMemoryError: CUDA out of memory. Tried to ...", "step")
    words = "a device of kind t4 ran out of memory with 1 example at once, which can't be split"
    outer = traceback(HERE, f"autoscaler.domain.errors.DeviceMemoryError: {words}", "step")
    assert cause_of_failure(1, [*root, "", link, "", *outer]) == words


def test_warnings_before_a_traceback_are_not_the_cause() -> None:
    noise = ["NCCL WARN Connection refused", "loss is nan in this batch, skipped"]
    own = traceback(HERE, "ValueError: bad shape", "step")
    cause = cause_of_failure(1, [*noise, *own])
    assert cause.startswith("the script raised ValueError: bad shape")


def test_a_kill_is_not_explained_by_what_other_ranks_print() -> None:
    assert cause_of_failure(1, killed_among_ranks(HERE)) == "killed by signal 9 (out of memory?)"


@pytest.mark.parametrize("exit_code", [-15, 143, -2])
def test_being_told_to_end(exit_code: int) -> None:
    assert cause_of_failure(exit_code, []).startswith("ended by signal")


def test_a_message_of_a_few_lines_of_text_is_whole() -> None:
    message = " ".join(f"word{number}" for number in range(60))
    cause = cause_of_failure(1, traceback(HERE, f"ValueError: {message}", "step"))
    assert cause == f"the script raised ValueError: {message} (train.py:13, in step)"


def test_words_are_bounded_and_keep_the_place() -> None:
    cause = cause_of_failure(1, traceback(HERE, "ValueError: " + "long " * 2000, "step"))
    assert len(cause) <= 1000
    assert cause.endswith("… (train.py:13, in step)")


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["ValueError: the learning rate is wrong:", "  second line", "third line"],
            "ValueError: the learning rate is wrong: second line third line",
        ),
        (["ValueError: bad shape", "", "step 5 of rank 1"], "ValueError: bad shape"),
        (
            ["ValueError: bad shape", "train.py:3: UserWarning: a worker is left", "  f(x)"],
            "ValueError: bad shape",
        ),
        (["ValueError: bad shape", "wandb: Synced 1 file"], "ValueError: bad shape"),
        (
            ["ValueError: bad shape", "[W1120 23:01:04.4 group.cpp:1] leak"],
            "ValueError: bad shape",
        ),
    ],
)
def test_a_message_of_several_lines_is_whole(lines: list[str], message: str) -> None:
    cause = cause_of_failure(1, [*traceback(HERE, lines[0], "step"), *lines[1:]])
    assert cause == f"the script raised {message} (train.py:13, in step)"


def test_an_exception_that_was_caught_has_its_message_and_place() -> None:
    def read() -> None:
        raise KeyError("lr")

    def objective() -> None:
        try:
            read()
        except KeyError as error:
            raise ValueError("bad value\n\n  here") from error

    with pytest.raises(ValueError, match="bad value") as caught:
        objective()
    line = read.__code__.co_firstlineno + 1
    assert (
        caught_words(caught.value)
        == f"ValueError: bad value here ({__name__.rpartition('.')[2]}.py:{line}, in read)"
    )


def test_an_exception_raised_from_itself_ends() -> None:
    error = ValueError("again")
    with pytest.raises(ValueError, match="again") as caught:
        raise error from error
    assert caught_words(caught.value).startswith("ValueError: again (test_causes.py:")
