from __future__ import annotations

import pytest

from autoscaler.domain.report import FailureCategory, FailureReason
from autoscaler.failures.causes import diagnose
from autoscaler.failures.signature import signature
from tests.failures.texts import HERE, TEXTS, killed_among_ranks, traceback, under_torchrun

CATEGORIES = {
    "wrong_shape": FailureCategory.SEMANTIC,
    "value_error": FailureCategory.EXCEPTION,
    "value_error_elsewhere": FailureCategory.EXCEPTION,
    "raised_from": FailureCategory.SEMANTIC,
    "no_module": FailureCategory.IMPORT,
    "no_name_in_module": FailureCategory.IMPORT,
    "syntax_error": FailureCategory.SYNTAX,
    "device_memory": FailureCategory.DEVICE_MEMORY,
    "loader_killed": FailureCategory.HOST_MEMORY,
    "loader_error": FailureCategory.SEMANTIC,
    "killed": FailureCategory.HOST_MEMORY,
    "crashed": FailureCategory.CRASH,
    "lost_contact": FailureCategory.COMMUNICATION,
    "nccl_watchdog": FailureCategory.COMMUNICATION,
    "no_file": FailureCategory.INPUT,
    "no_script": FailureCategory.INPUT,
    "wrong_arguments": FailureCategory.INPUT,
    "disk_full": FailureCategory.DISK_FULL,
    "broken_checkpoint": FailureCategory.CHECKPOINT,
    "unfitting_checkpoint": FailureCategory.SEMANTIC,
    "diverged": FailureCategory.DIVERGED,
    "not_permitted": FailureCategory.PERMISSION,
    "broken_device": FailureCategory.BROKEN_DEVICE,
    "old_driver": FailureCategory.CUDA_VERSION,
    "no_device": FailureCategory.CUDA_START,
    "bad_index": FailureCategory.INVALID_MEMORY_ACCESS,
    "host_memory": FailureCategory.HOST_MEMORY,
    "recorded_only": FailureCategory.SEMANTIC,
    "own_exit_code": FailureCategory.UNKNOWN,
}

LAUNCH_FAILURE = "RuntimeError: CUDA error: unspecified launch failure"


@pytest.mark.parametrize("name", TEXTS)
def test_category(name: str) -> None:
    assert diagnose(1, TEXTS[name](HERE)).category is CATEGORIES[name]


@pytest.mark.parametrize(
    "line",
    [
        "[ 8123.1] NVRM: Xid (PCI:0000:00:1e): 79, pid=1234, GPU has fallen off the bus.",
        "NVRM: Xid (PCI:0000:3b:00): 48, pid=901, DBE (Double Bit Error) at 0x4d",
        "kernel: NVRM: Xid (PCI:0000:dc:00): 45, Ch 00000001 caused by previous Xid 149",
    ],
)
def test_a_broken_device_in_the_log_outweighs_the_exception_that_it_caused(line: str) -> None:
    lines = [line, *traceback(HERE, LAUNCH_FAILURE, "step")]
    diagnosis = diagnose(1, lines)
    assert diagnosis.category is FailureCategory.BROKEN_DEVICE
    assert line in diagnosis.cause


def test_an_xid_that_programs_cause_does_not_condemn_the_device() -> None:
    line = "NVRM: Xid (PCI:0000:db:00): 31, pid=13641, MMU Fault: ENGINE GRAPHICS"
    lines = [line, *traceback(HERE, LAUNCH_FAILURE, "step")]
    assert diagnose(1, lines).category is FailureCategory.CUDA_FAILURE
    assert diagnose(1, [line]).category is FailureCategory.INVALID_MEMORY_ACCESS


def test_lines_beside_an_exception_that_explains_nothing_are_searched() -> None:
    watchdog = "CUDA out of memory. Tried to allocate 1.70 GiB."
    lines = [watchdog, *traceback(HERE, "ValueError: no result", "step")]
    assert diagnose(1, lines).category is FailureCategory.DEVICE_MEMORY
    own = [watchdog, *traceback(HERE, "KeyboardInterrupt", "step")]
    assert diagnose(1, own).category is FailureCategory.ENDED_FROM_OUTSIDE


@pytest.mark.parametrize("warning", ["wandb: ERROR Please log in", "W: Not authorized to read"])
def test_a_refusal_that_the_script_survived_does_not_forbid_retries(warning: str) -> None:
    lines = [warning, *traceback(HERE, "RuntimeError: no result", "step")]
    assert diagnose(1, lines).category is FailureCategory.EXCEPTION


