"""A job's own user of the operating system."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from autoscaler.domain.job import DataMount, JobSpec
from autoscaler.node.script.account import give, make_writable, obstacle, own_user
from autoscaler.node.script.environment import packages
from tests.node.site import STEADY, Site, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root may change users")

OWN, EARLIER, FOREIGN = 20_007, 20_003, 1_000
OTHER_PYTHONS = tuple(Path("/usr/bin").glob("python3.*"))


@pytest.fixture
def open_site(site: Site) -> Iterator[Site]:
    """One in a directory, and with an interpreter, that are open to other users.

    The test's own are often not.
    """
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    base = next((path for path in OTHER_PYTHONS if path.name == f"python{version}"), None)
    directory = Path(tempfile.mkdtemp(prefix="castor-test-"))
    directory.chmod(0o755)
    try:
        if base is None or obstacle(OWN, str(base), (directory, *packages())) is not None:
            pytest.skip("there is no interpreter of this version that other users may run")
        subprocess.run([base, "-m", "venv", "--without-pip", directory / "venv"], check=True)
        (purelib,) = directory.glob("venv/lib/python*/site-packages")
        lines = (f"import site; site.addsitedir({str(path)!r})\n" for path in packages())
        (purelib / "all.pth").write_text("".join(lines))
        site.python = str(directory / "venv" / "bin" / "python")
        site.directory = directory
        yield site
        site.close()
    finally:
        shutil.rmtree(directory)


PROBE = """
import getpass, json, os, sys
def refused(path):
    try: open(path)
    except PermissionError: return True
disk = os.environ["CASTOR_INSTANCE_DIRECTORY"]
print(json.dumps({
    "ids": [os.getuid(), os.getgid(), os.getgroups()],
    "name": getpass.getuser(),
    "home": os.path.expanduser("~"),
    "refused": [refused(disk + "/agent.json"), refused(disk + "/../user-data")],
}), flush=True)
open("product", "w"), open(os.path.expanduser("~/x"), "w"), open("checkpoints/x", "w")
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def test_a_job_runs_as_a_user_of_its_own(open_site: Site, tmp_path: Path) -> None:
    files = tmp_path / "files"
    files.mkdir()
    (files / "probe.py").write_text(PROBE)
    spec = JobSpec(
        "job",
        ("python", "probe.py", *STEADY[1:]),
        environment={"STEPS": "5"},
        setup=("id -u > setup-user",),
        data=(DataMount(str(open_site.directory / "checkpoints"), "checkpoints"),),
    )
    (open_site.directory / "checkpoints").mkdir()
    os.chown(open_site.directory / "checkpoints", EARLIER, EARLIER)
    controller = open_site.serve(spec, files=files)
    instance = open_site.launch()
    wait_until(lambda: instance.is_complete or controller.failures, "the end")
    assert not controller.failures
    found = json.loads(next(line for line in controller.log.splitlines() if line[0] == "{"))
    assert found["ids"] == [OWN, OWN, []]
    assert found["name"] == "castor-7"
    assert found["home"] == str(instance.disk / "home")
    assert found["refused"] == [True, True]
    assert (instance.work / "setup-user").read_text() == "20007\n"
    assert (instance.work / "product").stat().st_uid == OWN
    assert (open_site.directory / "checkpoints").stat().st_uid == OWN, "an earlier job's"
    cache = open_site.directory / "cloud" / "cache" / "setup"
    assert {path.lstat().st_uid for path in cache.rglob("*")} == {0}, "no job changes it later"
    assert not any(report.notes for report in controller.reports)


def test_a_job_that_can_not_have_its_own_user_says_so(site: Site) -> None:
    (site.directory / "closed").mkdir(mode=0o700)
    site.directory = site.directory / "closed"
    controller = site.serve(JobSpec("job", ("true",)))
    instance = site.launch()
    wait_until(lambda: instance.is_complete, "the end")
    (note,) = [note for report in controller.reports for note in report.notes]
    assert note.startswith("this job and other jobs on this machine can read and change")
    assert "can't use the agent's Python (" in note
    assert "install Castor where all users can read it" in note, "the way out"


def test_only_root_has_users_to_give(monkeypatch: pytest.MonkeyPatch) -> None:
    assert own_user(7) == OWN
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert own_user(7) is None


def test_a_checkpoint_directory_is_made_or_handed_on_but_never_taken(tmp_path: Path) -> None:
    new = tmp_path / "new" / "checkpoints"
    make_writable(new, OWN)
    assert new.stat().st_uid == OWN
    earlier = tmp_path / "earlier"
    (earlier / "step-1").mkdir(parents=True)
    give(earlier, EARLIER)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "kept").touch()
    os.chown(foreign, FOREIGN, FOREIGN)
    os.link(foreign / "kept", earlier / "link")
    make_writable(earlier, OWN)
    assert (earlier / "step-1").stat().st_uid == OWN
    assert (foreign / "kept").stat().st_uid == 0, "a hard link into it was not followed"
    with pytest.raises(PermissionError, match=f"belongs to user {FOREIGN}"):
        make_writable(foreign, OWN)
    foreign.chmod(0o777)
    make_writable(foreign, OWN)
    assert foreign.stat().st_uid == FOREIGN


def test_links_are_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.touch()
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "link").symlink_to(outside)
    give(tree, OWN)
    assert (tree / "link").lstat().st_uid == OWN
    assert outside.stat().st_uid == 0
