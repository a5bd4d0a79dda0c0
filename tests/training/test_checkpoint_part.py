"""Parts of checkpoints: written and read by each rank of a world whose others do nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor
from torch.testing._internal.distributed.fake_pg import FakeStore

from autoscaler.clock import SystemClock
from autoscaler.domain.errors import CheckpointError
from autoscaler.training.state.checkpoint import Checkpoints
from autoscaler.training.state.checkpoint_part import (
    CheckpointPart,
    files_read,
    read_metadata,
    require_fit,
    write_metadata,
)
from autoscaler.training.state.own_state import ScriptState
from autoscaler.training.state.training_state import Counters, TrainingState

pytestmark = pytest.mark.filterwarnings("ignore:torch.distributed is disabled")

SHAPES = {"matrix": (7, 4), "vector": (3,), "scalar": ()}
LAYOUTS: dict[str, tuple[tuple[int, ...], tuple[Placement, ...]]] = {
    "1": ((1,), (Shard(0),)),
    "3": ((3,), (Shard(0),)),
    "columns": ((3,), (Shard(1),)),
    "2x2": ((2, 2), (Replicate(), Shard(0))),
    "grid": ((2, 2), (Shard(0), Shard(1))),
    "copies": ((2,), (Replicate(),)),
}
"""Mesh and placements of tensors by layout; columns of a vector are its elements."""


@contextmanager
def rank_of(rank: int, ranks: int) -> Iterator[None]:
    """Be one rank of a world in which nothing is sent."""
    dist.init_process_group("fake", rank=rank, world_size=ranks, store=FakeStore())
    try:
        yield
    finally:
        dist.destroy_process_group()


def values_of(layout: str, scale: float = 1.0) -> dict[str, Any]:
    """Return tensors with this layout, of which this rank has its part, and plain values."""
    whole = {
        name: scale * (1.0 + torch.arange(torch.Size(shape).numel(), dtype=torch.float64))
        for name, shape in SHAPES.items()
    }
    tensors: dict[str, Any] = {name: whole[name].reshape(shape) for name, shape in SHAPES.items()}
    if layout != "plain":
        shape, placements = LAYOUTS[layout]
        mesh = init_device_mesh("cpu", shape)
        for name in ("matrix", "vector"):
            possible = [_within(placement, tensors[name]) for placement in placements]
            tensors[name] = distribute_tensor(tensors[name], mesh, possible, src_data_rank=None)
    return {"model": tensors, "optimizer": {"lr": 0.1 * scale, "betas": (0.9, 0.99), "no": None}}


def _within(placement: Placement, tensor: Tensor) -> Placement:
    is_possible = not isinstance(placement, Shard) or placement.dim < tensor.dim()
    return placement if is_possible else Replicate()


def ranks_of(layout: str) -> int:
    return 1 if layout == "plain" else torch.Size(LAYOUTS[layout][0]).numel()


def write(directory: Path, layout: str) -> list[int]:
    """Write the parts of all ranks, and what describes them; return the bytes of each part."""
    parts = []
    for rank in range(ranks_of(layout)):
        with rank_of(rank, ranks_of(layout)):
            parts.append(CheckpointPart(values_of(layout), rank).write(directory))
    write_metadata(directory, parts)
    return [sum(part.sizes_bytes.values()) for part in parts]


def assert_read(directory: Path, layout: str) -> None:
    """Check that each rank of a layout reads its part of what was written."""
    checkpoints = Checkpoints(directory.parent, 1, SystemClock())
    torch.save({}, directory / "rest.pt")
    for rank in range(ranks_of(layout)):
        with rank_of(rank, ranks_of(layout)):
            tree, expected = values_of(layout, scale=0.0), values_of(layout)
            require_fit(directory, read_metadata(directory), tree)
            checkpoints.load(directory, tree)
            for name, tensor in expected["model"].items():
                assert torch.equal(local(tree["model"][name]), local(tensor)), (rank, name)
            assert tree["optimizer"] == expected["optimizer"]


def local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


@pytest.mark.parametrize("saved", ["plain", *LAYOUTS])
def test_each_layout_reads_what_any_other_has_written(tmp_path: Path, saved: str) -> None:
    directory = tmp_path / "step-1"
    write(directory, saved)
    for layout in ("plain", *LAYOUTS):
        assert_read(directory, layout)


def test_values_that_several_ranks_hold_are_written_once(tmp_path: Path) -> None:
    write(tmp_path / "copies", "copies")
    write(tmp_path / "grid", "grid")
    assert [path.name for path in (tmp_path / "copies").glob("*.distcp")] == ["__0_0.distcp"]
    metadata: dict[str, Any] = read_metadata(tmp_path / "grid").state_dict_metadata
    assert len(metadata["model.matrix"].chunks) == 4
    assert len(metadata["model.vector"].chunks) == 2, "its two copies are one"


def test_a_rank_needs_only_the_files_of_its_part(tmp_path: Path) -> None:
    write(tmp_path, "3")
    needed = []
    for rank in range(3):
        with rank_of(rank, 3):
            needed.append(files_read(tmp_path, values_of("3")))
    shared = "__0_0.distcp"  # plain values and tensors that are not sharded
    assert needed == [{shared}, {shared, "__1_0.distcp"}, {shared, "__2_0.distcp"}]


def test_pytorch_alone_reads_all_parts_as_one_file(tmp_path: Path) -> None:
    write(tmp_path / "step-1", "2x2")
    dcp_to_torch_save(tmp_path / "step-1", tmp_path / "whole.pt")
    whole = torch.load(tmp_path / "whole.pt", weights_only=True)
    for name, tensor in values_of("plain")["model"].items():
        assert torch.equal(whole["model"][name], tensor)


def test_parts_with_a_gap_are_no_checkpoint(tmp_path: Path) -> None:
    parts = []
    for rank in (0, 2):
        with rank_of(rank, 3):
            parts.append(CheckpointPart(values_of("3"), rank).write(tmp_path))
    with pytest.raises(ValueError, match="invalid fill"):
        write_metadata(tmp_path, parts)


@pytest.mark.parametrize(
    ("changed", "fault"),
    [
        ({"matrix": torch.zeros(4, 7)}, "the model's matrix is 7x4 in the checkpoint and 4x7 in"),
        ({"scalar": torch.zeros(2)}, "the model's scalar is a single number in the checkpoint"),
        (
            {"other": torch.zeros(2)},
            "the model's other is missing in the checkpoint and 2 in this",
        ),
        ({"vector": None}, "the model's vector is 3 in the checkpoint and missing in this script"),
    ],
)
def test_a_value_that_does_not_fit_is_named_with_both_shapes(
    tmp_path: Path, changed: dict[str, Tensor | None], fault: str
) -> None:
    write(tmp_path, "plain")
    model = {**values_of("plain")["model"], **changed}
    tree = {"model": {name: value for name, value in model.items() if value is not None}}
    with pytest.raises(CheckpointError, match=f"{fault}.*resume with the script that wrote it"):
        require_fit(tmp_path, read_metadata(tmp_path), tree)


def _own_state(layout: str, scale: float) -> dict[str, Any]:
    tensors = values_of(layout, scale)["model"]
    return {"best": scale, "average": {"weights": [tensors["matrix"]], "count": 3}}


@pytest.mark.parametrize(("saved", "layout"), [("1", "1"), ("1", "plain"), ("plain", "1")])
def test_sharded_tensors_of_the_script_come_back_in_the_layout_of_the_reader(
    tmp_path: Path, saved: str, layout: str
) -> None:
    def state(own: dict[str, Any]) -> TrainingState:
        model = nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters())
        return TrainingState(model, optimizer, None, Counters(), own=ScriptState(own))

    checkpoints = Checkpoints(tmp_path, 1, SystemClock())
    with rank_of(0, 1):
        state(_own_state(saved, 1.0)).save(checkpoints, at_once=True)
        assert checkpoints.status.error is None
        without: dict[str, Any] = {"best": 0.0}
        for own in (_own_state(layout, 0.0), without):
            assert state(own).restore_newest(checkpoints)
            assert own["best"] == 1.0
            assert torch.equal(
                local(own["average"]["weights"][0]), values_of("plain")["model"]["matrix"]
            )
        assert type(own["average"]["weights"][0]) is Tensor, "whole where the script has none"


def test_memory_of_one_rank_is_that_of_its_part(tmp_path: Path) -> None:
    sizes: Sequence[int] = write(tmp_path, "grid")
    with rank_of(3, 4):
        part = CheckpointPart(values_of("grid"), 3)
    elements = sum(value.numel() for value in part.values.values())
    assert elements == 3 * 2, "its quarter of the matrix, and neither vector nor scalar"
    assert len(sizes) == 4
