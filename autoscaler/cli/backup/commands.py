"""Commands `castor backup` and `castor restore`."""

from __future__ import annotations

import os
from functools import partial
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
    """Back up the state of a controller, running or not.

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
    lost: Annotated[
        bool,
        Option("--lost", help="Restore also if nobody can check that the controller is gone."),
    ] = False,
) -> None:
    """Restore a backup into a new state directory.

    The store must be empty, too. The lost controller must never run again beside the restored one:
    both would launch and end the same instances. Agents must find the restored one at the address
    of the lost one.
    """
    from autoscaler.backup.restoring import gap_text, restore_backup
    from autoscaler.clock import SystemClock
    from autoscaler.wire.connection import state_directory

    now_seconds, directory = SystemClock().now(), state or state_directory()
    check = partial(refuse_beside_living, is_lost=lost)
    manifest = restore_backup(file, directory, store, now_seconds, check)
    print(gap_text(manifest, now_seconds))
    if manifest.url is not None:
        print(
            f"its agents reach their controller at {manifest.url}: give this host that address, "
            "and run castor serve with the same --host and --port. Instances that reach no "
            "controller end with their lease, and their jobs go on from checkpoints"
        )


def refuse_beside_living(state: Path, is_lost: bool = False) -> None:
    """Check that no controller answers at the address, and to the token, of a restored state.

    A controller that can't be reached from here is not noticed. If the check can't be made, or a
    controller refuses the token, `is_lost` decides. The authority is CASTOR_CA, the certificate
    that the controller signed itself, or the file that client.json names.

    Raises:
        Conflict: the controller answers, or may answer and `is_lost` is False.
    """
    from autoscaler.domain.errors import (
        CastorError,
        Conflict,
        NotAllowed,
        SpecError,
        Unreachable,
    )
    from autoscaler.state_directory import CLIENT_FILE, owner_token, saved_authority, served_url
    from autoscaler.tls import self_signed_files
    from autoscaler.wire.connection import Address

    url, token = served_url(state), owner_token(state)
    try:
        if url is None or token is None:
            raise SpecError(f"its {CLIENT_FILE} has no address and token")
        # The path in the file is that of the host whose state it was.
        certificate = self_signed_files(state).certificate
        saved = certificate if certificate.exists() else saved_authority(state)
        named = os.environ.get("CASTOR_CA")
        Address(url, token, Path(named) if named else saved).client().fleet()
    except Unreachable:
        return
    except NotAllowed as error:
        if is_lost:
            return
        raise Conflict(
            f"a controller answers at {url}, but refuses the owner's token of this backup "
            f"({error}): if it is the controller of this backup, with a newer token, stop it for "
            "good; if it is another one, add --lost"
        ) from None
    except (CastorError, OSError) as error:  # a file that SSL_CERT_FILE names may be missing
        if is_lost:
            return
        raise Conflict(
            f"whether the controller of this backup still runs at {url or 'its address'} can't be "
            f"checked ({error}): set CASTOR_CA to a copy of its certificate, or add --lost if it "
            "will never run again"
        ) from None
    raise Conflict(
        f"the controller of this backup answers at {url}: stop it for good before its backup is "
        "restored, since two of them would end each other's instances"
    )
