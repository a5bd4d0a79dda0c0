"""Parsers of outside text that write files: whatever they refuse leaves nothing behind."""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from hashlib import sha256
from pathlib import Path
from typing import Final

from autoscaler.backup.archive import read_archive
from autoscaler.backup.manifest import FORMAT, MANIFEST, STORE, Manifest
from autoscaler.backup.restoring import gap_text, restore_backup, verified
from autoscaler.cli.new.run import write_job_file
from autoscaler.domain.errors import SpecError, StoreError
from autoscaler.service.pages.multipart import Uploaded, UploadParser
from autoscaler.store.sql.migration import newest_version

NOW_SECONDS: Final = 1_800_000_000.0
BOUNDARY: Final = "a-boundary"
MOST_UPLOAD_BYTES: Final = 4_000
FORM: Final = "\r\n".join(
    (
        f"--{BOUNDARY}",
        'Content-Disposition: form-data; name="token"',
        "",
        "secret",
        f"--{BOUNDARY}",
        'Content-Disposition: form-data; name="files"; filename="job/data/train.py"',
        "Content-Type: text/x-python",
        "",
        "print(1)",
        f"--{BOUNDARY}",
        'Content-Disposition: form-data; name="files"; filename=""',
        "",
        "",
        f"--{BOUNDARY}--",
        "",
    )
)
SCRIPT: Final = """import argparse
import torch
from accelerate import Accelerator

parser = argparse.ArgumentParser()
parser.add_argument("corpus")
parser.add_argument("--data", required=True)
parser.add_argument("--batch-size", type=int, default=64, help="examples of a step")
parser.add_argument("--note", default="a\\nname: hostile")
options = parser.parse_args()
per_device_train_batch_size = 32
accelerator = Accelerator(device="cuda:0")
torch.save({}, options.data)
"""
MEMBERS: Final = {STORE: b"tables", "secret.key": b"key"}
MANIFEST_TEXT: Final = json.dumps(
    {
        "format": FORMAT,
        "castor": "0.1.0",
        "version": newest_version(),
        "made_seconds": NOW_SECONDS,
        "controller": "1f0c2d34",
        "url": "http://10.0.0.7:8470",
        "members": {
            name: {"bytes": len(content), "sha256": sha256(content).hexdigest()}
            for name, content in MEMBERS.items()
        },
    }
)


def parse_upload(text: str) -> None:
    """Parse a form as a whole and in small parts; both mean the same, inside the directory."""
    content = text.encode(errors="replace")
    assert outcome(content, len(content) or 1) == outcome(content, 7)
    with tempfile.TemporaryDirectory() as directory:
        received(content, 1_000, Path(directory))


def outcome(content: bytes, chunk_bytes: int) -> object:
    """Return the fields and files of a form that is received in parts, or why it is refused."""
    with tempfile.TemporaryDirectory() as root:
        directory = Path(root) / "files"
        directory.mkdir()
        try:
            uploaded = received(content, chunk_bytes, directory)
        except SpecError as refusal:
            return str(refusal)
        finally:
            assert list(Path(root).iterdir()) == [directory]
        texts = {str(path): (directory / path).read_bytes() for path in uploaded.files}
        written = {path for path in directory.rglob("*") if not path.is_dir()}
        assert written == {directory / path for path in uploaded.files}
        return uploaded.fields, texts


def received(content: bytes, chunk_bytes: int, directory: Path) -> Uploaded:
    """Return a form whose files were written to a directory."""
    parser = UploadParser(
        BOUNDARY.encode(), directory, MOST_UPLOAD_BYTES, lambda name, value: None
    )
    try:
        for begin in range(0, len(content), chunk_bytes):
            parser.feed(content[begin : begin + chunk_bytes])
        parser.close()
    finally:
        parser.abandon()
    return parser.uploaded


def parse_script(text: str) -> None:
    """Write the job file of a script; a refusal leaves none."""
    with tempfile.TemporaryDirectory() as directory:
        script, target = Path(directory) / "train.py", Path(directory) / "job.yaml"
        script.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
        try:
            write_job_file(script, None)
        except SpecError:
            assert not target.exists()
            raise
        assert target.exists()


def parse_manifest(text: str) -> None:
    """Read a backup that has this manifest, and tell what it lacks."""
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "a.backup"
        file.write_bytes(archive_of(MEMBERS | {MANIFEST: text.encode(errors="replace")}))
        gap_text(verified(file), NOW_SECONDS)


def parse_backup(text: str) -> Manifest:
    """Read a backup whose bytes are the characters of a text; a refusal restores nothing."""
    with tempfile.TemporaryDirectory() as directory:
        file, state = Path(directory) / "a.backup", Path(directory) / "state"
        file.write_bytes(text.encode("latin-1", errors="replace"))
        try:
            manifest = read_archive(file)
        except StoreError:
            try:
                restore_backup(file, state, None, NOW_SECONDS)
            except StoreError:
                assert list(Path(directory).iterdir()) == [file]
                raise
            raise AssertionError("an archive that can't be read was restored") from None
        return manifest


def archive_of(members: dict[str, bytes]) -> bytes:
    """Return a tar archive with these members."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w") as archive:
        for name, text in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text))
    return content.getvalue()


BACKUP: Final = archive_of(MEMBERS | {MANIFEST: MANIFEST_TEXT.encode()}).decode("latin-1")
