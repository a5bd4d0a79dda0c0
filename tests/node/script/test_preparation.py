"""Environment of a job's script at its start, as the script sees it."""

from __future__ import annotations

import json
import os
import stat
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from autoscaler.domain.instance import InstancePhase
from autoscaler.domain.job import DataMount, JobSpec, ParallelismSpec, SecretReference
from autoscaler.domain.report import Failure
from autoscaler.wire.messages import Wanted
from tests.node.controller import FakeController
from tests.node.site import SCRIPTS, STEADY, LaunchedInstance, Site, wait_until

SECRET = "do-not-tell-anyone"
SHOW = """
import json, os, sys
print(json.dumps({"environment": dict(os.environ), "files": sorted(os.listdir()),
                  "python": sys.executable, "user": os.getuid(), "directory": os.getcwd()}))
"""


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A working directory."""
    files = tmp_path / "files"
    files.mkdir()
    (files / "show.py").write_text(SHOW)
    (files / "run.sh").write_text("#!/bin/sh\nexec python show.py\n")
    (files / "run.sh").chmod(0o755)
    return files


def show(**spec: object) -> JobSpec:
    return replace(JobSpec("job", ("python", "show.py")), **spec)  # type: ignore[arg-type]


def shown(controller: FakeController, instance: LaunchedInstance) -> dict[str, object]:
    wait_until(lambda: instance.is_complete or controller.failures, "the end")
    assert not controller.failures
    line = next(line for line in controller.log.splitlines() if line.startswith("{"))
    found: dict[str, object] = json.loads(line)
    return found


def the_failure(controller: FakeController) -> Failure:
    wait_until(lambda: controller.failures, "a failure")
    (failure,) = controller.failures
    assert failure.during_setup
    assert not any(phase is InstancePhase.STARTING for phase in controller.phases("job-0"))
    return failure


def test_a_script_sees_its_files_its_environment_and_its_secrets(site: Site, files: Path) -> None:
    spec = show(
        environment={
            "COLOUR": "blue",
            "CASTOR_JOB": "another",
            "CASTOR_BATCH_LOG": "log.jsonl",
            "HOME": "/elsewhere",
        },
        secrets={"KEY": SecretReference(variable="KEY")},
        parallelism=ParallelismSpec(shard=2),
    )
    site.variables = {"HTTPS_PROXY": "http://proxy:1", "CONTROLLERS_OWN": "hidden"}
    controller = site.serve(spec, {"KEY": SECRET}, files)
    instance = site.launch()
    found = shown(controller, instance)
    assert found["files"] == ["run.sh", "show.py"]
    assert found["directory"] == str(instance.work)
    environment = found["environment"]
    assert isinstance(environment, dict)
    assert environment["COLOUR"] == "blue"
    assert environment["HOME"] == "/elsewhere"
    assert environment["CASTOR_JOB"] == "job"
    assert environment["CASTOR_BATCH_LOG"] == "log.jsonl"
    assert environment["CASTOR_DEVICES"] == "0"
    assert environment["CASTOR_SHARD"] == "2"
    assert environment["CASTOR_INSTANCE"] == instance.id
    assert environment["CASTOR_INSTANCE_DIRECTORY"] == str(instance.disk)
    assert environment["HTTPS_PROXY"] == "http://proxy:1"
    assert environment["OMP_NUM_THREADS"] == environment["PYTHONUNBUFFERED"] == "1"
    assert "CONTROLLERS_OWN" not in environment
    assert environment["KEY"] == "***", "it has it, and what it prints of it is redacted"
    assert Path(str(found["python"])).parent == Path(sys.executable).parent


def test_a_shard_of_one_device_that_was_chosen_reaches_the_script(site: Site, files: Path) -> None:
    chosen = ParallelismSpec(shard=1, has_chosen_shard=True)
    controller = site.serve(show(parallelism=chosen), files=files)
    environment = shown(controller, site.launch())["environment"]
    assert isinstance(environment, dict)
    assert environment["CASTOR_SHARD"] == "1"


def test_a_relative_command_is_one_of_the_files(site: Site, files: Path) -> None:
    controller = site.serve(show(command=("./run.sh",)), files=files)
    python = shown(controller, site.launch())["python"]
    assert Path(str(python)).parent == Path(sys.executable).parent


def test_no_file_holds_a_secret(site: Site) -> None:
    spec = JobSpec(
        "job",
        ("sh", "-c", f"echo $KEY; echo {SECRET[:8]}; sleep 0.3; exec {' '.join(STEADY)}"),
        environment={"STEPS": "5"},
        secrets={"KEY": SecretReference(file="/key")},
        setup=("echo during setup: $KEY >&2",),
    )
    controller = site.serve(spec, {"KEY": SECRET})
    instance = site.launch()
    instance.wait_for(InstancePhase.TRAINING)
    wait_until(lambda: instance.is_complete, "the end")
    places = [instance.disk.parent, instance.disk.parent.parent.with_name("cache")]
    files = [path for place in places for path in place.rglob("*") if path.is_file()]
    assert instance.disk / "agent.json" in files
    assert instance.disk / "job.log" in files
    for path in files:
        assert SECRET.encode() not in path.read_bytes(), path
    assert "***\ndo-not-t" in controller.log
    assert "during setup: ***" in controller.log
    for name in ("agent.json", "job.log"):
        assert stat.S_IMODE((instance.disk / name).stat().st_mode) == 0o600


def test_data_is_linked_to_where_the_job_wants_it(site: Site, files: Path, tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "digits").write_text("0123")
    mounts = (DataMount(str(tmp_path / "store"), "data/own"),)
    spec = JobSpec("job", ("cat", "data/own/digits"), data=mounts)
    controller = site.serve(spec, files=files)
    instance = site.launch()
    wait_until(lambda: instance.is_complete, "the end")
    assert controller.log == "0123"


@pytest.mark.parametrize(
    ("mount", "cause"),
    [
        (DataMount("/no/such/store", "data"), "data[0].source: /no/such/store is not on this"),
        (DataMount("/etc", "../etc"), "data[0].target: ../etc leads out of the job's tree"),
        (DataMount("/etc", "show.py"), "data[0].target: show.py is in the working directory"),
    ],
)
def test_data_that_can_not_be_had_is_named(
    site: Site, files: Path, mount: DataMount, cause: str
) -> None:
    controller = site.serve(show(data=(mount,)), files=files)
    site.launch()
    failure = the_failure(controller)
    assert failure.cause.startswith(cause)
    assert cause in controller.log


def test_setup_is_done_once_for_all_who_need_the_same(
    site: Site, files: Path, tmp_path: Path
) -> None:
    count = tmp_path / "count"
    setup = (
        f"echo once >> {count}; sleep 0.3",
        "cd / && touch $CASTOR_INSTANCE_DIRECTORY/../x || true",
        "echo made > product; python -c 'import sys; print(sys.prefix)' > prefix",
    )
    spec = JobSpec("job", ("sh", "-c", "cat product prefix; which python"), setup=setup)
    controller = site.serve(spec, files=files)
    first, second = site.launch("job-0"), site.launch("job-1")
    wait_until(lambda: first.is_complete and second.is_complete, "both ends")
    assert count.read_text() == "once\n"
    assert controller.bundles_fetched == 1
    for name in ("job-0", "job-1"):
        *_, product, prefix, python = controller.logs[name].decode().splitlines()
        assert product == "made"
        assert python == f"{prefix}/bin/python"


def test_setup_sees_the_agents_packages_and_installs_over_them(site: Site, files: Path) -> None:
    make_wheel(files / "psutil-99-py3-none-any.whl", "psutil")
    setup = ("pip install --no-index --no-deps psutil-99-py3-none-any.whl",)
    check = "import sys, numpy, psutil; assert psutil.OWN; assert sys.prefix in psutil.__file__"
    controller = site.serve(JobSpec("job", ("python", "-c", check), setup=setup), files=files)
    instance = site.launch()
    wait_until(lambda: instance.is_complete or controller.failures, "the end")
    assert not controller.failures


def make_wheel(path: Path, name: str) -> None:
    information = f"{name}-99.dist-info"
    with zipfile.ZipFile(path, "w") as wheel:
        wheel.writestr(f"{name}.py", "OWN = True")
        wheel.writestr(
            f"{information}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 99\n"
        )
        wheel.writestr(
            f"{information}/WHEEL",
            "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        )
        wheel.writestr(f"{information}/RECORD", "")


def test_a_failed_setup_is_a_failure_of_its_own_and_leaves_nothing(
    site: Site, files: Path, tmp_path: Path
) -> None:
    setup = ("echo fine", "echo pip said no >&2; exit 3", f"touch {tmp_path / 'never'}")
    controller = site.serve(show(setup=setup), files=files)
    instance = site.launch()
    failure = the_failure(controller)
    assert failure.exit_code == 3
    assert failure.cause == "ended with exit code 3: pip said no"
    assert "castor: setup: echo fine" in failure.last_lines
    assert not (tmp_path / "never").exists()
    cache = instance.disk.parent.parent.with_name("cache")
    assert [path for path in (cache / "setup").iterdir() if path.is_dir()] == []
    controller.want(attempt=2)
    wait_until(lambda: len(controller.failures) == 2, "the second try")
    assert controller.failures[1].attempt == 2


def test_a_damaged_bundle_is_a_failed_setup(site: Site, files: Path) -> None:
    controller = site.serve(show(), files=files)
    assert controller.bundle is not None
    controller.bundle.write_bytes(controller.bundle.read_bytes()[:100])
    site.launch()
    assert "is damaged" in the_failure(controller).cause


def test_a_drain_during_setup_ends_it(site: Site, files: Path) -> None:
    controller = site.serve(show(setup=("sleep 600",)), files=files)
    instance = site.launch()
    wait_until(lambda: instance.processes("sleep"), "set-up")
    controller.want(wanted=Wanted.DRAIN)
    instance.wait_for(InstancePhase.DRAINED, seconds=30)
    assert not instance.processes("sleep")
    assert not controller.failures


def test_an_agent_killed_during_setup_does_it_again(
    site: Site, files: Path, tmp_path: Path
) -> None:
    first = tmp_path / "first"
    setup = (f"test -e {first} && exit; touch {first}; exec sleep 600",)
    controller = site.serve(show(setup=setup), files=files)
    instance = site.launch()
    wait_until(first.exists, "set-up")
    instance.kill_agent()
    shown(controller, instance)
    assert not instance.processes("sleep")
    assert controller.assignments_asked == 1, "for the secrets, which are kept nowhere"


@pytest.fixture
def engine(site: Site, tmp_path: Path) -> Path:
    """The directory of a stand-in for a container engine, which is on the path."""
    programs = tmp_path / "programs"
    programs.mkdir()
    engine = tmp_path / "engine"
    program = f'ENGINE={engine} exec {sys.executable} -P {SCRIPTS / "engine.py"} "$@"'
    (programs / "docker").write_text(f"#!/bin/sh\n{program}\n")
    (programs / "docker").chmod(0o755)
    site.variables = {"PATH": f"{programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"}
    return engine


def calls(engine: Path) -> list[list[str]]:
    return [json.loads(line) for line in (engine / "calls").read_text().splitlines()]


def test_an_image_is_fetched_and_the_script_runs_in_it(
    site: Site, files: Path, engine: Path
) -> None:
    spec = show(
        image="registry/own:1",
        environment={"COLOUR": "blue"},
        secrets={"KEY": SecretReference(variable="KEY")},
        data=(DataMount("/etc", "data", read_only=True),),
    )
    controller = site.serve(spec, {"KEY": SECRET}, files)
    instance = site.launch()
    found = shown(controller, instance)
    assert found["files"] == ["data", "run.sh", "show.py"]
    assert ["pull", "registry/own:1"] in calls(engine)
    (run,) = [call for call in calls(engine) if call[0] == "run"]
    assert not any(SECRET in word for word in run)
    assert "--env=KEY" in run
    assert "--env=COLOUR=blue" in run
    assert "--network=host" in run
    assert "--cpuset-cpus=0" in run
    assert f"--volume={instance.work}:{instance.work}:rw" in run
    assert "--volume=/etc:/etc:ro" in run
    assert run[run.index("registry/own:1") :][-2:] == ["python", "show.py"]
    assert calls(engine)[-1][:2] == ["rm", "--force"]


def test_an_image_with_a_setup_is_made_once(site: Site, files: Path, engine: Path) -> None:
    count = engine / "count"
    spec = show(
        image="registry/own:1",
        environment={"COLOUR": "blue"},
        secrets={"KEY": SecretReference(variable="KEY")},
        setup=(f"echo once >> {count}", "touch product"),
    )
    controller = site.serve(spec, {"KEY": SECRET}, files)
    assert "product" in str(shown(controller, site.launch("job-0"))["files"])
    second = site.launch("job-1")
    wait_until(lambda: second.is_complete, "the second")
    assert count.read_text() == "once\n"
    (commit,) = [call for call in calls(engine) if call[0] == "commit"]
    assert "--change=ENV KEY=" in commit, "or the image would keep the secret"


def test_an_image_that_is_nowhere_is_a_failed_setup(site: Site, files: Path, engine: Path) -> None:
    spec = show(image="nowhere:1")
    controller = site.serve(spec, files=files)
    site.launch()
    assert the_failure(controller).cause.endswith("no such image: nowhere:1")


PASSWORD = "open-sesame"


@pytest.fixture
def registry(site: Site, tmp_path: Path, engine: Path) -> Path:
    """The cloud's program that prints passwords of the registry `private`, with what it prints."""
    program = tmp_path / "password"
    program.write_text(f"#!/bin/sh\necho $* >> {tmp_path}/asked\necho {PASSWORD}\n")
    program.chmod(0o755)
    site.variables |= {
        "CASTOR_REGISTRIES": "private/team",
        "CASTOR_REGISTRY_USER": "robot",
        "CASTOR_REGISTRY_PASSWORD": f"{program} --for",
    }
    return program


