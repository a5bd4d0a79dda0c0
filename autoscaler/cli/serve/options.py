"""Options of `castor serve`. The command imports `settings` when called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Option

from autoscaler.cli.options import LogFormat, Store, words_of
from autoscaler.domain.access import LEAST_LOGIN_HOURS, MOST_LOGIN_HOURS, Role
from autoscaler.domain.training import Engine

"""Validity of the tokens of `castor login`, in hours."""

State = Annotated[
    Path | None,
    Option(envvar="CASTOR_STATE", help="Directory of the store, logs and checkpoints."),
]
Host = Annotated[str, Option(help="Address to listen on. Instances connect to it.")]
Port = Annotated[int, Option(min=0, max=65_535, help="Port to listen on; 0 means any free port.")]
Policy = Annotated[str, Option(help="Policy that plans instances; see docs/simulator.md.")]
FleetPrice = Annotated[
    float | None, Option(help="Limit on the price of all instances together, US dollars an hour.")
]
FleetTotal = Annotated[
    str | None,
    Option(
        help="Limit on the total spending of all jobs, ever, in US dollars: 500, or none. "
        "Required with --pools."
    ),
]
JobTotal = Annotated[
    str | None,
    Option(
        help="Budget of a job whose file names none, in US dollars: 50, or none. Default: 50 with "
        "--pools, none without."
    ),
]
StudyTotal = Annotated[
    str | None,
    Option(
        help="Budget of a study whose file names none, in US dollars: 200, or none. Default: 200 "
        "with --pools, none without."
    ),
]
Fleet = Annotated[
    Path | None,
    Option(help="File of users' shares and agreed prices; see docs/economics-fleets.md."),
]
Pools = Annotated[
    list[str] | None,
    Option(
        help="Pools in a cloud: a file, ssm:/NAME or gs://BUCKET/NAME; may be repeated; see "
        "docs/aws.md and docs/gcp.md."
    ),
]
Devices = Annotated[
    str | None,
    Option(
        help="Cores of this machine that jobs may use, as 0,1,2. Default: all; with --pools: none."
    ),
]
BootSeconds = Annotated[float, Option(help="Boot time of local instances, in seconds.")]
ReclaimsPerHour = Annotated[
    float,
    Option(
        help="Rate of random spot reclaims of a local instance, per hour; 0 means never. "
        "Simulates a cloud's spot market."
    ),
]
CheckpointSeconds = Annotated[
    float,
    Option(help="Seconds between checkpoints of a job whose file names no interval."),
]
Lease = Annotated[
    str,
    Option(help="Time without contact to the controller after which an instance ends: 1m to 1d."),
]
Keep = Annotated[
    str,
    Option(
        help="Time for which decisions, events, logs and unused files are kept, 1d or longer; see "
        "docs/keeping.md."
    ),
]
JobLogs = Annotated[
    str,
    Option(
        help="Size of all logs of a job together, as 500MB or 10GiB; beyond it those of ended "
        "instances are dropped, the oldest first."
    ),
]
OwnerBundles = Annotated[
    str,
    Option(
        help="Size of all bundles of one person together, as 20GiB; larger uploads are refused."
    ),
]
StudyFiles = Annotated[
    str,
    Option(
        help="Size of all files of one study that its driver has not fetched, as 20GiB; larger "
        "uploads are refused."
    ),
]
Observe = Annotated[
    bool, Option("--observe", help="Plan and show decisions, but launch and end no instance.")
]
HowTrained = Annotated[
    Engine | None,
    Option(
        help="Protocol between the instances of a job. Default: quorum if torchft is installed, "
        "else roster."
    ),
]
Secrets = Annotated[
    list[Path] | None,
    Option(help="Directory of files that jobs may use as secrets; may be repeated."),
]
SecretVariables = Annotated[
    str | None,
    Option(help="Environment variables of this command that jobs may use as secrets, as A,B."),
]
Follow = Annotated[
    bool,
    Option(
        "--follow",
        help="If another controller leads the PostgreSQL store, serve reads and replace it when "
        "it fails; see docs/reliability.md.",
    ),
]
PublicUrl = Annotated[
    str | None,
    Option(
        help="URL of the API for instances and other controllers, such as that of a proxy. "
        "Default: --host and --port, https with --tls-cert."
    ),
]
TlsCertificate = Annotated[
    str | None,
    Option(
        help="Serve HTTPS: file of the certificate in PEM format, or auto for one that this "
        "controller signs for --host and instances trust; see docs/security.md."
    ),
]
TlsKey = Annotated[Path | None, Option(help="File of the key of --tls-cert in PEM format.")]
TlsAuthority = Annotated[
    Path | None,
    Option(
        help="File of the authority of --tls-cert, which instances trust, so that the certificate "
        "can be renewed. Default: the certificate itself."
    ),
]
Insecure = Annotated[
    bool,
    Option("--insecure", help="Serve HTTP on a network, with tokens and secrets in the clear."),
]
NewKey = Annotated[
    bool,
    Option(
        "--new-key",
        help="Accept that the signing key of the store's controllers is lost. Instances that are "
        "starting can't join.",
    ),
]
OidcIssuer = Annotated[
    str | None,
    Option(
        help="URL of the OpenID Connect provider that people log in through, with castor login; "
        "see docs/security.md."
    ),
]
OidcClient = Annotated[
    str | None, Option(help="Id of this controller at the provider of --oidc-issuer.")
]
OidcSecret = Annotated[
    Path | None,
    Option(help="File of the secret of --oidc-client-id. Default: a client without a secret."),
]
OidcClaim = Annotated[
    str,
    Option(
        help="Claim of the provider that names a person here. An email counts only if verified."
    ),
]
OidcDomains = Annotated[
    str,
    Option(help="Domains of verified e-mails whose people are added with --oidc-role, as a,b."),
]
OidcRole = Annotated[
    Role | None,
    Option(
        help="Role of people of --oidc-domains at their first login: viewer or submitter. "
        "Default: only people whom an admin added may log in."
    ),
]
OidcHours = Annotated[
    float,
    Option(
        min=LEAST_LOGIN_HOURS,
        max=MOST_LOGIN_HOURS,
        help="Validity of the tokens of castor login, in hours.",
    ),
]
MetricsJobs = Annotated[
    int,
    Option(
        min=0,
        max=100_000,
        help="Most jobs with series of their own in /metrics, the oldest first; 0: none. "
        "See docs/monitoring.md.",
    ),
]
Notify = Annotated[
    Path | None,
    Option(
        help="File of the targets of notices: webhooks, Slack, e-mail; see docs/notifications.md."
    ),
]
TracesUrl = Annotated[
    str | None,
    Option(
        help="URL of a receiver of traces (OTLP over HTTP), such as http://localhost:4318. "
        "Default: OTEL_EXPORTER_OTLP_ENDPOINT, or none."
    ),
]
OptunaDashboard = Annotated[
    str | None,
    Option(
        metavar="URL",
        help="URL of an optuna-dashboard on the studies' storage, which their pages link to.",
    ),
]
HowLogged = Annotated[
    LogFormat,
    Option(
        help="Form of the log's lines: text, or json with one object a line.",
        **words_of(LogFormat),
    ),
]
Parent = Annotated[int | None, Option(hidden=True, min=1)]


def serve(
    state: State = None,
    store: Store = None,
    host: Host = "127.0.0.1",
    port: Port = 8470,
    policy: Policy = "marginal",
    fleet_usd_per_hour: FleetPrice = None,
    fleet_usd: FleetTotal = None,
    job_usd: JobTotal = None,
    study_usd: StudyTotal = None,
    fleet: Fleet = None,
    pools: Pools = None,
    devices: Devices = None,
    boot_seconds: BootSeconds = 1.0,
    reclaims_per_hour: ReclaimsPerHour = 0.0,
    checkpoint_seconds: CheckpointSeconds = 300.0,
    lease: Lease = "30m",
    keep: Keep = "30d",
    job_logs: JobLogs = "10GiB",
    owner_bundles: OwnerBundles = "20GiB",
    study_files: StudyFiles = "20GiB",
    observe: Observe = False,
    engine: HowTrained = None,
    secrets: Secrets = None,
    secret_variables: SecretVariables = None,
    follow: Follow = False,
    public_url: PublicUrl = None,
    tls_cert: TlsCertificate = None,
    tls_key: TlsKey = None,
    tls_ca: TlsAuthority = None,
    insecure: Insecure = False,
    new_key: NewKey = False,
    oidc_issuer: OidcIssuer = None,
    oidc_client_id: OidcClient = None,
    oidc_client_secret_file: OidcSecret = None,
    oidc_claim: OidcClaim = "email",
    oidc_domains: OidcDomains = "",
    oidc_role: OidcRole = None,
    oidc_hours: OidcHours = 12.0,
    metrics_jobs: MetricsJobs = 1_000,
    notify: Notify = None,
    traces: TracesUrl = None,
    optuna_dashboard: OptunaDashboard = None,
    log_format: HowLogged = LogFormat.TEXT,
    parent: Parent = None,
) -> None:
    """Run the controller, for local cores or cloud pools.

    Jobs keep training while the controller is stopped, until their lease ends. Ctrl-C or SIGTERM
    ends it; its log says what goes on, and the exit status is 130 or 143.
    """
    from autoscaler.cli.logging_setup import log_to_stderr
    from autoscaler.cli.serve.encryption import Encryption
    from autoscaler.cli.serve.identity_provider import IdentityProvider
    from autoscaler.cli.serve.settings import (
        dashboard_url,
        serve_settings,
        targets_in,
        warn_without_torch,
    )
    from autoscaler.main import serve as run
    from autoscaler.wire.connection import state_directory

    log_to_stderr("%(asctime)s %(levelname)s %(name)s: %(message)s", log_format)
    settings = serve_settings(
        state or state_directory(),
        devices=devices,
        boot_seconds=boot_seconds,
        reclaims_per_hour=reclaims_per_hour,
        fleet_usd_per_hour=fleet_usd_per_hour,
        fleet_usd=fleet_usd,
        job_usd=job_usd,
        study_usd=study_usd,
        checkpoint_seconds=checkpoint_seconds,
        lease=lease,
        keep=keep,
        job_logs=job_logs,
        owner_bundles=owner_bundles,
        study_files=study_files,
        observe=observe,
        fleet=fleet,
        pools=pools or (),
        secrets=secrets or (),
        secret_variables=secret_variables or "",
        store_url=store,
        host=host,
        port=port,
        policy=policy,
        engine=engine,
        parent=parent,
        follows=follow,
        public_url=public_url,
        encryption=Encryption(tls_cert, tls_key, tls_ca, insecure),
        replaces_key=new_key,
        metrics_jobs=metrics_jobs,
        traces=traces,
        identity_provider=IdentityProvider(
            oidc_issuer,
            oidc_client_id,
            oidc_client_secret_file,
            oidc_claim,
            oidc_domains,
            oidc_role,
            oidc_hours,
        ),
        notify=targets_in(notify),
        optuna_dashboard=dashboard_url(optuna_dashboard),
    )
    warn_without_torch(settings)
    run(settings)
