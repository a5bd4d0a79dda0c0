from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import tomllib
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from autoscaler.cli.demo.scenario import DemoOptions, examples_directory, run_demo
from autoscaler.cli.serve.settings import dashboard_url, serve_settings, warn_without_torch
from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.errors import CastorError, SpecError
from autoscaler.http_server import bound_socket
from autoscaler.main import Deployment, ServeSettings, serve, serving
from autoscaler.main.serving import _left_running


@pytest.mark.parametrize("policy", ["fifo", "nobody"])
def test_a_policy_that_buys_nothing_does_not_serve(tmp_path: Path, policy: str) -> None:
    state = tmp_path / "state"
    with pytest.raises(SpecError, match=f"policy: .*{policy}"):
        serve(ServeSettings(state, port=0, policy=policy))
    assert not (state / "castor.db").exists()


@pytest.mark.parametrize("cloud", ["aws", "gcp"])
def test_pools_of_a_cloud_whose_extra_is_not_installed_name_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cloud: str
) -> None:
    monkeypatch.setitem(sys.modules, f"providers.{cloud}.reading", None)
    pools = tmp_path / "pools.json"
    pools.write_text(json.dumps({"cloud": cloud}))
    state = tmp_path / "state"
    with pytest.raises(SpecError, match=rf"pip install 'castor-autoscaler\[server,{cloud}\]"):
        serve(ServeSettings(state, port=0, local=None, pools=(str(pools),)))
    assert not (state / "place-of-jobs").exists(), "nothing is kept of pools that can't be used"


def settings_with(state: Path = Path("state"), /, **options: Any) -> ServeSettings:
    needed = {"boot_seconds": 1.0, "fleet_usd_per_hour": None, "checkpoint_seconds": 300.0}
    return serve_settings(state, devices=None, **needed | options)


def with_lease(lease: str) -> float:
    return settings_with(lease=lease).lease_seconds


@pytest.mark.parametrize(
    "url",
    ["", "castor.example.org", "ftp://a", "http://", "http://a:x", "http://me@a", "http://a/b"],
)
def test_a_public_url_is_a_host_of_the_web(url: str) -> None:
    with pytest.raises(SpecError, match=r"--public-url: .* must be like https://"):
        _with_public_url(url)


def test_the_link_to_an_optuna_dashboard_is_a_page_of_the_web() -> None:
    assert dashboard_url(None) is None
    assert dashboard_url("https://a.example/optuna") == "https://a.example/optuna"
    for text in (
        "javascript:alert(1)",
        "a.example",
        "http://u@a.example",
        "http://a:x",
        "http://a\n",
    ):
        with pytest.raises(SpecError, match="--optuna-dashboard"):
            dashboard_url(text)


def test_a_public_url_loses_its_slash() -> None:
    assert _with_public_url("https://a:8470/").public_url == "https://a:8470"
    assert _with_public_url("HTTPS://a:8470/").public_url == "https://a:8470"


def test_a_signal_during_the_start_ends_the_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(*arguments: Any, **options: Any) -> Deployment:
        os.kill(os.getpid(), signal.SIGTERM)
        return Deployment(*arguments, **options)

    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, frame: received.append(number))
    monkeypatch.setattr(serving, "Deployment", start)
    try:
        serve(ServeSettings(tmp_path / "state", port=0))
    finally:
        signal.signal(signal.SIGTERM, before)
    assert received == [signal.SIGTERM], "again, once the store is closed"


def test_the_end_says_what_goes_on_without_a_controller(tmp_path: Path) -> None:
    settings = ServeSettings(tmp_path, lease_seconds=90.0)
    assert _left_running(settings, 0, ()) == "no job and no instance is left"
    held: Any = [SimpleNamespace(usd_per_hour=Decimal("0.25"))] * 2
    told = _left_running(settings, 1, held)
    assert told.startswith("1 job and 2 instances ($0.5000/h) go on. Without a controller no job ")
    assert "an instance ends itself after 1.5 min (--lease)" in told and "castor drain" in told


def test_a_public_url_names_a_host_of_the_certificate() -> None:
    assert _with_public_url("https://castor.example:8470").hosts == ("127.0.0.1", "castor.example")
    assert ServeSettings(state=Path("state"), host="10.0.0.5").hosts == ("10.0.0.5",)


def _with_public_url(url: str) -> ServeSettings:
    return settings_with(public_url=url)


