"""Scenario of `castor demo`: two real jobs on a cloud of local processes, shown live.

Controller, provider, agents, torchrun and training are the real ones. The demo submits two jobs,
displays the controller's decisions, and changes one objective as an owner might. Meanwhile the
same controller runs a day's jobs on a simulated cloud (`value`).
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import sysconfig
import tempfile
import webbrowser
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from rich.console import Console

from autoscaler.cli.demo.display import Audience
from autoscaler.cli.demo.value import (
    draw_if_possible,
    others,
    paid_run,
    print_value,
    simulated_cloud,
)
from autoscaler.cli.local_cloud import billed_usd
from autoscaler.cli.submit.submission import hand_in
from autoscaler.cli.tables import forecast_table, instances_text, money, number
from autoscaler.clock import Clock, SystemClock
from autoscaler.domain.errors import CastorError, SpecError, Unavailable
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobPhase
from autoscaler.extras import from_extras
from autoscaler.spec.form_file import read_text
from autoscaler.spec.job_file import load_job
from autoscaler.spec.objective_text import parse_objective_text
from autoscaler.spec.quantities import format_duration
from autoscaler.supervision import SupervisedController, cores_here
from autoscaler.wire.client import Client
from autoscaler.wire.messages import Change, JobView

if TYPE_CHECKING:
    from autoscaler.cli.simulate.serving import ServedSimulation

_IN_A_CLONE = Path(__file__).parents[3] / "examples"
_INSTALLED = Path(sysconfig.get_path("data")) / "share" / "castor-autoscaler" / "examples"
_TIMEOUT_SECONDS = 600.0
_POLL_SECONDS = 0.5
_DISPLAY_SECONDS = 12.0
# Options of `castor serve`. Instances are reclaimed at random, like spot instances of clouds.
_OPTIONS = ("--checkpoint-seconds", "20", "--reclaims-per-hour", "1")
_MOST_DEVICES = 4


class StoryError(CastorError):
    """Failure of the demo: a job failed, a step timed out, or ledger and bill differ."""


@dataclass(frozen=True, slots=True)
class DemoOptions:
    """Options of the demo.

    Attributes:
        text: text file for the character model; None: the example's own.
        devices: number of cores to use; None: at most 4.
        keep: keep the state directory.
        picture: file of the picture at the end; None draws none.
        opens_browser: open the pages in a browser of this machine.
    """

    text: Path | None = None
    devices: int | None = None
    keep: bool = False
    picture: Path | None = None
    opens_browser: bool = True


@dataclass(slots=True)
class Visit:
    """Goodput samples of a job at one size, in useful examples/s.

    Attributes:
        measured: measured goodput, a sample at each poll.
        predicted: goodput that the fitted model predicts, at the same polls.
    """

    measured: list[float] = field(default_factory=list)
    predicted: list[float] = field(default_factory=list)


def run_demo(options: DemoOptions) -> int:
    """Run the demo and return the exit status; 0 means success."""
    _require_packages()
    _require_text(options.text)
    console = Console()
    clock = SystemClock()
    cores = cores_here()[: options.devices or _MOST_DEVICES]
    state = Path(tempfile.mkdtemp(prefix="castor-demo-"))
    controller = SupervisedController(state, cores, clock, _OPTIONS)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # release all instances then, too
    try:
        began_seconds = clock.now()
        with simulated_cloud(examples_directory()) as simulation:
            _show_pages(console, "a simulated cloud", simulation.link, options.opens_browser)
            _run_jobs(console, controller, clock, options)
            _print_simulation(console, simulation, options.picture)
        elapsed_seconds = clock.now() - began_seconds
        console.print(f"the demo took {format_duration(elapsed_seconds)}", highlight=False)
        return 0
    except KeyboardInterrupt:
        console.print("stopped; releasing all instances (Ctrl-C again leaves them running)")
        return 130
    except CastorError as error:
        console.print(f"castor: the demo failed: {error}", style="red", soft_wrap=True)
        console.print(controller.last_lines(), markup=False)
        return 1
    finally:
        clear_up(console, controller, options.keep)


def _require_text(file: Path | None) -> None:
    """Check the text file for the character model.

    Raises:
        SpecError: the file can't be read, is no text, or is empty.
    """
    wanted = "a text file in UTF-8 to train on"
    if file is not None and not read_text(file, wanted).strip():
        raise SpecError(f"{file}: is empty: name {wanted}", "--text")


def _run_jobs(
    console: Console, controller: SupervisedController, clock: Clock, options: DemoOptions
) -> None:
    """Run the two real jobs, and print what they took and cost."""
    with controller.running() as client:
        _show_pages(
            console,
            "two real jobs",
            lambda: client.browser_link().url,
            options.opens_browser,
        )
        with Audience(client, console, clock).watching() as audience:
            story = Story(client, audience, controller.keep_alive, clock)
            story.tell(options.text)
        _print_end(console, client, story, controller, clock)


def _show_pages(
    console: Console, subject: str, link: Callable[[], str], opens_browser: bool
) -> None:
    """Print the address of pages, and open them in a browser of a person at a terminal."""
    address = link()
    console.print(f"pages of {subject}: {address}", highlight=False, soft_wrap=True)
    if opens_browser and console.is_terminal and not webbrowser.open(address):
        console.print("no browser here: open the address within a minute", highlight=False)


def _print_simulation(
    console: Console, simulation: ServedSimulation, picture: Path | None
) -> None:
    """Print what the jobs of the simulated cloud cost, and would have cost with others."""
    console.print()
    console.print("the simulated cloud runs its jobs to their end ...", highlight=False)
    castor = paid_run(simulation.result.result(_TIMEOUT_SECONDS), "Castor")
    rivals = others(examples_directory())
    print_value(console, castor, rivals)
    if picture is not None:
        draw_if_possible(picture, castor, rivals, console)


def examples_directory() -> Path:
    """Return the directory of the demo's jobs: that of a clone, or that of the installed wheel.

    Raises:
        StoryError: neither directory has them.
    """
    for directory in (_IN_A_CLONE, _INSTALLED):
        if (directory / "digits" / "job.yaml").is_file():
            return directory
    raise StoryError(f"{_INSTALLED} is missing: install castor-autoscaler again, or use a clone")


def _require_packages() -> None:
    """Check that PyTorch and scikit-learn are installed.

    Raises:
        SpecError: one of them is missing.
    """
    with from_extras("demo", "demo"):
        for name in ("torch", "sklearn"):
            if find_spec(name) is None:
                raise ModuleNotFoundError(name=name)


def clear_up(console: Console, controller: SupervisedController, keep: bool) -> None:
    """Release all instances, then delete the state directory.

    The directory stays if `keep` is set or if instances may still run.
    """
    state = controller.state
    is_empty = controller.terminate_all()
    if is_empty and not keep:
        shutil.rmtree(state, ignore_errors=True)
        return
    if not is_empty:
        console.print("castor: instances may still run and cost money", style="red")
    words = f"kept: {state} (castor serve --state {state} continues from there)"
    console.print(words, soft_wrap=True)


class Story:
    """Steps of the demo. Each step awaits decisions of the controller.

    Attributes:
        visits: goodput samples by job and by size in words.
    """

    def __init__(
        self, client: Client, audience: Audience, keep_alive: Callable[[], None], clock: Clock
    ) -> None:
        self._client = client
        self._audience = audience
        self._keep_alive = keep_alive
        self._clock = clock
        self.visits: dict[str, dict[str, Visit]] = {}

    def tell(self, text: Path | None) -> None:
        """Run all steps. `text` is a text file for the character model; None: the example's own.

        Raises:
            StoryError: a job failed, or a step took longer than 600 s.
        """
        self._audience.say("1. a character model is submitted; its objective values time in $/h")
        gpt = self._submit("chargpt", {"TEXT": str(text.absolute())} if text else {})
        self._wait(lambda: self._is_training(gpt), "chargpt to train")
        self._look(lambda: self._has_grown(gpt))
        self._audience.say("2. a second job is submitted, with a deadline; no core is idle")
        digits = self._submit("digits", {})
        self._wait(lambda: self._is_training(digits), "digits to train")
        self._wait(lambda: self._job(gpt).phase.is_final, "chargpt to end")
        self._audience.say("3. the first job has ended; the second's objective is now fastest")
        objective = parse_objective_text("fastest", self._clock.now())
        if not self._job(digits).phase.is_final:
            self._client.change(digits, Change(objective=objective))
        self._wait(lambda: self._job(digits).phase.is_final, "digits to end")
        self._wait(lambda: not self._client.fleet().instances, "all instances to be released")

    def _submit(self, example: str, environment: Mapping[str, str]) -> str:
        folder = examples_directory() / example
        job_file = load_job(folder / "job.yaml", self._clock.now())
        job, _ = hand_in(self._client, job_file, environment)
        return job.id

    def _wait(self, condition: Callable[[], bool], event: str) -> None:
        """Update the display until `condition` holds; `event` names it in the error.

        Raises:
            StoryError: `condition` does not hold within 600 s.
        """
        deadline = self._clock.now() + _TIMEOUT_SECONDS
        while not self._holds(condition):
            if self._clock.now() > deadline:
                raise StoryError(f"waited {_TIMEOUT_SECONDS:.0f} s for {event}")
            self._poll()

    def _look(self, condition: Callable[[], bool]) -> None:
        """Update the display until `condition` holds or 48 s pass, and for another 12 s."""
        deadline = self._clock.now() + 4 * _DISPLAY_SECONDS
        while not self._holds(condition) and self._clock.now() < deadline:
            self._poll()
        deadline = self._clock.now() + _DISPLAY_SECONDS
        while self._clock.now() < deadline:
            self._poll()

    def _holds(self, condition: Callable[[], bool]) -> bool:
        try:
            return condition()
        except Unavailable:
            return False

    def _poll(self) -> None:
        self._keep_alive()
        self._audience.refresh()
        with contextlib.suppress(Unavailable):
            for job in self._client.jobs():
                self._record_goodput(job)
        self._clock.sleep(_POLL_SECONDS)

    def _record_goodput(self, job: JobView) -> None:
        """Record measured and predicted goodput while all instances of the job train.

        Raises:
            StoryError: the job failed.
        """
        report = job.report
        if job.phase is JobPhase.FAILED:
            raise StoryError(f"job {job.id} failed: {job.cause}")
        if report is None or not report.goodput_measured or not job.goodput_predicted:
            return
        all_train = all(instance.phase is InstancePhase.TRAINING for instance in job.instances)
        if all_train and report.replicas == len(job.instances):
            size = instances_text(job)
            visit = self.visits.setdefault(job.id, {}).setdefault(size, Visit())
            visit.measured.append(report.goodput_measured)
            visit.predicted.append(job.goodput_predicted)

    def _job(self, name: str) -> JobView:
        return self._client.job(name)

    def _is_training(self, name: str) -> bool:
        job = self._job(name)
        return job.phase.is_final or _devices_training(job) > 0

    def _has_grown(self, name: str) -> bool:
        return _devices_training(self._job(name)) > 1


def _devices_training(job: JobView) -> int:
    training = InstancePhase.TRAINING
    return sum(instance.devices for instance in job.instances if instance.phase is training)


def _print_end(
    console: Console,
    client: Client,
    story: Story,
    controller: SupervisedController,
    clock: Clock,
) -> None:
    """Print cost and duration of each job, and predictions for fixed sizes.

    Raises:
        StoryError: ledger and bill of the local cloud differ by a cent or more.
    """
    for job in reversed(client.jobs()):
        console.print()
        console.print("actual run, and the fitted model's predictions for fixed sizes:")
        console.print(forecast_table(job, client.forecast(job.id)))
        for size, visit in story.visits.get(job.id, {}).items():
            measured, predicted = fmean(visit.measured), fmean(visit.predicted)
            console.print(
                f" goodput at {size}: measured {number(measured)}, model {number(predicted)} "
                f"useful examples/s ({predicted / measured - 1:+.0%})",
                highlight=False,
            )
    total_usd, billed = client.costs().total_usd, billed_usd(controller.state, client, clock)
    console.print()
    console.print(
        f"ledger {money(total_usd)}, bill of the local cloud {money(billed)}",
        highlight=False,
    )
    if abs(total_usd - billed) >= Decimal("0.01"):
        raise StoryError(f"the ledger (${total_usd}) and the bill (${billed}) differ")
