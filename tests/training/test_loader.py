"""Workers that fetch ahead: they live as long as the session, and what they fetch is in order."""

from __future__ import annotations

import itertools
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils.data import Dataset, get_worker_info

from autoscaler.domain.job import BatchSpec
from autoscaler.training import session
from autoscaler.training.data.loader import Indices, Loader, LoaderSettings
from autoscaler.training.data.seeding import SeededIndices, seed_all
from tests.training.alone import allow, opened, script
from tests.training.fleet import SCRIPTS, wait_until

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")


class Who(Dataset[tuple[int, int]]):
    """Each example says which process fetched it."""

    offset = 0

    def __len__(self) -> int:
        return 1000

    def __getitem__(self, index: int) -> tuple[int, int]:
        if index == 13:
            raise LookupError("example 13 is broken")
        return index + self.offset, os.getpid()


def _expected(batches: list[Indices], after: Indices) -> Iterator[Indices]:
    return itertools.chain(batches[batches.index(after) + 1 :], itertools.repeat((20,)))


def _batches(size: int, start: int = 20) -> list[Indices]:
    return [tuple(range(first, first + size)) for first in range(start, 900, size)]


def _fetch(loader: Loader, batches: list[Indices]) -> set[int]:
    """Fetch and compare; return the processes that fetched."""
    pids: set[int] = set()
    for indices in batches:
        numbers, fetchers = loader.fetch(indices)
        assert tuple(numbers.tolist()) == indices
        pids.update(fetchers.tolist())
    return pids


@pytest.fixture
def loader() -> Iterator[Loader]:
    loader = Loader(Who(), LoaderSettings(workers=2))
    yield loader
    loader.close()


def test_workers_live_on_when_what_is_expected_changes(loader: Loader) -> None:
    plan = _batches(10)
    loader.expect(lambda after: _expected(plan, after))
    before = _fetch(loader, plan[:3])
    plan = _batches(7)  # another batch
    between = _fetch(loader, plan[4:9])
    plan = _batches(3, start=500)  # another place
    after = _fetch(loader, plan)
    assert before == between == after
    assert len(before) == 2 and os.getpid() not in before


def test_workers_fetch_ahead_what_is_expected(tmp_path: Path) -> None:
    class Log(Who):
        def __getitem__(self, index: int) -> tuple[int, int]:
            with (tmp_path / "log").open("a") as log:
                log.write(f"{index}\n")
            return super().__getitem__(index)

    (tmp_path / "log").touch()

    def fetched() -> list[int]:
        return sorted(int(line) for line in (tmp_path / "log").read_text().split())

    loader = Loader(Log(), LoaderSettings(workers=1, prefetch_factor=3))
    plan = _batches(1)
    loader.expect(lambda after: _expected(plan, after))
    loader.fetch(plan[0])
    wait_until(lambda: len(fetched()) == 4)
    assert fetched() == [20, 21, 22, 23]
    loader.fetch(plan[1])
    wait_until(lambda: len(fetched()) == 5)
    loader.close()


@settings(max_examples=5, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 9), st.integers(20, 500)), min_size=1, max_size=6))
def test_each_batch_is_what_was_asked_for(changes: list[tuple[int, int]]) -> None:
    loader = Loader(Who(), LoaderSettings(workers=1))
    plan: list[Indices] = []
    loader.expect(lambda after: _expected(plan, after))
    for size, start in changes:
        plan = _batches(size, start)
        _fetch(loader, plan[:3])
    loader.close()


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_the_dataset_is_raised_in_training(workers: int) -> None:
    loader = Loader(Who(), LoaderSettings(workers=workers))
    loader.expect(lambda after: itertools.repeat((20,)))
    with pytest.raises(LookupError, match="example 13 is broken") as raised:
        loader.fetch((12, 13))
    if workers:
        assert "in DataLoader worker process" in str(raised.value)
        assert "__getitem__" in str(raised.value), "the worker's traceback is told"
    assert loader.fetch((14,))[0].tolist() == [14], "the next fetch is served"
    loader.close()


def _add_thousand(worker: int) -> None:
    info = get_worker_info()
    assert info is not None and info.num_workers == 2
    info.dataset.offset = 1000


def test_workers_begin_as_those_of_a_data_loader_do() -> None:
    loader = Loader(Who(), LoaderSettings(workers=2, worker_init=_add_thousand))
    loader.expect(lambda after: itertools.repeat((20,)))
    assert loader.fetch((20,))[0].tolist() == [1020]
    loader.close()


