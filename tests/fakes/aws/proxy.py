"""Fault proxy in front of moto: EC2's behaviour that moto lacks, and injected faults.

The proxy is a layer of WSGI in the same process, so one thread serves both. Each access key is a
separate account, so tests do not share state.
"""

from __future__ import annotations

import io
import itertools
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import parse_qsl, urlencode

from autoscaler.clock import Clock
from tests.fakes.aws import ec2, fleets
from tests.fakes.aws.account import Account, KnownFleet, Parameters
from tests.fakes.aws.billing import cost_and_usage
from tests.fakes.aws.faults import Fault, When, error_body
from tests.fakes.aws.reservations import (
    BLOCK,
    FakeReservation,
    invalid_fleet,
    is_unsold_duration,
    target_of,
)

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Wsgi = Callable[[Environ, StartResponse], Iterable[bytes]]

CREDENTIAL = re.compile(r"Credential=([^/]+)/\d+/([^/]+)/([^/]+)/")
# Suffix of access keys for calls of the fake itself, which meet no fault and are not counted.
CLOUD_SUFFIX = "CLOUD"
# The numbers are unique in the process, because moto's servers share their accounts.
_ACCOUNT_NUMBERS = itertools.count(100_000_000_000)
_HTML = [("Content-Type", "text/xml")]


@dataclass(slots=True)
class Request:
    """Received call.

    `is_of_cloud` marks a call of the fake itself: it meets no fault, sees hidden instances and is
    not counted. A fault may match `parameters` or ``region``, the region of the call.
    """

    account: Account
    is_of_cloud: bool
    region: str
    service: str
    action: str
    parameters: dict[str, str]
    document: dict[str, Any]
    environ: Environ
    body: bytes


@dataclass(frozen=True, slots=True)
class Answer:
    """Reply to a call."""

    status: str
    headers: list[tuple[str, str]]
    body: bytes


# Calls that read the account's state, by action.
_ACCOUNT_READERS: dict[str, Callable[[Account, Request], bytes]] = {
    "DescribeCapacityBlockOfferings": lambda account, request: ec2.blocks(
        account, request.parameters
    ),
    "DescribeCapacityReservations": lambda account, request: ec2.reservations(account),
    "DescribeInstanceTypeOfferings": lambda account, request: ec2.offerings(
        account, request.parameters
    ),
    "DescribeSpotPriceHistory": lambda account, request: ec2.spot_history(
        account, request.parameters
    ),
    "GetCostAndUsage": lambda account, request: cost_and_usage(account.bill, request.document),
    "GetSpotPlacementScores": lambda account, request: ec2.spot_scores(
        account, request.parameters
    ),
    "GetProducts": lambda account, request: ec2.products(account, request.document),
    "ListServiceQuotas": lambda account, request: ec2.quotas(account, request.document),
    # Terraform's provider makes these two, which moto lacks. Every definition is valid here.
    "ListStateMachineVersions": lambda account, request: b'{"stateMachineVersions": []}',
    "ValidateStateMachineDefinition": lambda account, request: (
        b'{"result": "OK", "diagnostics": []}'
    ),
}


