"""Fake clients of Google Cloud over the true state of a cloud, below the real provider of GCE."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import urlsplit

import requests
from google.api_core import exceptions
from google.cloud import compute_v1

from autoscaler.clock import Clock
from providers.gcp import listing
from providers.gcp.provider import GcpProvider
from providers.gcp.reading import parse_settings
from providers.gcp.records import Records
from providers.gcp.settings import GcpSettings
from providers.identity import IdentityVerifier
from tests.dst.cloud import ON_DEMAND, ZONES, CloudTruth, Machine
from tests.dst.identity import SignedIdentity
from tests.dst.line import Line

PROJECT: Final = "castor-dst"
REGION: Final = "us-central1"
NOTICE_SECONDS: Final = 30
KINDS: Final = {"g2-standard-4": 4, "g2-standard-8": 8}
_GIB_USD: Final = 0.001
_MODELS: Final = {"spot": "SPOT", "on-demand": "STANDARD"}
_DONE: Final = compute_v1.Operation.Status.DONE
_RUNNING: Final = compute_v1.Operation.Status.RUNNING


@lru_cache(maxsize=64)
def settings_of(max_instances: int, max_usd_per_hour: str) -> GcpSettings:
    """Return settings of one pool with these caps, as Terraform would write them."""
    link = f"projects/{PROJECT}/global/instanceTemplates"
    document = {
        "schema": 1,
        "cloud": "gcp",
        "deployment": "dst",
        "project": PROJECT,
        "regions": {
            REGION: {
                "zones": list(ZONES["gcp"]),
                "user_data": "gs://castor-dst/user-data",
                "subscription": f"projects/{PROJECT}/subscriptions/events",
            }
        },
        "pools": {
            "gpu": {
                "region": REGION,
                "templates": {purchase: f"{link}/castor-{purchase}" for purchase in _MODELS},
                "machine_types": list(KINDS),
                "purchases": ["on-demand", "spot"],
                "max_instances": max_instances,
                "max_usd_per_hour": max_usd_per_hour,
                "boot": "60s",
                "boot_minutes": 5,
            }
        },
        "max_usd_per_hour": max_usd_per_hour,
    }
    return parse_settings(json.dumps(document), "pools.json")


class GcpErrors:
    """Errors of Google's clients."""

    def refused(self, action: str) -> Exception:
        """Return an internal error of Compute Engine."""
        return exceptions.ServiceUnavailable(action)

    def throttled(self, action: str) -> Exception:
        """Return a refusal for the rate of calls."""
        return exceptions.Forbidden(action, errors=[{"reason": "rateLimitExceeded"}])

    def denied(self, action: str) -> Exception:
        """Return a refusal for lack of permission."""
        return exceptions.Forbidden(action, errors=[{"reason": "forbidden"}])

    def lost(self, action: str) -> Exception:
        """Return a timeout without a reply."""
        return requests.ReadTimeout(action)


class DstGcpProvider(GcpProvider):
    """Provider of Compute Engine whose instances prove their identity without cryptography."""

    @property
    def identity(self) -> IdentityVerifier:  # type: ignore[override]
        """Verifier of the fake's proofs."""
        return SignedIdentity()


def open_gcp(
    truth: CloudTruth,
    line: Line,
    settings: GcpSettings,
    controller: str,
    clock: Clock,
    directory: Path,
) -> DstGcpProvider:
    """Return a provider of Compute Engine for one controller process."""
    listing.map_concurrently = lambda ask, places: [ask(place) for place in places]
    session: Any = GcpSession(truth, line)
    records = Records(directory / "gcp.db", controller)
    return DstGcpProvider(settings, controller, clock, session, records)


