"""Life of a controller process: from the claim on its state to the end of its server."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable, Sequence
from decimal import Decimal

from autoscaler.clock import SystemClock
from autoscaler.clouds import cloud_of
from autoscaler.controller.act.shutdown import terminate_all, wait_for_exit
from autoscaler.domain.errors import StoreError
from autoscaler.domain.instance import HeldInstance
from autoscaler.http_server import (
    HttpServer,
    bound_socket,
    collect_rarely,
    permit_connections,
    postponed_sigterm,
)
from autoscaler.lead import Lead, check_follower
from autoscaler.main.deployment import END_SECONDS, Deployment, planning_policy
from autoscaler.main.settings import ServeSettings
from autoscaler.service.access.authentication import load_key
from autoscaler.service.access.logins import require_provider_client
from autoscaler.service.access.request_limits import RequestLimits
from autoscaler.service.access.shared_secrets import require_same_key, require_shared_secrets
from autoscaler.service.following import FollowerGate, LeaderAddress
from autoscaler.service.health import HealthGate
from autoscaler.service.request_meter import RequestMeter
from autoscaler.state_directory import hold_state, let_owner_in, owner_token, store_url_of
from autoscaler.store.sql.file_lock import hold_database, process_name
from autoscaler.store.sql.leadership import LeaseCandidate
from autoscaler.supervision import GIVE_BACK_SECONDS
from autoscaler.telemetry.traces import require_traces
from autoscaler.tls import keep_self_signed

_log = logging.getLogger(__name__)


def serve(settings: ServeSettings) -> None:
    """Run a controller until it is signalled to stop. Instances and jobs continue without it.

    SIGTERM and SIGINT end it in order. The log says what continues, and how to start again.

    Raises:
        Conflict: another controller uses this state directory or store, or the port is in use, or
            the state directory has other secrets than the store's controllers.
        NotLeading: another controller has taken the lead of the store over.
        StoreError: the store can't be opened.
        SpecError: the policy, a source of pools or the host can't be used.
    """
    _check_start(settings)
    permit_connections()
    clock = SystemClock()
    store_url = store_url_of(settings.state, settings.store_url)
    with (
        postponed_sigterm() as must_end,
        hold_state(settings.state),
        hold_database(store_url, settings.state),
        bound_socket(settings.state, settings.host, settings.port) as listener,
    ):
        if settings.tls is not None:
            keep_self_signed(settings.tls, settings.hosts, clock.now(), settings.follows)
        scheme = "http" if settings.tls is None else "https"
        own_url = f"{scheme}://{settings.host}:{listener.getsockname()[1]}"
        url = settings.public_url or own_url
        lead = Lead(
            store_url, LeaseCandidate(process_name(), url), settings.store_lease_seconds, clock
        )
        try:
            lead.begin(settings.follows)
            deployment = Deployment(settings, url, clock, lead)
            _share_secrets(settings, deployment, lead, url)
            collect_rarely()
            _run(settings, deployment, lead, listener, must_end)
        finally:
            lead.end()
    lead.require_not_lost()


def _share_secrets(settings: ServeSettings, deployment: Deployment, lead: Lead, url: str) -> None:
    """Check the secrets of this controller; a leader stores the hashes of the first ones."""
    key = load_key(settings.state / "secret.key")
    store, people = deployment.store, deployment.authentication.people
    if lead.leads:
        require_same_key(store.settings, key, settings.state, settings.replaces_key)
    else:
        token = owner_token(settings.state)
        require_shared_secrets(store.settings, people, key, token, settings.state)
    authority = None if settings.tls is None else settings.tls.authority
    token = let_owner_in(settings.state, url, authority)
    if lead.leads:
        people.set_owner(token)


def _run(
    settings: ServeSettings,
    deployment: Deployment,
    lead: Lead,
    listener: socket.socket,
    must_end: Callable[[], bool],
) -> None:
    """Serve the API and run the loop, until a signal ends the server or the lead is lost.

    `must_end` returns whether a signal has come before the server.
    """
    server = _server(settings, deployment, lead)

    def end() -> None:
        server.should_exit = True
        deployment.wake.set()

    lead.call_on_loss(end)
    if must_end():
        end()
    stopped = threading.Event()
    loop = threading.Thread(
        target=deployment.run_loop, args=(stopped,), name="castor-loop", daemon=True
    )
    loop.start()
    role = "leader" if lead.leads else "follower"
    _log.info("%s, listening on %s, state in %s", role, deployment.url, settings.state)
    _log.info("pages: %s/ (castor open signs a browser in)", deployment.url.rstrip("/"))
    if settings.parent is not None:
        threading.Thread(
            target=_end_with_parent, args=(settings.parent, deployment, server), daemon=True
        ).start()
    try:
        server.run(sockets=[listener])
    finally:
        stopped.set()
        deployment.wake.set()
        loop.join()
        deployment.close()
        _log.info(
            "ended; castor serve with the same options and state in %s goes on from here",
            settings.state,
        )


def _server(settings: ServeSettings, deployment: Deployment, lead: Lead) -> HttpServer:
    """Return the server of the API, which has not started."""
    address = LeaderAddress(lead.leader_address, SystemClock())
    limited = RequestLimits(deployment.app, SystemClock(), deployment.authentication.check)
    app = FollowerGate(limited, lambda: not lead.leads, address)
    healthy = HealthGate(app, deployment.health, limited.is_known)
    return HttpServer(
        RequestMeter(healthy, deployment.meters.answered, SystemClock(), deployment.traces.span),
        deployment.end_polls,
        settings.tls,
        end_seconds=None if settings.parent is None else END_SECONDS,
        on_end=lambda signal: _log_end(signal, settings, deployment, lead),
    )


def _log_end(
    signal: str | None, settings: ServeSettings, deployment: Deployment, lead: Lead
) -> None:
    """Log what stops with this controller, and what goes on without it."""
    reason = signal or "ending"
    if not lead.leads:
        _log.info("%s: this controller does not lead and stops answering", reason)
        return
    try:
        jobs = len(deployment.store.jobs.alive())
        held = deployment.store.instances.alive()
    except StoreError as error:
        _log.warning("%s: ending; what goes on can't be read: %s", reason, error)
        return
    _log.info("%s: planning and the API stop; %s", reason, _left_running(settings, jobs, held))


def _left_running(settings: ServeSettings, jobs: int, held: Sequence[HeldInstance]) -> str:
    """Return words for the jobs and instances that a controller leaves behind."""
    if not jobs and not held:
        return "no job and no instance is left"
    usd_per_hour = sum((instance.usd_per_hour for instance in held), Decimal(0))
    return (
        f"{jobs} {'job' if jobs == 1 else 'jobs'} and {len(held)} "
        f"{'instance' if len(held) == 1 else 'instances'} (${usd_per_hour:.4f}/h) go on. Without "
        "a controller no job is resized or stopped at its budget, and an instance ends itself "
        f"after {settings.lease_seconds / 60:g} min (--lease). castor drain --all ends all jobs "
        "once a controller runs again"
    )


def _check_start(settings: ServeSettings) -> None:
    """Check the settings before a new state directory is created.

    Raises:
        SpecError: the policy, a file of pools, the identity provider or the receiver of traces
            can't be used.
        Conflict: the state directory is new, and the port is in use.
    """
    planning_policy(settings.policy)
    for source in settings.pools:
        cloud_of(source)
    require_provider_client(settings.oidc)
    require_traces(settings.traces, os.environ)
    if settings.follows:
        check_follower(settings.store_url, settings.state)
    if not settings.state.exists():
        with bound_socket(settings.state, settings.host, settings.port):
            pass


def _end_with_parent(parent: int, deployment: Deployment, server: HttpServer) -> None:
    """Stop all jobs, terminate all instances and end the server once the parent process dies."""
    clock = SystemClock()
    wait_for_exit(lambda: os.getppid() == parent, clock)
    _log.warning("parent process %d has died: this controller stops its jobs and ends", parent)
    try:
        terminate_all(deployment.store, deployment.wake.set, clock, GIVE_BACK_SECONDS)
    finally:
        server.should_exit = True
