"""Repository of instances, from the order to the end.

Changes that cost money are atomic: an order is written together with its launch intent, and a
billed change together with its ledger lines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace

from autoscaler.domain.errors import UnknownInstance
from autoscaler.domain.gang import GangSeat
from autoscaler.domain.instance import CloudInstance, HeldInstance, InstancePhase
from autoscaler.domain.job import JobPhase
from autoscaler.domain.offer import Offer
from autoscaler.domain.transfer import TransferCount
from autoscaler.store.records.hand_over import HandOver
from autoscaler.store.records.holding import (
    Holding,
    InstanceOrder,
    billed_again,
    heard,
    may_be_sent,
    refused,
    repriced,
    seen_in_cloud,
    sent,
    to_be_taken_back,
    to_be_terminated,
    unwanted,
)
from autoscaler.store.records.transfers import Lined, transferred
from autoscaler.store.repositories.capacity import Refuse


class Instances(ABC):
    """The instances of all jobs of one store."""

    def order(
        self,
        job: str,
        offer: Offer,
        devices_used: int,
        token_of: Callable[[str], str],
        now_seconds: float,
    ) -> HeldInstance:
        """Record one more instance for a job, together with the intent to launch it.

        The instance gets the lowest free slot (from 0) and the next generation (from 1) of that
        slot. Its id is `job-slot-generation`. `token_of` returns the launch token of an id and
        must be pure.

        Raises:
            Conflict: the job is stopping or has ended.
            UnknownJob: no job has this id.
        """
        holding = self._add(InstanceOrder(job, offer, devices_used, token_of, now_seconds))
        assert holding is not None, "an order without a bound is always made"
        return holding.held

    def order_up_to(
        self,
        most: int,
        job: str,
        offer: Offer,
        devices_used: int,
        token_of: Callable[[str], str],
        now_seconds: float,
        alternatives: tuple[Offer, ...] = (),
        seat: GangSeat | None = None,
    ) -> HeldInstance | None:
        """Order as `order` does, if the job holds fewer than `most` wanted instances of the offer.

        The cloud may launch one of `alternatives` instead (`Offer.order_group`). Until it reports
        which, the instance has the price of the dearest. `seat` is the seat of a member of a gang.

        Instances are counted in the transaction that writes the order, so that concurrent
        callers do not exceed `most`. Returns None if the job holds enough.

        Raises:
            Conflict: the job is stopping or has ended.
            UnknownJob: no job has this id.
        """
        order = InstanceOrder(
            job, offer, devices_used, token_of, now_seconds, most, alternatives, seat
        )
        holding = self._add(order)
        return None if holding is None else holding.held

    def hand_over(
        self, instance: str, job: str, devices_used: int, now_seconds: float
    ) -> HeldInstance:
        """Assign an instance to another job of the same study, and return the instance.

        The holding job must have ended, or have released the instance and drained it. The new
        job pays from `now_seconds` on; nothing is billed twice. Slot, phase and training times
        start anew. The id, the launch and join times and `Fact.START` stay. Nothing changes if
        the job uses the instance already.

        Raises:
            Conflict: the instance is in use, ending, reclaimed or never joined; the jobs belong
                to different studies; or the new job is stopping or has ended.
            UnknownInstance, UnknownJob: no such instance or job.
        """
        return self._move(instance, HandOver(job, devices_used, now_seconds)).held

    @abstractmethod
    def get(self, instance: str) -> HeldInstance:
        """Return the instance with this id.

        Raises:
            UnknownInstance: no instance has this id.
        """

    @abstractmethod
    def alive(self) -> tuple[HeldInstance, ...]:
        """Return the instances of all jobs that have not ended, by time of request."""

    @abstractmethod
    def of_job(self, job: str, include_ended: bool = False) -> tuple[HeldInstance, ...]:
        """Return the instances of one job, by time of request."""

    @abstractmethod
    def ended_of_jobs(self, jobs: Collection[str]) -> Mapping[str, tuple[HeldInstance, ...]]:
        """Return the ended instances of each of these jobs that has any, by time of request."""

    @abstractmethod
    def never_trained(self, job: str) -> tuple[HeldInstance, ...]:
        """Return the instances of a job that were launched but never trained, and are given up.

        An instance is given up when it has ended or was released. For each offer, only instances
        given up after the latest start of training on that offer are returned.
        """

    def release(self, instance: str, now_seconds: float) -> HeldInstance:
        """Mark an instance as unwanted: a working instance starts to drain. Billing continues.

        Raises:
            UnknownInstance: no instance has this id.
        """
        return self._change(instance, lambda held: unwanted(held, now_seconds))

    def request_termination(
        self, instance: str, now_seconds: float, facts: Mapping[str, str] | None = None
    ) -> HeldInstance:
        """Mark an instance as unwanted, and record one intent to terminate it.

        An instance whose launch was never sent, or was definitely refused each time, ends at
        once and is never billed. `facts` state the reason and are added to the known facts.

        Raises:
            UnknownInstance: no instance has this id.
        """

        def terminate(holding: Holding) -> Holding:
            return to_be_terminated(holding, now_seconds, facts or {})

        return self._change_holding(instance, terminate).held

    def begin_launch(self, instance: str, now_seconds: float) -> bool:
        """Mark the launch of an instance as sent; return whether to call the provider.

        The mark is written before the call, in the transaction that checks that the instance is
        wanted and that its job takes instances. An unwanted launch that was never sent ends its
        instance without a bill.

        Raises:
            UnknownInstance: no instance has this id.
        """

        def send(holding: Holding, phase: JobPhase) -> Holding:
            return sent(holding, phase, now_seconds)

        holding, phase = self._change_of_job(instance, send)
        return may_be_sent(holding, phase)

    def observe_cloud(
        self,
        instance: str,
        seen: CloudInstance,
        now_seconds: float,
        refuse: Refuse | None = None,
    ) -> HeldInstance:
        """Update an instance from a report of its cloud. A repeated report changes nothing.

        The first report settles the launch, and which offer of the order it was. The first report
        with a launch time opens the bill at that time; an instance that ends in a queue for
        capacity has no bill. `TERMINATED` ends the instance and closes the bill at the end time of
        the cloud. The ledger follows the cloud alone: an instance that appears after its launch
        was given up is billed and terminated. A launch that the cloud accepted and later refused
        is not billed; `refuse` then works as in `launch_failed`.

        Raises:
            Conflict: another cloud instance is known under this id.
            UnknownInstance: no instance has this id.
        """

        def take_over(holding: Holding) -> Holding:
            return seen_in_cloud(holding, seen, now_seconds)

        return self._change_holding(instance, take_over, refuse).held

    def reprice(self, instance: str, offer: Offer, now_seconds: float) -> bool:
        """Bill an instance at the current price of its offer from now on.

        Returns whether the price of an open bill changed.

        Raises:
            UnknownInstance: no instance has this id.
        """

        def price(holding: Holding) -> Holding:
            return repriced(holding, offer, now_seconds)

        return bool(self._change_holding(instance, price).new_lines)

    def bill_again(self, instance: str, now_seconds: float) -> bool:
        """Reopen the bill of an ended instance that its cloud still lists.

        Billing continues from the recorded end, and the instance is terminated again. Returns
        False if the bill is not closed.

        Raises:
            UnknownInstance: no instance has this id.
        """

        def bill(holding: Holding) -> Holding:
            return billed_again(holding, now_seconds)

        return bool(self._change_holding(instance, bill).new_lines)

    def launch_failed(
        self, instance: str, error: str, now_seconds: float, refuse: Refuse | None = None
    ) -> HeldInstance:
        """End an instance whose launch the cloud refused; it never existed and costs nothing.

        Only for a definite refusal: a launch with an unknown outcome is retried with its token.
        `refuse` returns the refusal of the offer, which is stored in the same transaction; None
        stores none.

        Raises:
            Conflict: the cloud has reported the instance.
            UnknownInstance: no instance has this id.
        """

        def fail(holding: Holding) -> Holding:
            return refused(holding, error, now_seconds)

        return self._change_holding(instance, fail, refuse).held

    def give_up_launch(self, instance: str, now_seconds: float, refuse: Refuse) -> HeldInstance:
        """Mark an instance as unwanted after its launch got no answer, and refuse its offer.

        Both changes are one transaction. The launch intent stays pending until its outcome is
        known.

        Raises:
            UnknownInstance: no instance has this id.
        """

        def give_up(holding: Holding) -> Holding:
            return replace(holding, held=unwanted(holding.held, now_seconds))

        return self._change_holding(instance, give_up, refuse).held

    def record_node(
        self,
        instance: str,
        phase: InstancePhase,
        now_seconds: float,
        facts: Mapping[str, str] | None = None,
        job: str | None = None,
        transfer: TransferCount | None = None,
    ) -> HeldInstance:
        """Update an instance from a report of its node; `facts` are added to the known facts.

        Working phases follow each other in any order, because scripts are restarted. A draining
        instance only changes to `DRAINED`; an ended instance does not change.

        Args:
            job: job that the report is about; None for the current job of the instance. If the
                instance has moved to another job, only the time of the report is stored.
            transfer: cumulative transfers of the instance. Repeated and late counts are billed
                once. Traffic for the previous job is billed to that job.

        A leader's report that changes nothing but its time and unbilled transfers stays in memory
        until `keep_sightings`. A controller that is killed loses those; agents repeat them.

        Raises:
            Conflict: nodes do not report this `phase`.
            UnknownInstance: no instance has this id.
        """

        def with_report(held: HeldInstance) -> HeldInstance:
            if job in (None, held.job):
                return heard(held, phase, now_seconds, facts or {})
            return replace(held, seen_seconds=max(now_seconds, held.seen_seconds or now_seconds))

        def with_report_and_transfer(held: HeldInstance) -> Lined:
            if transfer is None:
                return Lined(with_report(held))
            return transferred(with_report(held), transfer, job, now_seconds)

        sighted = self._sighted(instance, with_report_and_transfer)
        if sighted is not None:
            return sighted
        return self._change_lined(instance, with_report_and_transfer)

    @abstractmethod
    def keep_sightings(self) -> None:
        """Store the times and transfers of reports that are in memory only, in one transaction."""

    @abstractmethod
    def _sighted(
        self, instance: str, change: Callable[[HeldInstance], Lined]
    ) -> HeldInstance | None:
        """Keep the result of `change` in memory if it is a mere sighting.

        Returns None, without a change, if it has to be stored now.
        """

    def note(self, instance: str, facts: Mapping[str, str]) -> HeldInstance:
        """Add facts to the known facts of an instance.

        Raises:
            UnknownInstance: no instance has this id.
        """
        return self._change(instance, lambda held: replace(held, facts={**held.facts, **facts}))

    def use_devices(self, instance: str, devices_used: int) -> HeldInstance:
        """Set the number of devices that an instance trains on.

        Raises:
            UnknownInstance: no instance has this id.
        """
        return self._change(instance, lambda held: replace(held, devices_used=devices_used))

    def take_back(self, instance: str, reclaim_seconds: float, now_seconds: float) -> HeldInstance:
        """Release an instance that its cloud reclaims at `reclaim_seconds`.

        The earliest of several notices counts. Notice and release are one transaction.

        Raises:
            UnknownInstance: no instance has this id.
        """

        def reclaim(held: HeldInstance) -> HeldInstance:
            return unwanted(to_be_taken_back(held, reclaim_seconds), now_seconds)

        return self._change(instance, reclaim)

    @abstractmethod
    def _add(self, order: InstanceOrder) -> Holding | None:
        """Store the new instance of an order; return None if the order is not needed."""

    @abstractmethod
    def _move(self, instance: str, order: HandOver) -> Holding:
        """Store the result of `handed_over` for an instance; nothing if it raises."""

    def _change(
        self, instance: str, change: Callable[[HeldInstance], HeldInstance]
    ) -> HeldInstance:
        """Store the result of `change` for an instance; nothing if it raises."""
        return self._change_lined(instance, lambda held: Lined(change(held)))

    @abstractmethod
    def _change_lined(
        self, instance: str, change: Callable[[HeldInstance], Lined]
    ) -> HeldInstance:
        """Store the instance and ledger lines that `change` returns; nothing if it raises."""

    @abstractmethod
    def _change_of_job(
        self, instance: str, change: Callable[[Holding, JobPhase], Holding]
    ) -> tuple[Holding, JobPhase]:
        """Store the result of `change` for a holding and its job's phase; nothing if it raises.

        Returns the stored holding and the phase.
        """

    @abstractmethod
    def _change_holding(
        self,
        instance: str,
        change: Callable[[Holding], Holding],
        refuse: Refuse | None = None,
    ) -> Holding:
        """Store the result of `change` for a holding; nothing if it raises.

        `change` gets a holding without `new_lines`. `refuse` returns the refusal of the offer of
        the instance, which is stored too; None stores none.
        """


def unknown_instance(instance: str) -> UnknownInstance:
    """Return the error for an id that no instance has."""
    return UnknownInstance(f"no instance {instance!r}: castor status lists all instances")
