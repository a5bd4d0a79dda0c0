"""Pages of a simulation while it runs: the API of a controller on a clock that runs faster."""

from __future__ import annotations

import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from autoscaler.cli.simulate.options import LEAST_PACE, MOST_PACE
from autoscaler.cli.simulate.run import PreparedSimulation
from autoscaler.clock import SystemClock, VirtualClock
from autoscaler.controller.controller import Controller
from autoscaler.controller.workers import ThreadWorkers
from autoscaler.domain.access import OWNER, Identity, Role
from autoscaler.domain.errors import SpecError
from autoscaler.http_server import HttpServer, bound_socket
from autoscaler.main import Deployment, ServeSettings
from autoscaler.policies.base import Policy
from autoscaler.service.access.browser_sessions import BrowserSessions, open_sessions
from autoscaler.service.access.request_limits import RequestLimits
from autoscaler.simulator.results import Result
from autoscaler.simulator.simulation import Simulation
from autoscaler.simulator.time_meters import TimeMeters
from autoscaler.state_directory import let_owner_in

_HOST: Final = "127.0.0.1"
_STEP_SECONDS: Final = 0.5  # between two moments that pages see
_END_SECONDS: Final = 1
_HOUR: Final = 3600.0


class PacedClock(VirtualClock):
    """Virtual clock that passes `pace` seconds in each second, until `stopped` is set.

    `on_step` is called after each step of the clock, of at most half a second.
    """

    def __init__(self, start_seconds: float, pace: float, stopped: threading.Event) -> None:
        super().__init__(start_seconds)
        self._pace = pace
        self._stopped = stopped
        self.on_step: Callable[[], None] = lambda: None

    def advance(self, seconds: float) -> None:
        """Advance the clock by `seconds`, after as much time as they take at the pace.

        Raises:
            SimulationStopped: the simulation is not to go on.
        """
        while seconds > 0:
            step_seconds = min(seconds, _STEP_SECONDS * self._pace)
            if self._stopped.wait(step_seconds / self._pace):
                raise SimulationStopped
            super().advance(step_seconds)
            seconds -= step_seconds
            self.on_step()


class SimulationStopped(Exception):
    """End of a simulation whose pages are closed."""


class SimulatedDeployment(Deployment):
    """Deployment whose controller, cloud and agents are those of a simulation."""

    def __init__(
        self, state: Path, url: str, clock: PacedClock, simulation: PreparedSimulation
    ) -> None:
        self._prepared = simulation
        self._paced_clock = clock
        settings = ServeSettings(state, policy=simulation.options.policy, local=None)
        super().__init__(settings, url, clock)
        clock.on_step = self._changes.note

    def link(self) -> str:
        """Return an address that signs a browser in, once, within a minute."""
        return self._browser_sessions.link(Identity(OWNER, Role.ADMIN)).url

    def _controller(self, policy: Policy, url: str) -> Controller:
        self._controller_id = self.store.settings.controller_id()
        self._verifiers = {}
        self.storage = None
        self.call_workers = ThreadWorkers({}, ThreadPoolExecutor)
        meters = TimeMeters(self.store)
        self.simulation: Simulation = self._prepared.begin(
            self.store, self._paced_clock, policy, meters
        )
        return self.simulation.controller

    def _sessions(self) -> BrowserSessions:
        """Return sessions by the machine's clock, so that a link is valid for a real minute."""
        self._browser_sessions = open_sessions(
            self.url, self.authentication, self.store, SystemClock()
        )
        return self._browser_sessions


class ServedSimulation:
    """Simulation that runs in a thread of this process, and whose pages are served.

    Attributes:
        url: the address of the pages.
        result: the result, once the simulation has ended.
    """

    def __init__(self, deployment: SimulatedDeployment, prepared: PreparedSimulation) -> None:
        self.url = deployment.url
        self.result: Future[Result] = Future()
        self._deployment = deployment
        self._prepared = prepared

    def link(self) -> str:
        """Return an address that signs a browser in, once, within a minute."""
        return self._deployment.link()

    def run(self) -> None:
        """Run the simulation, and set the result or the error."""
        try:
            ran = self._deployment.simulation.run()
            self.result.set_result(self._prepared.result(ran, self._deployment.store))
        except BaseException as error:
            self.result.set_exception(error)


@contextmanager
def served(prepared: PreparedSimulation, pace: float, port: int = 0) -> Iterator[ServedSimulation]:
    """Run a simulation at `pace` simulated seconds a second, and serve its pages in the context.

    Raises:
        SpecError: the pace is out of range, or the simulation is one of a fixed pool.
        Conflict: the port is in use.
    """
    if not LEAST_PACE <= pace <= MOST_PACE:
        raise SpecError(f"{pace:g} must be from {LEAST_PACE:g} to {MOST_PACE:,.0f}", "--pace")
    if prepared.market.is_pool:
        raise SpecError("pages show an elastic cloud: give --offers, not --cluster", "--serve")
    stopped = threading.Event()
    # Plans are due at multiples of an interval: from a full hour they are those of time 0.
    clock = PacedClock(SystemClock().now() // _HOUR * _HOUR, pace, stopped)
    with (
        tempfile.TemporaryDirectory(prefix="castor-simulation-") as directory,
        bound_socket(Path(directory), _HOST, port) as listener,
    ):
        url = f"http://{_HOST}:{listener.getsockname()[1]}"
        deployment = SimulatedDeployment(Path(directory), url, clock, prepared)
        deployment.authentication.people.set_owner(let_owner_in(Path(directory), url))
        check = deployment.authentication.check
        limited = RequestLimits(deployment.app, SystemClock(), check)
        server = HttpServer(limited, deployment.end_polls, None, _END_SECONDS)
        simulation = ServedSimulation(deployment, prepared)
        threads = [
            threading.Thread(target=lambda: server.run(sockets=[listener]), daemon=True),
            threading.Thread(target=simulation.run, daemon=True),
        ]
        for thread in threads:
            thread.start()
        try:
            yield simulation
        finally:
            stopped.set()
            server.should_exit = True
            for thread in threads:
                thread.join()
            deployment.close()
