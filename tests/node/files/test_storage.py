"""An agent whose job's files are in storage: here a directory that nobody else sees."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.clock import SystemClock
from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import JobSpec
from autoscaler.domain.output import OutputSpec
from autoscaler.domain.storage import StorageGrant
from autoscaler.domain.transfer import Transfer
from autoscaler.lighthouse.host import LighthouseHost
from autoscaler.node.shims.redaction import Redactor
from autoscaler.objects import Objects, always
from tests.node.controller import FakeController
from tests.node.site import Site, wait_until

SCRIPT = Path(__file__).parents[2] / "training" / "scripts" / "regression.py"
CREDENTIAL = {"access_key_id": "AKIAFIRST", "secret_access_key": "hush-hush-1", "token": "t0ken-1"}
SPILL = """
import os, time
from autoscaler.clock import SystemClock
from autoscaler.training.channel import AgentConnection
channel = AgentConnection(os.environ["CASTOR_SOCKET"], SystemClock())
setup = channel.setup()
before = open(setup.grant_file).read()
print("grant:", before, flush=True)
while (text := open(setup.grant_file).read()) == before:
    time.sleep(0.02)
print("grant:", text, flush=True)
print("environment:", dict(os.environ), flush=True)
channel.finished()
channel.close()
"""

SEND = """
import os, time
from pathlib import Path
from autoscaler.clock import SystemClock
from autoscaler.objects import open_grant
from autoscaler.training.channel import AgentConnection
channel = AgentConnection(os.environ["CASTOR_SOCKET"], SystemClock())
setup = channel.setup()
depot = open_grant(Path(setup.grant_file), setup.depot, meter=channel.meter)
depot.put("first", bytes(100_000))
print("sent", flush=True)
while not os.path.exists("go"):
    time.sleep(0.02)
depot.get("first")
depot.put("second", bytes(23_000))
channel.finished()
channel.close()
"""


@pytest.fixture
def storage(tmp_path: Path) -> Objects:
    place = f"file://{tmp_path}/bucket/jobs/job"
    return Objects(place, always(StorageGrant(place)))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    files = tmp_path / "files"
    files.mkdir()
    (files / "spill.py").write_text(SPILL)
    shutil.copy(SCRIPT, files)
    return files


@pytest.fixture
def lighthouse(tmp_path: Path) -> Iterator[str | None]:
    host = LighthouseHost(tmp_path / "lighthouses", "127.0.0.1", SystemClock())
    yield host.ensure("job")
    host.release("job")


def log(storage: Objects, instance: str = "job-0") -> str:
    parts = storage.listed(f"logs/job/{instance}")
    return b"".join(storage.get(part.name) for part in parts).decode()


def sent(controller: FakeController, instance: str = "job-0") -> Transfer:
    """Return the last transfer count that an instance has reported."""
    told = [report.transfer for report in controller.of(instance) if report.transfer is not None]
    return told[-1].transfer if told else Transfer()


def bundled(site: Site, storage: Objects, spec: JobSpec, files: Path) -> FakeController:
    """A controller that has put the job's bundle into storage, and has none itself."""
    controller = site.serve(spec, files=files)
    assert controller.bundle is not None
    storage.put("bundle.tar.gz", controller.bundle)
    controller.bundle = None
    controller.keep_files_in(storage.place, bundle=f"{storage.place}/bundle.tar.gz")
    return controller


def test_bundle_and_log_travel_through_storage_and_the_credential_is_nowhere_else(
    site: Site, storage: Objects, files: Path
) -> None:
    controller = bundled(site, storage, JobSpec("job", ("python", "spill.py")), files)
    assert controller.assignment.grant is not None
    grant, soon_seconds = controller.assignment.grant, SystemClock().now() + 2.0
    first = replace(grant, credential=CREDENTIAL, expires_seconds=soon_seconds)
    renewed = {**CREDENTIAL, "secret_access_key": "hush-hush-2", "token": "t0ken-2"}
    controller.assignment = replace(controller.assignment, grant=first)
    instance = site.launch()
    wait_until(lambda: "grant:" in log(storage), "the first credential's use")
    later = replace(first, credential=renewed, expires_seconds=soon_seconds + 3600.0)
    controller.assignment = replace(controller.assignment, grant=later)
    wait_until(lambda: instance.is_complete or controller.failures, "the end")
    assert not controller.failures
    assert (controller.bundles_fetched, controller.logs) == (0, {}), "nothing by HTTP"
    text = log(storage)
    assert text.count("grant:") == 2
    for secret in ("hush-hush-1", "t0ken-1", "hush-hush-2", "t0ken-2"):
        assert secret not in text
        holders = [
            path.name
            for path in instance.disk.rglob("*")
            if path.is_file() and secret in path.read_text(errors="replace")
        ]
        assert holders in ([], ["grant.json"]), "neither in the agent's state"
    assert controller.grants_asked >= 1


