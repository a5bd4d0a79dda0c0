"""Start of an instance on each cloud, run here with a stand-in for its metadata service.

A directory is the disk. Stubs of system programs only record their calls. The README of the module
says what only systemd and the cloud can show.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from providers.metadata import identity_proof, read_metadata
from tests.terraform.machine import (
    CLOUDS,
    EC2,
    GCE,
    GCE_METADATA,
    WHEEL,
    Machine,
    started_on,
)

# What mounts a part of a bucket and a whole one, in the words of each cloud's program.
MOUNTS = {
    "mount-s3": (
        "s3://my-data/",
        "--read-only --allow-other --prefix=vision/2012/ my-data ",
        "--read-only --allow-other my-data ",
    ),
    "gcsfuse": (
        "gs://my-data/",
        "-o ro -o allow_other --implicit-dirs --enable-hns=false --only-dir=vision/2012 my-data ",
        "-o ro -o allow_other --implicit-dirs --enable-hns=false my-data ",
    ),
}
RECLAIM = "/latest/meta-data/spot/instance-action"


@pytest.fixture(params=sorted(CLOUDS))
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    yield from started_on(CLOUDS[request.param], tmp_path)


@pytest.fixture
def on_ec2(tmp_path: Path) -> Iterator[Machine]:
    yield from started_on(EC2, tmp_path)


@pytest.fixture
def on_gce(tmp_path: Path) -> Iterator[Machine]:
    yield from started_on(GCE, tmp_path)


def directories(machine: Machine) -> tuple[str, str]:
    """Return where the agent keeps its files and its cache."""
    lines = (machine.root / "run/castor/environment").read_text().splitlines()
    told = dict(line.split("=", 1) for line in lines)
    return told["CASTOR_INSTANCE_DIRECTORY"], told["CASTOR_CACHE_DIRECTORY"]


def test_without_disks_of_its_own_files_are_on_the_boot_disk(machine: Machine) -> None:
    assert machine.start() == 0
    files = f"{machine.root}/var/lib/castor"
    assert directories(machine) == (f"{files}/instance", f"{files}/cache")
    assert not [call for call in machine.calls if call.startswith(("mkfs", "mount ", "mdadm"))]


def test_disks_that_the_image_has_mounted_are_used_as_they_are(machine: Machine) -> None:
    (machine.root / "opt/dlami/nvme").mkdir(parents=True)
    assert machine.start() == 0
    files = f"{machine.root}/opt/dlami/nvme/castor"
    assert directories(machine) == (f"{files}/instance", f"{files}/cache")


def attach(machine: Machine, *names: str) -> list[Path]:
    """Attach new disks, each with a second name; return their devices."""
    by_id = machine.root / "dev/disk/by-id"
    by_id.mkdir(parents=True)
    devices = []
    for number, name in enumerate(names):
        device = machine.root / f"dev/nvme{number}n1"
        device.write_bytes(b"")
        devices.append(device)
        for link in (name, f"{name}_1"):
            (by_id / link).symlink_to(device)
    machine.failing = "blkid"  # as of a disk without a file system
    return devices


@pytest.mark.parametrize(
    "prefix", ["nvme-Amazon_EC2_NVMe_Instance_Storage_AWS", "google-local-nvme-ssd-"]
)
def test_several_disks_are_one_in_front_of_the_boot_disk(machine: Machine, prefix: str) -> None:
    first, second = attach(machine, f"{prefix}0", f"{prefix}1")
    assert machine.start() == 0
    files = f"{machine.root}/var/lib/castor/own"
    assert directories(machine) == (f"{files}/instance", f"{files}/cache")
    calls = "\n".join(machine.calls)
    assert (
        f"mdadm --create /dev/md/castor --run --level=0 --raid-devices=2 {first} {second}" in calls
    )
    assert f"mount -o noatime,discard /dev/md/castor {files}" in calls


def test_one_disk_is_no_array(machine: Machine) -> None:
    (disk,) = attach(machine, "google-local-nvme-ssd-0")
    assert machine.start() == 0
    assert f"mkfs.ext4 -q -m 0 -E nodiscard {disk}" in machine.calls
    assert not [call for call in machine.calls if call.startswith("mdadm")]


def test_a_disk_that_holds_something_is_left_as_it_is(machine: Machine) -> None:
    attach(machine, "google-local-nvme-ssd-0")
    machine.failing = "nothing"
    assert machine.start() == 0
    assert directories(machine)[0] == f"{machine.root}/var/lib/castor/instance"
    assert not [call for call in machine.calls if call.startswith("mkfs")]


def test_where_a_disk_can_not_be_used_files_are_on_the_boot_disk(machine: Machine) -> None:
    (disk,) = attach(machine, "google-local-nvme-ssd-0")
    machine.failing = disk.name  # neither blkid nor mkfs.ext4 can read it
    assert machine.start() == 0
    assert any(call.startswith("mkfs.ext4") for call in machine.calls)
    assert directories(machine)[0] == f"{machine.root}/var/lib/castor/instance"


def wait_for(path: Path) -> str:
    deadline = time.monotonic() + 60
    while not path.exists():
        assert time.monotonic() < deadline, f"{path} does not come"
        time.sleep(0.02)
    return path.read_text()


def test_the_agent_finds_who_it_is_and_the_word_of_its_cloud(machine: Machine) -> None:
    assert machine.start() == 0
    lines = (machine.root / "run/castor/environment").read_text().splitlines()
    metadata = read_metadata(dict(line.split("=", 1) for line in lines))
    assert metadata.instance_id == machine.cloud.instance
    assert metadata.devices == (0, 1)
    assert metadata.bind_address == "10.80.0.7"
    assert metadata.directory.is_dir() and metadata.cache_directory.is_dir()
    assert identity_proof(metadata) == machine.cloud.proof
    assert (machine.root / "run/castor/user-data").read_text() == "parcel\n"
    for name in ("identity", "user-data"):
        assert (machine.root / "run/castor" / name).stat().st_mode & 0o077 == 0


def test_it_is_off_in_minutes_until_the_agent_has_joined(machine: Machine) -> None:
    assert machine.start() == 0
    order = [call for call in machine.calls if call.startswith(("shutdown", "systemctl"))]
    assert order[0].startswith("shutdown -h +20 ")
    assert order[1:] == [
        "systemctl daemon-reload",
        "systemctl enable castor-reboot.service",
        "systemctl daemon-reload",
        "systemctl start castor-node.service",  # returns when the agent says that it has joined
        "shutdown -c",
    ]
    assert machine.unit()["Type"] == "notify"


def test_a_later_boot_ends_an_instance_without_agent_and_lease(machine: Machine) -> None:
    """Before anything is asked or installed, since a reboot may come at any time."""
    assert machine.start() == 0
    enabled = machine.calls.index("systemctl enable castor-reboot.service")
    assert all(
        call.startswith(("shutdown -h +", "install", "systemctl"))
        for call in machine.calls[:enabled]
    )
    assert not [call for call in machine.calls if call == "systemctl start castor-reboot.service"]
    unit = machine.unit("castor-reboot.service")
    assert unit["ExecStart"] == "/bin/systemctl --no-block poweroff"
    assert unit["Type"] == "oneshot" and unit["WantedBy"] == "multi-user.target"
    marker = Path(unit["ConditionPathExists"].removeprefix("!"))
    assert marker.exists(), "the unit must not end the first boot, whoever starts its target"
    assert marker.is_relative_to(machine.root / "run"), "a boot empties it"


def test_a_start_that_runs_again_at_a_later_boot_ends_the_instance(machine: Machine) -> None:
    """Run the script again, as Compute Engine does at each boot."""
    assert machine.start() == 0
    shutil.rmtree(machine.root / "run")
    (machine.root / "calls").unlink()
    assert machine.start() != 0
    assert machine.calls[-1] == "shutdown -h now castor: the start failed"
    assert not [call for call in machine.calls if call.startswith(("pip", "systemctl"))]
    assert not (machine.root / "run/castor").exists(), "or the unit would not end it"
    (said,) = machine.console
    assert "has booted before" in said and "castor-reboot.service" in said


@pytest.mark.parametrize(
    "failing", ["pip install", "python3 -m venv", "systemctl start", "systemctl enable"]
)
def test_a_start_that_fails_anywhere_ends_the_instance_at_once(
    machine: Machine, failing: str
) -> None:
    machine.failing = failing
    assert machine.start() != 0
    assert machine.calls[-1] == "shutdown -h now castor: the start failed"
    assert "shutdown -c" not in machine.calls


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def test_own_programs_run_before_and_after_the_installation(on_ec2: Machine) -> None:
    on_ec2.variables = {
        "pre_bootstrap": in_base64("shutdown 'it is' before"),
        "post_bootstrap": in_base64("shutdown after\nexit 0"),
    }
    assert on_ec2.start() == 0
    calls = [call for call in on_ec2.calls if not call.startswith("install ")]
    before, after = calls.index("shutdown it is before"), calls.index("shutdown after")
    installed = [number for number, call in enumerate(calls) if call.startswith("pip ")]
    assert calls[0].startswith("shutdown -h +20 ") and before < min(installed)
    assert max(installed) < after < calls.index("systemctl start castor-node.service")


@pytest.mark.parametrize(
    "text", ["false\ntrue", "exit 3", "echo 'without an end", "echo $nothing"]
)
@pytest.mark.parametrize("name", ["pre_bootstrap", "post_bootstrap"])
def test_an_own_program_that_fails_ends_the_instance(
    on_ec2: Machine, name: str, text: str
) -> None:
    on_ec2.variables = {name: in_base64(text)}
    assert on_ec2.start() != 0
    assert on_ec2.calls[-1] == "shutdown -h now castor: the start failed"
    assert "systemctl start castor-node.service" not in on_ec2.calls


def test_jobs_and_containers_share_a_slice_that_reaches_no_metadata(machine: Machine) -> None:
    assert machine.start() == 0
    unit = machine.unit()
    assert unit["Slice"] == "castor.slice"
    # In the unit, since the slice exists then; its failure ends the instance.
    close = machine.root / "run/castor/close"
    assert unit["ExecStartPre"] == f"/bin/bash {close}"
    assert "nft -f -" in close.read_text() and '"castor.slice" reject' in close.read_text()
    lines = (machine.root / "run/castor/environment").read_text().splitlines()
    metadata = read_metadata(dict(line.split("=", 1) for line in lines))
    assert metadata.container_parent == "castor.slice"


def test_an_image_without_nftables_ends_before_castor_is_installed(machine: Machine) -> None:
    if shutil.which("nft") is not None:
        pytest.skip("nft is installed here")
    machine.has_nft = False
    assert machine.start() != 0
    (said,) = machine.console
    assert "the image lacks nft" in said and "install nftables" in said
    assert machine.calls[-1] == "shutdown -h now castor: the start failed"
    assert not [call for call in machine.calls if call.startswith("pip")]


def test_all_instances_install_the_packages_that_the_deployment_pinned(machine: Machine) -> None:
    """Two replicas that boot on either side of a release must not train with different torch."""
    assert machine.start() == 0
    wheels = machine.root / "opt/castor/wheels"
    packages, castor = [call for call in machine.calls if call.startswith("pip ")]
    assert packages.endswith(f" -r {wheels}/requirements-node.txt")
    for option in ("--require-hashes", "--no-deps", "--only-binary :all:"):
        assert option in packages
    assert "--no-deps --no-index" in castor and castor.endswith(f" {wheels}/{WHEEL}")


def test_without_pins_the_directory_has_all_packages(on_ec2: Machine) -> None:
    on_ec2.variables = {"has_index": "false"}
    on_ec2.removed = ("requirements-node.txt",)
    assert on_ec2.start() == 0
    (installed,) = [call for call in on_ec2.calls if call.startswith("pip ")]
    assert "--no-index" in installed and installed.endswith(f"{WHEEL}[training]")


def test_an_image_without_castor_says_what_to_set_and_ends(machine: Machine) -> None:
    machine.variables = {"has_wheels": "false", "wheels": ""}
    assert machine.start() != 0
    assert machine.calls[-1] == "shutdown -h now castor: the start failed"
    (said,) = machine.console
    assert said.startswith("castor: the image has no ") and "wheels_directory" in said


def test_an_image_with_castor_installs_nothing(machine: Machine) -> None:
    machine.variables = {"has_wheels": "false", "wheels": ""}
    castor = machine.root / "opt/castor/bin/castor"
    castor.parent.mkdir(parents=True)
    castor.write_text("#!/bin/bash\n")
    castor.chmod(0o755)
    assert machine.start() == 0
    assert not [call for call in machine.calls if call.startswith("pip")]


@pytest.mark.parametrize("failing", ["user-data/order-1", "wheels"])
def test_without_what_the_bucket_has_an_instance_of_ec2_ends(
    on_ec2: Machine, failing: str
) -> None:
    on_ec2.failing = failing
    assert on_ec2.start() != 0
    assert on_ec2.calls[-1] == "shutdown -h now castor: the start failed"


@pytest.mark.parametrize(
    ("name", "path"), [(name, path) for name, cloud in CLOUDS.items() for path in cloud.metadata]
)
def test_without_its_metadata_an_instance_ends(name: str, path: str, tmp_path: Path) -> None:
    for machine in started_on(CLOUDS[name], tmp_path):
        del machine.metadata[path]
        assert machine.start() != 0
        assert machine.calls[-1] == "shutdown -h now castor: the start failed"


def test_datasets_are_mounted_before_castor_is_installed_and_the_agent_started(
    machine: Machine,
) -> None:
    bucket, part, whole = MOUNTS[machine.cloud.mounter]
    machine.datasets = {
        "/datasets/imagenet": f"{bucket}vision/2012/",
        "/datasets/text/all": bucket,
    }
    assert machine.start() == 0
    first, second = "castor-dataset-imagenet.service", "castor-dataset-text:all.service"
    order = [call for call in machine.calls if call.startswith(("systemctl start", "pip install"))]
    assert [call for call in order if not call.startswith("pip")] == [
        f"systemctl start {first}",
        f"systemctl start {second}",
        "systemctl start castor-node.service",
    ]
    assert order[2].startswith("pip install")
    mounter = machine.root / "bin" / machine.cloud.mounter
    for name, options, path in ((first, part, "imagenet"), (second, whole, "text/all")):
        where = machine.root / "datasets" / path
        assert where.is_dir()
        assert machine.unit(name)["ExecStart"] == f"{mounter} {options}{where}"


def test_the_mount_of_a_dataset_outlives_its_program_and_the_agent(machine: Machine) -> None:
    machine.datasets = {"/datasets/imagenet": f"{MOUNTS[machine.cloud.mounter][0]}vision/"}
    assert machine.start() == 0
    unit = machine.unit("castor-dataset-imagenet.service")
    assert unit["Type"] == "forking", "it has started when it has mounted"
    assert unit["Restart"] == "always" and unit["StartLimitIntervalSec"] == "0"
    # What a program that died leaves behind is in the way of the next.
    where = machine.root / "datasets/imagenet"
    assert unit["ExecStopPost"] == f"-/bin/umount --lazy {where}"
    assert unit["Before"] == "castor-node.service", "at the end the agent is stopped first"
    assert "IPAddressDeny" not in unit, "it has the credentials of the instance"


def test_images_need_no_program_where_there_are_no_datasets(machine: Machine) -> None:
    machine.has_mounter = False
    assert machine.start() == 0
    assert not list((machine.root / "etc/systemd/system").glob("castor-dataset-*"))
    assert not (machine.root / "datasets").exists()


def test_an_image_that_can_not_mount_a_dataset_ends(machine: Machine) -> None:
    mounter = machine.cloud.mounter
    if shutil.which(mounter) is not None:
        pytest.skip(f"{mounter} is installed here")
    place = f"{MOUNTS[mounter][0]}vision/"
    machine.datasets = {"/datasets/imagenet": place}
    machine.has_mounter = False
    assert machine.start() != 0
    assert machine.console[-1] == (
        f"castor: dataset {machine.root}/datasets/imagenet: the image lacks {mounter}, "
        f"which mounts {place}: install it there"
    )
    assert machine.calls[-1] == "shutdown -h now castor: the start failed"
    assert not [call for call in machine.calls if call.startswith(("pip", "systemctl start"))]


@pytest.mark.parametrize(
    ("failing", "said"),
    [
        ("start castor-dataset-", "Error: Failed to create S3 client Access Denied "),
        ("castor-dataset-", "it gave no reason"),  # nor does the journal say anything
    ],
)
def test_a_dataset_that_can_not_be_mounted_ends_the_instance(
    machine: Machine, failing: str, said: str
) -> None:
    place = f"{MOUNTS[machine.cloud.mounter][0]}vision/"
    machine.datasets = {"/datasets/imagenet": place}
    machine.failing = failing
    assert machine.start() != 0
    assert machine.console[-1] == (
        f"castor: dataset {machine.root}/datasets/imagenet: {machine.cloud.mounter} could not "
        f"mount {place}: {said}"
    )
    assert machine.calls[-1] == "shutdown -h now castor: the start failed"
    assert not [call for call in machine.calls if call.startswith("pip")]


def test_an_agent_that_dies_or_hangs_takes_the_instance_with_it(machine: Machine) -> None:
    assert machine.start() == 0
    assert machine.unit()["ExecStopPost"] == "/bin/systemctl --no-block poweroff"
    assert machine.unit()["NotifyAccess"] == "all", "the agent is not the unit's first process"
    assert machine.unit()["WatchdogSec"] == "300"
    assert "Restart" not in machine.unit()
    agent = machine.root / "opt/castor/bin/castor"
    agent.write_text(f"#!/bin/bash\necho $$ > {machine.root}/agent\nexec sleep 600\n")
    agent.chmod(0o755)
    unit = machine.run(["bash", str(machine.root / "run/castor/machine")])
    os.kill(int(wait_for(machine.root / "agent") or 0), signal.SIGKILL)
    assert unit.wait(60) != 0


def test_the_agent_presses_the_power_button(machine: Machine) -> None:
    assert machine.start() == 0
    agent = machine.root / "opt/castor/bin/castor"
    says = f"echo $* > {machine.root}/agent"
    agent.write_text(f"#!/bin/bash\n{says}\nkill -TERM $PPID\nexec sleep 600\n")
    agent.chmod(0o755)
    assert machine.run(["bash", str(machine.root / "run/castor/machine")]).wait(60) == 0
    told = wait_for(machine.root / "agent").split()
    assert told == ["node", "--user-data", str(machine.root / "run/castor/user-data")]


def test_the_watch_of_ec2_writes_down_when_the_instance_is_taken_back(on_ec2: Machine) -> None:
    assert on_ec2.start() == 0
    on_ec2.metadata[RECLAIM] = '{"action": "terminate", "time": "2026-11-22T08:02:00Z"}'
    with watching(on_ec2, "sleep 5"):
        assert wait_for(on_ec2.root / "run/castor/reclaim") == "1795334520\n"


@pytest.mark.parametrize(
    ("path", "told", "left_seconds"),
    [
        ("preempted", "TRUE", 30),
        ("maintenance-event", "TERMINATE_ON_HOST_MAINTENANCE", 3600),
    ],
)
def test_the_watch_of_gce_writes_down_when_the_instance_is_taken_back(
    on_gce: Machine, path: str, told: str, left_seconds: int
) -> None:
    assert on_gce.start() == 0
    on_gce.metadata |= {
        f"{GCE_METADATA}preempted": "FALSE",
        f"{GCE_METADATA}maintenance-event": "NONE",
    }
    reclaim = on_gce.root / "run/castor/reclaim"
    with watching(on_gce, "sleep 1"):
        changed = f"{GCE_METADATA}preempted?wait_for_change=true&timeout_sec=10"
        on_gce.metadata[changed] = "FALSE"
        wait_for(on_gce.root / "run/castor/preempted")
        assert not reclaim.exists()
        before = int(time.time())
        on_gce.metadata[f"{GCE_METADATA}{path}"] = told
        moment = int(wait_for(reclaim))
    assert before <= moment - left_seconds <= time.time()


@pytest.mark.parametrize(
    ("preemptible", "least_seconds"), [("TRUE", 30), ("FALSE", 100), ("", 30)]
)
def test_an_instance_of_gce_that_is_shut_down_leaves_first(
    on_gce: Machine, preemptible: str, least_seconds: int
) -> None:
    """Compute Engine waits 120 s for what is not spot, and systemd 110 s."""
    if preemptible:
        on_gce.metadata[f"{GCE_METADATA}scheduling/preemptible"] = preemptible
    check_leaving(on_gce, least_seconds)


def test_an_instance_of_ec2_that_is_shut_down_leaves_first(on_ec2: Machine) -> None:
    check_leaving(on_ec2, 90)


def check_leaving(machine: Machine, left_seconds: int) -> None:
    """Check that the unit's stop command writes a notice and waits for the agent's end."""
    assert machine.start() == 0
    before = int(time.time())
    assert machine.unit()["ExecStop"] == f"/bin/bash {machine.root}/run/castor/leave"
    agent = subprocess.Popen(["sleep", "600"])
    leaving = machine.run(machine.unit()["ExecStop"].split(), MAINPID=str(agent.pid))
    try:
        moment = int(wait_for(machine.root / "run/castor/reclaim"))
        assert before <= moment - left_seconds <= time.time()
        assert leaving.poll() is None, "systemd ends the agent when this returns"
    finally:
        agent.kill()
        agent.wait()
    assert leaving.wait(60) == 0


def test_a_shutdown_does_not_change_the_time_of_a_reclaim(on_ec2: Machine) -> None:
    assert on_ec2.start() == 0
    notice = on_ec2.root / "run/castor/reclaim"
    notice.write_text("1795334520\n")
    agent = subprocess.Popen(["true"])
    agent.wait()
    assert on_ec2.run(on_ec2.unit()["ExecStop"].split(), MAINPID=str(agent.pid)).wait(60) == 0
    assert notice.read_text() == "1795334520\n"


def test_an_agent_that_has_ended_is_not_waited_for(machine: Machine) -> None:
    assert machine.start() == 0
    assert machine.run(machine.unit()["ExecStop"].split()).wait(60) == 0
    assert not (machine.root / "run/castor/reclaim").exists()


def test_an_image_of_gce_on_which_jobs_would_find_no_names_ends(on_gce: Machine) -> None:
    (on_gce.root / "etc").mkdir()
    (on_gce.root / "etc/resolv.conf").write_text("nameserver 169.254.169.254\n")
    assert on_gce.start() != 0
    assert on_gce.calls[-1] == "shutdown -h now castor: the start failed"


@contextmanager
def watching(machine: Machine, pause: str) -> Iterator[None]:
    """The watch at work, with its pause cut short."""
    watch = (machine.root / "run/castor/watch").read_text()
    assert pause in watch
    looking = machine.run(["bash", "-c", watch.replace(pause, "sleep 0.05")])
    try:
        yield
    finally:
        looking.kill()
        looking.wait()
