"""API calls of one project: their clients, their rate limits and their errors.

A call that changes something is sent once; the caller resolves a lost reply by the instance's
name. A call that only reads is retried for a while. Google's clients poll operations at the real
Compute Engine, whatever their endpoint. Operations therefore have a client of their own here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final
from urllib.parse import quote

import requests
from google.api_core.exceptions import InternalServerError, ServiceUnavailable, TooManyRequests
from google.api_core.retry import Retry, if_exception_type
from google.cloud import compute_v1

from autoscaler.clock import Clock
from autoscaler.domain.errors import Throttled, Unavailable
from providers.cloud.budget import CallRateLimiter, Rate
from providers.gcp.errors import CALL_ERRORS, Call, provider_error
from providers.gcp.rest import send
from providers.gcp.session import Session
from providers.gcp.settings import CallTimeouts

PAGE: Final = 500

# Compute Engine allows 1,500 calls a minute and project in most groups by default, which is 25 a
# second. Castor uses half; calls that change something come in bursts.
_READS: Final = Rate(200, 12)
_CHANGES: Final = Rate(100, 12)
_PRACTICALLY_UNLIMITED: Final = Rate(300, 100)
_RATES: Final = {
    "instances.insert": _CHANGES,
    "instances.delete": _CHANGES,
    "objects.insert": _PRACTICALLY_UNLIMITED,
    "subscriptions.acknowledge": _PRACTICALLY_UNLIMITED,
    "subscriptions.pull": _PRACTICALLY_UNLIMITED,
}
_COMPUTE_ENGINE: Final = "services/6F81-5844-456A"
_RETRIED_ERRORS: Final = (
    *(InternalServerError, ServiceUnavailable, TooManyRequests),
    *(requests.ConnectionError, requests.Timeout),
)


def call_budget(clock: Clock) -> CallRateLimiter:
    """Return the client-side rate limits of Google Cloud calls."""
    return CallRateLimiter(clock, _RATES, _READS)


class ProjectCalls:
    """Client of all Google Cloud calls that concern one project."""

    def __init__(
        self, project: str, patience: CallTimeouts, session: Session, budget: CallRateLimiter
    ) -> None:
        self.project = project
        self._patience = patience
        self._session = session
        self._budget = budget
        self._retry: Retry | None = None
        if patience.read_seconds > 0:
            self._retry = Retry(
                predicate=if_exception_type(*_RETRIED_ERRORS),
                initial=0.5,
                maximum=5.0,
                timeout=patience.read_seconds,
            )

    def insert(self, zone: str, pool: str, **request: Any) -> Any:
        """Launch an instance and return its operation.

        The call is sent once, and only if its bucket has a token now.
        """
        call = Call(zone, "instances.insert", pool)
        insert_request = compute_v1.InsertInstanceRequest(
            project=self.project, zone=zone, **request
        )
        insert = self._session.client(compute_v1.InstancesClient).insert_unary
        return _require_name(
            self._make(insert, call, insert_request, once=True, can_wait=False), call
        )

    def delete(self, zone: str, name: str) -> Any:
        """End an instance. Only `ending` calls this method."""
        call = Call(zone, "instances.delete")
        delete_request = compute_v1.DeleteInstanceRequest(
            project=self.project, zone=zone, instance=name
        )
        delete = self._session.client(compute_v1.InstancesClient).delete_unary
        return self._make(delete, call, delete_request, once=True)

    def instance(self, zone: str, name: str) -> Any:
        """Return one instance."""
        get_request = compute_v1.GetInstanceRequest(project=self.project, zone=zone, instance=name)
        get = self._session.client(compute_v1.InstancesClient).get
        call = Call(zone, "instances.get")
        return _require_name(self._make(get, call, get_request), call)

    def serial_output(self, zone: str, name: str) -> str:
        """Return the last MiB of an instance's first serial port."""
        request = compute_v1.GetSerialPortOutputInstanceRequest(
            project=self.project, zone=zone, instance=name, port=1
        )
        get = self._session.client(compute_v1.InstancesClient).get_serial_port_output
        reply = self._make(get, Call(zone, "instances.getSerialPortOutput"), request)
        return str(reply.contents)

    def instances(self, wanted: str) -> Iterator[Any]:
        """Yield all pages of instances of all zones. A page may name zones that do not answer."""
        listing = self._session.client(compute_v1.InstancesClient).aggregated_list
        call = Call(self.project, "instances.aggregatedList")
        kind = compute_v1.AggregatedListInstancesRequest
        return self._pages(listing, call, kind, filter=wanted)

    def instances_in(self, zone: str, wanted: str) -> Iterator[Any]:
        """Yield all pages of instances of one zone, without retries."""
        listing = self._session.client(compute_v1.InstancesClient).list
        call = Call(zone, "instances.list")
        kind = compute_v1.ListInstancesRequest
        return self._pages(listing, call, kind, once=True, zone=zone, filter=wanted)

    def operation(self, zone: str, name: str) -> Any:
        """Return an operation with its current status."""
        client = self._session.client(compute_v1.ZoneOperationsClient)
        get_request = compute_v1.GetZoneOperationRequest(
            project=self.project, zone=zone, operation=name
        )
        call = Call(zone, "zoneOperations.get")
        return _require_name(self._make(client.get, call, get_request), call)

    def operations(self, zone: str, wanted: str) -> Iterator[Any]:
        """Yield the pages of a zone's operations."""
        client = self._session.client(compute_v1.ZoneOperationsClient)
        call = Call(zone, "zoneOperations.list")
        kind = compute_v1.ListZoneOperationsRequest
        return self._pages(client.list, call, kind, zone=zone, filter=wanted)

    def machine_types(self, zone: str, wanted: str) -> Iterator[Any]:
        """Yield the pages of a zone's machine types."""
        client = self._session.client(compute_v1.MachineTypesClient)
        call = Call(zone, "machineTypes.list")
        kind = compute_v1.ListMachineTypesRequest
        return self._pages(client.list, call, kind, zone=zone, filter=wanted)

    def accelerator_types(self, zone: str) -> Iterator[Any]:
        """Yield the pages of a zone's accelerator types."""
        client = self._session.client(compute_v1.AcceleratorTypesClient)
        kind = compute_v1.ListAcceleratorTypesRequest
        return self._pages(client.list, Call(zone, "acceleratorTypes.list"), kind, zone=zone)

    def region(self, name: str) -> Any:
        """Return a region with this project's quotas."""
        client = self._session.client(compute_v1.RegionsClient)
        get_request = compute_v1.GetRegionRequest(project=self.project, region=name)
        call = Call(name, "regions.get")
        return _require_name(self._make(client.get, call, get_request), call)

    def reservation(self, zone: str, name: str, pool: str) -> Any:
        """Return a reservation of the project."""
        client = self._session.client(compute_v1.ReservationsClient)
        get_request = compute_v1.GetReservationRequest(
            project=self.project, zone=zone, reservation=name
        )
        call = Call(zone, "reservations.get", pool)
        return _require_name(self._make(client.get, call, get_request), call)

    def template(self, link: str, pool: str) -> Any:
        """Return the instance template that a link names."""
        _, owner, place, *_, name = link.split("/")
        if place == "global":
            call = Call(self.project, "instanceTemplates.get", pool)
            client = self._session.client(compute_v1.InstanceTemplatesClient)
            get_request = compute_v1.GetInstanceTemplateRequest(
                project=owner, instance_template=name
            )
            return _require_name(self._make(client.get, call, get_request), call)
        region = link.split("/")[3]
        call = Call(region, "regionInstanceTemplates.get", pool)
        client = self._session.client(compute_v1.RegionInstanceTemplatesClient)
        regional_request = compute_v1.GetRegionInstanceTemplateRequest(
            project=owner, region=region, instance_template=name
        )
        return _require_name(self._make(client.get, call, regional_request), call)

    def put(self, region: str, bucket: str, key: str, text: str) -> None:
        """Write an object to Cloud Storage."""
        url = f"{self._session.base('storage')}/upload/storage/v1/b/{bucket}/o"
        options = {
            "params": {"uploadType": "media", "name": key},
            "data": text.encode(),
            "headers": {"Content-Type": "text/plain; charset=utf-8"},
        }
        self._send(Call(region, "objects.insert"), "POST", url, **options)

    def pull(self, region: str, subscription: str, most: int) -> Mapping[str, Any]:
        """Return up to `most` Pub/Sub messages. Unacknowledged messages are delivered again."""
        url = f"{self._session.base('pubsub')}/v1/{subscription}:pull"
        body = {"maxMessages": most, "returnImmediately": True}
        return self._send(Call(region, "subscriptions.pull"), "POST", url, json=body)

    def acknowledge(self, region: str, subscription: str, acks: Sequence[str]) -> None:
        """Acknowledge messages, which are then not delivered again."""
        url = f"{self._session.base('pubsub')}/v1/{subscription}:acknowledge"
        call = Call(region, "subscriptions.acknowledge")
        self._send(call, "POST", url, json={"ackIds": list(acks)})

    def skus(self) -> Iterator[Mapping[str, Any]]:
        """Yield the pages of Compute Engine's SKUs, with prices in US dollars."""
        url = f"{self._session.base('cloudbilling')}/v1/{_COMPUTE_ENGINE}/skus"
        call, token = Call(self.project, "skus.list"), ""
        headers = self._session.quota_headers(self.project)
        while True:
            parameters = {"currencyCode": "USD", "pageSize": "5000", "pageToken": token}
            page = self._send(call, "GET", url, params=parameters, headers=headers)
            yield page
            before, token = token, str(page.get("nextPageToken") or "")
            if not token:
                return
            if token == before:
                raise Unavailable(f"{call}: the reply repeats a page token")

    def _pages(
        self,
        listing: Callable[..., Any],
        call: Call,
        kind: Any,
        once: bool = False,
        **request: Any,
    ) -> Iterator[Any]:
        token = ""
        while True:
            page_request = kind(
                project=self.project, max_results=PAGE, page_token=token, **request
            )
            pager = self._make(listing, call, page_request, once=once)
            page = next(iter(pager.pages))
            if not page.kind:  # every valid reply states its kind
                raise Unavailable(f"{call}: the reply can't be read: it is empty")
            yield page
            before, token = token, page.next_page_token
            if not token:
                return
            if token == before:
                raise Unavailable(f"{call}: the reply repeats a page token")

    def _make(
        self,
        method: Callable[..., Any],
        call: Call,
        request: Any,
        once: bool = False,
        can_wait: bool = True,
    ) -> Any:
        retry = None if once else self._retry
        answer_seconds = self._patience.answer_seconds
        self._permit(call, can_wait)
        try:
            return method(request=request, retry=retry, timeout=answer_seconds)
        except CALL_ERRORS as error:
            translated = provider_error(error, call)
            if isinstance(translated, Throttled):
                self._budget.was_throttled(self.project, call.action)
            raise translated from error

    def _send(self, call: Call, verb: str, url: str, **options: Any) -> Mapping[str, Any]:
        self._permit(call, can_wait=True)
        try:
            return send(self._session, call, verb, url, self._patience.answer_seconds, **options)
        except Throttled:
            self._budget.was_throttled(self.project, call.action)
            raise

    def _permit(self, call: Call, can_wait: bool) -> None:
        permit = self._budget.wait if can_wait else self._budget.take
        permit(self.project, call.action)


def _require_name(reply: Any, call: Call) -> Any:
    """Return a reply that names its resource.

    Raises:
        Unavailable: the reply has no name.
    """
    if not reply.name:
        raise Unavailable(f"{call}: the reply can't be read: it is empty")
    return reply


def object_text_url(session: Session, bucket: str, key: str) -> str:
    """Return the URL of the text of a Cloud Storage object."""
    return f"{session.base('storage')}/storage/v1/b/{bucket}/o/{quote(key, safe='')}?alt=media"
