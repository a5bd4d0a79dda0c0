"""All parsers of text from outside: a valid sample of each, and the errors that it may raise."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from autoscaler.domain import roster
from autoscaler.domain.errors import (
    CheckpointError,
    NotAllowed,
    SpecError,
    StoreError,
    Unavailable,
)
from autoscaler.domain.text import printable, printable_lines
from autoscaler.failures.causes import diagnose
from autoscaler.failures.signature import signature
from autoscaler.market.price_table import parse_price_table
from autoscaler.node.channel.line import parse_message
from autoscaler.node.user_data import parse_user_data
from autoscaler.notifications.targets import load_targets
from autoscaler.service.pages.multipart import boundary_of
from autoscaler.simulator.profiles.curves import read_curves
from autoscaler.simulator.workloads.regimes import read_regimes
from autoscaler.simulator.workloads.traces import read_trace
from autoscaler.simulator.workloads.workload import read_workload
from autoscaler.spec.cluster_file import load_cluster, parse_cluster
from autoscaler.spec.fleet_file import load_fleet
from autoscaler.spec.gpus import parse_gpus
from autoscaler.spec.job_file import load_job
from autoscaler.spec.objective_text import parse_objective_text
from autoscaler.spec.offers_file import load_offers
from autoscaler.spec.quantities import (
    parse_duration,
    parse_moment,
    parse_money,
    parse_priority,
)
from autoscaler.spec.simulated_study_file import load_simulated_study
from autoscaler.spec.study_file import load_study
from autoscaler.training.state.batch_log import BatchDecision, batches_of
from autoscaler.training.state.checkpoint_files import digests_in, manifest_of
from autoscaler.training.state.claim import _owner_in
from autoscaler.wire.bodies import read_body
from autoscaler.wire.codec import decode_printable, encode
from autoscaler.wire.messages import Change, JoinRequest, LogPart, NodeReply, Submission, Wanted
from autoscaler.wire.node_reports import read_node_report
from providers.aws.identity import _read_proof
from providers.aws.notices import read_event as read_aws_event
from providers.aws.reading import parse_settings as parse_aws_settings
from providers.cloud.known_prices import _read_prices
from providers.cloud.replies import readable
from providers.gcp.notices import read_event as read_gcp_event
from providers.gcp.reading import parse_settings as parse_gcp_settings
from tests.domain.test_report_rules import REPORT
from tests.fuzz.writers import (
    BACKUP,
    BOUNDARY,
    FORM,
    MANIFEST_TEXT,
    SCRIPT,
    parse_backup,
    parse_manifest,
    parse_script,
    parse_upload,
)
from tests.notifications.examples import SECRET, private_file
from tests.providers.aws.test_settings import GOOD as AWS_POOLS
from tests.providers.gcp.test_settings import GOOD as GCP_POOLS
from tests.service.test_every_route import BODIES
from tests.simulator.workloads.test_regimes import ARRIVAL, JOB, ROW
from tests.wire.test_node_reports import WHOLE

NOW_SECONDS: Final = 1_800_000_000.0
EXAMPLES: Final = Path(__file__).parents[2] / "examples"
TRACEBACK: Final = """Traceback (most recent call last):
  File "/job/train.py", line 5, in <module>
    main()
  File "/job/train.py", line 3, in main
    raise ValueError("a\\nb")
ValueError: a
b
NVRM: Xid (PCI:0000:00:1e): 79, GPU has fallen off the bus.
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""


@dataclass(frozen=True)
class Parser:
    """Parser of a text, with a valid sample and the errors that mean a refusal."""

    name: str
    parse: Callable[[str], Any]
    sample: str
    refusals: tuple[type[Exception], ...] = ()


def of_file(load: Callable[[Path], Any], name: str) -> Callable[[str], Any]:
    """Return a parser of the content of a file."""

    def parse(text: str) -> Any:
        with tempfile.TemporaryDirectory() as directory:
            path = Path(directory) / name
            path.write_text(text, encoding="utf-8", errors="replace", newline="")
            return load(path)

    return parse


def parse_targets(path: Path) -> None:
    """Read a file of targets, with the secrets that the sample names beside it."""
    for name, text in ("key", SECRET), ("url", "https://hooks.example.org/T/B/x"):
        private_file(path.parent, name, text)
    load_targets(path)


def of_bytes(parse: Callable[[bytes], Any]) -> Callable[[str], Any]:
    """Return a parser of a text's bytes."""
    return lambda text: parse(text.encode(errors="replace"))


def of_message(read: Callable[[Any], Any]) -> Callable[[str], Any]:
    """Return a parser of a cloud's message, as the readers of queues call it."""

    def parse(text: str) -> Any:
        with readable("a message"):
            return read(json.loads(text))

    return parse


def example(*names: str) -> str:
    """Return the text of a file of examples/."""
    return EXAMPLES.joinpath(*names).read_text()


