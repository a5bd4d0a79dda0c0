"""`castor demo`: two real jobs on a cloud of local processes, told as it happens.

The controller, the provider, the agents, torchrun and training are the real ones. The demo only
submits, watches what the controller does by itself, and changes one objective as an owner might.
"""

from __future__ import annotations

import contextlib
import shutil
import signal
import sysconfig
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean

from rich.console import Console

from autoscaler.cli.audience import Audience
from autoscaler.cli.local_cloud import billed_usd
from autoscaler.cli.submission import hand_in
from autoscaler.cli.tables import forecast_table, instances_text, money, number
from autoscaler.clock import Clock, SystemClock
from autoscaler.domain.errors import CastorError, Unavailable
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobPhase
from autoscaler.extras import from_extras
from autoscaler.spec.job_file import load_job
from autoscaler.spec.objective_text import parse_objective_text
from autoscaler.spec.quantities import format_duration
from autoscaler.supervision import SupervisedController, cores_here
from autoscaler.wire.client import Client
from autoscaler.wire.messages import Change, JobView

_IN_A_CLONE = Path(__file__).parents[2] / "examples"
_INSTALLED = Path(sysconfig.get_path("data")) / "share" / "castor-autoscaler" / "examples"
_PATIENCE_SECONDS = 600.0
_POLL_SECONDS = 0.5
_LOOK_SECONDS = 12.0
# Of `castor serve`; instances are taken back at random, as spot instances of clouds are.
_OPTIONS = ("--checkpoint-seconds", "20", "--reclaims-per-hour", "1")
_MOST_DEVICES = 4


class StoryError(CastorError):
    """The demo did not go as it must."""


@dataclass(slots=True)
class Visit:
    """What a job was seen to do at one size: goodput measured, and by the model, each time."""

    measured: list[float] = field(default_factory=list)
    predicted: list[float] = field(default_factory=list)


def run_demo(text: Path | None, devices: int | None, keep: bool) -> int:
    """Tell the story; returns the exit status, 0 if all went well."""
    _require_packages()
    console = Console()
    clock = SystemClock()
    cores = cores_here()[: devices or _MOST_DEVICES]
    state = Path(tempfile.mkdtemp(prefix="castor-demo-"))
    controller = SupervisedController(state, cores, clock, _OPTIONS)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # all is given back then, too
    try:
        with controller.running() as client:
            with Audience(client, console, clock).watching() as audience:
                story = Story(client, audience, controller.keep_alive, clock)
                began_seconds = clock.now()
                story.tell(text)
            _print_end(console, client, story, controller, clock, clock.now() - began_seconds)
        return 0
    except KeyboardInterrupt:
        console.print("stopped; all instances are being given back (Ctrl-C again gives that up)")
        return 130
    except CastorError as error:
        console.print(f"castor: the demo went wrong: {error}", style="red", soft_wrap=True)
        console.print(controller.last_lines(), markup=False)
        return 1
    finally:
        clear_up(console, controller, keep)


def examples_directory() -> Path:
    """Return where the jobs of the demo are: in a clone, else where the wheel installed them.

    Raises:
        StoryError: neither is there.
    """
    for directory in (_IN_A_CLONE, _INSTALLED):
        if (directory / "digits" / "job.yaml").is_file():
            return directory
    raise StoryError(f"{_INSTALLED} is missing: install castor-autoscaler again, or use a clone")


def _require_packages() -> None:
    """Raise where the demo's jobs could not train.

    Raises:
        SpecError: PyTorch or scikit-learn is not installed.
    """
    with from_extras("server,training,demo", "demo"):
        for name in ("torch", "sklearn"):
            if find_spec(name) is None:
                raise ModuleNotFoundError(name=name)


def clear_up(console: Console, controller: SupervisedController, keep: bool) -> None:
    """Give all back and delete the state, unless it is to be kept or instances run in it."""
    state = controller.state
    is_empty = controller.give_everything_back()
    if is_empty and not keep:
        shutil.rmtree(state, ignore_errors=True)
        return
    if not is_empty:
        console.print("castor: instances may still run, and cost", style="red")
    words = f"kept: {state} (castor serve --state {state} goes on from there)"
    console.print(words, soft_wrap=True)