def assert_nobody_knows(password: str, *directories: Path) -> None:
    for path in (path for directory in directories for path in directory.rglob("*")):
        if path.is_file():
            assert password not in path.read_text(errors="replace"), path


@pytest.mark.parametrize("setup", [(), ("true",)])
def test_an_image_of_a_private_registry_is_fetched_with_a_login_that_does_not_stay(
    site: Site, files: Path, engine: Path, registry: Path, setup: tuple[str, ...]
) -> None:
    controller = site.serve(show(image="private/team/train:1", setup=setup), files=files)
    instance = site.launch()
    found = shown(controller, instance)
    assert PASSWORD not in json.dumps(found)
    verbs = [call[0] for call in calls(engine)]
    assert verbs.index("login") < verbs.index("pull") < verbs.index("run")
    assert ["login", "--username=robot", "--password-stdin", "private"] in calls(engine)
    assert (registry.parent / "asked").read_text() == "--for private\n"
    assert (engine / "modes").read_text() == "40700"
    assert not (instance.disk / "registry-login").exists()
    assert_nobody_knows(PASSWORD, instance.disk, engine)
    assert "WARNING" not in controller.log, "it is the engine's, and about what is gone already"


@pytest.mark.parametrize("image", ["registry/own:1", "private/team/here:1"])
def test_public_images_and_those_that_are_here_need_no_login(
    site: Site, files: Path, engine: Path, registry: Path, image: str
) -> None:
    engine.mkdir()
    (engine / "private_team_here_1").touch()
    controller = site.serve(show(image=image), files=files)
    shown(controller, site.launch())
    assert "login" not in [call[0] for call in calls(engine)]
    assert not (registry.parent / "asked").exists()


