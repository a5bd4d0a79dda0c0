"""Writing of one checkpoint, by all ranks that hold a part of the state together.

Each rank writes and uploads its own files. The leader publishes the checkpoint after all ranks
have reported: by a rename on the disk, and by the manifest in a remote store.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from autoscaler.domain.checkpoint import MANIFEST, name_of
from autoscaler.domain.errors import CheckpointError
from autoscaler.domain.transfer import Transfer
from autoscaler.training.state.checkpoint_files import (
    METADATA,
    REST,
    bytes_of,
    digest_of,
    digests_in,
    file_digest,
    manifest_of,
    packed,
    publish,
    sync,
    writer_of,
)
from autoscaler.training.state.checkpoint_part import CheckpointPart, WrittenPart, write_metadata
from autoscaler.training.state.joint_work import JointWork
from autoscaler.training.state.remote_checkpoints import RemoteCheckpoints


@dataclass(frozen=True, slots=True)
class Content:
    """Content of a checkpoint after `step` committed steps, as this rank has it.

    The leader writes `rest`, plain values, and `texts`, files for human readers by file name.
    """

    step: int
    part: CheckpointPart
    rest: Mapping[str, Any]
    texts: Mapping[str, str] = field(default_factory=dict)


class CheckpointWriter:
    """Writer of checkpoints below `directory` and in the remote store `remote`, on one rank.

    `is_disk_leader`: whether this rank is the first that sees the directory.
    """

    def __init__(
        self,
        directory: Path,
        remote: RemoteCheckpoints | None,
        work: JointWork,
        is_disk_leader: bool = True,
    ) -> None:
        self._directory = directory
        self._remote = remote
        self._work = work
        self.is_disk_leader = is_disk_leader

    def write(self, content: Content) -> int:
        """Write and publish a checkpoint; return its size in bytes.

        A checkpoint of the same step and plain values is not written again, only uploaded.

        Raises:
            WorkError, CheckpointError: it is not published, on any rank.
        """
        final = self._directory / name_of(content.step)
        plain = b""

        def pack() -> str:
            nonlocal plain
            plain = packed(content.rest)
            return digest_of(plain)

        rest_digest = self._work.on_leader(pack)
        present = self._work.on_all(lambda: self._present(final, rest_digest))
        manifest = present[0] if len(set(present)) == 1 else None
        if manifest is None:
            manifest = self._write_anew(final, content, plain)
        if self._remote is not None:
            self._upload(self._remote, final, manifest)
        own_names = self._own_files(final, manifest)
        sizes = self._work.on_all(lambda: sum((final / name).stat().st_size for name in own_names))
        return sum(sizes)

    def _present(self, final: Path, rest_digest: str) -> bytes | None:
        """Return the manifest at `final` if it is whole for these ranks; None otherwise.

        Its plain values have the digest `rest_digest`, and this rank's files are there.

        Raises:
            OSError: the disk can't be read.
        """
        manifest = bytes_of(final / MANIFEST)
        if manifest is None:
            return None
        try:
            digests = digests_in(manifest, str(final))
        except (ValueError, CheckpointError):
            return None
        own_names = self._own_files(final, manifest)
        is_whole = (
            digests.get(REST) == rest_digest
            and all(writer_of(name) < self._work.ranks.ranks for name in digests)
            and all((final / name).is_file() for name in own_names)
        )
        return manifest if is_whole else None

    def _write_anew(self, final: Path, content: Content, plain: bytes) -> bytes:
        """Write and publish the checkpoint on the disk of each rank; return its manifest."""
        token = self._work.on_leader(lambda: f"{os.getpid()}-{uuid4().hex[:8]}")
        partial = final.with_name(f".{final.name}.{token}.partial")
        replaced = final.with_name(f".{final.name}.{token}.replaced.partial")
        try:
            parts = self._work.on_all(lambda: content.part.write(partial))
            manifest = self._work.on_leader(lambda: _seal(partial, content, plain, parts))
            self._work.on_all(
                lambda: (
                    _publish(partial, final, replaced, manifest) if self.is_disk_leader else None
                )
            )
        finally:
            if self.is_disk_leader:
                for left in (partial, replaced):
                    shutil.rmtree(left, ignore_errors=True)
        return manifest

    def _upload(self, remote: RemoteCheckpoints, final: Path, manifest: bytes) -> None:
        work = self._work
        if work.on_leader(lambda: remote.has(final.name, manifest)):
            return
        own_names = self._own_files(final, manifest)
        sent = work.on_all(lambda: remote.upload(final, own_names))
        work.on_leader(lambda: remote.upload(final, [MANIFEST]))
        if work.ranks.is_leader:  # the agents learn of the leader's transfers only
            remote.count(sum(sent[1:], Transfer()))

    def _own_files(self, final: Path, manifest: bytes) -> list[str]:
        names = digests_in(manifest, str(final))
        return [name for name in names if writer_of(name) == self._work.ranks.rank]


def _seal(partial: Path, content: Content, plain: bytes, parts: list[WrittenPart]) -> bytes:
    """Write the files that describe the parts; return the manifest of all files.

    Raises:
        OSError, ValueError: the disk can't be written, or the parts do not fit together.
    """
    write_metadata(partial, parts)
    (partial / REST).write_bytes(plain)
    for name, text in content.texts.items():
        (partial / name).write_text(text)
    own_names = [METADATA, REST, *content.texts]
    for name in own_names:
        sync(partial / name)
    digests = {name: file_digest(partial / name) for name in own_names}
    for part in parts:
        digests.update(part.digests)
    return manifest_of(content.step, digests)


def _publish(partial: Path, final: Path, replaced: Path, manifest: bytes) -> None:
    (partial / MANIFEST).write_bytes(manifest)
    sync(partial / MANIFEST)
    sync(partial)
    publish(partial, final, replaced)