def test_a_bundle_that_is_not_in_storage_comes_from_the_controller(
    site: Site, storage: Objects, files: Path
) -> None:
    (files / "hello.py").write_text("print('hello')")
    controller = site.serve(JobSpec("job", ("python", "hello.py")), files=files)
    controller.keep_files_in(storage.place, bundle=f"{storage.place}/gone.tar.gz")
    instance = site.launch()
    wait_until(lambda: instance.is_complete, "the end")
    assert controller.bundles_fetched == 1
    assert log(storage) == "hello\n"
    assert "fetching the bundle from the controller, not storage: file://" in instance.console


def test_a_later_agent_adds_to_the_log_where_the_parts_end(
    site: Site, storage: Objects, files: Path
) -> None:
    (files / "talk.py").write_text(
        "import time\nfor n in range(400):\n    print(n, flush=True)\n    time.sleep(0.01)\n"
    )
    controller = bundled(site, storage, JobSpec("job", ("python", "talk.py")), files)
    instance = site.launch()
    wait_until(lambda: log(storage), "a first part")
    instance.kill_agent()
    wait_until(lambda: instance.is_complete, "the end")
    assert log(storage).splitlines() == [str(n) for n in range(400)]
    heartbeats = len(controller.of("job-0"))
    assert len(storage.listed("logs/job/job-0")) < heartbeats / 2, "not one for each heartbeat"


@pytest.mark.parametrize("dies", [False, True], ids=["in peace", "killed"])
def test_all_that_an_instance_sends_and_fetches_is_told_as_one_count(
    site: Site, storage: Objects, files: Path, dies: bool
) -> None:
    """The bundle that its agent fetched, what the script says of itself, and the log."""
    (files / "send.py").write_text(SEND)
    spec = JobSpec("job", ("python", "send.py"), outputs=OutputSpec(patterns=()))
    controller = bundled(site, storage, spec, files)
    bundle_bytes = len(storage.get("bundle.tar.gz"))
    instance = site.launch()
    on_the_way = Transfer(100_000, bundle_bytes)
    wait_until(lambda: sent(controller).beyond(on_the_way).sent_bytes > 0, "the first, and a log")
    if dies:
        instance.kill_agent()
    (instance.work / "go").touch()
    wait_until(lambda: instance.is_complete, "the end")
    log_bytes = sum(part.bytes for part in storage.listed("logs"))
    whole = Transfer(123_000 + log_bytes, 100_000 + bundle_bytes)
    wait_until(lambda: sent(controller) == whole, "all of it")
    counts = [each.transfer for each in controller.reports if each.transfer is not None]
    assert len({count.begun_seconds for count in counts}) == 1, "a later agent goes on"
    amounts = [count.transfer.sent_bytes for count in counts]
    assert amounts == sorted(amounts)
    assert len(counts) == len(controller.reports)


def test_an_instance_whose_files_are_on_a_shared_disk_has_sent_nothing(site: Site) -> None:
    controller = site.serve(JobSpec("job", ("true",)))
    instance = site.launch()
    wait_until(lambda: instance.is_complete, "the end")
    assert sent(controller) == Transfer()


@pytest.mark.aws
def test_a_job_goes_on_from_storage_on_another_instance(
    site: Site, storage: Objects, files: Path, lighthouse: str | None
) -> None:
    site.settings = {}
    variables = {"TRACE": "trace", "EPOCHS": "100000", "STEP_SECONDS": "0.01"}
    spec = JobSpec(
        "job",
        ("python", "regression.py"),
        environment=variables,
        outputs=OutputSpec(patterns=()),  # what is sent are checkpoints alone
    )
    controller = bundled(site, storage, spec, files)
    controller.offer_lighthouse(lighthouse)
    first = site.launch()
    wait_until(lambda: controller.training and controller.training[-1].step > 20, "steps")
    first.reclaim()
    first.wait_for(InstancePhase.DRAINED, 60.0)
    (manifest,) = [name.name for name in storage.listed() if name.name.endswith("manifest.json")]
    left_at = int(manifest.split("/")[1].removeprefix("step-"))
    assert left_at >= 20
    second = site.launch("job-1")
    second.wait_for(InstancePhase.TRAINING, 60.0)
    reports = wait_until(
        lambda: [each for told in controller.of("job-1") for each in told.reports], "reports"
    )
    assert reports[0].step >= left_at
    assert reports[0].checkpoint.step == left_at
    assert not controller.failures
    (saved,) = {name.name.split("/")[1] for name in storage.listed() if "step-" in name.name}
    bytes_saved = sum(each.bytes for each in storage.listed(f"checkpoints/{saved}"))
    assert sent(controller, "job-0").sent_bytes == bytes_saved > 0, "it printed nothing"
    assert sent(controller, "job-1").fetched_bytes > bytes_saved, "before its first step"


def test_what_is_learnt_in_between_is_redacted_also_where_it_has_begun() -> None:
    redactor = Redactor(["first-secret"])
    text = redactor.feed(b"first-secret second-sec")
    redactor.learn(["second-secret"])
    text += redactor.feed(b"ret first-secret third")
    assert text + redactor.finish() == b"*** second-secret *** third", "begun before it was known"
    assert redactor.feed(b"a second-secret first-secret") + redactor.finish() == b"a *** ***"