@pytest.mark.parametrize(
    ("exit_code", "category"),
    [
        (-9, FailureCategory.HOST_MEMORY),
        (137, FailureCategory.HOST_MEMORY),
        (143, FailureCategory.ENDED_FROM_OUTSIDE),
        (-2, FailureCategory.ENDED_FROM_OUTSIDE),
        (-11, FailureCategory.CRASH),
        (134, FailureCategory.CRASH),
        (3, FailureCategory.UNKNOWN),
    ],
)
def test_exit_codes_without_text(exit_code: int, category: FailureCategory) -> None:
    assert diagnose(exit_code, ["step 5"]).category is category


@pytest.mark.parametrize(
    ("memory_kills", "category", "cause"),
    [
        (None, FailureCategory.HOST_MEMORY, "killed by signal 9 (out of memory?)"),
        (2, FailureCategory.HOST_MEMORY, "killed by signal 9: out of memory"),
        (0, FailureCategory.ENDED_FROM_OUTSIDE, "killed by signal 9, not for lack of memory"),
    ],
)
@pytest.mark.parametrize("exit_code", [-9, 137])
def test_the_kernel_knows_whether_memory_was_short(
    exit_code: int, memory_kills: int | None, category: FailureCategory, cause: str
) -> None:
    diagnosis = diagnose(exit_code, ["step 5"], memory_kills=memory_kills)
    assert (diagnosis.category, diagnosis.cause) == (category, cause)


@pytest.mark.parametrize(
    ("line", "category"),
    [
        ("OSError: [Errno 122] Disk quota exceeded", FailureCategory.DISK_FULL),
        ("Error: write failed (os error 28)", FailureCategory.DISK_FULL),
        ("h5 write failed, errno = 28, error message = 'x'", FailureCategory.DISK_FULL),
        ("OSError: [Errno 30] ro: '/data'", FailureCategory.PERMISSION),
        ("OSError: [Errno 116] Stale file handle", FailureCategory.NETWORK),
        ("a.HttpError: Invalid token, 401", FailureCategory.PERMISSION),
        ("b.HTTPError: HTTP Error 404: Gone", FailureCategory.INPUT),
        ("returned error 503 by the proxy", FailureCategory.NETWORK),
        ("requests.HTTPError: 429 Client Error for url: /v1/401", FailureCategory.NETWORK),
        ("c.auth.exceptions.DefaultCredentialsError: none", FailureCategory.PERMISSION),
        ("d.SomethingUnavailable: later", FailureCategory.NETWORK),
        ("e.ImageFileError: what is this", FailureCategory.INPUT),
        ("RuntimeError: cannot open a.nii", FailureCategory.INPUT),
        ("RuntimeError: cannot open a.nii: Connection timed out", FailureCategory.NETWORK),
        ("Rank 2 crashed with exit code -7.", FailureCategory.CRASH),
        ("process rank 0 exited on signal 6 (Aborted).", FailureCategory.CRASH),
        ("process rank 0 exited on signal 9 (Killed).", FailureCategory.HOST_MEMORY),
        ("[1,0]<stderr>:f.g.PermissionDeniedError: /logs", FailureCategory.PERMISSION),
        ("(Worker pid=7, ip=n1) h.CommError: late", FailureCategory.NETWORK),
        ("2026-01-01 [root] i.j.SSLError: no", FailureCategory.NETWORK),
        ("RuntimeError: cuFFT error: CUFFT_INTERNAL_ERROR", FailureCategory.CUDA_FAILURE),
        ("ray.exceptions.ActorDiedError: The actor died.", FailureCategory.UNKNOWN),
        (
            "A worker died. There are some potential root causes. (1) SIGKILL by OOM killer",
            FailureCategory.UNKNOWN,
        ),
        ("ValueError: expected a batch of shape (2, 3)", FailureCategory.SEMANTIC),
        ("ValueError: you must specify a value for `steps`.", FailureCategory.SEMANTIC),
        ("ValueError: 151337 is not in list", FailureCategory.EXCEPTION),
    ],
)
def test_what_software_prints_in_a_fixed_form_decides(
    line: str, category: FailureCategory
) -> None:
    assert diagnose(1, ["step 5", line]).category is category


def test_native_frames_are_no_messages() -> None:
    lines = ["Fatal Python error: Bus error", " 2 0x000000000006929c ncclGroupEnd()  ???:0"]
    assert diagnose(1, lines).category is FailureCategory.CRASH


