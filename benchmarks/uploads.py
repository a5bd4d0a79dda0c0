"""Memory of a controller, and latency of other requests, while a large bundle is uploaded.

    python benchmarks/uploads.py [--bytes 1000000000] [--rate 100] [--seconds 15] [--json]

A controller process serves an SQLite store, on a cloud that answers at once, and ticks as always.
`--rate` heartbeats a second of 1,000 agents, and ten requests a second of the list of jobs, go on
all the time: for `--seconds` alone, during the upload of a bundle of `--bytes` (random files, that
do not compress) and its check, and while 64 bodies of the largest permitted size and one of 64 MiB
from a stranger arrive at once. `memory` is the resident set of the controller beyond that before,
at its peak of samples each 10 ms. The load generator shares the machine's processors with the
controller.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import heartbeats
import httpx
import numpy as np
import psutil

sys.path.insert(0, str(Path(__file__).parents[1]))

from autoscaler.spec.bundle import inspect
from autoscaler.state_directory import owner_token

FILE_BYTES = 50_000_000
CHUNK_BYTES = 1 << 20
SAMPLE_SECONDS = 0.01
LIST_SECONDS = 0.1
BODIES = 64
BODY_BYTES = 4 << 20  # the largest that a path of the API takes
STRANGER_BYTES = 64 << 20
TIMEOUT_SECONDS = 300.0
MIB = 1 << 20


@dataclass(frozen=True)
class Figures:
    """Result of one phase. Latencies are in milliseconds, memory in MiB beyond that before."""

    phase: str
    seconds: float
    memory_mib: float
    heartbeat_p50_ms: float
    heartbeat_p99_ms: float
    heartbeat_longest_ms: float
    list_p50_ms: float
    list_longest_ms: float
    processor: float
    statuses: str


@contextmanager
def sampled(process: psutil.Process) -> Iterator[list[int]]:
    """Yield a list to which the resident sets of a process are added until the context ends."""
    sizes, is_over = [process.memory_info().rss], threading.Event()

    def sample() -> None:
        while not is_over.wait(SAMPLE_SECONDS):
            sizes.append(process.memory_info().rss)

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield sizes
    finally:
        is_over.set()
        thread.join()


async def list_jobs(url: str, token: str, latencies_ms: list[float]) -> None:
    """Ask for the list of jobs until cancelled."""
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(timeout=TIMEOUT_SECONDS, headers=headers) as client:
        while True:
            began = time.monotonic()
            (await client.get(f"{url}/v1/jobs")).raise_for_status()
            latencies_ms.append(1e3 * (time.monotonic() - began))
            await asyncio.sleep(LIST_SECONDS)


async def measure(
    phase: str,
    act: Callable[[], Awaitable[str]],
    agents: list[heartbeats.Agent],
    place: tuple[int, str],
    rate: float,
    process: psutil.Process,
) -> Figures:
    """Return the figures of the time that `act` takes."""
    port, token = place
    interval, begin, never = len(agents) / rate, time.monotonic(), float("inf")
    lists_ms: list[float] = []
    for agent in agents:
        agent.latencies_ms.clear()
    tasks = [
        asyncio.create_task(
            agent.run(port, interval, begin + interval * index / len(agents), never)
        )
        for index, agent in enumerate(agents)
    ]
    tasks.append(asyncio.create_task(list_jobs(f"http://127.0.0.1:{port}", token, lists_ms)))
    used_seconds = sum(process.cpu_times()[:2])
    with sampled(process) as sizes:
        statuses = await act()
    used_seconds = sum(process.cpu_times()[:2]) - used_seconds
    seconds = time.monotonic() - begin
    pending = set(tasks)
    while pending:  # an answer that arrives with the cancellation hides it
        for task in pending:
            task.cancel()
        _, pending = await asyncio.wait(pending, timeout=1.0)
    for agent in agents:
        agent.streams = agent.content = None
    latencies_ms = np.concatenate([agent.latencies_ms for agent in agents])
    return Figures(
        phase=phase,
        seconds=seconds,
        memory_mib=(max(sizes) - sizes[0]) / MIB,
        heartbeat_p50_ms=float(np.median(latencies_ms)),
        heartbeat_p99_ms=float(np.percentile(latencies_ms, 99)),
        heartbeat_longest_ms=float(latencies_ms.max()),
        list_p50_ms=float(np.median(lists_ms)),
        list_longest_ms=max(lists_ms),
        processor=used_seconds / seconds,
        statuses=statuses,
    )


def bundle_of(directory: Path, size_bytes: int) -> tuple[Path, str]:
    """Write a bundle with files of random bytes; return its path and its SHA-256."""
    path, content = directory / "bundle.tar.gz", directory / "content"
    with tarfile.open(path, "w:gz", compresslevel=0) as archive:
        for number in range(max(size_bytes // FILE_BYTES, 1)):
            content.write_bytes(os.urandom(min(FILE_BYTES, size_bytes)))
            archive.add(content, f"data-{number}")
    return path, inspect(path, 2 * size_bytes).sha256


async def sent(kind: str, *arguments: str) -> str:
    """Let another process send something; return the statuses of the answers."""
    command = (sys.executable, __file__, "--send", kind, *arguments)
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    return output.decode().strip()


def send_bundle(url: str, token: str, path: str, sha256: str) -> list[int]:
    """Upload a bundle."""

    def chunks() -> Iterator[bytes]:
        with Path(path).open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                yield chunk

    headers = {"Authorization": f"Bearer {token}"}
    reply = httpx.put(
        f"{url}/v1/bundles/{sha256}", content=chunks(), headers=headers, timeout=TIMEOUT_SECONDS
    )
    return [reply.status_code]


def send_bodies(url: str, token: str) -> list[int]:
    """Send large bodies at once, those of a person and one of a stranger."""
    statuses: list[int] = []

    def post(path: str, size_bytes: int, headers: dict[str, str]) -> None:
        content = b'{"answers": [], "holder": "' + b"x" * (size_bytes - 40) + b'"}'
        with httpx.Client(timeout=TIMEOUT_SECONDS) as client:
            statuses.append(client.post(url + path, content=content, headers=headers).status_code)

    person = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    threads = [
        threading.Thread(target=post, args=("/v1/studies/none/answers", BODY_BYTES, person))
        for _ in range(BODIES)
    ]
    threads.append(threading.Thread(target=post, args=("/v1/jobs", STRANGER_BYTES, {})))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statuses


async def wait(seconds: float) -> str:
    """Send nothing."""
    await asyncio.sleep(seconds)
    return ""


def run(arguments: argparse.Namespace) -> list[Figures]:
    """Return the figures of all phases."""
    directory, port = Path(tempfile.mkdtemp(dir=arguments.directory)), heartbeats.free_port()
    try:
        path, sha256 = bundle_of(directory, arguments.bytes)
        state = directory / "state"
        state.mkdir()
        agents = heartbeats.prepared(state, jobs=100, instances=10)
        url = f"http://127.0.0.1:{port}"
        with heartbeats.served(state, port, plans=False) as served:
            token = owner_token(state)
            assert token is not None
            phases: dict[str, Callable[[], Awaitable[str]]] = {
                "warm-up": lambda: wait(arguments.seconds),
                "nothing else": lambda: wait(arguments.seconds),
                "upload": lambda: sent("bundle", url, token, str(path), sha256),
                "large bodies": lambda: sent("bodies", url, token),
            }
            process = psutil.Process(served.pid)
            figures = [
                asyncio.run(measure(name, act, agents, (port, token), arguments.rate, process))
                for name, act in phases.items()
            ]
        return figures[1:]
    finally:
        shutil.rmtree(directory)


def main() -> None:
    """Print a table, or JSON."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--bytes", type=int, default=1_000_000_000, help="size of the bundle")
    parser.add_argument("--rate", type=float, default=100.0, help="heartbeats a second in all")
    parser.add_argument("--seconds", type=float, default=15.0, help="time of a phase of no upload")
    parser.add_argument("--directory", type=Path, help="folder for the state and the bundle")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--send", nargs="+", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.send is not None:
        kind, *rest = arguments.send
        senders: dict[str, Callable[..., list[int]]]
        senders = {"bundle": send_bundle, "bodies": send_bodies}
        statuses = senders[kind](*rest)
        counts = {status: statuses.count(status) for status in sorted(set(statuses))}
        print(", ".join(f"{count} x {status}" for status, count in counts.items()))
        return
    all_figures = run(arguments)
    if arguments.json:
        print(json.dumps([asdict(figures) for figures in all_figures]))
        return
    print("| beside | time | memory | heartbeat: median, 99 %, longest | list: median, longest |")
    print("|---|---|---|---|---|")
    for figures in all_figures:
        answers = f" ({figures.statuses})" if figures.statuses else ""
        print(
            f"| {figures.phase}{answers} | {figures.seconds:.1f} s "
            f"| {figures.memory_mib:+.0f} MiB "
            f"| {figures.heartbeat_p50_ms:.0f}, {figures.heartbeat_p99_ms:.0f}, "
            f"{figures.heartbeat_longest_ms:.0f} ms "
            f"| {figures.list_p50_ms:.0f}, {figures.list_longest_ms:.0f} ms |"
        )


if __name__ == "__main__":
    main()