class Story:
    """The acts, each of which waits for what the controller decides by itself."""

    def __init__(
        self, client: Client, audience: Audience, keep_alive: Callable[[], None], clock: Clock
    ) -> None:
        self._client = client
        self._audience = audience
        self._keep_alive = keep_alive
        self._clock = clock
        self.visits: dict[str, dict[str, Visit]] = {}

    def tell(self, text: Path | None) -> None:
        """All acts."""
        self._audience.say("1. a character model arrives; its owner's time is worth money")
        gpt = self._submit("chargpt", {"TEXT": str(text.absolute())} if text else {})
        self._wait(lambda: self._is_training(gpt), "chargpt to train")
        self._look(lambda: self._grew(gpt))
        self._audience.say("2. a second job arrives, with a deadline; there are no idle cores")
        digits = self._submit("digits", {})
        self._wait(lambda: self._is_training(digits), "digits to train")
        self._wait(lambda: self._job(gpt).phase.is_final, "chargpt to end")
        self._audience.say("3. the first job has ended; the second's owner now wants it fast")
        objective = parse_objective_text("fastest", self._clock.now())
        if not self._job(digits).phase.is_final:
            self._client.change(digits, Change(objective=objective))
        self._wait(lambda: self._job(digits).phase.is_final, "digits to end")
        self._wait(lambda: not self._client.fleet().instances, "all instances to be given back")

    def _submit(self, example: str, environment: Mapping[str, str]) -> str:
        folder = examples_directory() / example
        job_file = load_job(folder / "job.yaml", self._clock.now())
        job, _ = hand_in(self._client, job_file, environment)
        return job.id

    def _wait(self, condition: Callable[[], bool], what: str) -> None:
        """Show what happens until `condition` holds."""
        deadline = self._clock.now() + _PATIENCE_SECONDS
        while not self._holds(condition):
            if self._clock.now() > deadline:
                raise StoryError(f"waited {_PATIENCE_SECONDS:.0f} s for {what}")
            self._turn_page()

    def _look(self, condition: Callable[[], bool]) -> None:
        """Wait for the controller to make up its mind, but go on if it wants no change."""
        deadline = self._clock.now() + 4 * _LOOK_SECONDS
        while not self._holds(condition) and self._clock.now() < deadline:
            self._turn_page()
        deadline = self._clock.now() + _LOOK_SECONDS
        while self._clock.now() < deadline:
            self._turn_page()

    def _holds(self, condition: Callable[[], bool]) -> bool:
        try:
            return condition()
        except Unavailable:
            return False

    def _turn_page(self) -> None:
        self._keep_alive()
        self._audience.refresh()
        with contextlib.suppress(Unavailable):
            for job in self._client.jobs():
                self._note(job)
        self._clock.sleep(_POLL_SECONDS)

    def _note(self, job: JobView) -> None:
        """Keep what was measured at each size, beside what the model says of it."""
        report = job.report
        if job.phase is JobPhase.FAILED:
            raise StoryError(f"job {job.id} failed: {job.cause}")
        if report is None or not report.goodput_measured or not job.goodput_predicted:
            return
        settled = all(each.phase is InstancePhase.TRAINING for each in job.instances)
        if settled and report.replicas == len(job.instances):
            size = instances_text(job)
            visit = self.visits.setdefault(job.id, {}).setdefault(size, Visit())
            visit.measured.append(report.goodput_measured)
            visit.predicted.append(job.goodput_predicted)

    def _job(self, name: str) -> JobView:
        return self._client.job(name)

    def _is_training(self, name: str) -> bool:
        job = self._job(name)
        return job.phase.is_final or _devices_training(job) > 0

    def _grew(self, name: str) -> bool:
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
    elapsed_seconds: float,
) -> None:
    """What it cost and how long it took, beside what fixed sizes would have, as predicted."""
    for job in reversed(client.jobs()):
        console.print()
        console.print("as it ran, and at each fixed size as predicted by its fitted model:")
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
        f"the ledger says {money(total_usd)}, the local cloud billed {money(billed)}; "
        f"the story took {format_duration(elapsed_seconds)}",
        highlight=False,
    )
    if abs(total_usd - billed) >= Decimal("0.01"):
        raise StoryError(f"the ledger ({total_usd}) and the bill ({billed}) differ")