def test_a_private_image_outside_the_named_registries_says_where_to_name_it(
    site: Site, files: Path, engine: Path, registry: Path
) -> None:
    controller = site.serve(show(image="private/others/train:1"), files=files)
    site.launch()
    cause = the_failure(controller).cause
    assert cause.startswith("image private/others/train:1: Error response from daemon: ")
    assert "no basic auth credentials" in cause and "registries of the Terraform module" in cause
    assert cause in controller.log
    assert "login" not in [call[0] for call in calls(engine)]


@pytest.mark.parametrize(
    ("said", "program"),
    [
        ("403 Forbidden", "echo wrong"),
        ("Unable to locate credentials", "echo Unable to locate credentials >&2; exit 255"),
    ],
)
def test_a_login_that_fails_names_the_image_and_the_registry(
    site: Site, files: Path, engine: Path, registry: Path, said: str, program: str
) -> None:
    registry.write_text(f"#!/bin/sh\n{program}\n")
    controller = site.serve(show(image="private/team/train:1"), files=files)
    instance = site.launch()
    cause = the_failure(controller).cause
    assert cause.startswith("image private/team/train:1: ") and said in cause
    assert "do not suffice at private" in cause and "policy of the repository" in cause
    assert "pull" not in [call[0] for call in calls(engine)]
    assert not (instance.disk / "registry-login").exists()


def test_a_login_does_not_hide_why_a_private_image_can_not_be_fetched(
    site: Site, files: Path, engine: Path, registry: Path
) -> None:
    site.variables["CASTOR_REGISTRIES"] = "private"
    controller = site.serve(show(image="private/missing:1"), files=files)
    site.launch()
    assert "registries" not in the_failure(controller).cause


def test_a_login_of_a_killed_agent_is_gone_before_the_job_starts(
    site: Site, files: Path, engine: Path, registry: Path
) -> None:
    site.variables["CASTOR_REGISTRIES"] = "private"
    controller = site.serve(show(image="private/slow:1"), files=files)
    instance = site.launch()
    wait_until((engine / "pulling").exists, "the pull")
    assert (instance.disk / "registry-login/config.json").exists()
    (engine / "private_slow_1").touch()  # so that the next agent needs no login
    instance.kill_agent()
    shown(controller, instance)
    assert not (instance.disk / "registry-login").exists()


def test_without_an_engine_an_image_is_a_failed_setup(site: Site, files: Path) -> None:
    site.variables = {"PATH": "/nothing"}
    controller = site.serve(show(image="registry/own:1"), files=files)
    site.launch()
    assert "neither docker nor podman" in the_failure(controller).cause
