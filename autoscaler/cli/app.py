"""Entry point of the command line `castor`. A command imports its dependencies when called."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from autoscaler.cli.access.commands import audit, invite, people, token
from autoscaler.cli.access.login import login, logout, open_pages
from autoscaler.cli.adopt import adopt
from autoscaler.cli.backup.commands import backup, restore
from autoscaler.cli.budgets.commands import budget
from autoscaler.cli.buy.options import buy
from autoscaler.cli.check.options import check
from autoscaler.cli.compare.options import compare
from autoscaler.cli.completion import job_names
from autoscaler.cli.costs.options import costs
from autoscaler.cli.examples import add_examples
from autoscaler.cli.fleet import drain, freeze, reclaim, unfreeze
from autoscaler.cli.foresight.commands import curve, history, what_if
from autoscaler.cli.init.options import init
from autoscaler.cli.new.options import new
from autoscaler.cli.notifications.commands import notifications, notify
from autoscaler.cli.options import JobName, Json
from autoscaler.cli.output import fail_with, print_json
from autoscaler.cli.overviews import queue, top
from autoscaler.cli.plan.options import plan
from autoscaler.cli.programs.commands import programs
from autoscaler.cli.reconcile.options import reconcile
from autoscaler.cli.replay.options import replay
from autoscaler.cli.serve.options import serve
from autoscaler.cli.simulate.command import simulate
from autoscaler.cli.ssh import ssh
from autoscaler.cli.study.commands import study
from autoscaler.cli.submit.resume import resume
from autoscaler.domain.errors import CastorError, Unavailable
from autoscaler.domain.text import printable_lines
from autoscaler.extras import missing_extra

app = typer.Typer(
    name="castor",
    help="Run PyTorch jobs on cloud instances. Castor resizes each running job by the goodput "
    "that one more dollar buys.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog="Exit status: 0 done, 1 refused, 2 wrong usage, 3 no controller answers, 4 the job "
    "failed. The environment variables CASTOR_URL and CASTOR_TOKEN name the controller. Without "
    "them, its address is read from the directory CASTOR_STATE, else from the login of castor "
    "login, else from the directory ~/.castor.",
)

REFUSED, NO_CONTROLLER = 1, 3


def _print_version(is_requested: bool) -> None:
    if is_requested:
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
    no_color: Annotated[
        bool, typer.Option("--no-color", help="Print no colours, as with NO_COLOR=1.")
    ] = False,
) -> None:
    """Accept the options of `castor` itself."""
    if no_color:
        os.environ["NO_COLOR"] = "1"  # which rich reads whenever it opens a console
        os.environ.pop("FORCE_COLOR", None)


def main() -> None:
    """Run a command. A `CastorError` becomes a line on standard error and an exit status."""
    try:
        app()
    except Unavailable as error:
        _exit_with_error(error, NO_CONTROLLER)
    except CastorError as error:
        _exit_with_error(error, REFUSED)
    except ModuleNotFoundError as error:
        missing = missing_extra(error, next(iter(sys.argv[1:]), "castor"))
        if missing is None:
            raise
        _exit_with_error(missing, REFUSED)


def _exit_with_error(error: CastorError, status: int) -> None:
    print(f"castor: {printable_lines(str(error))}", file=sys.stderr)
    raise SystemExit(status)


@app.command()
def submit(
    file: Annotated[Path, typer.Argument(help="Job file; see docs/job-file.md.")],
    wait: Annotated[bool, typer.Option(help="Return when the job has ended.")] = False,
    as_json: Json = False,
) -> None:
    """Submit a job from a job file.

    The job's working directory is packed and uploaded. The controller then launches instances.
    """
    from autoscaler.cli.submit.submission import hand_in
    from autoscaler.cli.submit.waiting import print_end, wait_for_end
    from autoscaler.cli.tables import counted
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
        print(
            f"{job.id} {job.phase}: {files}, {bundle.bytes:,} bytes sent; "
            f"castor status {job.id} --watch follows it"
        )
        if words := default_budget_words(job.objective):
            print(words)
    fail_with(job)


@app.command()
def status(
    job: Annotated[
        str | None,
        typer.Argument(
            help="Name or id of a job to show in detail; default: list all jobs.",
            metavar="JOB",
            autocompletion=job_names,
        ),
    ] = None,
    watch: Annotated[
        bool, typer.Option(help="Refresh the view every second until Ctrl-C.")
    ] = False,
    everything: Annotated[bool, typer.Option("--all", help="List ended jobs, too.")] = False,
    as_json: Json = False,
) -> None:
    """Show jobs: size, goodput, progress, cost and last decision."""
    from autoscaler.cli.live import overview, show
    from autoscaler.cli.submit.waiting import details_of
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
    follow: Annotated[
        bool, typer.Option("-f", "--follow", help="Print new lines until the job ends.")
    ] = False,
    tail: Annotated[
        int | None, typer.Option(min=0, help="Print only the last TAIL lines of each instance.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON object for each line.")
    ] = False,
    instance: Annotated[
        str | None, typer.Option(help="Print only this instance's log; its id: castor status JOB.")
    ] = None,
) -> None:
    """Print the logs of all instances of a job.

    Ended instances are included. Each line starts with the time at which the controller
    received it, and with its instance. The log of an instance that did not start ends with its
    console output, as its cloud has it.
    """
    from autoscaler.cli.logs import print_logs
    from autoscaler.clock import SystemClock
    from autoscaler.wire.connection import connect

    print_logs(connect(), job, SystemClock(), follow, tail, as_json, instance)


@app.command()
def fetch(
    job: JobName,
    to: Annotated[
        Path | None, typer.Option("--to", help="Target directory; default: a folder named JOB.")
    ] = None,
    only_list: Annotated[
        bool, typer.Option("--list", help="List the files; download nothing.")
    ] = False,
    checkpoint: Annotated[bool, typer.Option(help="Fetch the newest checkpoint, too.")] = False,
    every_instance: Annotated[
        bool,
        typer.Option("--by-instance", help="Fetch the files of each instance to its own folder."),
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace local files whose contents differ.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Fetch the output files of a job, running or ended.

    Outputs are uploaded at each checkpoint and at the end of the script; see docs/outputs.md.
    Each file is verified by its SHA-256. A local file with other contents is replaced only with
    --force.
    """
    from autoscaler.cli.fetch.run import FileSelection
    from autoscaler.cli.fetch.tables import print_fetched, print_listing
    from autoscaler.wire.connection import connect

    choice = FileSelection(checkpoint, every_instance)
    if only_list:
        print_listing(connect(), job, choice, as_json)
    else:
        print_fetched(connect(), job, to, choice, force, as_json)