class GcpSession:
    """Stand-in for the provider's session: clients by class, and HTTP for all other services."""

    endpoint_url = None

    def __init__(self, truth: CloudTruth, line: Line) -> None:
        self._truth = truth
        self._line = line
        self._clients: dict[str, Any] = {
            "InstancesClient": InstancesClient(truth, line),
            "ZoneOperationsClient": OperationsClient(truth, line),
            "MachineTypesClient": SimpleNamespace(list=self._machine_types),
            "RegionsClient": SimpleNamespace(get=self._region),
            "InstanceTemplatesClient": SimpleNamespace(get=self._template),
        }
        self.http = SimpleNamespace(request=self._request)

    def client(self, kind: type) -> Any:
        """Return the client of a class."""
        return self._clients[kind.__name__]

    def base(self, service: str) -> str:
        """Return the base URL of a service."""
        return f"https://{service}.googleapis.com"

    def quota_headers(self, project: str) -> dict[str, str]:
        """Return no headers."""
        return {}

    def _machine_types(self, request: Any, **_: Any) -> Any:
        items = [
            SimpleNamespace(
                name=kind,
                guest_cpus=cores,
                memory_mb=cores * 4096,
                accelerators=[
                    SimpleNamespace(guest_accelerator_type="nvidia-l4", guest_accelerator_count=1)
                ],
            )
            for kind, cores in KINDS.items()
        ]
        return self._line.call("market", lambda: _pages(items=items))

    def _region(self, request: Any, **_: Any) -> Any:
        quotas = [
            SimpleNamespace(metric="NVIDIA_L4_GPUS", limit=100.0),
            SimpleNamespace(metric="PREEMPTIBLE_NVIDIA_L4_GPUS", limit=100.0),
        ]
        region = SimpleNamespace(name=REGION, quotas=quotas)
        return self._line.call("market", lambda: region)

    def _template(self, request: Any, **_: Any) -> Any:
        purchase = request.instance_template.removeprefix("castor-")
        scheduling = SimpleNamespace(
            provisioning_model=_MODELS[purchase],
            preemptible=False,
            instance_termination_action="DELETE",
            max_run_duration=SimpleNamespace(seconds=604800),
        )
        properties = SimpleNamespace(disks=[], scheduling=scheduling, reservation_affinity=None)
        template = SimpleNamespace(name=request.instance_template, properties=properties)
        return self._line.call("market", lambda: template)

    def _request(self, verb: str, url: str, **options: Any) -> Any:
        path = urlsplit(url).path
        if "/upload/" in path:
            return self._line.call("put", lambda: self._put(options))
        if path.endswith(":pull"):
            return self._line.call("notices", self._pull)
        if path.endswith(":acknowledge"):
            return self._line.call("notices", lambda: self._acknowledge(options["json"]["ackIds"]))
        assert path.endswith("/skus"), url
        return self._line.call("market", self._skus)

    def _put(self, options: Mapping[str, Any]) -> Any:
        self._truth.objects[options["params"]["name"]] = options["data"].decode()
        return _answer({})

    def _pull(self) -> Any:
        """Return due messages; they are delivered again until they are acknowledged."""
        held = self._truth.memory.setdefault("pulled", {})
        now_seconds = self._truth.now_seconds
        due = [
            {"ackId": name, "message": {"data": base64.b64encode(text.encode()).decode()}}
            for seconds, name, text in self._truth.messages["gcp"]
            if seconds <= now_seconds and held.get(name, 0) <= now_seconds
        ]
        held |= {message["ackId"]: now_seconds + 20 for message in due}
        return _answer({"receivedMessages": due} if due else {})

    def _acknowledge(self, ack_ids: list[str]) -> Any:
        messages = self._truth.messages["gcp"]
        messages[:] = [message for message in messages if message[1] not in ack_ids]
        return _answer({})

    def _skus(self) -> Any:
        """Return SKUs whose sums are the prices: the accelerator costs what the rest leaves."""
        skus = []
        for usage, phrase in (("OnDemand", ""), ("Preemptible", "Spot Preemptible ")):
            purchase = "spot" if phrase else "on-demand"
            small, large = (
                self._quoted("g2-standard-4", purchase),
                self._quoted("g2-standard-8", purchase),
            )
            core = (large - small) / 4 - 4 * _GIB_USD
            accelerator = small - 4 * core - 16 * _GIB_USD
            for name, usd in (
                ("G2 Instance Core", core),
                ("G2 Instance Ram", _GIB_USD),
                ("Nvidia L4 GPU", accelerator),
            ):
                skus.append(_sku(f"{phrase}{name} running in Iowa", usage, usd, name))
        return _answer({"skus": skus})

    def _quoted(self, kind: str, purchase: str) -> float:
        zone = ZONES["gcp"][0]
        if purchase == "on-demand":
            return float(ON_DEMAND["gcp", kind])
        place = "gcp", kind, zone
        text = self._truth.spot_text.get(place, str(self._truth.spot[place]))
        return 0.0 if text == "NaN" else float(text)


