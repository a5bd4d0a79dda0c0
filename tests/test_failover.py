"""Two controllers on one PostgreSQL store, of which the leader is killed or frozen under load."""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import httpx
import psycopg
import pytest

from autoscaler.cli.adopt import adopt_id
from autoscaler.domain.errors import CastorError, Conflict
from autoscaler.domain.instance import INSTANCE_TAG, JOB_TAG
from autoscaler.domain.job import InstanceBounds, JobSpec
from autoscaler.store.sql.leadership import LEASE_SECONDS
from autoscaler.wire.client import Client
from tests.builders.ports import free_port
from tests.builders.postgresql import Create
from tests.failover_controller import Options

# The database notes who writes, and who leads then.
_WATCHED: Final = ("instances", "intents", "jobs", "events", "ledger", "settings")
_WATCH: Final = """
CREATE TABLE writes (writer text, leader text, epoch bigint, at timestamptz);
CREATE FUNCTION watch_writes() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO writes SELECT current_setting('application_name'), holder, epoch, clock_timestamp()
    FROM leadership;
  RETURN NULL;
END $$;
"""
_LIVES_SECONDS: Final = (2.0, 8.0)  # of a job of the load
_PATIENCE_SECONDS: Final = 60.0


@dataclass
class Controller:
    """One controller: its state, its port and its present process."""

    options: Options
    log: Path
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.options.port}"

    def start(self) -> None:
        arguments = [sys.executable, "-m", "tests.failover_controller"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*arguments, json.dumps(asdict(self.options))], stdout=log, stderr=log
            )

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def is_ready(self) -> bool:
        return self._status("/readyz") == 200

    def is_alive(self) -> bool:
        return self._status("/livez") == 200

    def ends(self) -> None:
        """Wait for the end of the process."""
        assert self.process is not None
        self.process.wait(_PATIENCE_SECONDS)

    def _status(self, path: str) -> int:
        with suppress(httpx.HTTPError):
            return httpx.get(f"{self.url}{path}", timeout=1.0).status_code
        return 0


@dataclass
class Load:
    """Jobs that are submitted and stopped all the time, by a client of both controllers."""

    client: Client
    submitted: list[str] = field(default_factory=list)
    chance: random.Random = field(default_factory=lambda: random.Random(23))
    stopped: threading.Event = field(default_factory=threading.Event)
    error: CastorError | None = None

    def run(self) -> None:
        """Submit a job each half second, and stop each after some seconds."""
        ends: dict[str, float] = {}
        while not self.stopped.wait(0.5):
            name = f"job-{len(self.submitted)}"
            spec = JobSpec(name, ("true",), instances=InstanceBounds(1, 1))
            if self._call(lambda spec=spec: self.client.submit(spec)):  # type: ignore[misc]
                self.submitted.append(name)
                ends[name] = time.monotonic() + self.chance.uniform(*_LIVES_SECONDS)
            for due in [name for name, end in ends.items() if end <= time.monotonic()]:
                if self._call(lambda due=due: self.client.stop(due)):  # type: ignore[misc]
                    del ends[due]

    def stop_all(self) -> None:
        """Submit nothing more, and stop all jobs."""
        self.stopped.set()
        for name in self.submitted:
            stop = partial(self._call, partial(self.client.stop, name))
            _until(stop, text=lambda name=name: f"{name}: {self.error!r}")  # type: ignore[misc]

    def _call(self, call: Any) -> bool:
        """Return whether a call succeeded, or an earlier one did whose reply was lost."""
        try:
            call()
        except Conflict:
            return True
        except CastorError as error:
            self.error = error
            return False
        return True


class Pair:
    """Two controllers over one store and one cloud."""

    def __init__(self, directory: Path, store_url: str, lease_seconds: float) -> None:
        self.cloud, self.calls = directory / "cloud.json", directory / "calls"
        self.cloud.write_text("{}")
        self.calls.touch()
        self.store_url = store_url
        self._database = store_url.replace("postgresql+psycopg", "postgresql")
        key, token = secrets.token_bytes(32), secrets.token_urlsafe(32)
        self.controllers = []
        for name in ("first", "second"):
            state = directory / name
            state.mkdir(mode=0o700)
            (state / "secret.key").write_bytes(key)
            (state / "client.json").write_text(json.dumps({"token": token}))
            options = Options(
                *(str(state), store_url, str(self.cloud), str(self.calls)),
                free_port(),
                lease_seconds,
            )
            self.controllers.append(Controller(options, directory / f"{name}.log"))
        urls = ",".join(controller.url for controller in self.controllers)
        self.client = Client(urls, token)

    def start(self) -> None:
        first, second = self.controllers
        first.start()
        _until(first.is_ready)
        self._watch_writes()
        second.start()
        _until(second.is_alive)
        assert not second.is_ready()

    def leader(self) -> tuple[Controller, Controller]:
        """Return the leader, and the other controller."""
        first, second = self.controllers
        _until(lambda: first.is_ready() or second.is_ready())
        return (first, second) if first.is_ready() else (second, first)

    def query(self, text: str) -> list[tuple[Any, ...]]:
        with psycopg.connect(self._database, autocommit=True) as connection:
            return connection.execute(text).fetchall()  # type: ignore[call-overload,no-any-return]

    def records(self) -> list[dict[str, Any]]:
        """Return all instances that the cloud has ever launched."""
        records: dict[str, dict[str, Any]] = json.loads(self.cloud.read_text())
        return list(records.values())

    def _watch_writes(self) -> None:
        with psycopg.connect(self._database, autocommit=True) as connection:
            connection.execute(_WATCH)
            for table in _WATCHED:
                connection.execute(
                    f"CREATE TRIGGER watch AFTER INSERT OR UPDATE OR DELETE ON {table}"  # type: ignore[call-overload]
                    " FOR EACH STATEMENT EXECUTE FUNCTION watch_writes()"
                )


