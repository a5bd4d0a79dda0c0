"""The commands as a person types them, against a real controller, instances and training."""

from __future__ import annotations

import json
import os
import re
import socket
import time
from decimal import Decimal
from pathlib import Path

import pytest

from autoscaler.clock import SystemClock
from autoscaler.store.opening import open_store
from providers.local.provider import LocalProvider
from providers.local.settings import LocalSettings
from tests.cli.conftest import Terminal

TRAIN = """
import sys, time

epochs = int(sys.argv[1])
import torch
from torch.utils.data import TensorDataset
from autoscaler.training import session

model = torch.nn.Linear(4, 1)
data = TensorDataset(torch.randn(256, 4), torch.randn(256, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
with session(model, optimizer, data, batch_size=16) as job:
    for x, y in job.batches(epochs=epochs):
        job.step((job.model(x) - y).square().mean())
        time.sleep(0.02)
    print("trained to the end", flush=True)
"""
# Says what training says, without PyTorch: what becomes of its instances is the story.
STEADY = (Path(__file__).parents[1] / "node" / "scripts" / "steady.py").read_text()
ONE = "instances: {min: 1, max: 1, offers: [local-small], spot: false}"


def job_file(folder: Path, name: str, command: str, script: str = TRAIN) -> Path:
    own = folder / name
    own.mkdir()
    (own / "train.py").write_text(script)
    path = own / "job.yaml"
    path.write_text(f"name: {name}\ncommand: {command}\n{ONE}\n")
    return path


def test_a_job_from_its_submission_to_its_bill(terminal: Terminal, tmp_path: Path) -> None:
    done = terminal.castor(
        "submit", job_file(tmp_path, "good", "python train.py 10"), "--wait", "--json"
    )
    assert done.returncode == 0, done.stderr
    job = json.loads(done.stdout)
    assert job["phase"] == "finished"
    assert job["report"]["progress_examples"] == pytest.approx(2560)
    assert "trained to the end" in terminal.castor("logs", "good").stdout
    last = terminal.castor("logs", "good", "--tail", "1").stdout
    assert re.fullmatch(r"\d\d:\d\d:\d\d good-0-1 \| .+\n", last)
    line = json.loads(terminal.castor("logs", "good", "--tail", "1", "--json").stdout)
    assert line["instance"] == "good-0-1" and line["seconds"] > 1.7e9
    assert "start good on 1 x local-small: " in terminal.castor("why", "good").stdout
    decisions = json.loads(terminal.castor("why", "good", "--json").stdout)
    assert all(decision["figures"] for decision in decisions)
    detail = terminal.castor("status", "good").stdout
    assert "2,560 of 2,560 useful examples" in detail
    assert "good" in terminal.castor("status", "--all").stdout
    costs = json.loads(terminal.castor("costs", "--json").stdout)
    assert Decimal(costs["total_usd"]) == sum(map(Decimal, costs["by_job"].values()))
    assert Decimal(costs["usd_per_hour"]) == 0
    assert abs(Decimal(costs["total_usd"]) - _billed(terminal)) < Decimal("0.01")
    assert "good" in terminal.castor("costs").stdout


def _billed(terminal: Terminal) -> Decimal:
    store = open_store(f"sqlite:///{terminal.state / 'castor.db'}")
    controller = store.settings.controller_id()
    store.close()
    local = LocalProvider(terminal.state / "local", controller, LocalSettings(), SystemClock())
    return sum((line.usd for line in local.bill()), Decimal(0))


def test_a_script_that_raises_fails_with_its_trace(terminal: Terminal, tmp_path: Path) -> None:
    path = job_file(tmp_path, "raises", "python train.py none")
    done = terminal.castor("submit", path, "--wait")
    assert done.returncode == 4
    assert done.stdout.startswith("raises failed: ")
    assert "ValueError: invalid literal" in done.stdout
    assert "castor logs raises prints the whole log" in done.stderr
    detail = terminal.castor("status", "raises").stdout
    assert "ValueError: invalid literal for int() with base 10: 'none'" in detail
    assert "failed" in detail
    assert "no checkpoint was saved" in detail
    assert json.loads(terminal.castor("status", "raises", "--json").stdout)["attempt"] <= 2


def test_a_command_that_is_not_there_fails_by_name(terminal: Terminal, tmp_path: Path) -> None:
    done = terminal.castor("submit", job_file(tmp_path, "missing", "pyhton train.py"), "--wait")
    assert done.returncode == 4
    assert "pyhton" in terminal.castor("status", "missing").stdout


def test_a_running_job_is_changed_loses_an_instance_outlives_its_controller_and_stops(
    terminal: Terminal, tmp_path: Path
) -> None:
    path = job_file(tmp_path, "long", "python train.py", STEADY)
    assert terminal.castor("submit", path).returncode == 0
    changed = terminal.castor("set", "long", "objective=deadline=2h", "max=2")
    assert changed.returncode == 0, changed.stderr
    assert "deadline in 2h" in changed.stdout and "1 to 2 instances" in changed.stdout
    printed = terminal.castor("spec", "long").stdout
    assert "# Its deadline was 20" in printed and "\n  deadline: 2h\n" in printed
    path.write_text(printed)
    assert terminal.castor("plan", path).returncode == 0, "the printed file can be used again"
    refused = terminal.castor("set", "long", "objective=quickest")
    assert refused.returncode == 1 and "quickest" in refused.stderr
    refused = terminal.castor("set", "long", "min=3")
    assert refused.returncode == 1 and "min" in refused.stderr
    instance = _training_instance(terminal, "long")
    assert terminal.castor("reclaim", "nothing").returncode == 1
    assert terminal.castor("reclaim", instance).returncode == 0
    another = _training_instance(terminal, "long", but=instance)
    assert another != instance
    terminal.kill()
    away = terminal.castor("status")
    assert away.returncode == 3 and away.stderr.startswith("castor: ")
    terminal.start()
    stopped = terminal.castor("stop", "long", "--wait", "--json")
    assert stopped.returncode == 0, stopped.stderr
    job = json.loads(stopped.stdout)
    assert job["phase"] == "stopped"
    assert job["attempt"] == 1, "neither a reclaim nor a controller's end is a failure"
    assert not job["instances"]


