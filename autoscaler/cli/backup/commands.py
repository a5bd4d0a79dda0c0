"""Commands `castor backup` and `castor restore`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from autoscaler.cli.options import Store

State = Annotated[
    Path | None, Option(envvar="CASTOR_STATE", help="State directory of the controller.")
]


def backup(
    file: Annotated[Path, Argument(help="File to write; it must not exist.")],
    state: State = None,
    store: Store = None,
    logs: Annotated[bool, Option("--logs", help="Copy the logs of jobs, too.")] = False,
) -> None:
    """Back up the controller's state, while it runs or is stopped.

    The file has the store as of one moment, the signing key, the owner's token, and bundles: keep
    it as secret as the state directory. Run this on the controller's host; see docs/keeping.md.
    """
    from autoscaler.backup.making import make_backup
    from autoscaler.clock import SystemClock
    from autoscaler.wire.connection import state_directory

    made = make_backup(file, state or state_directory(), store, SystemClock().now(), logs)
    members = len(made.manifest.members)
    print(f"{file}: {members} files, {made.bytes:,} bytes, verified")
    for folder, size_bytes in made.left_out.items():
        print(f"not in it: {folder}/ with {size_bytes:,} bytes")


def restore(
    file: Annotated[Path, Argument(help="Backup to restore.")],
    state: Annotated[
        Path | None,
        Option(envvar="CASTOR_STATE", help="New state directory, which must not exist."),
    ] = None,
    store: Annotated[
        str | None, Option(help="URL of an empty database; default: SQLite in --state.")
    ] = None,
) -> None:
    """Restore a backup into a new state directory and an empty store.

    The lost controller must never run again beside the restored one: both would launch and end
    the same instances. Agents must find the restored one at the address of the lost one.
    """
    from autoscaler.backup.restoring import gap_text, restore_backup
    from autoscaler.clock import SystemClock
    from autoscaler.wire.connection import state_directory

    now_seconds, directory = SystemClock().now(), state or state_directory()
    manifest = restore_backup(file, directory, store, now_seconds, refuse_beside_living)
    print(gap_text(manifest, now_seconds))
    if manifest.url is not None:
        print(
            f"its agents reach their controller at {manifest.url}: give this host that address, "
            "and run castor serve with the same --host and --port. Instances that reach no "
            "controller end with their lease, and their jobs go on from checkpoints"
        )


def refuse_beside_living(state: Path) -> None:
    """Check that no controller answers at the address, and to the token, of a restored state.

    A controller that runs but can't be reached from here is not noticed.

    Raises:
        Conflict: it answers.
    """
    import json

    from autoscaler.domain.errors import CastorError, Conflict
    from autoscaler.state_directory import CLIENT_FILE
    from autoscaler.tls import self_signed_files
    from autoscaler.wire.connection import Address

    client_file = json.loads((state / CLIENT_FILE).read_text())
    # The path in the file is that of the host whose state it was.
    certificate = self_signed_files(state).certificate
    authority = certificate if certificate.exists() else client_file.get("authority")
    try:
        address = Address(client_file["url"], client_file["token"], authority and Path(authority))
        address.client().fleet()
    except CastorError:
        return  # nothing answers, or a controller that does not know the token
    raise Conflict(
        f"the controller of this backup answers at {client_file['url']}: stop it for good before "
        "its backup is restored, since two of them would end each other's instances"
    )
