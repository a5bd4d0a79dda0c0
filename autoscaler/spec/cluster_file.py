"""Fixed pools for simulations of published results: a shape such as 16x4, or a file.

::

    nodes:
      - {kind: aws, count: 6, devices: 4}
      - {kind: dgx-ext, count: 2, devices: 8}
    restart_seconds: {cifar10: 50, bert: 120}   # optional: restart time by application
    slowdown: {cifar10: 1.8}                    # optional: factor on the profile's step times
    profiled: true                              # optional: jobs were measured on each kind

`kind` is the name of a kind of device in application profiles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from autoscaler.domain.errors import SpecError
from autoscaler.domain.text import quoted
from autoscaler.spec.form_file import read_document, validated
from autoscaler.spec.forms import Form
from autoscaler.spec.job_form import Count, Text

_SHAPE: Final = re.compile(r"([1-9]\d{0,5})x([1-9]\d{0,2})")


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """Pool of equal nodes."""

    nodes: int
    devices_per_node: int


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Group of `count` equal nodes, with `devices` devices of one kind on each."""

    kind: str
    count: int
    devices: int


@dataclass(frozen=True, slots=True)
class MixedCluster:
    """Pool of nodes of several kinds, with settings of applications on it.

    Attributes:
        nodes: groups of equal nodes.
        restart_seconds: restart time by application, at least 0.
        slowdown: factor on step times by application, above 0.
        profiled: whether every job was measured on one device of each kind before submission.
    """

    nodes: tuple[NodeGroup, ...]
    restart_seconds: Mapping[str, float]
    slowdown: Mapping[str, float]
    profiled: bool = False


def parse_cluster(text: str) -> ClusterSpec:
    """Parse the shape of a pool: ``16x4`` means 16 nodes with 4 devices each.

    Raises:
        SpecError: the text is not of this form.
    """
    match = _SHAPE.fullmatch(text.strip())
    if match is None:
        raise SpecError(
            f"{quoted(text)} is not a cluster: write nodes x devices of each, like 16x4"
        )
    return ClusterSpec(nodes=int(match[1]), devices_per_node=int(match[2]))


def load_cluster(path: Path) -> MixedCluster:
    """Read a file of a fixed pool.

    Raises:
        SpecError: the file can't be read or used. The message has a line for each problem: file,
            line number, key, problem and remedy.
    """
    form = validated(read_document(path, "a cluster file (docs/simulator.md)"), ClusterForm)
    return MixedCluster(
        nodes=tuple(NodeGroup(group.kind, group.count, group.devices) for group in form.nodes),
        restart_seconds=form.restart_seconds,
        slowdown=form.slowdown,
        profiled=form.profiled,
    )


class NodeGroupForm(Form):
    """Form of an item of `nodes`."""

    kind: Text
    count: Count
    devices: Count


class ClusterForm(Form):
    """Form of a whole file of a pool."""

    nodes: Annotated[tuple[NodeGroupForm, ...], Field(min_length=1)]
    restart_seconds: dict[Text, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        default_factory=dict
    )
    slowdown: dict[Text, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        default_factory=dict
    )
    profiled: bool = False
