"""The command line: `castor`. Each command imports its room when it is called."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from autoscaler.cli.compare import compare
from autoscaler.cli.fleet import drain, freeze, invite, reclaim, unfreeze
from autoscaler.cli.options import JobName, Json
from autoscaler.cli.output import fail_with, print_json
from autoscaler.cli.plan import plan
from autoscaler.cli.programs import programs
from autoscaler.cli.reconcile import reconcile
from autoscaler.cli.replay import replay
from autoscaler.cli.resume import resume
from autoscaler.cli.serve import serve
from autoscaler.cli.simulate import simulate
from autoscaler.cli.study import study
from autoscaler.domain.errors import CastorError, Unavailable
from autoscaler.domain.text import printable_lines

app = typer.Typer(
    name="castor",
    help="Grows and shrinks pools of instances under running PyTorch jobs, by marginal goodput "
    "per dollar.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="Exit status: 0 done, 1 refused, 2 usage, 3 no controller answers, 4 the job has "
    "failed. The controller is found by CASTOR_URL and CASTOR_TOKEN, or in CASTOR_STATE "
    "(~/.castor).",
)

REFUSED, NO_CONTROLLER = 1, 3


def _print_version(is_asked: bool) -> None:
    if is_asked:
        from importlib.metadata import version as version_of

        print(f"castor {version_of('castor-autoscaler')}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Take the options of `castor` itself."""


def main() -> None:
    """Run a command; what is refused is one line on standard error and an exit status."""
    try:
        app()
    except Unavailable as error:
        _say(error, NO_CONTROLLER)
    except CastorError as error:
        _say(error, REFUSED)


def _say(error: CastorError, status: int) -> None:
    print(f"castor: {printable_lines(str(error))}", file=sys.stderr)
    raise SystemExit(status)


@app.command()
def submit(
    file: Annotated[Path, typer.Argument(help="A job file; see docs/job-file.md.")],
    wait: Annotated[bool, typer.Option(help="Return when the job has ended.")] = False,
    as_json: Json = False,
) -> None:
    """Run a job: pack its working directory, upload it, and let the controller buy for it."""
    from autoscaler.cli.submission import hand_in
    from autoscaler.cli.tables import counted
    from autoscaler.cli.waiting import print_end, wait_for_end
    from autoscaler.clock import SystemClock
    from autoscaler.spec.job_file import load_job
    from autoscaler.spec.objective_text import default_budget_words
    from autoscaler.wire.connection import connect
    from autoscaler.wire.messages import JobView

    clock = SystemClock()
    job_file = load_job(file, clock.now())
    client = connect()
    job, bundle = hand_in(client, job_file)
    if wait:
        job = wait_for_end(client, job.id, clock)
    if as_json:
        print_json(JobView, job)
    elif wait:
        print_end(job)
    else:
        files = counted(bundle.files, "file")
        print(f"{job.id} {job.phase}: {files}, {bundle.bytes:,} bytes packed")
        if words := default_budget_words(job.objective):
            print(words)
    fail_with(job)


@app.command()
def status(
    job: Annotated[str | None, typer.Argument(help="One job, in detail.", metavar="JOB")] = None,
    watch: Annotated[bool, typer.Option(help="Keep showing; leave with Ctrl-C.")] = False,
    everything: Annotated[bool, typer.Option("--all", help="Ended jobs too.")] = False,
    as_json: Json = False,
) -> None:
    """Show jobs: instances, goodput, noise scale, batch, progress, cost and the last decision."""
    from autoscaler.cli.live import overview, show
    from autoscaler.cli.waiting import details_of
    from autoscaler.clock import SystemClock
    from autoscaler.wire.connection import connect
    from autoscaler.wire.messages import JobView

    clock, client = SystemClock(), connect()
    if as_json and job is not None:
        print_json(JobView, client.job(job))
    elif as_json:
        print_json(tuple[JobView, ...], client.jobs(include_ended=everything))
    elif job is not None:
        show(lambda: details_of(client, job, clock.now()), watch, clock)
    else:
        show(lambda: overview(client.jobs(everything), client.fleet(), clock.now()), watch, clock)


@app.command()
def logs(
    job: JobName,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Until the job ends.")] = False,
    tail: Annotated[
        int | None, typer.Option(min=0, help="Only so many last lines of each instance.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print an object of JSON for each line.")
    ] = False,
) -> None:
    """Print what the instances of a job wrote, ended instances too.

    A line begins with the time at which the controller received it and with its instance.
    """
    from autoscaler.cli.logs import print_logs
    from autoscaler.clock import SystemClock
    from autoscaler.wire.connection import connect

    print_logs(connect(), job, SystemClock(), follow, tail, as_json)


@app.command()
def fetch(
    job: JobName,
    to: Annotated[
        Path | None, typer.Option("--to", help="Where to; a folder named JOB by default.")
    ] = None,
    only_list: Annotated[bool, typer.Option("--list", help="Fetch nothing, list it.")] = False,
    checkpoint: Annotated[bool, typer.Option(help="The newest checkpoint, too.")] = False,
    every_instance: Annotated[
        bool, typer.Option("--by-instance", help="Each instance's files, in a folder of its own.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace files that differ.")] = False,
    as_json: Json = False,
) -> None:
    """Fetch the files that a job's script wrote; its instances may be long gone.

    They are kept at each checkpoint and at the end; see docs/outputs.md. Each is checked against
    its SHA-256. Files that are in the folder already with other contents are never replaced
    without --force.
    """
    from autoscaler.cli.fetching import Choice
    from autoscaler.cli.results import print_fetched, print_listing
    from autoscaler.wire.connection import connect

    choice = Choice(checkpoint, every_instance)
    if only_list:
        print_listing(connect(), job, choice, as_json)
    else:
        print_fetched(connect(), job, to, choice, force, as_json)


