"""The words of `castor programs`; how it looks is in `remembered`, imported when it is called."""

from __future__ import annotations

from typing import Annotated

from typer import Argument, Context, Typer

from autoscaler.cli.options import Json

programs = Typer(
    help="List what jobs taught the programs that they run, show it, or have it forgotten."
)

Program = Annotated[str, Argument(help="As `castor programs` lists it.", metavar="NAME")]


@programs.callback(invoke_without_command=True)
def listed(context: Context, as_json: Json = False) -> None:
    """What `castor programs` does by itself; its help is that of the group."""
    if context.invoked_subcommand is not None:
        return
    from autoscaler.cli.live import print_whole
    from autoscaler.cli.output import print_json
    from autoscaler.cli.remembered import programs_table
    from autoscaler.domain.program import ProgramMemory
    from autoscaler.wire.connection import connect

    memories = connect().programs()
    if as_json:
        print_json(tuple[ProgramMemory, ...], memories)
    elif memories:
        print_whole(programs_table(memories))
    else:
        print("nothing is remembered yet: jobs teach as they train")


@programs.command()
def show(name: Program, as_json: Json = False) -> None:
    """Print what is remembered of one: step times, noise scale, starts."""
    from autoscaler.cli.live import print_whole
    from autoscaler.cli.output import print_json
    from autoscaler.cli.remembered import program_detail
    from autoscaler.domain.program import ProgramMemory
    from autoscaler.wire.connection import connect

    memory = connect().program(name)
    if as_json:
        print_json(ProgramMemory, memory)
    else:
        print_whole(program_detail(memory))


@programs.command()
def forget(name: Program) -> None:
    """Drop what is remembered of one. Jobs that run go on and teach it anew."""
    from autoscaler.wire.connection import connect

    connect().forget_program(name)
    print(f"{name}: forgotten")