@app.command()
def why(
    job: JobName,
    number: Annotated[
        int, typer.Option("-n", min=1, help="Number of decisions to print, the latest.")
    ] = 20,
    as_json: Json = False,
) -> None:
    """Print the decisions made for a job, with their reasons.

    Remarks at the end name instances that a cloud launched in another zone than planned, and gangs
    that were given back, and warn that the script uses no session. An alarm warns that measured
    step times contradict the model behind the decisions. `castor status JOB --json` reports both,
    as `is_sessionless` and `alarm`.
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
            "priority=low|normal|high|2.5, min=1, max=4, offers=a,b, gpu=H100:8,A100, "
            "spot=true|false; any lifts offers and gpu",
            metavar="KEY=VALUE...",
        ),
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what the next plan would do; change nothing.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Change objective, priority or instance bounds of a job."""
    from autoscaler.cli.foresight.tables import print_change
    from autoscaler.cli.submit.changes import parse_changes, terms_text
    from autoscaler.clock import SystemClock
    from autoscaler.wire.connection import connect
    from autoscaler.wire.messages import JobView

    clock, client = SystemClock(), connect()
    now_seconds = clock.now()
    wanted = parse_changes(changes, client.job(job).bounds, now_seconds)
    if dry_run:
        print_change(client.try_change(job, wanted), now_seconds, as_json)
        return
    view = client.change(job, wanted)
    if as_json:
        print_json(JobView, view)
    else:
        print(f"{view.id}: {terms_text(view, now_seconds)}")


@app.command("spec")
def job_spec(job: JobName, as_json: Json = False) -> None:
    """Print the job file of a job, to submit it again.

    Later changes are in it. A deadline that was a duration counts anew. The files of the job are
    not in it: put it into their folder. With --json print what the API takes, with all defaults
    and the job's own files.
    """
    from autoscaler.cli.submit.submission import print_spec
    from autoscaler.clock import SystemClock
    from autoscaler.wire.connection import connect

    print_spec(connect(), job, SystemClock().now(), as_json)