@app.command()
def why(
    job: JobName,
    number: Annotated[int, typer.Option("-n", help="How many of the last decisions.")] = 20,
    as_json: Json = False,
) -> None:
    """Print what was decided for a job, and the numbers it was decided by.

    A line at the end says that the script runs without a session. An alarm at the end says that
    measured step times contradict the model behind these numbers. `castor status JOB --json` has
    these as `is_sessionless` and `alarm`.
    """
    from autoscaler.cli.tables import print_decisions, print_remarks
    from autoscaler.clock import SystemClock
    from autoscaler.wire.connection import connect

    client = connect()
    print_decisions(client.decisions(job, number), job, as_json)
    if not as_json:
        print_remarks(client.job(job), SystemClock().now())


@app.command("set")
def set_job(
    job: JobName,
    changes: Annotated[
        list[str],
        typer.Argument(
            help="objective=cheapest|fastest|balanced|value_of_time=40|deadline=2h|budget=5, "
            "priority=low|normal|high|2.5, min=1, max=4, offers=a,b, spot=true|false",
            metavar="KEY=VALUE...",
        ),
    ],
    as_json: Json = False,
) -> None:
    """Change a running job's objective, its priority or its bounds on instances."""
    from autoscaler.cli.changes import parse_changes
    from autoscaler.clock import SystemClock
    from autoscaler.spec.objective_text import describe_objective
    from autoscaler.spec.quantities import format_priority
    from autoscaler.wire.connection import connect
    from autoscaler.wire.messages import JobView

    clock, client = SystemClock(), connect()
    now_seconds = clock.now()
    spec_bounds = client.job(job).bounds
    view = client.change(job, parse_changes(changes, spec_bounds, now_seconds))
    if as_json:
        print_json(JobView, view)
        return
    bounds = view.bounds
    print(
        f"{view.id}: {describe_objective(view.objective, now_seconds)}, "
        f"{bounds.minimum} to {bounds.maximum} instances, "
        f"priority {format_priority(view.priority)}"
    )


@app.command()
def stop(
    job: JobName,
    wait: Annotated[bool, typer.Option(help="Return when all is given back.")] = False,
    as_json: Json = False,
) -> None:
    """End a job: it saves a checkpoint, and gives back all that it holds."""
    from autoscaler.cli.waiting import checkpoint_of, wait_for_end
    from autoscaler.clock import SystemClock
    from autoscaler.wire.connection import connect
    from autoscaler.wire.messages import JobView

    client = connect()
    view = client.stop(job)
    if wait:
        view = wait_for_end(client, view.id, SystemClock())
    if as_json:
        print_json(JobView, view)
    else:
        later = f"castor status {view.id} shows its end; --wait awaits it"
        words = checkpoint_of(client, view) if wait else later
        print(f"{view.id} {view.phase}; {words}")


@app.command()
def costs(as_json: Json = False) -> None:
    """Print what was spent, by job, offer and day, to the cent that was billed."""
    from autoscaler.cli.live import print_whole
    from autoscaler.cli.tables import costs_table
    from autoscaler.wire.connection import connect
    from autoscaler.wire.messages import CostView

    view = connect().costs()
    if as_json:
        print_json(CostView, view)
    else:
        print_whole(costs_table(view))


@app.command()
def offers(
    file: Annotated[
        Path | None,
        typer.Option("--offers", help="A file of offers, instead of what the controller sees."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print what can be bought, and how old each price is and where it is from."""
    from autoscaler.cli.live import print_whole
    from autoscaler.cli.offers import offers_in, offers_table
    from autoscaler.clock import SystemClock
    from autoscaler.wire.connection import connect
    from autoscaler.wire.messages import OffersView

    view = connect().offers() if file is None else offers_in(file, SystemClock().now())
    if as_json:
        print_json(OffersView, view)
    else:
        print_whole(offers_table(view))


app.command()(resume)
app.command()(drain)
app.command()(invite)
app.command()(freeze)
app.command()(unfreeze)
app.command()(reclaim)
app.command()(serve)
app.command()(plan)
app.command()(simulate)
app.command()(compare)
app.command()(replay)
app.command()(reconcile)
app.add_typer(programs, name="programs")
app.add_typer(study, name="study")


@app.command(hidden=True)
def node(
    user_data: Annotated[Path, typer.Option(help="What the instance was launched with.")],
) -> None:
    """Run the agent of an instance. Instances start it themselves."""
    import os

    from autoscaler.cli.own_log import log_to_stderr
    from autoscaler.clock import SystemClock
    from autoscaler.node.life import run_agent
    from autoscaler.node.user_data import load_user_data
    from providers.metadata import read_metadata

    log_to_stderr("%(asctime)s %(name)s: %(message)s")
    run_agent(load_user_data(user_data), read_metadata(os.environ), SystemClock())


@app.command()
def demo(
    text: Annotated[
        Path | None, typer.Option(help="A text for the character model to learn.")
    ] = None,
    devices: Annotated[
        int | None, typer.Option(help="Cores to use; at most 4 by default.")
    ] = None,
    keep: Annotated[bool, typer.Option(help="Keep the state directory, to look around.")] = False,
) -> None:
    """Watch two real jobs share a small cloud of local processes. Takes about three minutes."""
    from autoscaler.cli.demo import run_demo

    raise SystemExit(run_demo(text=text, devices=devices, keep=keep))


if __name__ == "__main__":
    main()
