"""Output of `castor fetch`."""

from __future__ import annotations

from pathlib import Path

from autoscaler.cli.fetch.run import (
    Fetched,
    FileListing,
    FileSelection,
    fetch_results,
    list_results,
    listing_table,
    told_left_out,
)
from autoscaler.cli.live import print_whole
from autoscaler.cli.output import print_json
from autoscaler.cli.tables import counted
from autoscaler.wire.client import Client


def print_listing(client: Client, job: str, choice: FileSelection, as_json: bool) -> None:
    """Print the files of a job that can be fetched.

    Raises:
        CastorError: as `list_results`.
    """
    listing = list_results(client, job, choice)
    if as_json:
        print_json(FileListing, listing)
        return
    print_whole(listing_table(listing))
    if line := told_left_out(listing):
        print(line)


def print_fetched(
    client: Client,
    job: str,
    directory: Path | None,
    choice: FileSelection,
    force: bool,
    as_json: bool,
) -> None:
    """Download the files of a job, and print a summary.

    Raises:
        CastorError: as `fetch_results`.
    """
    fetched = fetch_results(client, job, directory, choice, force)
    if as_json:
        print_json(Fetched, fetched)
        return
    size_bytes = sum(file.bytes for file in fetched.fetched)
    unchanged = (
        f"; unchanged: {counted(len(fetched.unchanged), 'file')}" if fetched.unchanged else ""
    )
    print(
        f"{fetched.job}: {counted(len(fetched.fetched), 'file')}, {size_bytes:,} bytes, in "
        f"{fetched.directory}{unchanged}"
    )
    if fetched.checkpoint is not None:
        folder = Path(fetched.directory) / fetched.checkpoint
        print(f"checkpoint: {folder}; docs/outputs.md shows how to load it in plain PyTorch")
