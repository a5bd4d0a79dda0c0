"""Instances: ordered, seen in the cloud, told of by their nodes, given back.

What costs money changes together or not at all: an order is written with the intent to launch
it, and what the cloud bills with the lines of the ledger.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace

from autoscaler.domain.errors import UnknownInstance
from autoscaler.domain.instance import CloudInstance, HeldInstance, InstancePhase
from autoscaler.domain.job import JobPhase
from autoscaler.domain.offer import Offer
from autoscaler.domain.transfer import TransferCount
from autoscaler.store.capacity import Refuse
from autoscaler.store.hand_over import HandOver
from autoscaler.store.holding import (
    Holding,
    Order,
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
from autoscaler.store.transfers import Lined, transferred


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
        """Write down one more instance for a job, and the intent to launch it.

        It takes the lowest slot (from 0) in which no instance is left, and the next generation
        (from 1) of that slot; its id is `job-slot-generation`. `token_of` makes the launch token
        of that id and must be pure.

        Raises:
            Conflict: the job is stopping or has ended.
            UnknownJob: there is none.
        """
        holding = self._add(Order(job, offer, devices_used, token_of, now_seconds))
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
    ) -> HeldInstance | None:
        """Order as `order` does, if the job holds fewer than `most` wanted ones of the offer.

        They are counted in the transaction that writes the order, so that two that order for
        one decision order no more than the decision wants. None if the job holds enough.

        Raises:
            Conflict: the job is stopping or has ended.
            UnknownJob: there is none.
        """
        order = Order(job, offer, devices_used, token_of, now_seconds, most)
        holding = self._add(order)
        return None if holding is None else holding.held

    def hand_over(
        self, instance: str, job: str, devices_used: int, now_seconds: float
    ) -> HeldInstance:
        """Let an instance that its job has left, or that has ended, be another's of its study.

        From this moment on the other job pays; nothing is billed twice. What belongs to the job
        begins anew: its place, how far it is, what it told. What belongs to the instance stays:
        its id, its times of launch and joining, what it took to start (`START_FACT`). That the
        job has it already is no error.

        Raises:
            Conflict: the job that holds it is at it or of another study, the other takes none any
                more, or the instance is being ended, is taken back or never joined.
            UnknownInstance, UnknownJob: there is none.
        """
        return self._move(instance, HandOver(job, devices_used, now_seconds)).held

    @abstractmethod
    def get(self, instance: str) -> HeldInstance:
        """The instance of this id.

        Raises:
            UnknownInstance: there is none.
        """

    @abstractmethod
    def alive(self) -> tuple[HeldInstance, ...]:
        """All instances of all jobs that have not ended, in the order of their requests."""

    @abstractmethod
    def of_job(self, job: str, include_ended: bool = False) -> tuple[HeldInstance, ...]:
        """The instances of one job, in the order of their requests."""

    @abstractmethod
    def never_trained(self, job: str) -> tuple[HeldInstance, ...]:
        """The instances of a job that were launched, and ended or released before they trained.

        Of each offer only those after the last one of that offer that began to train.
        """

    def release(self, instance: str, now_seconds: float) -> HeldInstance:
        """Want an instance no more: it drains if it is at work. It goes on being paid.

        Raises:
            UnknownInstance: there is none.
        """
        return self._change(instance, lambda held: unwanted(held, now_seconds))

    def request_termination(
        self, instance: str, now_seconds: float, facts: Mapping[str, str] | None = None
    ) -> HeldInstance:
        """Mark an instance as unwanted, and write down one intent to terminate it.

        An instance whose launch was never sent, or was only ever definitely refused, ends at
        once and is never billed. `facts`, of why, are added to those known.

        Raises:
            UnknownInstance: there is none.
        """

        def terminate(holding: Holding) -> Holding:
            return to_be_terminated(holding, now_seconds, facts or {})

        return self._change_holding(instance, terminate).held

    def begin_launch(self, instance: str, now_seconds: float) -> bool:
        """Mark the launch of an instance as sent; return whether the call is to be made.

        The mark is written before the provider is called, in the transaction that reads whether
        the instance is wanted and its job takes instances. An unwanted launch that was never
        sent ends its instance, unbilled.

        Raises:
            UnknownInstance: there is none.
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
        """Take over what the cloud says. The same news may come any number of times.

        The first sight settles the launch, and the first with a time of launch opens the bill at
        that: what waits in a queue has none, and ends there without a bill. `TERMINATED` ends the
        instance and closes the bill at the cloud's time of end. The ledger follows the cloud
        alone: an instance whose launch was given up is billed if it is there after all, and
        terminated. A launch that the cloud took and refused later is not billed; `refuse` is then
        as in `launch_failed`.

        Raises:
            Conflict: another cloud instance is known under this id.
            UnknownInstance: there is none.
        """

        def take_over(holding: Holding) -> Holding:
            return seen_in_cloud(holding, seen, now_seconds)

        return self._change_holding(instance, take_over, refuse).held

    def reprice(self, instance: str, offer: Offer, now_seconds: float) -> bool:
        """Bill an instance at its offer's price of now, from now on. False if nothing changes.

        Raises:
            UnknownInstance: there is none.
        """

        def price(holding: Holding) -> Holding:
            return repriced(holding, offer, now_seconds)

        return bool(self._change_holding(instance, price).new_lines)

    def bill_again(self, instance: str, now_seconds: float) -> bool:
        """Take back the end of an instance that its cloud still lists.

        It is billed on from the end that was written down, and terminated again. False if its
        bill is open, so that there is nothing to take back.

        Raises:
            UnknownInstance: there is none.
        """

        def bill(holding: Holding) -> Holding:
            return billed_again(holding, now_seconds)

        return bool(self._change_holding(instance, bill).new_lines)

    def launch_failed(
        self, instance: str, error: str, now_seconds: float, refuse: Refuse | None = None
    ) -> HeldInstance:
        """End an instance that the cloud refused to launch. It was never there and costs nothing.

        Only for a refusal that is sure: where the outcome is not known, the launch is tried
        again with its token. `refuse` makes the refusal of its offer, which is kept in the same
        transaction; None keeps none.

        Raises:
            Conflict: the cloud has shown the instance.
            UnknownInstance: there is none.
        """

        def fail(holding: Holding) -> Holding:
            return refused(holding, error, now_seconds)

        return self._change_holding(instance, fail, refuse).held

    def give_up_launch(self, instance: str, now_seconds: float, refuse: Refuse) -> HeldInstance:
        """Want an instance no more whose launch is not answered, and refuse its offer.

        What came of the launch is still found out; both are kept in one transaction.

        Raises:
            UnknownInstance: there is none.
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
        """Take over what a node says of its instance; `facts` are added to those known.

        It says so of its work for `job`: where the instance has become another's since, only that
        it was heard is kept. None is whatever job it is.

        `transfer` is what it has counted so far. The ledger has lines for it, now and then, where
        that costs something; nothing of it counts twice, however often and late it is told, and
        what it sent for a job that it has left is that job's to pay.

        The phases of work follow each other in any order, as a script is started again. An
        instance that drains only gets on to `DRAINED`, and one that has ended hears nothing
        more.

        Raises:
            Conflict: `phase` is not for a node to tell.
            UnknownInstance: there is none.
        """

        def hear(held: HeldInstance) -> HeldInstance:
            if job in (None, held.job):
                return heard(held, phase, now_seconds, facts or {})
            return replace(held, seen_seconds=max(now_seconds, held.seen_seconds or now_seconds))

        def hear_all(held: HeldInstance) -> Lined:
            if transfer is None:
                return Lined(hear(held))
            return transferred(hear(held), transfer, job, now_seconds)

        return self._change_lined(instance, hear_all)

    def note(self, instance: str, facts: Mapping[str, str]) -> HeldInstance:
        """Add facts to those known of an instance.

        Raises:
            UnknownInstance: there is none.
        """
        return self._change(instance, lambda held: replace(held, facts={**held.facts, **facts}))

    def use_devices(self, instance: str, devices_used: int) -> HeldInstance:
        """Have an instance train on this many of its devices.

        Raises:
            UnknownInstance: there is none.
        """
        return self._change(instance, lambda held: replace(held, devices_used=devices_used))

    def take_back(self, instance: str, reclaim_seconds: float, now_seconds: float) -> HeldInstance:
        """Release an instance that its cloud takes back at `reclaim_seconds`.

        Of several notices the earliest counts. Notice and release are kept in one transaction.

        Raises:
            UnknownInstance: there is none.
        """

        def leave(held: HeldInstance) -> HeldInstance:
            return unwanted(to_be_taken_back(held, reclaim_seconds), now_seconds)

        return self._change(instance, leave)

    @abstractmethod
    def _add(self, order: Order) -> Holding | None:
        """Keep the instance that an order makes; nothing if that raises or is not needed."""

    @abstractmethod
    def _move(self, instance: str, order: HandOver) -> Holding:
        """Keep what `handed_over` makes of an instance and two jobs; nothing if it raises."""

    def _change(
        self, instance: str, change: Callable[[HeldInstance], HeldInstance]
    ) -> HeldInstance:
        """Keep what `change` makes of an instance; nothing if it raises."""
        return self._change_lined(instance, lambda held: Lined(change(held)))

    @abstractmethod
    def _change_lined(
        self, instance: str, change: Callable[[HeldInstance], Lined]
    ) -> HeldInstance:
        """Keep what `change` makes of an instance, and its lines; nothing if it raises."""

    @abstractmethod
    def _change_of_job(
        self, instance: str, change: Callable[[Holding, JobPhase], Holding]
    ) -> tuple[Holding, JobPhase]:
        """Keep what `change` makes of a holding and the phase of its job; nothing if it raises."""

    @abstractmethod
    def _change_holding(
        self,
        instance: str,
        change: Callable[[Holding], Holding],
        refuse: Refuse | None = None,
    ) -> Holding:
        """Keep what `change` makes of an instance with its calls and bill; nothing if it raises.

        `change` is given no `new_lines`. `refuse` makes the refusal of the instance's offer.
        """


def unknown_instance(instance: str) -> UnknownInstance:
    """The error that there is no such instance."""
    return UnknownInstance(f"no instance {instance!r}: castor status lists those there are")
