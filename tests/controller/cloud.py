"""Small cloud whose state is a file, so it outlives the process that calls it."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from autoscaler.clock import Clock
from autoscaler.domain.errors import InsufficientCapacity, NotFound, ProviderError, Unavailable
from autoscaler.domain.instance import CloudInstance, CloudState, Interruption, LaunchRequest
from autoscaler.domain.offer import Limit, LimitUnit, Offer, Purchase
from autoscaler.ledger.bill import amount
from providers.base import Provider


def offer(
    name: str = "small", devices: int = 1, usd_per_hour: str = "0.10", network: str = ""
) -> Offer:
    return Offer(
        id=name,
        provider="file",
        instance_type=name,
        zone="here",
        purchase=Purchase.ON_DEMAND,
        devices=devices,
        device_kind="core",
        usd_per_hour=Decimal(usd_per_hour),
        boot_seconds=5.0,
        network_bytes_per_second=1e9,
        network=network,
    )


class FileCloud(Provider):
    """Cloud that boots and ends instances by its clock and refuses what a test sets."""

    def __init__(self, path: Path, clock: Clock, devices: int = 4) -> None:
        self._path = path
        self._clock = clock
        self._devices = devices
        self.sold = (offer(), offer("large", 2, "0.19"))
        self.before_call: Callable[[str], None] = lambda name: None
        self.after_call: Callable[[str], None] = lambda name: None
        self.removed: set[str] = set()
        self.refusals: list[ProviderError] = []
        self.answers = True
        self.launch_calls = 0
        self.unlisted: set[str] = set()
        self.out_of_stock: set[str] = set()
        if not path.exists():
            path.write_text("{}")

    @property
    def identity(self) -> None:
        return None

    def console(self, instance_id: str) -> str:
        self.before_call("console")
        self._must_answer()
        return f"{instance_id}: no driver"

    def offers(self) -> Sequence[Offer]:
        self._must_answer()
        return [sold for sold in self.sold if sold.id not in self.removed]

    def limits(self) -> Sequence[Limit]:
        return (Limit("devices", LimitUnit.DEVICES, self._devices),)

    def launch(self, request: LaunchRequest) -> CloudInstance:
        self.before_call("launch")
        self._must_answer()
        self.launch_calls += 1
        if self.refusals:
            raise self.refusals.pop(0)
        with self._records() as records:
            if request.token not in records:
                ordered = (request.offer, *request.alternatives)
                in_stock = [offer for offer in ordered if offer not in self.out_of_stock]
                if not in_stock:
                    raise InsufficientCapacity(f"no capacity in any of {len(ordered)} zones")
                self._check_room(in_stock[0], records)
                records[request.token] = asdict(
                    CloudInstance(
                        id=f"cloud-{len(records)}",
                        token=request.token,
                        offer=in_stock[0],
                        state=CloudState.PENDING,
                        tags=dict(request.tags),
                        launched_seconds=self._clock.now(),
                    )
                )
            record = records[request.token]
        self.after_call("launch")
        return self._seen(record)

    def terminate(self, instance_ids: Sequence[str]) -> None:
        self.before_call("terminate")
        self._must_answer()
        with self._records() as records:
            for record in records.values():
                if record["id"] in instance_ids and record["ended_seconds"] is None:
                    record["ended_seconds"] = self._clock.now()
        self.after_call("terminate")

    def instances(self) -> Sequence[CloudInstance]:
        self._must_answer()
        return [instance for instance in self._all() if instance.id not in self.unlisted]

    def interruptions(self) -> Sequence[Interruption]:
        return ()

    def lose(self, instance_id: str) -> None:
        """End an instance as if it had failed."""
        with self._records() as records:
            for record in records.values():
                if record["id"] == instance_id:
                    record["ended_seconds"] = self._clock.now()

    def billed_usd(self) -> Decimal:
        """Return the amount that the cloud has billed, in US dollars."""
        total = Decimal(0)
        prices = {offer.id: offer.usd_per_hour for offer in self.sold}
        for instance in self._all():
            assert instance.launched_seconds is not None
            ended = self._clock.now() if instance.ended_seconds is None else instance.ended_seconds
            total += amount(prices[instance.offer], ended - instance.launched_seconds)
        return total

    def running(self) -> list[CloudInstance]:
        return [
            instance for instance in self._all() if instance.state is not CloudState.TERMINATED
        ]

    def _all(self) -> list[CloudInstance]:
        with self._records() as records:
            return [self._seen(record) for record in records.values()]

    def _must_answer(self) -> None:
        if not self.answers:
            raise Unavailable("the cloud does not answer")

    def _check_room(self, offer_id: str, records: dict[str, Any]) -> None:
        sizes = {offer.id: offer.devices for offer in self.sold}
        if offer_id not in sizes:
            raise NotFound(f"no offer {offer_id}")
        used = sum(
            sizes[record["offer"]]
            for record in records.values()
            if record["ended_seconds"] is None
        )
        if used + sizes[offer_id] > self._devices:
            raise InsufficientCapacity("all devices are taken")

    def _seen(self, record: dict[str, Any]) -> CloudInstance:
        instance = CloudInstance(**{**record, "state": CloudState(record["state"])})
        if instance.ended_seconds is not None:
            return replace(instance, state=CloudState.TERMINATED)
        assert instance.launched_seconds is not None
        boots = {offer.id: offer.boot_seconds for offer in self.sold}
        booted = self._clock.now() >= instance.launched_seconds + boots[instance.offer]
        return replace(instance, state=CloudState.RUNNING if booted else CloudState.PENDING)

    @contextmanager
    def _records(self) -> Iterator[dict[str, Any]]:
        # The file is replaced by each change, so that it can't be the lock too.
        with self._path.with_suffix(".lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            text = self._path.read_text()
            records = json.loads(text)
            yield records
            written = json.dumps(records)
            if written != text:
                partial = self._path.with_suffix(f".{os.getpid()}")
                partial.write_text(written)
                partial.rename(self._path)


class QuickCloud(FileCloud):
    """Cloud that keeps its records in memory."""

    kept: dict[str, Any]

    @contextmanager
    def _records(self) -> Iterator[dict[str, Any]]:
        if not hasattr(self, "kept"):
            self.kept = {}
        yield self.kept