@pytest.mark.parametrize("workers", [0, 1])
def test_a_dataset_may_fetch_many_at_once_and_collate_is_the_scripts(workers: int) -> None:
    class Many(Who):
        def __getitems__(self, indices: list[int]) -> list[str]:
            return [f"many {index}" for index in indices]

    loader = Loader(Many(), LoaderSettings(workers, collate=" and ".join))
    loader.expect(lambda after: itertools.repeat((20,)))
    assert loader.fetch((1, 2)) == "many 1 and many 2"
    loader.close()


@pytest.mark.filterwarnings("ignore:.*pin_memory.*accelerator")
def test_arguments_reach_the_data_loader(monkeypatch) -> None:
    given_to: list[dict[str, Any]] = []
    from autoscaler.training.data import loader as module

    data_loader = module.DataLoader
    monkeypatch.setattr(
        module,
        "DataLoader",
        lambda data, **arguments: given_to.append(arguments) or data_loader(data, **arguments),
    )
    model = nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = [torch.ones(1)] * 8
    arguments = {"num_workers": 1, "prefetch_factor": 5, "pin_memory": True}
    with session(model, optimizer, data, batch_size=4, **arguments) as job:
        for inputs in job.batches(epochs=1):
            job.step(job.model(inputs).mean())
    (found,) = given_to
    assert {name: found[name] for name in arguments} == arguments


def test_workers_outlive_changes_of_the_batch_and_end_with_the_session(monkeypatch) -> None:
    allow(monkeypatch, BatchSpec(10, 40, 40, adaptive=True))
    model = nn.Linear(1, 1)
    its_script = script(
        model,
        torch.optim.SGD(model.parameters(), lr=0.0),
        [(torch.ones(1), index) for index in range(100)],
        batch_size=10,
        num_workers=2,
    )
    job, parts = opened(its_script)
    totals = itertools.cycle([10, 20, 40, 30])
    monkeypatch.setattr(type(parts.replica), "_proposed_batch", lambda *_: (next(totals), 0))
    before = set(psutil.Process().children())
    workers, sizes, taken = set(), set(), list[int]()
    for inputs, indices in job.batches(epochs=4):
        workers.add(frozenset(set(psutil.Process().children()) - before))
        sizes.add(len(inputs))
        taken += indices.tolist()
        job.step(job.model(inputs).mean())
    assert len(workers) == 1 and len(sizes) > 2
    assert sorted(taken[:100]) == list(range(100))
    job.finish()
    assert not any(worker.is_running() for worker in next(iter(workers)))


def test_workers_outlive_the_thread_that_started_them(loader: Loader) -> None:
    plan = _batches(10)
    loader.expect(lambda after: _expected(plan, after))
    thread = threading.Thread(target=_fetch, args=(loader, plan[:1]))
    thread.start()
    thread.join()
    time.sleep(0.2)
    _fetch(loader, plan[1:10])


@pytest.mark.parametrize("end", ["kill", "fork", "exit"])
def test_workers_end_with_their_parent_however_it_ends(tmp_path: Path, end: str) -> None:
    script = subprocess.Popen(
        [sys.executable, str(SCRIPTS / "workers.py"), end],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert script.stdout is not None
    workers = [psutil.Process(int(pid)) for pid in script.stdout.readline().split()]
    assert len(workers) == 2
    if end == "kill":
        script.kill()
    assert script.wait(30) == (-9 if end == "kill" else 0)
    wait_until(
        lambda: not any(worker.is_running() for worker in workers),
        seconds=4.0,
        description="their end",
    )
    if end == "fork":
        assert script.stdout.read().split() == ["child", "trained"]


class _Drawn(Dataset[tuple[float, str]]):
    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> tuple[float, str]:
        info = get_worker_info()
        owner = type(info.dataset).__name__ if info is not None else "none"
        return float(torch.rand(())) + random.random() + float(np.random.random()), owner


def test_workers_draw_what_the_seed_of_a_batch_says() -> None:
    requests = [SeededIndices.of((number, number + 1), 7 * number) for number in range(0, 8, 2)]
    drawn = []
    for workers in (1, 2):
        loader = Loader(_Drawn(), LoaderSettings(workers, seeds_batches=True))
        loader.expect(lambda after: iter(requests[requests.index(after) + 1 :]))
        batches = [loader.fetch(request) for request in requests]
        loader.close()
        assert {owner for _, owners in batches for owner in owners} == {"_Drawn"}
        drawn.append([value for values, _ in batches for value in values.tolist()])
    assert drawn[0] == drawn[1]
    seed_all(requests[2].seed)
    first = float(torch.rand(())) + random.random() + float(np.random.random())
    assert drawn[0][4] == pytest.approx(first)
    assert requests[0] != SeededIndices.of(requests[0], 1) and requests[0] != (0, 1)
