"""Part of a checkpoint that one rank writes or reads, planned by torch.distributed.checkpoint.

A rank plans from the shapes and placements of its own tensors, without asking other ranks. Of
values that several ranks hold, one writes them: the first along each replicated axis of a mesh,
and the leader for plain tensors and values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, TensorStorageMetadata
from torch.distributed.checkpoint.planner import SavePlan, WriteItem
from torch.distributed.checkpoint.storage import WriteResult
from torch.distributed.tensor import DTensor

from autoscaler.domain.errors import CheckpointError
from autoscaler.training.gradients.parts import local_part
from autoscaler.training.state.checkpoint_files import file_digest
from autoscaler.training.state.fingerprint import shape_text

_MODEL = "model."
_MISSING = "missing"
_PLAIN = "a plain value"


@dataclass(frozen=True, slots=True)
class WrittenPart:
    """Plan of one rank, where its values are, and the SHA-256 and size in bytes of each file."""

    plan: SavePlan
    results: list[WriteResult]
    digests: dict[str, str]
    sizes_bytes: dict[str, int]


class CheckpointPart(DefaultSavePlanner):
    """Values of `tree` that this rank writes, by name, and their plan.

    `values` are the rank's own tensors without placements. Their copies may replace them until
    the part is written.
    """

    def __init__(self, tree: dict[str, Any], rank: int) -> None:
        super().__init__()
        self._rank = rank
        self.set_up_planner(tree, is_coordinator=rank == 0)
        plan = self.create_local_plan()
        items = [item for item in plan.items if self._is_written_here(item)]
        self.plan = replace(plan, items=items)
        self.values = {item.index.fqn: _own(self.state_dict[item.index.fqn]) for item in items}
        self.state_dict = {}  # the tree may live on while `values` are copies

    def lookup_object(self, index: MetadataIndex) -> Any:
        """Return the value that an item of the plan writes."""
        return self.values[index.fqn]

    def write(self, directory: Path) -> WrittenPart:
        """Write the values to a file in `directory`, which is created if missing.

        Raises:
            OSError, RuntimeError: the disk can't be written.
        """
        directory.mkdir(parents=True, exist_ok=True)
        if not self.plan.items:
            return WrittenPart(self.plan, [], {}, {})
        writer = FileSystemWriter(directory)
        writer.set_up_storage_writer(self._rank == 0, rank=self._rank, use_collectives=False)
        results = writer.write_data(writer.prepare_local_plan(self.plan), self).wait()
        names = {result.storage_data.relative_path for result in results}
        digests = {name: file_digest(directory / name) for name in names}
        sizes = {name: (directory / name).stat().st_size for name in names}
        return WrittenPart(self.plan, results, digests, sizes)

    def _is_written_here(self, item: WriteItem) -> bool:
        value = self.state_dict[item.index.fqn]
        if not isinstance(value, DTensor):
            return self._rank == 0
        assert item.tensor_data is not None, "items of tensors have a shape"
        coordinate: Sequence[int] = value.device_mesh.get_coordinate() or ()
        is_first = all(
            position == 0
            for position, placement in zip(coordinate, value.placements, strict=True)
            if placement.is_replicate()
        )
        return is_first and (item.tensor_data.chunk.sizes.numel() > 0 or value.numel() == 0)


def _own(value: Any) -> Any:
    return local_part(value) if isinstance(value, torch.Tensor) else value


def write_metadata(directory: Path, parts: Iterable[WrittenPart]) -> None:
    """Write the file that names the tensors of all parts, which must be whole together.

    Raises:
        ValueError: the parts overlap or leave gaps.
        OSError: the disk can't be written.
    """
    written = list(parts)
    plans, metadata = DefaultSavePlanner().create_global_plan([part.plan for part in written])
    writer = FileSystemWriter(directory)
    writer.set_up_storage_writer(True)
    writer.prepare_global_plan(plans)
    writer.finish(metadata, [part.results for part in written])


def read_metadata(path: Path) -> Metadata:
    """Return the description of the tensors in the checkpoint at `path`."""
    return FileSystemReader(path).read_metadata()


def saved_tensors(metadata: Metadata, branch: str) -> dict[str, torch.Tensor]:
    """Return a checkpoint's tensors below `branch`, without memory, by name in the branch."""
    prefix = f"{branch}."
    return {
        name.removeprefix(prefix): torch.empty(
            value.size, dtype=value.properties.dtype, device="meta"
        )
        for name, value in metadata.state_dict_metadata.items()
        if name.startswith(prefix) and isinstance(value, TensorStorageMetadata)
    }


def files_read(path: Path, tree: dict[str, Any]) -> frozenset[str]:
    """Return the names of the files that hold the values of `tree` on this rank.

    The checkpoint at `path` must fit `tree`.
    """
    metadata = read_metadata(path)
    planner = DefaultLoadPlanner()
    planner.set_up_planner(tree, metadata)
    items = planner.create_local_plan().items
    return frozenset(metadata.storage_data[item.storage_index].relative_path for item in items)


def require_fit(path: Path, metadata: Metadata, tree: Mapping[str, Any]) -> None:
    """Check that a checkpoint holds all values of `tree`, and no other value of a model.

    Raises:
        CheckpointError: a value is missing or has another shape; the message names the first one.
    """
    needed = flatten_state_dict(dict(tree))[0]
    saved = metadata.state_dict_metadata
    has_model = any(name.startswith(_MODEL) for name in needed)
    others = [
        name for name in saved if has_model and name.startswith(_MODEL) and name not in needed
    ]
    shapes = [(name, _shape(saved, name), _shape(needed, name)) for name in [*needed, *others]]
    faults = [
        f"{_shown(name)} is {there} in the checkpoint and {here} in this script"
        for name, there, here in shapes
        if there != here and (_PLAIN not in (there, here) or _MISSING in (there, here))
    ]
    if faults:
        more = f", and {len(faults) - 1} more differ" if faults[1:] else ""
        raise CheckpointError(
            f"{path} does not go with this model: {faults[0]}{more}: resume with the script that "
            "wrote it, or name another checkpoint directory"
        )


def _shown(name: str) -> str:
    return f"the model's {name.removeprefix(_MODEL)}" if name.startswith(_MODEL) else name


def _shape(values: Mapping[str, Any], name: str) -> str:
    """Return the shape of the tensor `name`, such as `4x3`, or that there is no tensor."""
    if name not in values:
        return _MISSING
    value = values[name]
    if not isinstance(value, torch.Tensor | TensorStorageMetadata):
        return _PLAIN
    size = value.size if isinstance(value, TensorStorageMetadata) else value.shape
    return shape_text(size)