def test_a_lease_is_a_duration_within_bounds() -> None:
    assert [with_lease(text) for text in ("1m", "30m", "1d")] == [60.0, 1800.0, 86_400.0]
    for lease in ("59s", "1d1s"):
        with pytest.raises(SpecError, match=f'--lease: "{lease}" must be from 1m to 1d'):
            with_lease(lease)
    with pytest.raises(SpecError, match=r"--lease: .*write a number and a unit"):
        with_lease("soon")


def with_keep(keep: str) -> float:
    return settings_with(keep=keep).controller.keep_seconds


def test_old_facts_are_kept_for_a_day_or_longer() -> None:
    assert [with_keep(text) for text in ("1d", "30d", "36h")] == [86_400, 2_592_000, 129_600]
    with pytest.raises(SpecError, match=r'--keep: "23h" must be 1d or longer'):
        with_keep("23h")
    with pytest.raises(SpecError, match=r"--keep: .*write a number and a unit"):
        with_keep("for ever")


def test_the_logs_of_a_job_have_a_size() -> None:
    def with_job_logs(text: str) -> int:
        return settings_with(job_logs=text).controller.job_log_bytes

    assert settings_with().controller.job_log_bytes == 10 << 30
    assert [with_job_logs(text) for text in ("1MiB", "500MB", "2GiB")] == [
        1 << 20,
        500_000_000,
        2 << 30,
    ]
    for text in ("1kB", "0", "-1GiB", "nan", "much", ""):
        with pytest.raises(SpecError, match=f'--job-logs: "{text}" must be a size such as 500MB'):
            with_job_logs(text)


def test_the_uploads_of_a_person_and_of_a_study_have_a_size() -> None:
    default = settings_with()
    assert default.owner_bundle_bytes == default.study_file_bytes == 20 << 30
    other = settings_with(owner_bundles="2GiB", study_files="500MB")
    assert (other.owner_bundle_bytes, other.study_file_bytes) == (2 << 30, 500_000_000)
    with pytest.raises(SpecError, match='--owner-bundles: "0" must be a size'):
        settings_with(owner_bundles="0")
    with pytest.raises(SpecError, match='--study-files: "much" must be a size'):
        settings_with(study_files="much")


def with_secrets(state: Path, *directories: Path, variables: str = "") -> ServeSettings:
    return settings_with(state, secrets=directories, secret_variables=variables)


def test_places_of_secrets_are_directories_outside_the_state(tmp_path: Path) -> None:
    state, allowed = tmp_path / "state", tmp_path / "secrets"
    for directory in (allowed, state / "keys"):
        directory.mkdir(parents=True)
    (tmp_path / "link").symlink_to(state / "keys")
    settings = with_secrets(state, allowed, variables="HF_TOKEN, WANDB_API_KEY")
    assert settings.secret_directories == (allowed,)
    assert settings.secret_variables == ("HF_TOKEN", "WANDB_API_KEY")
    with pytest.raises(SpecError, match=r"--secrets: .* is not a directory"):
        with_secrets(state, tmp_path / "absent")
    for directory in (state, state / "keys", tmp_path / "link"):
        with pytest.raises(SpecError, match=r"--secrets: .* is in the state directory"):
            with_secrets(state, directory)
    with pytest.raises(SpecError, match=r"--secret-variables: .*not a valid variable name"):
        with_secrets(state, variables="HF TOKEN")


def test_a_controller_without_pytorch_says_how_to_get_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("autoscaler.cli.serve.settings.find_spec", lambda name: None)
    warn_without_torch(ServeSettings(tmp_path, local=None))
    assert caplog.text == ""
    warn_without_torch(ServeSettings(tmp_path))
    assert "pip install 'castor-autoscaler[server,training]'" in caplog.text