@app.command()
def stop(
    job: JobName,
    wait: Annotated[
        bool, typer.Option(help="Return when the job's instances are released.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Stop a job: save a checkpoint and release its instances."""
    from autoscaler.cli.submit.waiting import checkpoint_of, wait_for_end
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
        hint = f"castor status {view.id} shows its progress; add --wait to wait for its end"
        words = checkpoint_of(client, view) if wait else hint
        print(f"{view.id} {view.phase}; {words}")


@app.command()
def offers(
    file: Annotated[
        Path | None,
        typer.Option("--offers", help="Offers file to print, instead of the controller's offers."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print all offers, with the age and source of each price."""
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


@app.command()
def schema(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help="job, study, offers, pools or pool.")
    ],
) -> None:
    """Print the JSON Schema of a kind of file, for editors.

    An editor completes and checks the file with it; docs/job-file.md shows how.
    """
    from autoscaler.clouds import pools_forms
    from autoscaler.spec.schemas import POOLS, file_schema, pools_schema

    document = pools_schema(pools_forms()) if kind == POOLS else file_schema(kind)
    print(json.dumps(document, indent=2))


app.command()(resume)
app.command()(queue)
app.command()(top)
app.command()(new)
app.command()(curve)
app.command()(history)
app.command("what-if")(what_if)
app.command()(costs)
app.command()(drain)
app.command()(login)
app.command()(logout)
app.command("open")(open_pages)
app.command()(invite)
app.command()(audit)
app.command()(notifications)
app.command()(freeze)
app.command()(unfreeze)
app.command()(reclaim)
app.command()(serve)
app.command()(adopt)
app.command()(backup)
app.command()(restore)
app.command()(plan)
app.command()(simulate)
app.command()(compare)
app.command()(replay)
app.command()(ssh)
app.command()(init)
app.command()(check)
app.command()(buy)
app.command()(reconcile)
app.add_typer(programs, name="programs")
app.add_typer(study, name="study")
app.add_typer(budget, name="budget")
app.add_typer(people, name="people")
app.add_typer(token, name="token")
app.add_typer(notify, name="notify")


@app.command(hidden=True)
def node(
    user_data: Annotated[Path, typer.Option(help="File of the user data of the instance.")],
) -> None:
    """Run the agent of an instance. Each instance starts its own agent."""
    import logging

    from autoscaler.cli.logging_setup import log_sigterm, log_to_stderr
    from autoscaler.clock import SystemClock
    from autoscaler.node.run import run_agent
    from autoscaler.node.user_data import load_user_data
    from providers.metadata import read_metadata

    log_to_stderr("%(asctime)s %(name)s: %(message)s")
    log_sigterm(
        logging.getLogger("autoscaler.node"),
        "this agent ends, and reports no more. The script goes on until the instance ends; if the "
        "instance starts an agent again, that one takes the script over",
    )
    run_agent(load_user_data(user_data), read_metadata(os.environ), SystemClock())


@app.command()
def demo(
    text: Annotated[
        Path | None, typer.Option(help="Text file to train the character model on.")
    ] = None,
    devices: Annotated[
        int | None, typer.Option(min=1, help="Number of cores to use; default: all, at most 4.")
    ] = None,
    keep: Annotated[bool, typer.Option(help="Keep the state directory for inspection.")] = False,
    picture: Annotated[
        Path, typer.Option(help="File of the picture at the end: .png, .svg or .pdf.")
    ] = Path("castor-demo.png"),
    browser: Annotated[
        bool, typer.Option(help="Open the pages in a browser, if this is a terminal.")
    ] = True,
) -> None:
    """Run a demo: real jobs here, and a simulated cloud.

    It takes less than four minutes. Two jobs share this machine's cores. Meanwhile the same
    controller runs a day's jobs on a simulated cloud, whose pages are served. At the end its
    dollars and hours stand beside those of fixed pools and of scaling by throughput.
    """
    from autoscaler.cli.demo.scenario import DemoOptions, run_demo

    raise SystemExit(run_demo(DemoOptions(text, devices, keep, picture, browser)))


add_examples(app)

if __name__ == "__main__":
    main()