def test_a_missing_environment_variable_is_a_missing_input() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/srv/jobs/digits-1/tree/train.py", line 3, in main',
        "    data = os.environ['DATA']",
        '  File "/usr/lib/python3.11/os.py", line 679, in __getitem__',
        "    raise KeyError(key) from None",
        "KeyError: 'DATA'",
    ]
    diagnosis = diagnose(1, lines)
    assert diagnosis.category is FailureCategory.INPUT
    assert diagnosis.cause == "there is no environment variable 'DATA' (train.py:3, in main)"


def test_an_assertion_without_a_message_is_known_by_its_code() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/srv/jobs/digits-1/tree/train.py", line 3, in main',
        "    assert path.exists()",
        "AssertionError",
    ]
    assert diagnose(1, lines).category is FailureCategory.INPUT
    lines[2] = "    assert width > 0"
    assert diagnose(1, lines).category is FailureCategory.SEMANTIC


def test_a_connection_lost_in_a_process_group_is_to_a_worker() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/a.py", line 3, in f',
        "    store.get(key)",
        "RuntimeError: Broken pipe",
    ]
    assert diagnose(1, lines).category is FailureCategory.COMMUNICATION
    lines[1] = lines[1].replace("torch/distributed", "datasets")
    assert diagnose(1, lines).category is FailureCategory.NETWORK


def test_what_fails_while_tensors_are_read_is_the_checkpoint() -> None:
    lines = [
        "Traceback (most recent call last):",
        '  File "/srv/jobs/digits-1/tree/train.py", line 3, in main',
        "    torch.load(path)",
        '  File "/opt/venv/lib/python3.11/site-packages/torch/serialization.py", line 3, in f',
        "    read(file)",
        "RuntimeError: storage has wrong size: expected 512 got 65536",
    ]
    assert diagnose(1, lines).category is FailureCategory.CHECKPOINT
    lines[-1] = "torch.OutOfMemoryError: CUDA out of memory."
    assert diagnose(1, lines).category is FailureCategory.DEVICE_MEMORY


def test_a_launcher_that_alone_printed_is_believed() -> None:
    log = "W0823 16:54:02.337000 1397 torch/distributed/elastic/agent/server/api.py:688] "
    lines = [f"{log}Received Signals.SIGTERM death signal, shutting down workers"]
    assert diagnose(1, lines).category is FailureCategory.ENDED_FROM_OUTSIDE


def test_a_kill_among_ranks_is_a_kill() -> None:
    assert diagnose(1, killed_among_ranks(HERE)).category is FailureCategory.HOST_MEMORY


@pytest.mark.parametrize("prefix", ["", f"{HERE.packages}/"])
def test_a_kill_under_torchrun_for_other_reasons_is_not_one_for_lack_of_memory(
    prefix: str,
) -> None:
    """Torch logs the whole path where the packages are behind a symbolic link."""
    log = " torch/distributed/elastic"
    lines = [
        line.replace(log, log.replace("torch", f"{prefix}torch", 1))
        for line in under_torchrun(HERE, [], -9)
    ]
    diagnosis = diagnose(1, lines, memory_kills=0)
    assert diagnosis.category is FailureCategory.ENDED_FROM_OUTSIDE


@pytest.mark.parametrize(
    ("reason", "category"),
    [
        (FailureReason.DIVERGED, FailureCategory.DIVERGED),
        (FailureReason.OUT_OF_MEMORY, FailureCategory.DEVICE_MEMORY),
    ],
)
def test_what_the_library_reports_outweighs_the_text(
    reason: FailureReason, category: FailureCategory
) -> None:
    lines = traceback(HERE, "ValueError: bad shape", "step")
    assert diagnose(1, lines, reason).category is category
    assert diagnose(1, lines, reason).cause == diagnose(1, lines).cause


def test_units_and_sizes_are_not_in_signatures() -> None:
    error = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {}. GPU {} has a total "
        "capacity of {} of which {} is free. Process {} has 11.14 GiB memory in use."
    )
    texts = [
        error.format("2.25 GiB", 0, "79.15 GiB", "1.06 GiB", 17),
        error.format("512.00 MiB", 3, "15.69 GiB", "12 MiB", 90211),
        error.format("981 bytes", 1, "40 GB", "0 bytes", 5),
    ]
    found = {signature(1, traceback(HERE, text, "step")) for text in texts}
    assert len(found) == 1
    assert "iB" not in found.pop()


def test_addresses_are_not_in_signatures() -> None:
    texts = [
        f"OSError: {place} timed out after {wait}"
        for place, wait in [("10.0.3.7:6333", "600 ms"), ("172.16.0.12:29500", "1800000 ms")]
    ]
    assert len({signature(1, traceback(HERE, text, "connect")) for text in texts}) == 1
