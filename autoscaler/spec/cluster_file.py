"""Fixed pools, as simulations of published results run on: one shape, or a file of several.

::

    nodes:
      - {kind: aws, count: 6, devices: 4}
      - {kind: dgx-ext, count: 2, devices: 8}
    restart_seconds: {cifar10: 50, bert: 120}   # optional: what a restart of an application takes
    slowdown: {cifar10: 1.8}                    # optional: times as slow as its profile says
    profiled: true                              # optional: each ran before, on one device a kind

`kind` is the name of a kind of device in files of measured profiles.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Final

from pydantic import Field

from autoscaler.domain.errors import SpecError
from autoscaler.spec.form_file import read_document, validated
from autoscaler.spec.forms import Form
from autoscaler.spec.job_form import Count, Text

_SHAPE: Final = re.compile(r"([1-9]\d{0,5})x([1-9]\d{0,2})")


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """A pool of equal nodes."""

    nodes: int
    devices_per_node: int


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """`count` equal nodes of one kind of device, with `devices` each."""

    kind: str
    count: int
    devices: int


@dataclass(frozen=True, slots=True)
class MixedCluster:
    """A pool of nodes of several kinds, and what is particular to applications on it.

    `restart_seconds` and `slowdown` (at least 0 and above 0) are by the application's name.
    `profiled`: every job was measured on one device of each kind before it was submitted.
    """

    nodes: tuple[NodeGroup, ...]
    restart_seconds: Mapping[str, float]
    slowdown: Mapping[str, float]
    profiled: bool = False


def parse_cluster(text: str) -> ClusterSpec:
    """A pool from a few words: ``16x4`` is 16 nodes of 4 devices.

    Raises:
        SpecError: it is no such text.
    """
    match = _SHAPE.fullmatch(text.strip())
    if match is None:
        raise SpecError(f'"{text}" is no cluster: write nodes x devices of each, like 16x4')
    return ClusterSpec(nodes=int(match[1]), devices_per_node=int(match[2]))


def load_cluster(path: Path) -> MixedCluster:
    """Read a file of a fixed pool.

    Raises:
        SpecError: the file can't be read or used. Every problem is a line with the file, the line
            number, the key, what is wrong and what was meant.
    """
    form = validated(read_document(path), _ClusterForm)
    return MixedCluster(
        nodes=tuple(NodeGroup(group.kind, group.count, group.devices) for group in form.nodes),
        restart_seconds=form.restart_seconds,
        slowdown=form.slowdown,
        profiled=form.profiled,
    )


class _NodeGroupForm(Form):
    kind: Text
    count: Count
    devices: Count


class _ClusterForm(Form):
    nodes: Annotated[tuple[_NodeGroupForm, ...], Field(min_length=1)]
    restart_seconds: dict[Text, Annotated[float, Field(ge=0, allow_inf_nan=False)]] = Field(
        default_factory=dict
    )
    slowdown: dict[Text, Annotated[float, Field(gt=0, allow_inf_nan=False)]] = Field(
        default_factory=dict
    )
    profiled: bool = False
