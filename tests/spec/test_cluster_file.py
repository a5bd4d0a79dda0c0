from __future__ import annotations

from pathlib import Path

import pytest

import autoscaler.spec.cluster_file as module
from autoscaler.domain.errors import SpecError
from autoscaler.spec.cluster_file import ClusterSpec, NodeGroup, load_cluster, parse_cluster


def test_a_cluster_in_a_word() -> None:
    assert parse_cluster(" 16x4 ") == ClusterSpec(nodes=16, devices_per_node=4)


@pytest.mark.parametrize("text", ["", "16", "x4", "0x4", "16x0", "16*4", "16x4x2", "-1x4", "16x٤"])
def test_what_is_no_cluster(text: str) -> None:
    with pytest.raises(SpecError, match="write nodes x devices of each, like 16x4"):
        parse_cluster(text)


def test_the_example_of_the_module(tmp_path: Path) -> None:
    assert module.__doc__ is not None
    example = module.__doc__.split("::\n")[1].split("\n\n`kind`")[0]
    path = tmp_path / "cluster.yaml"
    path.write_text("\n".join(line.removeprefix("    ") for line in example.splitlines()))
    found = load_cluster(path)
    assert found.nodes == (NodeGroup("aws", 6, 4), NodeGroup("dgx-ext", 2, 8))
    assert found.restart_seconds == {"cifar10": 50.0, "bert": 120.0}
    assert found.slowdown == {"cifar10": 1.8}
    assert found.profiled


def test_no_more_than_nodes_is_needed(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("nodes: [{kind: aws, count: 1, devices: 4}]")
    found = load_cluster(path)
    assert (found.restart_seconds, found.profiled) == ({}, False)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "cluster.yaml: is empty: it must be a mapping with at least nodes"),
        ("nodes: []", "cluster.yaml:1: nodes: is empty"),
        (
            "nodes:\n- {kind: a, count: 0, devices: 4}",
            r"yaml:2: nodes.0.count: must be at least 1",
        ),
        ("nodes:\n- {kind: a, count: 1}", r"yaml:2: nodes.0.devices: is required"),
        ("nodes:\n- {kind: a, cuont: 1}", 'unknown key "cuont": did you mean "count"'),
        ("slowdown: {a: 0}", "cluster.yaml:1: slowdown.a: must be more than 0"),
        ("restart_seconds: {a: -1}", "restart_seconds.a: must be at least 0"),
        ("restart_seconds: {a: inf}", "restart_seconds.a: must be a number"),
    ],
)
def test_what_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text(text)
    with pytest.raises(SpecError, match=message):
        load_cluster(path)