def _until(
    is_so: Callable[[], bool],
    seconds: float = _PATIENCE_SECONDS,
    text: Callable[[], str] = lambda: "it did not happen in time",
) -> float:
    """Wait until it is so; return the seconds that it took."""
    began_seconds = time.monotonic()
    while not is_so():
        assert time.monotonic() - began_seconds < seconds, text()
        time.sleep(0.05)
    return time.monotonic() - began_seconds


@contextmanager
def _running(pair: Pair) -> Iterator[Load]:
    """Run both controllers and a load; end them all."""
    load = Load(pair.client)
    thread = threading.Thread(target=load.run)
    try:
        pair.start()
        thread.start()
        yield load
    finally:
        load.stopped.set()
        if thread.ident is not None:
            thread.join()
        for controller in pair.controllers:
            if controller.process is not None:
                for number in (signal.SIGCONT, signal.SIGKILL):
                    controller.signal(number)
                controller.process.wait()


def _kill(pair: Pair) -> float:
    """Kill the leader, wait for its successor, and start it again; return the seconds without."""
    leader, follower = pair.leader()
    leader.signal(signal.SIGKILL)
    seconds = _until(follower.is_ready)
    leader.ends()
    leader.start()
    _until(leader.is_alive)
    return seconds


def _freeze(pair: Pair, frozen_seconds: float) -> float:
    """Freeze the leader, wait for its successor, and resume it; return the seconds without."""
    leader, follower = pair.leader()
    assert leader.process is not None
    leader.signal(signal.SIGSTOP)
    seconds = _until(follower.is_ready)
    time.sleep(max(frozen_seconds - seconds, 0.0))
    leader.signal(signal.SIGCONT)
    leader.ends()
    assert leader.process.returncode != 0, "it ends because it has lost the lead"
    assert "leads the store" in leader.log.read_text()
    leader.start()
    _until(leader.is_alive)
    return seconds


def _assert_nothing_doubled(pair: Pair) -> None:
    """Assert that each instance was launched once, and no job had two at the same time."""
    records = pair.records()
    instances = [record["tags"][INSTANCE_TAG] for record in records]
    assert len(instances) == len(set(instances)), "one instance was launched with two tokens"
    lives: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for record in records:
        lives[record["tags"][JOB_TAG]].append(
            (record["launched_seconds"], record["ended_seconds"] or float("inf"))
        )
    for job, spans in lives.items():
        spans.sort()
        for (_, ended), (launched, _) in pairwise(spans):
            assert ended <= launched, f"{job} had two instances at once"


def _assert_only_leaders_wrote(pair: Pair) -> None:
    strangers = pair.query("SELECT * FROM writes WHERE writer <> leader LIMIT 5")
    assert strangers == [], "a controller wrote that did not lead"
    assert pair.query("SELECT count(*) FROM writes")[0][0] > 100


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("kills", "freezes_seconds", "lease_seconds"),
    [
        pytest.param(2, (6.0,), 3.0, id="short"),
        pytest.param(20, (60.0, *[12.0] * 4), LEASE_SECONDS, id="long", marks=pytest.mark.slow),
    ],
)
def test_a_follower_replaces_a_leader_that_is_killed_or_frozen_under_load(
    postgresql: Create,
    tmp_path: Path,
    kills: int,
    freezes_seconds: tuple[float, ...],
    lease_seconds: float,
) -> None:
    pair = Pair(tmp_path, postgresql(), lease_seconds)
    turns = [0.0] * kills + [*freezes_seconds]
    chance = random.Random(7)
    chance.shuffle(turns)
    seconds: dict[str, list[float]] = {"kill": [], "freeze": []}
    with _running(pair) as load:
        for frozen_seconds in turns:
            time.sleep(chance.uniform(2.0, 5.0))
            if frozen_seconds:
                seconds["freeze"].append(_freeze(pair, frozen_seconds))
            else:
                seconds["kill"].append(_kill(pair))
        pair.leader()
        load.stop_all()
        _until(lambda: all(record["ended_seconds"] for record in pair.records()), 120.0)
        _assert_nothing_doubled(pair)
        _assert_only_leaders_wrote(pair)
        epochs = pair.query("SELECT epoch FROM leadership")[0][0]
        gaps = _gaps_seconds(pair)
    assert epochs == 1 + len(turns)
    _print_figures(pair, seconds, len(load.submitted))
    print(f"without writes: longest {max(gaps):.1f} s")
    assert len(gaps) == len(turns)
    assert max(gaps) < 30.0


