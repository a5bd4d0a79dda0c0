"""Options of a controller process."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from autoscaler.controller.settings import ControllerSettings
from autoscaler.domain.training import Engine
from autoscaler.notifications.targets import Target
from autoscaler.service.access.oidc_settings import OidcSettings
from autoscaler.service.instances.assignments import TrainingTimes
from autoscaler.store.sql.leadership import LEASE_SECONDS
from autoscaler.tls import TlsFiles
from providers.local.settings import LocalSettings


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Options of a controller process.

    Attributes:
        state: the state directory: all persistent state, except the store if it is elsewhere.
        store_url: the URL of the store; None for the SQLite file in `state`.
        host, port: the address at which the API listens. Port 0 selects a free port at the first
            start and the same port at each restart, because agents keep using it.
        policy: the name of the planning policy.
        tick_seconds: the longest time between two ticks.
        heartbeat_seconds: the time between two heartbeats of an agent.
        lease_seconds: an agent without contact to a controller ends its instance after this time.
        maximum_bundle_bytes: the size limit of a packed working directory.
        owner_bundle_bytes: the limit on all bundles that one person has uploaded.
        study_file_bytes: the limit on the files of one study that its driver has not fetched.
        engine: the communication engine of new jobs; None selects the best one available.
        parent: the id of the parent process. When it dies, all jobs stop, all instances are
            terminated and the controller ends. None: no parent.
        follows: wait for the lead of a PostgreSQL store that another controller leads.
        public_url: the URL of the API for instances and for requests to followers; None for
            host and port.
        tls: certificate and key of the API; None for HTTP without encryption.
        store_lease_seconds: a leader that does not renew its lease of a PostgreSQL store for this
            long is replaced.
        replaces_key: whether this controller may have another signing key than the one before.
        local: the devices of this machine to offer; None for none.
        pools: sources of pools in clouds (`autoscaler.clouds`).
        secret_directories: directories with files that jobs may use as secrets.
        secret_variables: environment variables that jobs may use as secrets.
        oidc: the identity provider that people log in through; None for none.
        metrics_jobs: most jobs with series of their own in `/metrics`.
        notify: the targets of notices to people.
        traces: the URL of the receiver of traces; None for the one in OpenTelemetry's variables.
        optuna_dashboard: the URL of an optuna-dashboard that pages of studies link to.
    """

    state: Path
    store_url: str | None = None
    host: str = "127.0.0.1"
    port: int = 8470
    policy: str = "marginal"
    tick_seconds: float = 1.0
    heartbeat_seconds: float = 1.0
    lease_seconds: float = 1800.0
    maximum_bundle_bytes: int = 1 << 30
    owner_bundle_bytes: int = 20 << 30
    study_file_bytes: int = 20 << 30
    engine: Engine | None = None
    parent: int | None = None
    follows: bool = False
    public_url: str | None = None
    tls: TlsFiles | None = None
    store_lease_seconds: float = LEASE_SECONDS
    replaces_key: bool = False
    controller: ControllerSettings = ControllerSettings()
    times: TrainingTimes = TrainingTimes()
    local: LocalSettings | None = field(default_factory=LocalSettings)
    pools: tuple[str, ...] = ()
    secret_directories: tuple[Path, ...] = ()
    secret_variables: tuple[str, ...] = ()
    oidc: OidcSettings | None = None
    metrics_jobs: int = 1_000
    notify: tuple[Target, ...] = ()
    traces: str | None = None
    optuna_dashboard: str | None = None

    @property
    def hosts(self) -> tuple[str, ...]:
        """Names of the hosts at which clients and instances reach the API."""
        public_host = urlsplit(self.public_url or "").hostname
        return (self.host,) if public_host is None else (self.host, public_host)