class InstancesClient:
    """Instances of one project."""

    def __init__(self, truth: CloudTruth, line: Line) -> None:
        self._truth = truth
        self._line = line

    def insert_unary(self, request: Any, **_: Any) -> Any:
        """Start the creation of a machine, or repeat the operation of this request id."""
        return self._line.call("launch", lambda: self._insert(request))

    def delete_unary(self, request: Any, **_: Any) -> Any:
        """End a machine."""
        return self._line.call("end", lambda: self._delete(request))

    def get(self, request: Any, **_: Any) -> Any:
        """Return one machine by its name."""
        return self._line.call("get", lambda: self._get(request.zone, request.instance))

    def get_serial_port_output(self, request: Any, **_: Any) -> Any:
        """Return a console output."""
        return self._line.call("console", lambda: SimpleNamespace(contents="no driver"))

    def aggregated_list(self, request: Any, **_: Any) -> Any:
        """List the machines of all zones."""
        return self._line.call("list", self._list_all)

    def list(self, request: Any, **_: Any) -> Any:
        """List the machines of one zone."""
        return self._line.call("list", lambda: _pages(items=self._listed(request.zone)))

    def _insert(self, request: Any) -> Any:
        operations = self._truth.memory.setdefault("inserts", {})
        if request.request_id in operations:
            return operations[request.request_id]
        resource, zone = request.instance_resource, request.zone
        name = resource.name
        machine = self._truth.machines.get(f"{zone}/{name}")
        if machine is not None and not _is_gone(machine, self._truth.now_seconds):
            raise exceptions.Conflict(name, errors=[{"reason": "alreadyExists"}])
        operation = _operation(self._truth, "insert", zone, name)
        operations[request.request_id] = operation
        if self._truth.is_over_quota("gcp"):
            _fail(operation, "QUOTA_EXCEEDED")
        elif not self._truth.has_capacity("gcp", zone):
            _fail(operation, "ZONE_RESOURCE_POOL_EXHAUSTED")
        else:
            tags = json.loads(resource.description)
            kind = resource.machine_type.rpartition("/")[2]
            purchase = request.source_instance_template.rpartition("castor-")[2]
            place = "gcp", kind, zone
            created = self._truth.create(place, purchase, tags, f"user-data/{name}", name)
            created.labels = dict(resource.labels)
        return operation

    def _delete(self, request: Any) -> Any:
        now_seconds = self._truth.now_seconds
        machine = self._truth.machines.get(f"{request.zone}/{request.instance}")
        if machine is None or _is_gone(machine, now_seconds):
            raise exceptions.NotFound(request.instance, errors=[{"reason": "notFound"}])
        if machine.is_billed or machine.is_resting:
            if machine.is_resting:
                self._truth.delete(machine)
            self._truth.end(machine, by="user")
            _operation(self._truth, "delete", request.zone, request.instance)
        return _operation(self._truth, "get", request.zone, request.instance)

    def _get(self, zone: str, name: str) -> Any:
        now_seconds = self._truth.now_seconds
        machine = self._truth.machines.get(f"{zone}/{name}")
        if machine is None or _is_gone(machine, now_seconds):
            raise exceptions.NotFound(name, errors=[{"reason": "notFound"}])
        return _described(machine, now_seconds)

    def _list_all(self) -> Any:
        scopes = {
            f"zones/{zone}": SimpleNamespace(
                instances=self._listed(zone), warning=SimpleNamespace(code="", message="")
            )
            for zone in ZONES["gcp"]
        }
        return _pages(items=scopes)

    def _listed(self, zone: str) -> Any:
        now_seconds = self._truth.now_seconds
        return [
            _described(machine, now_seconds)
            for machine in self._truth.machines.values()
            if machine.zone == zone
            and now_seconds >= machine.visible_seconds
            and not _is_gone(machine, now_seconds)
        ]