FILES: Final = (
    Parser(
        "job file",
        of_file(lambda path: load_job(path, NOW_SECONDS), "job.yaml"),
        example("fsdp2", "job.yaml"),
        (SpecError,),
    ),
    Parser(
        "restartable job file",
        of_file(lambda path: load_job(path, NOW_SECONDS), "job.yaml"),
        example("restartable", "job.yaml"),
        (SpecError,),
    ),
    Parser(
        "study file",
        of_file(lambda path: load_study(path, NOW_SECONDS), "study.yaml"),
        example("digits", "study.yaml"),
        (SpecError,),
    ),
    Parser(
        "simulated study",
        of_file(load_simulated_study, "study.yaml"),
        example("simulation", "study", "asha.yaml"),
        (SpecError,),
    ),
    Parser(
        "offers",
        of_file(lambda path: load_offers(path, NOW_SECONDS), "offers.yaml"),
        example("simulation", "study", "offers.yaml"),
        (SpecError,),
    ),
    Parser(
        "fleet file",
        of_file(load_fleet, "fleet.yaml"),
        "shares: {ada: 2, bob: 0.5}\n"
        'discounts:\n  - {provider: aws, type: "g5*", factor: 0.8, reason: agreed}\n',
        (SpecError,),
    ),
    Parser(
        "cluster file",
        of_file(load_cluster, "cluster.yaml"),
        "nodes:\n  - {kind: aws, count: 6, devices: 4}\nslowdown: {cifar10: 1.8}\n",
        (SpecError,),
    ),
    Parser(
        "price list",
        lambda text: parse_price_table(text, "prices.csv", NOW_SECONDS),
        "instance_type,gpu,gpu_count,ondemand_usd_hr,spot_usd_hr,region,az_id\n"
        "g5.xlarge,A10G,1,1.006,0.4,us-east-1,use1-az1\n",
        (SpecError,),
    ),
    Parser(
        "pools on EC2",
        lambda text: parse_aws_settings(text, "pools.json"),
        json.dumps(AWS_POOLS),
        (SpecError,),
    ),
    Parser(
        "pools on Compute Engine",
        lambda text: parse_gcp_settings(text, "pools.json"),
        json.dumps(GCP_POOLS),
        (SpecError,),
    ),
    Parser("known prices", of_file(_read_prices, "prices.json"), '{"gpu/g5.xlarge": "1.006"}'),
    Parser(
        "targets of notices",
        of_file(parse_targets, "notify.yaml"),
        "targets:\n"
        '  - {kind: webhook, url: "https://hooks.example.org/castor", secret_file: key}\n'
        "  - {kind: slack, name: room, url_file: url, teams: [nlp], events: job.failed}\n"
        "  - {kind: email, to: ops@example.org, from: castor@example.org, server: example.org}\n",
        (SpecError,),
    ),
)
WORKLOADS: Final = (
    Parser(
        "workload",
        of_file(read_workload, "jobs.csv"),
        example("simulation", "jobs.csv"),
        (SpecError,),
    ),
    Parser("trace", of_file(read_trace, "jobs.trace"), f"{ROW}\n", (SpecError,)),
    Parser(
        "regimes of a trace",
        of_file(lambda path: read_regimes(path.parent, path, [ARRIVAL]), "jobs.json"),
        json.dumps([JOB]),
        (SpecError,),
    ),
    Parser(
        "curves of trials",
        of_file(read_curves, "curves.csv"),
        "trial,epoch,value,seconds,rate\na,1,0.5,60,0.1\na,2,0.6,60,0.1\nb,1,0.4,50,0.2\n",
        (SpecError,),
    ),
)
WRITERS: Final = (
    Parser(
        "content type of a form",
        boundary_of,
        f"multipart/form-data; boundary={BOUNDARY}",
        (SpecError,),
    ),
    Parser("form with files", parse_upload, FORM, (SpecError,)),
    Parser("script for a job file", parse_script, SCRIPT, (SpecError,)),
    Parser("manifest of a backup", parse_manifest, MANIFEST_TEXT, (StoreError,)),
    Parser("backup", parse_backup, BACKUP, (StoreError,)),
)
WORDS: Final = (
    Parser("cluster", parse_cluster, "16x4", (SpecError, ValueError)),
    Parser(
        "objective",
        lambda text: parse_objective_text(text, NOW_SECONDS),
        "deadline=6h,budget=$50",
        (SpecError, ValueError),
    ),
    Parser("duration", parse_duration, "1h30m", (ValueError,)),
    Parser("money", parse_money, "$500.25", (ValueError,)),
    Parser("priority", parse_priority, "high", (ValueError,)),
    Parser(
        "moment", lambda text: parse_moment(text, NOW_SECONDS), "2027-01-15T18:00Z", (ValueError,)
    ),
    Parser("GPUs", lambda text: parse_gpus([text]), "H100:8", (SpecError, ValueError)),
)
BODIES_BY_KIND: Final[Mapping[type, Any]] = {
    Submission: BODIES["POST /v1/jobs"],
    Change: BODIES["PATCH /v1/jobs/{name}"],
    JoinRequest: BODIES["POST /v1/node/join"],
}
REQUESTS: Final = (
    *(
        Parser(
            f"body {kind.__name__}",
            of_bytes(partial(read_body, kind)),
            json.dumps(body),
            (SpecError,),
        )
        for kind, body in BODIES_BY_KIND.items()
    ),
    Parser(
        "heartbeat", of_bytes(read_node_report), encode(type(WHOLE), WHOLE).decode(), (SpecError,)
    ),
    Parser(
        "reply to a heartbeat",
        of_bytes(partial(decode_printable, NodeReply)),
        encode(NodeReply, NodeReply(Wanted.RUN, 1, 1.0, 1, 30.0)).decode(),
        (SpecError,),
    ),
    Parser(
        "part of a log",
        of_bytes(partial(decode_printable, tuple[LogPart, ...])),
        '[{"instance": "job-0-1", "next_offset": 7, "text": "a line"}]',
        (SpecError,),
    ),
)
INSTANCES: Final = (
    Parser(
        "message of a script",
        of_bytes(parse_message),
        json.dumps({"kind": "report", "report": asdict(REPORT)}),
    ),
    Parser(
        "user data",
        parse_user_data,
        '{"controller": "http://10.0.0.1:8470", "join_token": "a.b.c", "instance": "job-0-1"}',
        (SpecError,),
    ),
    Parser(
        "call of a roster's member",
        of_bytes(roster.call_from),
        '{"name": "a", "store": "10.0.0.1:1", "ask": {"world": "w", "has_failed": false}}',
        (ValueError, KeyError, TypeError),
    ),
    Parser(
        "answer of a roster",
        of_bytes(roster.answer_from),
        '{"world": "w", "members": ["a"], "store": "10.0.0.1:1"}',
        (ValueError, KeyError, TypeError),
    ),
    Parser(
        "failure",
        lambda text: (diagnose(1, text.splitlines()), signature(1, text.splitlines())),
        TRACEBACK,
    ),
    Parser("line of a log", lambda text: (printable(text), printable_lines(text)), TRACEBACK),
)
CHECKPOINTS: Final = (
    Parser(
        "manifest",
        of_bytes(lambda content: digests_in(content, "step-1")),
        manifest_of(1, {"rest.pt": "0" * 64}).decode(),
        (CheckpointError, ValueError),
    ),
    Parser("owner of checkpoints", of_bytes(_owner_in), '{"job": "job@1"}', (ValueError,)),
    Parser(
        "batch log",
        of_file(lambda path: batches_of(path, 8), "batch_log.jsonl"),
        json.dumps(asdict(BatchDecision(0, 8, 8, 1, 1, 0.1, 0.0, 0.0, "start"))),
        (ValueError,),
    ),
)
CLOUDS: Final = (
    Parser(
        "event of EC2",
        of_message(lambda body: read_aws_event(body, 120.0)),
        json.dumps(
            {
                "detail-type": "EC2 Spot Instance Interruption Warning",
                "time": "2027-01-15T18:00:00Z",
                "detail": {"instance-id": "i-1", "instance-action": "terminate"},
            }
        ),
        (Unavailable, RecursionError),
    ),
    Parser(
        "health event of EC2",
        of_message(lambda body: read_aws_event(body, 120.0)),
        json.dumps(
            {
                "detail-type": "AWS Health Event",
                "time": "2027-01-15T18:00:00Z",
                "detail": {
                    "eventTypeCategory": "scheduledChange",
                    "startTime": "Fri, 15 Jan 2027 19:00:00 GMT",
                    "affectedEntities": [{"entityValue": "i-1"}],
                },
            }
        ),
        (Unavailable, RecursionError),
    ),
    Parser(
        "event of Compute Engine",
        of_message(read_gcp_event),
        json.dumps(
            {
                "protoPayload": {
                    "resourceName": "projects/p/zones/us-central1-a/instances/a",
                    "methodName": "compute.instances.preempted",
                },
                "timestamp": "2027-01-15T18:00:00Z",
            }
        ),
        (Unavailable, RecursionError),
    ),
    Parser(
        "identity document of EC2",
        _read_proof,
        base64.b64encode(bytes(range(256))).decode(),
        (NotAllowed,),
    ),
)
PARSERS: Final = (
    *FILES,
    *WORKLOADS,
    *WRITERS,
    *WORDS,
    *REQUESTS,
    *INSTANCES,
    *CHECKPOINTS,
    *CLOUDS,
)
