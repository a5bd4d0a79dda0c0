"""Command `castor ssh`: a shell on an instance, through the cloud's own tool."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Iterable

    from autoscaler.wire.messages import InstanceView

Instance = Annotated[str, typer.Argument(help="Name of an instance, as castor status prints it.")]
Prints = Annotated[bool, typer.Option("--print", help="Print the command in place of running it.")]


def ssh(instance: Instance, prints: Prints = False) -> None:
    """Open a shell on an instance of a job.

    It runs `aws ssm start-session` or `gcloud compute ssh` with your own credentials. The
    deployment must allow it: `instance_shell = true` in its Terraform configuration. Instances on
    this machine's cores have no shell of their own.
    """
    import os
    import shlex
    import shutil

    from autoscaler.domain.errors import Unavailable
    from autoscaler.wire.connection import connect

    command = shell_command(connect().fleet().instances, instance)
    if prints:
        print(shlex.join(command))
        return
    if shutil.which(command[0]) is None:
        raise Unavailable(f"{command[0]} is not installed: install it, or use --print")
    os.execvp(command[0], command)


def shell_command(instances: Iterable[InstanceView], name: str) -> tuple[str, ...]:
    """Return the command that opens a shell on the instance of that name.

    Raises:
        NotFound: no such instance runs, or it is on no cloud with shells.
    """
    from autoscaler.domain.errors import NotFound
    from autoscaler.domain.text import did_you_mean, quoted
    from providers.registry import plugin_of, providers

    by_name = {view.id: view for view in instances}
    view = by_name.get(name)
    if view is None:
        of_job = [view.id for view in by_name.values() if view.job == name]
        hint = did_you_mean(name, by_name, "castor status JOB lists them")
        if of_job:
            hint = f"did you mean {' or '.join(map(quoted, of_job))}?"
        raise NotFound(f"no instance {name} runs: {hint}")
    if view.cloud_id is None:
        raise NotFound(f"{name} is not launched yet")
    for listing in providers():
        if listing.trouble is None:
            plugin = plugin_of(listing.name, "ssh")
            command = plugin.shell_command(view.offer, view.cloud_id)
            if command is not None:
                return command
    raise NotFound(f"{name} ({view.offer}) is on no cloud that has shells")