class FaultProxy:
    """WSGI application of all accounts; it forwards to `moto` what it does not answer itself."""

    def __init__(self, moto: Wsgi, clock: Clock) -> None:
        self._moto = moto
        self._clock = clock
        self._accounts: dict[str, Account] = {}
        self._objects_lock = threading.Lock()

    def account(self, key: str) -> Account:
        """Return the account of an access key."""
        account_key = key.removesuffix(CLOUD_SUFFIX)
        return self._accounts.get(account_key) or self.renew(account_key, self._clock)

    def renew(self, key: str, clock: Clock) -> Account:
        """Replace the account of an access key by a new, empty one."""
        account = Account(str(next(_ACCOUNT_NUMBERS)), clock)
        self._accounts[key] = account
        return account

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        request = self._request(environ)
        answer = self._served(request) if request.is_of_cloud else self._tried(request)
        if answer is None:
            environ["werkzeug.socket"].shutdown(socket.SHUT_RDWR)
            answer = Answer("200 OK", _HTML, b"")
        headers = answer.headers
        if (
            environ["REQUEST_METHOD"] != "HEAD"
        ):  # a HEAD reply keeps the length of the body it omits
            length = ("Content-Length", str(len(answer.body)))
            headers = [*((k, v) for k, v in headers if k.lower() != "content-length"), length]
        start_response(answer.status, headers)
        return [answer.body]

    def _tried(self, request: Request) -> Answer | None:
        """Count a call and return its answer; None breaks the connection."""
        account = request.account
        with account.lock:
            account.calls[request.action] += 1
            account.sent.append((request.action, dict(request.parameters)))
        matched = {**request.parameters, "region": request.region}
        fault = account.faults.next(request.action, matched)
        if fault is None:
            return self._served(request)
        time.sleep(fault.delay_seconds)
        return self._failed(request, fault)

    def _request(self, environ: Environ) -> Request:
        is_chunked = "chunked" in environ.get("HTTP_TRANSFER_ENCODING", "")
        length = -1 if is_chunked else int(environ.get("CONTENT_LENGTH") or 0)
        body = environ["wsgi.input"].read(length)
        credential = CREDENTIAL.search(environ.get("HTTP_AUTHORIZATION", ""))
        key, region, service = credential.groups() if credential else ("anonymous", "", "")
        target = environ.get("HTTP_X_AMZ_TARGET", "")
        parameters = dict(parse_qsl(body.decode(errors="replace"))) if b"Action=" in body else {}
        action = parameters.get("Action") or target.rpartition(".")[2]
        if service == "s3":
            action = _s3_action(environ)
        document = json.loads(body) if target and body else {}
        is_of_cloud = key.endswith(CLOUD_SUFFIX)
        return Request(
            account=self.account(key),
            is_of_cloud=is_of_cloud,
            region=region,
            service=service,
            action=action,
            parameters=parameters,
            document=document,
            environ=environ,
            body=body,
        )

    def _failed(self, request: Request, fault: Fault) -> Answer | None:
        match fault.when:
            case When.REFUSED:
                return self._error(request, fault.status, fault.code, "injected")
            case When.IN_REPLY:
                overrides = fleets.overrides_of(request.parameters, lambda subnet: "")
                refusals = [(override, (fault.code, "injected")) for override in overrides]
                body = ec2.fleet_without_instances(fleets.fleet_errors(refusals))
                return Answer("200 OK", _HTML, body)
            case When.LOST_BEFORE:
                return None
            case When.LOST_AFTER:
                self._served(request)
                return None
        answer = self._served(request)
        if fault.when is When.EMPTY:
            is_form = request.service == "ec2"
            body = ec2.empty(request.action) if is_form else b'{"Messages": [{}]}'
            return Answer(answer.status, answer.headers, body)
        return Answer(answer.status, answer.headers, answer.body[: len(answer.body) // 2] or b"<")

    def _error(self, request: Request, status: int, code: str, message: str) -> Answer:
        headers = [("Content-Type", "text/xml"), ("x-amzn-ErrorType", code)]
        return Answer(f"{status} Fault", headers, error_body(request.service, code, message))

    def _served(self, request: Request) -> Answer:
        account = request.account
        match request.action:
            case "AssumeRole":
                return self._assumed(request)
            case "CreateFleet":
                with account.lock:
                    return self._fleet(request)
            case "TerminateInstances":
                return self._terminated(request)
            case "DescribeInstances":
                return self._listed(request)
            case "DescribeCapacityBlockOfferings" if is_unsold_duration(request.parameters):
                text = "The duration is not one of those that are sold."
                return self._error(request, 400, "InvalidParameterValue", text)
            case "GetSpotPlacementScores" if text := ec2.invalid_scores(request.parameters):
                return self._error(request, 400, "InvalidParameterValue", text)
            case "PurchaseCapacityBlock":
                with account.lock:
                    return self._block_bought(request)
        if request.action in _ACCOUNT_READERS:
            return Answer("200 OK", _HTML, _ACCOUNT_READERS[request.action](account, request))
        return self._forward(request)

    def _assumed(self, request: Request) -> Answer:
        """Answer AssumeRole with a credential of the calling account."""
        answer = self._forward(request)
        key = re.search(rb"<AccessKeyId>(.+?)</AccessKeyId>", answer.body)
        if key is not None:
            self._accounts[key[1].decode()] = request.account
        return answer

    def _fleet(self, request: Request) -> Answer:
        """Launch a fleet, idempotent by its token and limited by the capacity."""
        account, parameters = request.account, request.parameters
        if kinds := ec2.untaggable_kinds(parameters):
            text = f"'{kinds[0]}' is not a valid taggable resource type for this operation."
            return self._error(request, 400, "InvalidParameterValue", text)
        if parameters.get("DryRun") == "true":
            text = "Request would have succeeded, but DryRun flag is set."
            return self._error(request, 412, "DryRunOperation", text)
        name, market = self._reservation_of(request)
        reservation = account.reservations.get(name)
        if name and reservation is None:
            text = f"The capacity reservation '{name}' does not exist"
            return self._error(request, 400, "InvalidCapacityReservationId.NotFound", text)
        if (refusal := invalid_fleet(reservation, market, parameters)) is not None:
            return self._error(request, 400, *refusal)
        token = parameters["ClientToken"]
        known = account.fleets.get(token)
        if known is not None:
            return self._known_fleet(request, known)
        return self._new_fleet(request, reservation)

    def _new_fleet(self, request: Request, reservation: FakeReservation | None) -> Answer:
        account, parameters = request.account, request.parameters
        token = parameters["ClientToken"]
        overrides = fleets.overrides_of(parameters, partial(self._zone_of, request))
        if (refusal := fleets.invalid_overrides(overrides)) is not None:
            return self._error(request, 400, *refusal)
        refusals = []
        for override in overrides:
            refusal = fleets.refusal_of(account, override)
            if reservation is not None:
                ended, now_seconds = account.ended_seconds, account.clock.now()
                refusal = reservation.refusal(override.kind, override.zone, ended, now_seconds)
            if refusal is not None:
                refusals.append((override, refusal))
        refused = [override for override, _ in refusals]
        if len(refused) == len(overrides):
            body = ec2.fleet_without_instances(fleets.fleet_errors(refusals))
            account.fleets[token] = KnownFleet(parameters, body, ())
            return Answer("200 OK", _HTML, body)
        in_stock = [override for override in overrides if override not in refused]
        override = fleets.choose_override(account, parameters, in_stock)
        form = {  # moto knows no capacity blocks
            key: "on-demand" if value == BLOCK else value
            for key, value in fleets.with_only_override(parameters, override).items()
        }
        answer = self._forward(request, form)
        if answer.status.startswith("200"):
            launched = ec2.instance_ids(answer.body)
            if reservation is not None:
                reservation.instances.update(launched)
            account.has_launched(launched)
            account.fleets[token] = KnownFleet(parameters, answer.body, launched)
            if override.place in account.capacity:
                account.capacity[override.place] -= len(launched)
        return answer

    def _known_fleet(self, request: Request, known: KnownFleet) -> Answer:
        if known.parameters != request.parameters:
            text = "the arguments differ from those of the earlier request with this token"
            return self._error(request, 400, "IdempotentParameterMismatch", text)
        has_ended = any(instance in request.account.ended_seconds for instance in known.instances)
        if has_ended and request.account.forgets_ended:
            text = "the instance of this token has ended"
            return self._error(request, 400, "IdempotentInstanceTerminated", text)
        return Answer("200 OK", _HTML, known.body)

    def _block_bought(self, request: Request) -> Answer:
        name = request.parameters["CapacityBlockOfferingId"]
        if name not in request.account.blocks:
            text = f"The Capacity Block offering ID {name} cannot be found for this account."
            return self._error(request, 400, "InvalidCapacityBlockOfferingIdNotFound", text)
        kind = request.parameters.get("TagSpecification.1.ResourceType", "capacity-reservation")
        if kind != "capacity-reservation":
            text = f"'{kind}' is not a valid taggable resource type for this operation."
            return self._error(request, 400, "InvalidParameterValue", text)
        body = ec2.buy_block(request.account, request.parameters)
        return Answer("200 OK", _HTML, body)

    def _reservation_of(self, request: Request) -> tuple[str, str]:
        """Return the reservation and the market type of a fleet's template; "" without one."""
        prefix = "LaunchTemplateConfigs.1.LaunchTemplateSpecification"
        form = {
            "Action": "DescribeLaunchTemplateVersions",
            "Version": "2016-11-15",
            "LaunchTemplateId": request.parameters.get(f"{prefix}.LaunchTemplateId", ""),
            "LaunchTemplateVersion.1": request.parameters.get(f"{prefix}.Version", ""),
        }
        return target_of(self._forward(request, form).body.decode())

    def _zone_of(self, request: Request, subnet: str) -> str:
        form = {"Action": "DescribeSubnets", "Version": "2016-11-15", "SubnetId.1": subnet}
        body = self._forward(request, form).body.decode()
        match = re.search(r"<availabilityZone>(.+?)</availabilityZone>", body)
        return match[1] if match else ""

    def _terminated(self, request: Request) -> Answer:
        account = request.account
        instance_ids = ec2.form_values(request.parameters, "InstanceId")
        hidden = [instance_id for instance_id in instance_ids if account.is_hidden(instance_id)]
        if hidden and not request.is_of_cloud:
            return self._error(request, 400, "InvalidInstanceID.NotFound", f"{hidden} unknown")
        answer = self._forward(request)
        if answer.status.startswith("200"):
            for instance_id in instance_ids:
                account.has_ended(instance_id)
        return answer

    def _listed(self, request: Request) -> Answer:
        account, parameters = request.account, request.parameters
        hidden = [
            instance_id
            for instance_id in ec2.form_values(parameters, "InstanceId")
            if account.is_hidden(instance_id)
        ]
        if hidden:
            return self._error(request, 400, "InvalidInstanceID.NotFound", f"{hidden} unknown")
        form = dict(parameters)
        if account.page is not None and "MaxResults" in form:
            form["MaxResults"] = str(account.page)
        answer = self._forward(request, form)
        if not answer.status.startswith("200"):
            return answer
        return Answer(answer.status, answer.headers, ec2.apply_account_state(account, answer.body))

    def _forward(self, request: Request, form: Parameters | None = None) -> Answer:
        body = request.body if form is None else urlencode(form).encode()
        environ = {
            **request.environ,
            "wsgi.input": io.BytesIO(body),
            "CONTENT_LENGTH": str(len(body)),
            "HTTP_TRANSFER_ENCODING": "",
            "HTTP_X_MOTO_ACCOUNT_ID": request.account.number,
        }
        started: list[tuple[str, list[tuple[str, str]]]] = []
        # moto closes an object's buffer when it is replaced, also while another call reads it.
        with self._objects_lock if request.service == "s3" else nullcontext():
            parts = self._moto(
                environ, lambda status, headers, *_: started.append((status, headers))
            )
            content = b"".join(parts)
        status, headers = started[0]
        return Answer(status, list(headers), content)


def _s3_action(environ: Environ) -> str:
    query = environ.get("QUERY_STRING", "")
    match environ["REQUEST_METHOD"]:
        case "GET" if "list-type" in query:
            return "ListObjectsV2"
        case "PUT" if "partNumber" in query:
            return "UploadPart"
        case "POST" if query.startswith("delete"):
            return "DeleteObjects"
        case method:
            actions = {"PUT": "PutObject", "GET": "GetObject", "HEAD": "HeadObject"}
            return actions.get(method, "")