def _training_instance(terminal: Terminal, job: str, but: str = "") -> str:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        view = json.loads(terminal.castor("status", job, "--json").stdout)
        for instance in view["instances"]:
            if instance["phase"] == "training" and instance["id"] != but:
                return str(instance["id"])
        assert not view["cause"], view["cause"]
        time.sleep(0.2)
    raise AssertionError(f"{job} does not train")


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("name: x\ncommand: ls\ninstnaces: {max: 2}\n", 'did you mean "instances"?'),
        ("name: x\ncommand: ls\nobjective: {budget: -5}\n", "budget"),
        ("name: x\ncommand: ls\nobjective: {value_of_time: -1}\n", "value_of_time"),
        ("name: x\ncommand: ls\nobjective: {deadline: 2020-01-01T00:00Z}\n", "deadline"),
        ("name: x\ncommand: ls\ninstances: {offers: [h100]}\n", "local-small"),
        ("name: X!\ncommand: ls\n", "name"),
        ("name: x\n", "command"),
        ("name: [\n", "job.yaml:"),
    ],
)
def test_a_bad_job_file_is_refused_in_one_line(
    terminal: Terminal, tmp_path: Path, text: str, hint: str
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(text)
    done = terminal.castor("submit", path)
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("castor: ")
    assert hint in done.stderr


def test_a_job_that_is_not_there_is_said_to_be_missing(terminal: Terminal) -> None:
    for command in ("status", "why", "logs", "stop"):
        done = terminal.castor(command, "nobody")
        assert done.returncode == 1
        assert "nobody" in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_state_directory_has_one_controller(terminal: Terminal) -> None:
    done = terminal.castor("serve", "--port", "0")
    assert done.returncode == 1
    assert "another controller runs on" in done.stderr


def test_a_store_has_one_controller_whatever_its_state_directory(
    terminal: Terminal, tmp_path: Path
) -> None:
    store = f"sqlite:///{terminal.state}/castor.db"
    done = terminal.castor("serve", "--port", "0", "--state", tmp_path, "--store", store)
    assert done.returncode == 1
    assert "another controller holds the store" in done.stderr
    assert f"state {terminal.state}" in done.stderr


def test_a_state_directory_that_can_not_be_made_is_named(terminal: Terminal) -> None:
    done = terminal.castor("serve", "--state", Path("/proc/castor"), "--port", "0")
    assert done.returncode == 1
    assert len(done.stderr.splitlines()) == 1 and "/proc/castor" in done.stderr


def test_a_port_in_use_is_said_to_be(terminal: Terminal, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        done = terminal.castor("serve", "--state", tmp_path / "other", "--port", port)
    assert done.returncode == 1
    assert port in done.stderr and "--port" in done.stderr


def test_without_a_controller_the_way_to_one_is_told(tmp_path: Path) -> None:
    done = Terminal(tmp_path / "nothing").castor_anew("status")
    assert done.returncode == 3
    assert "castor serve" in done.stderr


def test_what_is_done_to_the_whole_fleet_is_told_to_scripts_too(terminal: Terminal) -> None:
    assert json.loads(terminal.castor("freeze", "--json").stdout) == {"frozen": True}
    assert json.loads(terminal.castor("unfreeze", "--json").stdout) == {"frozen": False}
    drain = terminal.castor("drain", "--all", "-y", "--json")
    assert json.loads(drain.stdout) == {"drained": True}


def test_a_script_that_drains_must_say_yes(terminal: Terminal) -> None:
    done = terminal.castor("drain", "--all")
    assert done.returncode == 1
    assert "this stops 0 jobs on 0 instances of all people: add -y" in done.stderr


def test_drain_without_all_is_a_mistake_of_usage(tmp_path: Path) -> None:
    done = Terminal(tmp_path / "state").castor("drain")
    assert done.returncode == 2
    assert "add --all" in done.stderr


def test_an_invitation_has_the_url_and_the_token(terminal: Terminal) -> None:
    invited = terminal.castor("invite", "ada")
    assert re.fullmatch(r"CASTOR_URL=http://127\S+\nCASTOR_TOKEN=\S+\n", invited.stdout)
    assert "works on the controller's machine only" in invited.stderr


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--version",), "castor 0."),
        (("-h",), "Exit status: 0 done"),
        (("status", "-h"), "a job to show in detail"),
        (("--show-completion", "bash"), "COMPREPLY="),
    ],
)
def test_version_help_and_completion(tmp_path: Path, words: tuple[str, ...], part: str) -> None:
    done = Terminal(tmp_path / "state").castor_anew(*words)
    assert done.returncode == 0, done.stderr
    assert part in done.stdout


def test_a_core_that_is_not_there_is_refused(tmp_path: Path) -> None:
    core = str(max(os.sched_getaffinity(0)) + 1)
    done = Terminal(tmp_path / "state").castor("serve", "--port", "0", "--devices", core)
    assert done.returncode == 1
    assert "--devices" in done.stderr