def test_answers_leave_at_once(tmp_path: Path) -> None:
    """Set TCP_NODELAY, or a small answer waits 40 ms for the client's acknowledgement."""

    async def has_no_delay(listener: socket.socket) -> bool:
        accepted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        class Accepts(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                connection = transport.get_extra_info("socket")
                no_delay = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
                accepted.set_result(bool(no_delay))

        server = await asyncio.get_running_loop().create_server(Accepts, sock=listener)
        async with server:
            _, writer = await asyncio.open_connection(*listener.getsockname()[:2])
            answer = await accepted
            writer.close()
        return answer

    with bound_socket(tmp_path, "127.0.0.1", 0) as listener:
        assert asyncio.run(has_no_delay(listener))


def test_every_file_of_the_demo_is_in_the_wheel() -> None:
    root = Path(__file__).parents[3]
    project = tomllib.loads((root / "pyproject.toml").read_text())
    data = project["tool"]["setuptools"]["data-files"]
    for example in ("chargpt", "digits"):
        patterns = data[f"share/castor-autoscaler/examples/{example}"]
        packed = {path for pattern in patterns for path in root.glob(pattern)}
        assert root / "examples" / example / "job.yaml" in packed
    assert examples_directory() == root / "examples"


def test_the_demo_names_the_extras_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("autoscaler.cli.demo.scenario.find_spec", lambda name: None)
    with pytest.raises(SpecError, match=r"torch is not .*castor-autoscaler\[demo"):
        run_demo(DemoOptions())


def with_budgets(*pools: str, **budgets: str) -> ControllerSettings:
    return settings_with(pools=pools, **budgets).controller


def test_a_cloud_is_not_bought_from_without_a_word_on_the_total() -> None:
    with pytest.raises(SpecError, match=r"--fleet-usd: is required .* such as 500, or none"):
        with_budgets("pools.json")
    assert with_budgets("pools.json", fleet_usd="none").fleet_usd is None
    assert with_budgets("pools.json", fleet_usd="500").fleet_usd == Decimal(500)
    assert with_budgets().fleet_usd is None, "this machine costs nothing more"


def test_default_budgets_are_for_clouds_unless_given_or_lifted() -> None:
    local, cloud = with_budgets(), with_budgets("pools.json", fleet_usd="none")
    assert (local.job_usd, local.study_usd) == (None, None)
    assert (cloud.job_usd, cloud.study_usd) == (Decimal(50), Decimal(200))
    chosen = with_budgets("pools.json", fleet_usd="9", job_usd="none", study_usd="$7")
    assert (chosen.job_usd, chosen.study_usd) == (None, Decimal(7))
    with pytest.raises(SpecError, match="--job-usd: "):
        with_budgets(job_usd="much")


def local_hazards(**options: float) -> set[float]:
    settings = settings_with(**options)
    assert settings.local is not None
    return {offer.reclaims_per_hour for offer in settings.local.catalogue}


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize(
    "option", ["boot_seconds", "checkpoint_seconds", "fleet_usd_per_hour", "reclaims_per_hour"]
)
def test_numbers_out_of_range_are_refused(option: str, value: float) -> None:
    with pytest.raises(SpecError, match=f"--{option.replace('_', '-')}: .*must be "):
        settings_with(**{option: value})


def test_instances_of_this_machine_are_taken_back_at_random_only_where_asked_for() -> None:
    assert local_hazards() == {0.0}
    assert local_hazards(reclaims_per_hour=2.0) == {0.0, 2.0}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"policy": "magic"}, "magic"),
        ({"pools": ("no-such-file.json",)}, "no-such-file.json"),
        ({}, "can't be listened on"),
        ({"store_url": "postgresql://127.0.0.1:1/none", "port": 0}, "store"),
    ],
    ids=["policy", "pools", "port", "store"],
)
def test_a_refused_start_leaves_no_state_directory(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    state = tmp_path / "state2"
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        settings = ServeSettings(state=state, port=other.getsockname()[1])
        with pytest.raises(CastorError, match=message):
            serve(replace(settings, **change))
    assert not state.exists()


def test_a_controller_imports_nothing_that_it_may_not_need(tmp_path: Path) -> None:
    """Check what a controller has imported on a new directory; studies wait for its start."""
    program = (
        "import sys\n"
        "from autoscaler.cli.serve.settings import serve_settings\n"
        "from autoscaler.clock import SystemClock\n"
        "from autoscaler.main import Deployment\n"
        "from pathlib import Path\n"
        "settings = serve_settings(Path(sys.argv[1]), devices='0', boot_seconds=0.0,\n"
        "    fleet_usd_per_hour=None, checkpoint_seconds=300.0)\n"
        "deployment = Deployment(settings, 'http://127.0.0.1:1', SystemClock())\n"
        "deployment.tick()\n"
        "late = {'scipy.optimize', 'scipy.linalg', 'alembic', 'httpcore', 'rich', 'torch'}\n"
        "assert not late & sys.modules.keys(), late & sys.modules.keys()\n"
        "deployment.close()\n"
    )
    subprocess.run([sys.executable, "-P", "-c", program, str(tmp_path)], check=True)
