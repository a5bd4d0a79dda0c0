"""Fake clients of boto3 over the true state of a cloud, below the real provider of EC2."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from types import SimpleNamespace
from typing import Any, Final

from botocore.exceptions import ClientError, ReadTimeoutError

from autoscaler.clock import Clock
from providers.aws.provider import AwsProvider
from providers.aws.reading import parse_settings
from providers.aws.settings import AwsSettings
from providers.identity import IdentityVerifier
from tests.dst.cloud import LISTED_SECONDS, ON_DEMAND, ZONES, CloudTruth, Machine
from tests.dst.identity import SignedIdentity
from tests.dst.line import Line

REGION: Final = "us-east-1"
NOTICE_SECONDS: Final = 120
_SUBNETS: Final = {zone: f"subnet-{number:08x}" for number, zone in enumerate(ZONES["aws"])}
_ZONE_OF: Final = {subnet: zone for zone, subnet in _SUBNETS.items()}
KINDS: Final = ("g4dn.xlarge", "g5.xlarge")


@lru_cache(maxsize=64)
def settings_of(max_instances: int, max_usd_per_hour: str) -> AwsSettings:
    """Return settings of one pool with these caps, as Terraform would write them."""
    document = {
        "schema": 1,
        "deployment": "dst",
        "regions": {
            REGION: {
                "subnets": _SUBNETS,
                "user_data": "s3://castor-dst/user-data",
                "queue_url": "https://sqs.us-east-1.amazonaws.com/1/castor",
            }
        },
        "pools": {
            "gpu": {
                "region": REGION,
                "launch_template": {"id": "lt-0123456789abcdef0", "version": "1"},
                "instance_types": list(KINDS),
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


class AwsErrors:
    """Errors of boto3."""

    def refused(self, action: str) -> Exception:
        """Return an internal error of EC2."""
        return _error("InternalError", action)

    def throttled(self, action: str) -> Exception:
        """Return a refusal for the rate of calls."""
        return _error("RequestLimitExceeded", action)

    def denied(self, action: str) -> Exception:
        """Return a refusal for lack of permission."""
        return _error("UnauthorizedOperation", action)

    def lost(self, action: str) -> Exception:
        """Return a timeout without a reply."""
        return ReadTimeoutError(endpoint_url=f"https://ec2/{action}")


class DstAwsProvider(AwsProvider):
    """Provider of EC2 whose instances prove their identity without cryptography."""

    @property
    def identity(self) -> IdentityVerifier:  # type: ignore[override]
        """Verifier of the fake's proofs."""
        return SignedIdentity()


class AwsSession:
    """Stand-in for boto3's session: one client for all services."""

    def __init__(self, truth: CloudTruth, line: Line) -> None:
        self._client = AwsClient(truth, line)

    def client(self, service: str, **_: Any) -> AwsClient:
        """Return the client."""
        return self._client


def open_aws(
    truth: CloudTruth, line: Line, settings: AwsSettings, controller: str, clock: Clock
) -> DstAwsProvider:
    """Return a provider of EC2 for one controller process."""
    session: Any = AwsSession(truth, line)
    return DstAwsProvider(settings, controller, clock, session)


