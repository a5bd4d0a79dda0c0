"""Last lines of failed scripts as torchrun 2.13 and CUDA builds of PyTorch print them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Run:
    """Parts of a text that differ between two failures of one cause."""

    home: str = "/srv/jobs/digits-1/tree"
    packages: str = "/opt/venv/lib/python3.11/site-packages"
    pid: int = 6333
    clock: str = "23:01:04"
    line: int = 11
    number: int = 800
    session: str = "6vh1ai69"


HERE = Run()
ELSEWHERE = Run(
    home="/mnt/pool/digits-1.2/generation-3/tree",
    packages="/home/user/.venv/lib/python3.12/site-packages",
    pid=28417,
    clock="04:59:37",
    line=207,
    number=1312,
    session="x29xz0p4",
)


def traceback(run: Run, error: str, *frames: str) -> list[str]:
    """Return a traceback through `frames`: functions of train.py or `module.py:function`."""
    lines = ["Traceback (most recent call last):"]
    for depth, frame in enumerate(["<module>", "main", *frames]):
        file, _, function = frame.rpartition(":")
        path = f"{run.packages}/torch/{file}" if file else f"{run.home}/train.py"
        lines += [
            f'  File "{path}", line {run.line + depth}, in {function}',
            f"    {function}(x)",
            "    ^^^^^^^",
        ]
    return [*lines, error]


def under_torchrun(run: Run, lines: list[str], exit_code: int = 1, report: str = "") -> list[str]:
    """Return the `lines` of a script and those that torchrun adds for an `exit_code`."""
    log = f"E1120 {run.clock}.462000 {run.pid - 5} torch/distributed/elastic/multiprocessing"
    launcher = f"{run.packages}/torch/distributed"
    signals = {-6: "SIGABRT", -9: "SIGKILL", -11: "SIGSEGV", -15: "SIGTERM"}
    name = signals.get(exit_code, "")
    help_text = "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
    killed = f"Signal {-exit_code} ({name}) received by PID {run.pid}"
    return [
        *lines,
        f"{log}/api.py:1002] failed (exitcode: {exit_code}) local_rank: 0 (pid: {run.pid})",
        "Traceback (most recent call last):",
        '  File "/opt/venv/bin/torchrun", line 8, in <module>',
        "    sys.exit(main())",
        "             ^^^^^^",
        f'  File "{launcher}/elastic/multiprocessing/errors/__init__.py", line 367, in wrapper',
        "    return f(*args, **kwargs)",
        f'  File "{launcher}/run.py", line 1028, in main',
        "    run(args)",
        f'  File "{launcher}/launcher/api.py", line 383, in launch_agent',
        "    raise ChildFailedError(",
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
        "=" * 60,
        "train.py FAILED",
        "-" * 60,
        "Failures:",
        "[1]:",
        f"  time      : 2026-11-20_{run.clock}",
        "  rank      : 1 (local_rank: 1)",
        f"  exitcode  : -15 (pid: {run.pid + 1})  (SIGTERM)",
        "  error_file: <N/A>",
        f"  traceback : Signal 15 (SIGTERM) received by PID {run.pid + 1}",
        "-" * 60,
        "Root Cause (first observed failure):",
        "[0]:",
        f"  time      : 2026-11-20_{run.clock}",
        "  host      : localhost",
        "  rank      : 0 (local_rank: 0)",
        f"  exitcode  : {exit_code} (pid: {run.pid})  {f'({name})' if name else ''}",
        "  error_file: <N/A>",
        f"  traceback : {report or (killed if name else help_text)}",
        "=" * 60,
    ]


def wrong_shape(run: Run) -> list[str]:
    n = run.number
    error = f"RuntimeError: mat1 and mat2 shapes cannot be multiplied (64x{n} and 784x10)"
    return under_torchrun(run, traceback(run, error, "step", "nn/modules/linear.py:forward"))


def value_error(run: Run) -> list[str]:
    return under_torchrun(run, traceback(run, "ValueError: bad shape", "step"))


def value_error_elsewhere(run: Run) -> list[str]:
    return under_torchrun(run, traceback(run, "ValueError: bad shape", "evaluate"))


def raised_from(run: Run) -> list[str]:
    link = "The above exception was the direct cause of the following exception:"
    first = traceback(run, f"KeyError: 'session-{run.session}'", "read")
    return under_torchrun(
        run, [*first, "", link, "", *traceback(run, "RuntimeError: no session", "connect")]
    )


def no_module(run: Run) -> list[str]:
    error = "ModuleNotFoundError: No module named 'foo'"
    return under_torchrun(run, traceback(run, error))


def no_name_in_module(run: Run) -> list[str]:
    error = f"ImportError: cannot import name 'Adam2' from 'torch.optim' ({run.packages}/torch/x)"
    return under_torchrun(run, traceback(run, error))


def syntax_error(run: Run) -> list[str]:
    lines = [
        f'  File "{run.home}/train.py", line {run.line}',
        "    def f(:",
        "          ^",
        "SyntaxError: invalid syntax",
    ]
    return under_torchrun(run, lines)


def device_memory(run: Run) -> list[str]:
    error = (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {run.number}.00 MiB. "
        f"GPU 0 has a total capacity of 15.69 GiB of which {run.line}.06 MiB is free. Process "
        f"{run.pid} has 11.14 GiB memory in use. Of the allocated memory 10.14 GiB is allocated "
        "by PyTorch, and 771.43 MiB is reserved by PyTorch but unallocated."
    )
    return under_torchrun(run, traceback(run, error, "step", "nn/modules/conv.py:forward"))


def loader_killed(run: Run) -> list[str]:
    first = traceback(
        run, f"RuntimeError: DataLoader worker (pid {run.pid}) is killed by signal: Killed. "
    )
    second = (
        f"RuntimeError: DataLoader worker (pid(s) {run.pid}, {run.pid + 1}) exited unexpectedly"
    )
    link = "The above exception was the direct cause of the following exception:"
    last = traceback(run, second, "utils/data/dataloader.py:_try_get_data")
    return under_torchrun(run, [*first, "", link, "", *last])


def loader_error(run: Run) -> list[str]:
    outer = traceback(
        run, "KeyError: Caught KeyError in DataLoader worker process 0.", "_utils.py:reraise"
    )
    inner = [
        "Original Traceback (most recent call last):",
        f'  File "{run.packages}/torch/utils/data/_utils/worker.py", line 374, in _worker_loop',
        "    data = fetcher.fetch(index)",
        f'  File "{run.home}/data.py", line {run.line}, in __getitem__',
        "    return self.items[index]",
        f"KeyError: 'sample {run.number}'",
        "",
    ]
    return under_torchrun(run, [*outer, *inner])


def killed(run: Run) -> list[str]:
    return under_torchrun(run, [f"step {run.number} loss 0.{run.line}"], exit_code=-9)


def killed_among_ranks(run: Run) -> list[str]:
    lost = (
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error "
        f"[127.0.0.1]:{run.pid}: Connection reset by peer"
    )
    lines = [f"[rank1]: {line}" for line in traceback(run, lost, "all_reduce")]
    return under_torchrun(run, lines, exit_code=-9)


def crashed(run: Run) -> list[str]:
    return under_torchrun(run, ["epoch 0"], exit_code=-11)


def lost_contact(run: Run) -> list[str]:
    lost = (
        "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:537] Read error "
        f"[10.0.{run.line}.7]:{run.pid}: Connection reset by peer"
    )
    return under_torchrun(run, traceback(run, lost, "distributed/distributed_c10d.py:all_reduce"))


def nccl_watchdog(run: Run) -> list[str]:
    lines = [
        f"[rank0]:[E1120 {run.clock}.71 ProcessGroupNCCL.cpp:607] [Rank 0] Watchdog caught "
        f"collective operation timeout: WorkNCCL(SeqNum={run.number}, OpType=ALLREDUCE, "
        "Timeout(ms)=600000) ran for 600061 milliseconds before timing out.",
        "terminate called after throwing an instance of 'c10::DistBackendError'",
    ]
    return under_torchrun(run, lines, exit_code=-6)


def no_file(run: Run) -> list[str]:
    error = "FileNotFoundError: [Errno 2] No such file or directory: '/datasets/digits/train.npz'"
    return under_torchrun(run, traceback(run, error, "load"))


def no_script(run: Run) -> list[str]:
    error = f"python3: can't open file '{run.home}/trian.py': [Errno 2] No such file or directory"
    return under_torchrun(run, [error], exit_code=2)


def wrong_arguments(run: Run) -> list[str]:
    lines = ["usage: train.py [-h] [--lr LR]", "train.py: error: unrecognized arguments: --lrr 3"]
    return under_torchrun(run, lines, exit_code=2)


def disk_full(run: Run) -> list[str]:
    error = "OSError: [Errno 28] No space left on device"
    return under_torchrun(run, traceback(run, error, "save"))


def broken_checkpoint(run: Run) -> list[str]:
    error = "RuntimeError: PytorchStreamReader failed reading zip archive: not a ZIP archive"
    return under_torchrun(run, traceback(run, error, "restore", "serialization.py:load"))


def unfitting_checkpoint(run: Run) -> list[str]:
    lines = traceback(run, "RuntimeError: Error(s) in loading state_dict for Net:", "restore")
    return under_torchrun(run, [*lines, '\tMissing key(s) in state_dict: "bias". '])


def diverged(run: Run) -> list[str]:
    error = f"ArithmeticError: loss is nan at step {run.number}"
    return under_torchrun(run, traceback(run, error, "step"))


def not_permitted(run: Run) -> list[str]:
    error = "PermissionError: [Errno 13] Permission denied: '/datasets/private'"
    return under_torchrun(run, traceback(run, error, "load"))


def broken_device(run: Run) -> list[str]:
    error = "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered"
    return under_torchrun(run, traceback(run, error, "step"))


def old_driver(run: Run) -> list[str]:
    error = "RuntimeError: CUDA error: no kernel image is available for execution on the device"
    return under_torchrun(run, traceback(run, error, "step"))


def no_device(run: Run) -> list[str]:
    error = "RuntimeError: No CUDA GPUs are available"
    return under_torchrun(run, traceback(run, error))


def bad_index(run: Run) -> list[str]:
    error = "RuntimeError: CUDA error: device-side assert triggered"
    return under_torchrun(run, traceback(run, error, "step"))


def host_memory(run: Run) -> list[str]:
    error = (
        "RuntimeError: [enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't "
        f"allocate memory: you tried to allocate {run.number}000000 bytes. Error code 12"
    )
    return under_torchrun(run, traceback(run, error, "step"))


def recorded_only(run: Run) -> list[str]:
    report = "\n  ".join(
        ["Traceback (most recent call last):", *traceback(run, "KeyError: 'lr'")[1:]]
    )
    return "\n".join(under_torchrun(run, [], report=report)).split("\n")


def own_exit_code(run: Run) -> list[str]:
    return under_torchrun(run, [f"[{run.clock}] no data in {run.home}/data"], exit_code=3)


TEXTS: Mapping[str, Callable[[Run], list[str]]] = {
    text.__name__: text
    for text in (
        wrong_shape,
        value_error,
        value_error_elsewhere,
        raised_from,
        no_module,
        no_name_in_module,
        syntax_error,
        device_memory,
        loader_killed,
        loader_error,
        killed,
        crashed,
        lost_contact,
        nccl_watchdog,
        no_file,
        no_script,
        wrong_arguments,
        disk_full,
        broken_checkpoint,
        unfitting_checkpoint,
        diverged,
        not_permitted,
        broken_device,
        old_driver,
        no_device,
        bad_index,
        host_memory,
        recorded_only,
        own_exit_code,
    )
}