class OperationsClient:
    """Operations of one project."""

    def __init__(self, truth: CloudTruth, line: Line) -> None:
        self._truth = truth
        self._line = line

    def get(self, request: Any, **_: Any) -> Any:
        """Return an operation."""
        return self._line.call("get", lambda: self._get(request.operation))

    def list(self, request: Any, filter: str = "", **_: Any) -> Any:
        """List the operations of one instance."""
        (name,) = re.findall(r"instances/([a-z0-9-]+)", request.filter)

        def listed() -> Any:
            operations = self._truth.memory.get("operations", [])
            return _pages(items=[item for item in operations if item.target == name])

        return self._line.call("get", listed)

    def _get(self, name: str) -> Any:
        for operation in self._truth.memory.get("operations", []):
            if operation.name == name:
                return operation
        raise exceptions.NotFound(name, errors=[{"reason": "notFound"}])


def preempt(truth: CloudTruth, machine: Machine, delay_seconds: int) -> None:
    """Preempt a machine: it ends after the notice, which is received after a delay."""
    machine.reclaim_seconds = truth.now_seconds + NOTICE_SECONDS
    machine.has_known_end = False
    operation = _operation(truth, "compute.instances.preempted", machine.zone, machine.name)
    operation.end_time = ""
    entry = {
        "timestamp": _moment(truth.now_seconds),
        "protoPayload": {
            "methodName": "compute.instances.preempted",
            "resourceName": f"projects/{PROJECT}/zones/{machine.zone}/instances/{machine.name}",
        },
    }
    number = truth.memory["messages"] = truth.memory.get("messages", 0) + 1
    message = truth.now_seconds + delay_seconds, f"ack{number}", json.dumps(entry)
    truth.messages["gcp"].append(message)


def stop(truth: CloudTruth, machine: Machine, kind: str) -> None:
    """Stop a machine without a call, by an operation of the cloud.

    Compute Engine does not delete such a machine: `instanceTerminationAction` concerns preemption
    and the end of `maxRunDuration` only. Without `automaticRestart` the machine stays TERMINATED.
    """
    if machine.is_billed:
        truth.rest(machine)
        _operation(truth, f"compute.instances.{kind}", machine.zone, machine.name)


def _operation(truth: CloudTruth, kind: str, zone: str, name: str) -> Any:
    moment = _moment(truth.now_seconds)
    operations = truth.memory.setdefault("operations", [])
    operation = SimpleNamespace(
        name=f"operation-{len(operations)}",
        operation_type=kind,
        zone=zone,
        target=name,
        insert_time=moment,
        start_time=moment,
        end_time=moment,
        status=_DONE,
        error=SimpleNamespace(errors=[]),
    )
    operations.append(operation)
    return operation


def _fail(operation: Any, code: str) -> None:
    operation.error.errors.append(SimpleNamespace(code=code, message="no room", error_details=[]))


def _is_gone(machine: Machine, now_seconds: int) -> bool:
    return machine.gone_seconds is not None and now_seconds >= machine.gone_seconds


def _described(machine: Machine, now_seconds: int) -> Any:
    status = "RUNNING" if now_seconds >= machine.running_seconds else "STAGING"
    if machine.ended_seconds is not None:
        status = "TERMINATED" if machine.is_resting else "STOPPING"
    return SimpleNamespace(
        name=machine.name,
        description=json.dumps(machine.tags),
        labels=machine.labels,
        status=status,
        creation_timestamp=_moment(machine.launched_seconds),
        last_start_timestamp=_moment(machine.launched_seconds),
        scheduling=SimpleNamespace(provisioning_model=_MODELS[machine.purchase]),
        resource_status=SimpleNamespace(scheduling=SimpleNamespace(termination_timestamp="")),
    )


def _moment(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()


def _pages(**fields: Any) -> Any:
    page = SimpleNamespace(kind="compute#list", next_page_token="", **fields)
    return SimpleNamespace(pages=[page])


def _answer(value: Mapping[str, Any]) -> Any:
    content = json.dumps(value).encode()
    return SimpleNamespace(status_code=200, content=content, json=lambda: value)


def _sku(description: str, usage: str, usd: float, name: str) -> Mapping[str, Any]:
    unit = "GiBy.h" if name.endswith("Ram") else "h"
    price = {"units": "0", "nanos": max(round(usd * 1e9), 0)}
    return {
        "description": description,
        "category": {"usageType": usage},
        "serviceRegions": [REGION],
        "pricingInfo": [
            {"pricingExpression": {"usageUnit": unit, "tieredRates": [{"unitPrice": price}]}}
        ],
    }
