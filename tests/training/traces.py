"""Traces and reports of all replicas, combined."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict

import psutil
import pytest

from tests.builders.waiting import wait_until
from tests.training.fleet import Fleet, ReplicaProcess

EXAMPLES = 512


def committed(fleet: Fleet) -> dict[int, list[dict[str, object]]]:
    steps: dict[int, list[dict[str, object]]] = defaultdict(list)
    for replica in fleet.replicas:
        for line in replica.steps():
            if line["committed"]:
                steps[line["step"]].append(line)
    return steps


def assert_replicas_agree(fleet: Fleet) -> None:
    for step, lines in committed(fleet).items():
        assert len({(line["batch"], line["learning_rate"]) for line in lines}) == 1, step
        assert max(line["weight"] for line in lines) == pytest.approx(
            min(line["weight"] for line in lines), rel=1e-6
        ), step


def taken(fleet: Fleet) -> dict[int, Counter[int]]:
    """Return how often each example of each pass was trained on, by the replicas' traces."""
    by_pass: dict[int, Counter[int]] = defaultdict(Counter)
    for step, lines in committed(fleet).items():
        for line in lines:
            by_pass[step * 32 // EXAMPLES].update(line["indices"])
    return by_pass


def is_training(replica: ReplicaProcess, replicas: int = 1) -> bool:
    return bool(replica.reports) and replica.reports[-1]["replicas"] == replicas


def go_on(replicas: list[ReplicaProcess], steps: int = 40) -> None:
    """Wait until all replicas are some steps further than the foremost one is now."""
    at = max(replica.step for replica in replicas)
    wait_until(
        lambda: min(replica.step for replica in replicas) > at + steps,
        description=f"{steps} steps of {[replica.name for replica in replicas]}",
    )


def pauses(*replicas: ReplicaProcess) -> list[dict[str, object]]:
    reports = itertools.chain.from_iterable(replica.reports for replica in replicas)
    return [pause for report in reports for pause in report["pauses"]]


def listening_on(replica: ReplicaProcess) -> set[str]:
    connections = psutil.Process(replica.process.pid).net_connections(kind="tcp")
    return {
        connection.laddr.ip
        for connection in connections
        if connection.status == psutil.CONN_LISTEN
    }