def _gaps_seconds(pair: Pair) -> list[float]:
    """Return the seconds from the last write of each leader to the first of the next one."""
    rows = pair.query(
        "SELECT epoch, extract(epoch FROM min(at))::float, extract(epoch FROM max(at))::float"
        " FROM writes GROUP BY epoch ORDER BY epoch"
    )
    return [following[1] - leader[2] for leader, following in pairwise(rows)]


def _print_figures(pair: Pair, seconds: dict[str, list[float]], jobs: int) -> None:
    calls = pair.calls.read_text().split("\n")[:-1]
    tokens = {call.split()[0] for call in calls}
    print(f"{jobs} jobs, {len(calls)} launch calls, {len(tokens)} tokens,", end=" ")
    print(f"{len(pair.records())} launches")
    for turn, taken in seconds.items():
        if taken:
            middle = sorted(taken)[len(taken) // 2]
            print(f"{turn}: {len(taken)}, median {middle:.1f} s, longest {max(taken):.1f} s")


def test_a_follower_serves_reads_and_leads_writes_to_the_leader(
    postgresql: Create, tmp_path: Path
) -> None:
    pair = Pair(tmp_path, postgresql(), 3.0)
    with _running(pair) as load:
        _until(lambda: bool(load.submitted))
        leader, follower = pair.leader()
        token = json.loads(Path(follower.options.state, "client.json").read_text())["token"]
        headers = {"Authorization": f"Bearer {token}"}
        jobs = httpx.get(f"{follower.url}/v1/jobs", headers=headers)
        assert jobs.status_code == 200 and jobs.json()
        frozen = httpx.post(f"{follower.url}/v1/freeze", headers=headers)
        assert frozen.status_code == 307
        assert frozen.headers["Location"] == f"{leader.url}/v1/freeze"
        assert httpx.get(f"{follower.url}/v1/jobs").status_code == 401
        client = Client(f"{follower.url},{leader.url}", token)
        client.freeze()
        _until(lambda: client.fleet().hands_off is not None)
        client.close()


def test_a_follower_beside_which_an_id_was_adopted_ends_before_it_acts(
    postgresql: Create, tmp_path: Path
) -> None:
    lost = "5f0d3c1e-5a0f-4c5e-9b8e-2f6b6a1d7c55"
    pair = Pair(tmp_path, postgresql(), 3.0)
    first, second = pair.controllers
    adopting = tmp_path / "adopting"
    adopting.mkdir()
    try:
        for controller in pair.controllers:
            controller.start()
            _until(controller.is_alive)
        leader, follower = pair.leader()
        with pytest.raises(Conflict, match="another controller holds the store"):
            adopt_id(lost, adopting, pair.store_url)
        follower.signal(signal.SIGSTOP)  # so that it can't take the lead first
        leader.signal(signal.SIGTERM)
        leader.ends()
        adopt_id(lost, adopting, pair.store_url)
        follower.signal(signal.SIGCONT)
        follower.ends()
        assert follower.process is not None and follower.process.returncode != 0
        assert "castor adopt has replaced the id" in follower.log.read_text()
        assert pair.query("SELECT count(*) FROM events WHERE kind = 'new leader'") == [(0,)]
        follower.start()
        _until(follower.is_ready)
        assert pair.client.fleet().controller == lost
    finally:
        for controller in (first, second):
            if controller.process is not None and controller.process.poll() is None:
                controller.signal(signal.SIGKILL)
                controller.process.wait()


def test_a_follower_without_the_secrets_of_the_leader_is_refused(
    postgresql: Create, tmp_path: Path
) -> None:
    pair = Pair(tmp_path, postgresql(), 3.0)
    first, second = pair.controllers
    state = Path(second.options.state)
    client_file = (state / "client.json").read_text()
    first.start()
    try:
        _until(first.is_ready)
        for name, content in (("secret.key", os.urandom(32)), ("client.json", b"{}")):
            kept = (state / name).read_bytes()
            (state / name).write_bytes(content)
            second.start()
            second.ends()
            assert f"second/{name}" in second.log.read_text()
            assert "mode 0600" in second.log.read_text()
            (state / name).write_bytes(kept)
        assert (state / "client.json").read_text() == client_file
        second.start()
        _until(second.is_alive)
    finally:
        for controller in pair.controllers:
            if controller.process is not None and controller.process.poll() is None:
                controller.signal(signal.SIGKILL)
                controller.process.wait()
