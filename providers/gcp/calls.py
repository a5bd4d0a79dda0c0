"""The calls of one project: which client makes them, how often, and what their failure means.

What changes something is sent once: a lost reply is found out about by whoever asked, with the
same name. What only reads is sent again for a while. Google's clients have their own idea of where
operations are asked about, which is the real Compute Engine; here they have a client of their own.
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
from providers.cloud.budget import CallBudget, Rate
from providers.gcp.errors import CALL_ERRORS, Call, provider_error
from providers.gcp.rest import send
from providers.gcp.session import Session
from providers.gcp.settings import Patience

PAGE: Final = 500

# Compute Engine's default is 1,500 calls a minute and project of most groups, 25 a second; half of
# that is ours, and what changes something comes in bursts.
_READS: Final = Rate(200, 12)
_CHANGES: Final = Rate(100, 12)
_UNCOUNTED: Final = Rate(300, 100)
_RATES: Final = {
    "instances.insert": _CHANGES,
    "instances.delete": _CHANGES,
    "objects.insert": _UNCOUNTED,
    "subscriptions.acknowledge": _UNCOUNTED,
    "subscriptions.pull": _UNCOUNTED,
}
_COMPUTE_ENGINE: Final = "services/6F81-5844-456A"
_AGAIN: Final = (
    *(InternalServerError, ServiceUnavailable, TooManyRequests),
    *(requests.ConnectionError, requests.Timeout),
)


def call_budget(clock: Clock) -> CallBudget:
    """How often Google Cloud may be called."""
    return CallBudget(clock, _RATES, _READS)


class ProjectCalls:
    """Makes every call to Google Cloud that concerns one project."""

    def __init__(
        self, project: str, patience: Patience, session: Session, budget: CallBudget
    ) -> None:
        self.project = project
        self._patience = patience
        self._session = session
        self._budget = budget
        self._again: Retry | None = None
        if patience.read_seconds > 0:
            self._again = Retry(
                predicate=if_exception_type(*_AGAIN),
                initial=0.5,
                maximum=5.0,
                timeout=patience.read_seconds,
            )

    def insert(self, zone: str, pool: str, **request: Any) -> Any:
        """Launch; the operation that does it. Sent once, if a token is there now."""
        call = Call(zone, "instances.insert", pool)
        told = compute_v1.InsertInstanceRequest(project=self.project, zone=zone, **request)
        insert = self._session.client(compute_v1.InstancesClient).insert_unary
        return _named(self._make(insert, call, told, once=True, can_wait=False), call)

    def delete(self, zone: str, name: str) -> Any:
        """End an instance. Only `ending` calls this."""
        call = Call(zone, "instances.delete")
        told = compute_v1.DeleteInstanceRequest(project=self.project, zone=zone, instance=name)
        delete = self._session.client(compute_v1.InstancesClient).delete_unary
        return self._make(delete, call, told, once=True)

    def instance(self, zone: str, name: str) -> Any:
        """One instance."""
        told = compute_v1.GetInstanceRequest(project=self.project, zone=zone, instance=name)
        get = self._session.client(compute_v1.InstancesClient).get
        call = Call(zone, "instances.get")
        return _named(self._make(get, call, told), call)

    def instances(self, wanted: str) -> Iterator[Any]:
        """All pages of the instances of all zones; a zone that does not answer may be named."""
        listing = self._session.client(compute_v1.InstancesClient).aggregated_list
        call = Call(self.project, "instances.aggregatedList")
        kind = compute_v1.AggregatedListInstancesRequest
        return self._pages(listing, call, kind, filter=wanted)

    def instances_in(self, zone: str, wanted: str) -> Iterator[Any]:
        """All pages of the instances of one zone, each asked for once."""
        listing = self._session.client(compute_v1.InstancesClient).list
        call = Call(zone, "instances.list")
        kind = compute_v1.ListInstancesRequest
        return self._pages(listing, call, kind, once=True, zone=zone, filter=wanted)

    def operation(self, zone: str, name: str) -> Any:
        """How far an operation is."""
        client = self._session.client(compute_v1.ZoneOperationsClient)
        told = compute_v1.GetZoneOperationRequest(project=self.project, zone=zone, operation=name)
        call = Call(zone, "zoneOperations.get")
        return _named(self._make(client.get, call, told), call)

    def operations(self, zone: str, wanted: str) -> Iterator[Any]:
        """Pages of a zone's operations."""
        client = self._session.client(compute_v1.ZoneOperationsClient)
        call = Call(zone, "zoneOperations.list")
        kind = compute_v1.ListZoneOperationsRequest
        return self._pages(client.list, call, kind, zone=zone, filter=wanted)

    def machine_types(self, zone: str, wanted: str) -> Iterator[Any]:
        """Pages of the machine types that a zone has."""
        client = self._session.client(compute_v1.MachineTypesClient)
        call = Call(zone, "machineTypes.list")
        kind = compute_v1.ListMachineTypesRequest
        return self._pages(client.list, call, kind, zone=zone, filter=wanted)

    def accelerator_types(self, zone: str) -> Iterator[Any]:
        """Pages of the accelerators that a zone has."""
        client = self._session.client(compute_v1.AcceleratorTypesClient)
        kind = compute_v1.ListAcceleratorTypesRequest
        return self._pages(client.list, Call(zone, "acceleratorTypes.list"), kind, zone=zone)

    def region(self, name: str) -> Any:
        """A region, with the quotas of this project there."""
        client = self._session.client(compute_v1.RegionsClient)
        told = compute_v1.GetRegionRequest(project=self.project, region=name)
        call = Call(name, "regions.get")
        return _named(self._make(client.get, call, told), call)

    def template(self, link: str, pool: str) -> Any:
        """The instance template that a link names."""
        _, owner, place, *_, name = link.split("/")
        if place == "global":
            call = Call(self.project, "instanceTemplates.get", pool)
            client = self._session.client(compute_v1.InstanceTemplatesClient)
            told = compute_v1.GetInstanceTemplateRequest(project=owner, instance_template=name)
            return _named(self._make(client.get, call, told), call)
        region = link.split("/")[3]
        call = Call(region, "regionInstanceTemplates.get", pool)
        client = self._session.client(compute_v1.RegionInstanceTemplatesClient)
        of_region = compute_v1.GetRegionInstanceTemplateRequest(
            project=owner, region=region, instance_template=name
        )
        return _named(self._make(client.get, call, of_region), call)

    def put(self, region: str, bucket: str, key: str, text: str) -> None:
        """Write an object of Cloud Storage."""
        url = f"{self._session.base('storage')}/upload/storage/v1/b/{bucket}/o"
        options = {
            "params": {"uploadType": "media", "name": key},
            "data": text.encode(),
            "headers": {"Content-Type": "text/plain; charset=utf-8"},
        }
        self._send(Call(region, "objects.insert"), "POST", url, **options)

    def pull(self, region: str, subscription: str, most: int) -> Mapping[str, Any]:
        """Messages of Pub/Sub, which come again unless they are acknowledged."""
        url = f"{self._session.base('pubsub')}/v1/{subscription}:pull"
        body = {"maxMessages": most, "returnImmediately": True}
        return self._send(Call(region, "subscriptions.pull"), "POST", url, json=body)

    def acknowledge(self, region: str, subscription: str, acks: Sequence[str]) -> None:
        """They do not come again."""
        url = f"{self._session.base('pubsub')}/v1/{subscription}:acknowledge"
        call = Call(region, "subscriptions.acknowledge")
        self._send(call, "POST", url, json={"ackIds": list(acks)})

    def skus(self) -> Iterator[Mapping[str, Any]]:
        """Pages of what Compute Engine costs, in US dollars."""
        url = f"{self._session.base('cloudbilling')}/v1/{_COMPUTE_ENGINE}/skus"
        call, token = Call(self.project, "skus.list"), ""
        headers = {"X-Goog-User-Project": self.project}
        while True:
            asked = {"currencyCode": "USD", "pageSize": "5000", "pageToken": token}
            page = self._send(call, "GET", url, params=asked, headers=headers)
            yield page
            before, token = token, str(page.get("nextPageToken") or "")
            if not token:
                return
            if token == before:
                raise Unavailable(f"{call}: its pages do not end")

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
            told = kind(project=self.project, max_results=PAGE, page_token=token, **request)
            pager = self._make(listing, call, told, once=once)
            page = next(iter(pager.pages))
            if not page.kind:  # an answer always says what it is
                raise Unavailable(f"{call}: the reply can't be read: it is empty")
            yield page
            before, token = token, page.next_page_token
            if not token:
                return
            if token == before:
                raise Unavailable(f"{call}: its pages do not end")

    def _make(
        self,
        method: Callable[..., Any],
        call: Call,
        request: Any,
        once: bool = False,
        can_wait: bool = True,
    ) -> Any:
        retry = None if once else self._again
        answer_seconds = self._patience.answer_seconds
        self._permit(call, can_wait)
        try:
            return method(request=request, retry=retry, timeout=answer_seconds)
        except CALL_ERRORS as error:
            meant = provider_error(error, call)
            if isinstance(meant, Throttled):
                self._budget.was_throttled(self.project, call.action)
            raise meant from error

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


def _named(told: Any, call: Call) -> Any:
    """An answer always names what it is of.

    Raises:
        Unavailable: this one does not.
    """
    if not told.name:
        raise Unavailable(f"{call}: the reply can't be read: it is empty")
    return told


def object_text_url(session: Session, bucket: str, key: str) -> str:
    """Where the text of an object of Cloud Storage is."""
    return f"{session.base('storage')}/storage/v1/b/{bucket}/o/{quote(key, safe='')}?alt=media"
