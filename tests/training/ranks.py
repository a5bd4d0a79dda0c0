"""Ranks of one replica, each in its own process, for tests of work that ranks do together."""

from __future__ import annotations

import io
import os
import traceback
from collections.abc import Callable
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from autoscaler.training.collectives.instance import InstanceRanks
from autoscaler.training.collectives.ports import bound_store

_CONTEXT = get_context("forkserver")
_CONTEXT.set_forkserver_preload(
    [
        "torch.distributed.fsdp",
        "autoscaler.training.state.training_state",
        "tests.training.sharded",
    ]
)
_ANSWER_SECONDS = 120.0


def on_ranks(
    count: int, function: Callable[..., Any], *arguments: Any, lost: frozenset[int] = frozenset()
) -> list[Any]:
    """Call `function(ranks, *arguments)` in `count` processes; return the results by rank.

    The processes form a gloo world. The ranks `lost` may die, with None as their result.

    Raises:
        AssertionError: a rank that is not `lost` raised or died; the message has its traceback.
    """
    store, port = bound_store("127.0.0.1")
    started, pipes = [], []
    for rank in range(count):
        receiver, sender = _CONTEXT.Pipe(duplex=False)
        process = _CONTEXT.Process(
            target=_run, args=(rank, count, port, sender, function, arguments), daemon=True
        )
        process.start()
        sender.close()
        started.append(process)
        pipes.append(receiver)
    try:
        answers = [_answer(pipe) for pipe in pipes]
    finally:
        for process in started:
            process.join(5.0)
            process.kill()
        del store
    for rank, (_, fault) in enumerate(answers):
        assert fault is None or rank in lost, f"rank {rank} of {count}:\n{fault}"
    return [result for result, _ in answers]


def _answer(pipe: Connection) -> tuple[Any, str | None]:
    try:
        assert pipe.poll(_ANSWER_SECONDS), "a rank did not answer"
        answer: tuple[Any, str | None] = torch.load(
            io.BytesIO(pipe.recv_bytes()), weights_only=False
        )
    except EOFError:
        return None, "the process died"
    return answer


def _run(
    rank: int,
    count: int,
    port: int,
    answers: Connection,
    function: Callable[..., Any],
    arguments: tuple[Any, ...],
) -> None:
    torch.set_num_threads(1)
    os.environ["LOCAL_RANK"] = str(rank)
    store = TCPStore("127.0.0.1", port, is_master=False)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=count)
    try:
        result = function(InstanceRanks(dist.group.WORLD), *arguments)
        answer: tuple[Any, str | None] = result, None
    except BaseException:
        answer = None, traceback.format_exc()
    content = io.BytesIO()
    torch.save(answer, content)  # a pipe's own way to send tensors needs this process to live on
    answers.send_bytes(content.getvalue())
    dist.destroy_process_group()
