"""Commands `castor programs`. They import the tables when called."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Context, Typer

from autoscaler.cli.options import Json, Yes
from autoscaler.cli.output import confirm

programs = Typer(help="List the speeds and noise scales measured for each program.")

Program = Annotated[
    str, Argument(help="Program, by its name in `castor programs`.", metavar="NAME")
]


@programs.callback(invoke_without_command=True)
def listed(context: Context, as_json: Json = False) -> None:
    """Print a table of all programs, if no sub-command is named."""
    if context.invoked_subcommand is not None:
        return
    from autoscaler.cli.live import print_whole
    from autoscaler.cli.output import print_json
    from autoscaler.cli.programs.tables import programs_table
    from autoscaler.domain.program import ProgramMemory
    from autoscaler.wire.connection import connect

    memories = connect().programs()
    if as_json:
        print_json(tuple[ProgramMemory, ...], memories)
    elif memories:
        print_whole(programs_table(memories))
    else:
        print("no program has measurements yet: jobs record them while they train")


@programs.command()
def show(name: Program, as_json: Json = False) -> None:
    """Print a program's step times, noise scales and start times."""
    from autoscaler.cli.live import print_whole
    from autoscaler.cli.output import print_json
    from autoscaler.cli.programs.tables import program_detail
    from autoscaler.domain.program import ProgramMemory
    from autoscaler.wire.connection import connect

    memory = connect().program(name)
    if as_json:
        print_json(ProgramMemory, memory)
    else:
        print_whole(program_detail(memory))


@programs.command()
def forget(name: Program, yes: Yes = False) -> None:
    """Delete all measurements of a program.

    Running jobs continue, and record new measurements.
    """
    from autoscaler.wire.connection import connect

    confirm(f"this deletes all measurements of {name}", yes)
    connect().forget_program(name)
    print(f"{name}: forgotten")