class AwsClient:
    """EC2, S3, SQS, quotas and price list of one account in one region."""

    def __init__(self, truth: CloudTruth, line: Line) -> None:
        self._truth = truth
        self._line = line
        self.meta = SimpleNamespace(events=SimpleNamespace(register=lambda *_: None))

    def create_fleet(self, **parameters: Any) -> Mapping[str, Any]:
        """Launch one machine, or repeat the reply of this client token."""
        reply = self._line.call("launch", lambda: self._create_fleet(parameters))
        self._note_answer([name for part in reply["Instances"] for name in part["InstanceIds"]])
        return reply

    def describe_instances(self, **parameters: Any) -> Mapping[str, Any]:
        """List machines."""
        try:
            return self._line.call("list", lambda: self._describe_instances(parameters))
        finally:
            self._note_answer(parameters.get("InstanceIds", ()))

    def terminate_instances(self, InstanceIds: list[str]) -> Mapping[str, Any]:
        """End machines."""
        return self._line.call("end", lambda: self._terminate(InstanceIds))

    def describe_instance_type_offerings(self, **_: Any) -> Mapping[str, Any]:
        """List the zones of all types."""
        offerings = [
            {"InstanceType": kind, "Location": zone} for kind in KINDS for zone in ZONES["aws"]
        ]
        return self._line.call("market", lambda: {"InstanceTypeOfferings": offerings})

    def describe_spot_price_history(self, **_: Any) -> Mapping[str, Any]:
        """List the spot prices."""
        return self._line.call("market", self._spot_prices)

    def list_service_quotas(self, **_: Any) -> Mapping[str, Any]:
        """List the quotas on vCPUs."""
        names = ("Running On-Demand G and VT instances", "All G and VT Spot Instance Requests")
        quotas = [
            {"QuotaName": name, "QuotaCode": f"L-{number}", "Value": 400.0}
            for number, name in enumerate(names)
        ]
        return self._line.call("market", lambda: {"Quotas": quotas})

    def get_products(self, Filters: list[dict[str, str]], **_: Any) -> Mapping[str, Any]:
        """Return the price list's entry of one type."""
        kind = next(entry["Value"] for entry in Filters if entry["Field"] == "instanceType")
        price = {"unit": "Hrs", "pricePerUnit": {"USD": str(ON_DEMAND["aws", kind])}}
        term = {"priceDimensions": {"sku.term.rate": price}}
        product = json.dumps({"product": {}, "terms": {"OnDemand": {"sku.term": term}}})
        return self._line.call("market", lambda: {"PriceList": [product]})

    def put_object(self, Bucket: str, Key: str, Body: bytes) -> Mapping[str, Any]:
        """Store user data."""

        def put() -> Mapping[str, Any]:
            self._truth.objects[Key] = Body.decode()
            return {}

        return self._line.call("put", put)

    def receive_message(self, **_: Any) -> Mapping[str, Any]:
        """Return due messages, which stay until they are deleted."""

        def receive() -> Mapping[str, Any]:
            due = [
                {"MessageId": name, "ReceiptHandle": name, "Body": body}
                for seconds, name, body in self._truth.messages["aws"]
                if seconds <= self._truth.now_seconds
            ]
            return {"Messages": due[:10]}

        return self._line.call("notices", receive)

    def delete_message_batch(self, Entries: list[dict[str, str]], **_: Any) -> Mapping[str, Any]:
        """Delete messages."""

        def delete() -> Mapping[str, Any]:
            handles = {entry["ReceiptHandle"] for entry in Entries}
            messages = self._truth.messages["aws"]
            messages[:] = [message for message in messages if message[1] not in handles]
            return {}

        return self._line.call("notices", delete)

    def get_console_output(self, **_: Any) -> Mapping[str, Any]:
        """Return a console output."""
        return self._line.call("console", lambda: {"Output": "no driver"})

    def _note_answer(self, instance_ids: Iterable[str]) -> None:
        """Note when the controller learns of launched machines."""
        for name in instance_ids:
            self._truth.machines[name].answered_seconds = self._truth.now_seconds

    def _create_fleet(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        fleets = self._truth.memory.setdefault("fleets", {})
        client_token = parameters["ClientToken"]
        fingerprint = json.dumps(parameters, sort_keys=True)
        if client_token in fleets:
            before, reply, machine = fleets[client_token]
            if before != fingerprint:
                raise _error("IdempotentParameterMismatch", "CreateFleet")
            if machine is not None and not machine.is_billed:
                raise _error("IdempotentInstanceTerminated", "CreateFleet")
            return reply  # type: ignore[no-any-return]
        reply, machine = self._new_fleet(parameters)
        fleets[client_token] = fingerprint, reply, machine
        return reply

    def _new_fleet(
        self, parameters: Mapping[str, Any]
    ) -> tuple[Mapping[str, Any], Machine | None]:
        target = parameters["TargetCapacitySpecification"]["DefaultTargetCapacityType"]
        (specification,) = (
            entry
            for entry in parameters["TagSpecifications"]
            if entry["ResourceType"] == "instance"
        )
        tags = {tag["Key"]: tag["Value"] for tag in specification["Tags"]}
        overrides = parameters["LaunchTemplateConfigs"][0]["Overrides"]
        over_quota = self._truth.is_over_quota("aws")
        errors = []
        for override in overrides:
            zone, kind = _ZONE_OF[override["SubnetId"]], override["InstanceType"]
            instances = {"LaunchTemplateAndOverrides": {"Overrides": override}}
            if over_quota or not self._truth.has_capacity("aws", zone):
                code = "VcpuLimitExceeded" if over_quota else "InsufficientInstanceCapacity"
                errors.append({"ErrorCode": code, "ErrorMessage": "no room", **instances})
                continue
            key = f"user-data/{tags['castor:token']}"
            machine = self._truth.create(("aws", kind, zone), target, tags, key)
            return {"Instances": [{"InstanceIds": [machine.id], **instances}]}, machine
        return {"Instances": [], "Errors": errors}, None

    def _describe_instances(self, parameters: Mapping[str, Any]) -> Mapping[str, Any]:
        now_seconds = self._truth.now_seconds
        seen = [
            m
            for m in self._truth.machines.values()
            if m.cloud == "aws" and _is_listed(m, now_seconds)
        ]
        for wanted in parameters.get("Filters", ()):
            seen = [machine for machine in seen if _passes(machine, wanted, now_seconds)]
        named = parameters.get("InstanceIds")
        if named is not None:
            seen = [machine for machine in seen if machine.id in named]
            if len(seen) < len(named):
                raise _error("InvalidInstanceID.NotFound", "DescribeInstances")
        return {"Reservations": [{"Instances": [_described(m, now_seconds) for m in seen]}]}

    def _terminate(self, instance_ids: Iterable[str]) -> Mapping[str, Any]:
        now_seconds = self._truth.now_seconds
        machines = [self._truth.machines.get(name) for name in instance_ids]
        # The id of a new machine has yet to propagate. Lists may omit a machine for longer.
        oldest_seconds = now_seconds - self._truth.lag_seconds
        known = [
            m
            for m in machines
            if m and _is_kept(m, now_seconds) and m.launched_seconds <= oldest_seconds
        ]
        if len(known) < len(machines):
            raise _error("InvalidInstanceID.NotFound", "TerminateInstances")
        for machine in known:
            self._truth.end(machine, by="user")
        return {}

    def _spot_prices(self) -> Mapping[str, Any]:
        changed = datetime.fromtimestamp(self._truth.now_seconds - 60, UTC)
        records = [
            {
                "InstanceType": kind,
                "AvailabilityZone": zone,
                "SpotPrice": self._truth.spot_text.get((cloud, kind, zone), str(usd)),
                "Timestamp": changed,
            }
            for (cloud, kind, zone), usd in self._truth.spot.items()
            if cloud == "aws"
        ]
        return {"SpotPriceHistory": records}


def announce(truth: CloudTruth, machine: Machine, delay_seconds: int) -> None:
    """Put a warning of a machine's reclaim into the queue; it is received after a delay."""
    detail = {"instance-id": machine.id}
    _put(truth, "EC2 Spot Instance Interruption Warning", detail, delay_seconds)


def announce_end(truth: CloudTruth, machine: Machine) -> None:
    """Put the notification of a machine's end into the queue."""
    detail = {"instance-id": machine.id, "state": "terminated"}
    _put(truth, "EC2 Instance State-change Notification", detail, 0)


def _put(truth: CloudTruth, kind: str, detail: Mapping[str, str], delay_seconds: int) -> None:
    moment = datetime.fromtimestamp(truth.now_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = json.dumps({"detail-type": kind, "time": moment, "detail": detail})
    number = truth.memory["messages"] = truth.memory.get("messages", 0) + 1
    truth.messages["aws"].append((truth.now_seconds + delay_seconds, f"m{number}", body))


def _is_listed(machine: Machine, now_seconds: int) -> bool:
    """Return whether EC2 lists a machine: neither too new nor ended for too long."""
    return _is_kept(machine, now_seconds) and now_seconds >= machine.visible_seconds


def _is_kept(machine: Machine, now_seconds: int) -> bool:
    ended_seconds = machine.ended_seconds
    return ended_seconds is None or now_seconds - ended_seconds < LISTED_SECONDS


def _state(machine: Machine, now_seconds: int) -> str:
    if machine.gone_seconds is not None:
        return "terminated" if now_seconds >= machine.gone_seconds else "shutting-down"
    return "running" if now_seconds >= machine.running_seconds else "pending"


def _passes(machine: Machine, wanted: Mapping[str, Any], now_seconds: int) -> bool:
    name, values = wanted["Name"], wanted["Values"]
    if name == "instance-id":
        return machine.id in values
    if name == "instance-state-name":
        return _state(machine, now_seconds) in values
    assert name.startswith("tag:"), name
    return machine.tags.get(name.removeprefix("tag:")) in values


def _described(machine: Machine, now_seconds: int) -> Mapping[str, Any]:
    reason = ""
    if machine.ended_seconds is not None and machine.has_known_end:
        moment = datetime.fromtimestamp(machine.ended_seconds, UTC)
        reason = f"User initiated ({moment:%Y-%m-%d %H:%M:%S} GMT)"
    return {
        "InstanceId": machine.id,
        "State": {"Name": _state(machine, now_seconds)},
        "LaunchTime": datetime.fromtimestamp(machine.launched_seconds, UTC),
        "Placement": {"AvailabilityZone": machine.zone},
        "StateTransitionReason": reason,
        "Tags": [{"Key": key, "Value": value} for key, value in machine.tags.items()],
    }


def _error(code: str, action: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "simulated"}}, action)
