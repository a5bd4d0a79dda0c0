"""The life of instances: there is capacity or not, they boot, run out, are taken, stop, vanish."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.fakes.gcp import operations, subscriptions
from tests.fakes.gcp.geography import (
    ACCELERATORS,
    GLOBAL,
    MACHINE_TYPES,
    UNTOLD_METRICS,
    region_of,
)
from tests.fakes.gcp.project import Body, Instance, Operation, Project

DISCOUNTED: Final = frozenset({"SPOT", "FLEX_START"})
_SPOT: Final = "PREEMPTIBLE_"
# What counts against the standard quota or that of spot, as there is room.
_EITHER: Final = "EITHER_"
_WEEK_SECONDS: Final = 7 * 86_400
_RETRY_SECONDS: Final = 5.0
# What waits for capacity so long is in a queue, and its status says so.
_QUEUE_SECONDS: Final = 90.0
_SYSTEM: Final = "system"
# How much of each metric of a quota one instance takes.
Need = dict[str, float]


@dataclass(frozen=True, slots=True)
class Lack:
    """The quota that is too small."""

    metric: str
    limit: float
    region: str


def lack(project: Project, zone: str, needs: list[Need]) -> Lack | None:
    """Whether quotas are too small for more of `needs`, an instance each, in a zone."""
    for (region, metric), limit in project.quotas.items():
        if region not in (GLOBAL, region_of(zone)):
            continue
        for metrics, most in _limits(project, region, metric, limit):
            more = sum(need.get(one, 0.0) for need in needs for one in metrics)
            if more and sum(_used(project, region, one) for one in metrics) + more > most:
                return Lack(metric, limit, region)
    return None


def _limits(
    project: Project, region: str, metric: str, limit: float
) -> Iterator[tuple[tuple[str, ...], float]]:
    """What counts together against how much: either quota of a GPU may be used by some."""
    yield (metric,), limit
    spot = project.quotas.get((region, f"{_SPOT}{metric}"))
    if spot is not None:
        yield (metric, f"{_SPOT}{metric}", f"{_EITHER}{metric}"), limit + spot


def usage(project: Project, region: str, metric: str) -> float:
    """What counts against a quota; what may use either is counted as standard."""
    return _used(project, region, metric) + _used(project, region, f"{_EITHER}{metric}")


def _used(project: Project, region: str, metric: str) -> float:
    return sum(
        needs_of(one.kind, one.purchase, one.body).get(metric, 0.0)
        for one in project.instances.values()
        if one.status != "TERMINATED" and region in (GLOBAL, region_of(one.zone))
    )


def is_short(body: Body) -> bool:
    """Whether an instance is deleted within a week, and so may use either quota of its GPUs."""
    seconds = float((body.get("scheduling", {}).get("maxRunDuration") or {}).get("seconds", 0))
    action = body.get("scheduling", {}).get("instanceTerminationAction")
    return action == "DELETE" and 0 < seconds <= _WEEK_SECONDS


def needs_of(kind: str, purchase: str, body: Body) -> Need:
    """The same of an instance's body: one in a reservation was counted with that."""
    if is_reserved(body):
        return {"INSTANCES": 1.0}
    return needs(kind, purchase, accelerators(kind, body), is_short(body))


def is_reserved(body: Body) -> bool:
    """Whether an instance is for one reservation and no other capacity."""
    affinity = body.get("reservationAffinity") or {}
    return bool(affinity.get("consumeReservationType") == "SPECIFIC_RESERVATION")


def needs(kind: str, purchase: str, accelerators: dict[str, int], is_short: bool = False) -> Need:
    """What one instance counts against quotas, by metric."""
    machine = MACHINE_TYPES[kind]
    prefix = _SPOT if purchase in DISCOUNTED else ""
    cpus = "A2_CPUS" if machine.family == "a2" and not prefix else f"{prefix}CPUS"
    found = {"INSTANCES": 1.0, cpus: float(machine.cpus)}
    for name, count in accelerators.items():
        metric = ACCELERATORS[name].metric
        found[(prefix or (_EITHER if is_short else "")) + metric] = float(count)
        if not prefix:
            found["GPUS_ALL_REGIONS"] = found.get("GPUS_ALL_REGIONS", 0.0) + count
    return {
        metric: count
        for metric, count in found.items()
        if metric.removeprefix(_EITHER) not in UNTOLD_METRICS
    }


def accelerators_of(instance: Instance) -> dict[str, int]:
    return accelerators(instance.kind, instance.body)


def accelerators(kind: str, body: Body) -> dict[str, int]:
    """How many of each kind: those of the machine type, or those that were asked for."""
    machine = MACHINE_TYPES[kind]
    if machine.accelerator:
        return {machine.accelerator: machine.accelerators}
    asked = body.get("guestAccelerators") or []
    return {
        one["acceleratorType"].rpartition("/")[2]: int(one["acceleratorCount"]) for one in asked
    }


@dataclass(frozen=True, slots=True)
class Launch:
    """Instances that are made by one operation.

    Attributes:
        least: with fewer than so many there are none.
        failure: why there will be none, whatever the capacity.
        patience_seconds: for so long capacity is waited for.
    """

    instances: tuple[Instance, ...]
    operation: Operation
    least: int = 1
    failure: operations.Failure | None = None
    patience_seconds: float = 0.0


def begin(project: Project, launch: Launch) -> None:
    """They exist from now on; whether there is capacity for them is known later."""
    for instance in launch.instances:
        if launch.patience_seconds >= _QUEUE_SECONDS:
            instance.status = "PENDING"
        project.instances[instance.zone, instance.name] = instance
        project.history.append(instance)
    project.count()
    _tell(launch, "CREATING")
    due_seconds = launch.operation.insert_seconds + project.provision_seconds
    project.agenda.at(due_seconds, lambda at: _decide(project, launch, at))


def _decide(project: Project, launch: Launch, seconds: float) -> None:
    wanted = [one for one in launch.instances if one.ended_seconds is None]
    if launch.failure is not None:
        _tell(launch, "DONE")
        _fail(project, launch, wanted, launch.failure, seconds)
        return
    held = [one for one in wanted if _take_capacity(project, one)]
    if len(held) < launch.least:
        for one in held:
            _give_capacity(project, one)
        give_up_seconds = launch.operation.insert_seconds + launch.patience_seconds
        if wanted and seconds + _RETRY_SECONDS <= give_up_seconds:
            project.agenda.at(seconds + _RETRY_SECONDS, lambda at: _decide(project, launch, at))
            return
        _tell(launch, "DONE", created=len(held), deleted=len(held))
        zone = launch.instances[0].zone
        stockout = _stockout(project, wanted or list(launch.instances), zone)
        _fail(project, launch, wanted, stockout, seconds)
        return
    _tell(launch, "DONE", created=len(held))
    for one in wanted:
        if one in held:
            _stage(project, one, seconds)
        else:
            stockout = _stockout(project, [one], one.zone)
            _vanish_with(project, one, stockout, seconds)
    if launch.operation.end_seconds is None:
        done_seconds = seconds + project.staging_seconds
        project.agenda.at(done_seconds, lambda at: _finish(launch.operation, at))


def _tell(launch: Launch, status: str, created: int = 0, deleted: int = 0) -> None:
    """How far a launch of many is."""
    if launch.operation.kind != "bulkInsert":
        return
    wanted = len(launch.instances)
    told = {
        "status": status,
        "targetVmCount": wanted,
        "createdVmCount": created,
        "deletedVmCount": deleted,
        "failedToCreateVmCount": wanted - created if status == "DONE" else 0,
    }
    places = {f"zones/{launch.instances[0].zone}": told}
    launch.operation.others["instancesBulkInsertOperationMetadata"] = {"perLocationStatus": places}


def _finish(operation: Operation, seconds: float) -> None:
    if operation.end_seconds is None:
        operations.finish(operation, seconds)


def _fail(
    project: Project,
    launch: Launch,
    wanted: list[Instance],
    failure: operations.Failure,
    seconds: float,
) -> None:
    for one in wanted:
        _vanish_with(project, one, failure, seconds)
    if launch.operation.end_seconds is None:
        operations.fail(launch.operation, seconds, failure)


def _vanish_with(
    project: Project, instance: Instance, failure: operations.Failure, seconds: float
) -> None:
    vanish(project, instance, seconds)
    operations.fail(instance.insert, seconds, failure)


def _stockout(project: Project, wanted: list[Instance], zone: str) -> operations.Failure:
    """There is none in the zone; other zones that have some are named."""
    region, one = region_of(zone), wanted[0]
    others = [
        place
        for kind, place, purchase in project.capacity
        if (kind, purchase) == (one.kind, one.purchase)
        and region_of(place) == region
        and project.capacity[kind, place, purchase] > 0
    ]
    return operations.stockout(project.stockout, project.id, zone, others)


def _take_capacity(project: Project, instance: Instance) -> bool:
    """One instance's, if there is some left."""
    place = (instance.kind, instance.zone, instance.purchase)
    left = project.capacity.get(place)
    if left is None or is_reserved(instance.body):
        return True
    if left > 0:
        project.capacity[place] = left - 1
    return left > 0


def _give_capacity(project: Project, instance: Instance) -> None:
    place = (instance.kind, instance.zone, instance.purchase)
    if place in project.capacity and not is_reserved(instance.body):
        project.capacity[place] += 1


def _stage(project: Project, instance: Instance, seconds: float) -> None:
    """There is capacity for it: it boots, and runs."""
    instance.status = "STAGING"

    def run(at: float) -> None:
        _finish(instance.insert, at)
        if instance.status != "STAGING":
            return
        instance.status = "RUNNING"
        instance.running_seconds = at
        _bound(project, instance, at)

    project.agenda.at(seconds + project.staging_seconds, run)


def delete(project: Project, instance: Instance, operation: Operation) -> None:
    """It is on its way out, whatever it did; an operation that still makes it is cut short."""
    now = project.clock.now()
    if instance.insert.end_seconds is None:
        # That it is a conflict is reported of the real one; its code is a guess.
        told = "Operation was canceled by user ''."
        canceled = operations.Failure("OPERATION_CANCELED_BY_USER", told, 409)
        operations.fail(instance.insert, now, canceled)
    _end(instance, now)
    instance.status = "STOPPING"

    def gone(at: float) -> None:
        vanish(project, instance, at)
        operations.finish(operation, at)

    project.agenda.at(now + project.delete_seconds, gone)


def stop(project: Project, instance: Instance, operation: Operation) -> None:
    """It keeps its disks, and its name."""
    now = project.clock.now()
    _end(instance, now)
    instance.status = "STOPPING"

    def stopped(at: float) -> None:
        _terminate(instance, at)
        operations.finish(operation, at)

    project.agenda.at(now + project.delete_seconds, stopped)


def preempt(project: Project, name: str, ahead_seconds: float | None = None) -> None:
    """The cloud takes an instance back: told by its metadata server, then stopped or deleted.

    `ahead_seconds` is from that word to the ACPI signal, where the instance asks for none.
    """
    instance = project.instance(name)
    with project.lock:
        now = project.clock.now()
        instance.preempted_seconds = now
        notice = instance.body.get("scheduling", {}).get("preemptionNoticeDuration", {})
        signal_seconds = now + float(notice.get("seconds", ahead_seconds or 0.0))

        def signal(at: float) -> None:
            if instance.status not in ("RUNNING", "STAGING"):
                return
            instance.status = "STOPPING"
            _end(instance, at)
            announce(project, instance, "compute.instances.preempted", at)
            project.agenda.at(
                at + project.notice_seconds, lambda end: _act(project, instance, end)
            )

        project.agenda.at(signal_seconds, signal)
    project.now()


def take(project: Project, name: str) -> None:
    """As `preempt`, all at once: without a word, and without the time for one."""
    instance = project.instance(name)
    with project.lock:
        now = project.clock.now()
        instance.preempted_seconds = now
        _end(instance, now)
        announce(project, instance, "compute.instances.preempted", now)
        _act(project, instance, now)


def shut_down(project: Project, name: str) -> None:
    """The instance does it itself: it is stopped, and not deleted."""
    instance = project.instance(name)
    with project.lock:
        now = project.clock.now()
        _end(instance, now)
        announce(project, instance, "compute.instances.guestTerminate", now)
        _terminate(instance, now)


def break_host(project: Project, name: str) -> None:
    """The machine below fails: the instance boots elsewhere if it is to restart, or is stopped."""
    instance = project.instance(name)
    with project.lock:
        now = project.clock.now()
        announce(project, instance, "compute.instances.hostError", now)
        default = instance.purchase not in DISCOUNTED
        if instance.body.get("scheduling", {}).get("automaticRestart", default):
            _stage(project, instance, now)
        else:
            _end(instance, now)
            _terminate(instance, now)


def vanish(project: Project, instance: Instance, seconds: float) -> None:
    """Nobody finds it any more."""
    _end(instance, seconds)
    instance.is_gone = True
    instance.status = "TERMINATED"
    place = (instance.zone, instance.name)
    if project.instances.get(place) is instance:  # and not another one that has its name since
        del project.instances[place]


def announce(project: Project, instance: Instance, kind: str, seconds: float) -> None:
    """An operation that nobody called for, and what is logged of it."""
    target = f"zones/{instance.zone}/instances/{instance.name}"
    begun = operations.begin(
        project, f"zones/{instance.zone}", kind, target, instance.id, user=_SYSTEM
    )
    begun.insert_seconds = begun.start_seconds = seconds
    operations.finish(begun, seconds)
    subscriptions.log(project, instance, kind, seconds)


def _bound(project: Project, instance: Instance, running_seconds: float) -> None:
    """At the end of the longest run that was asked for, what was asked for happens."""
    limit = instance.body.get("scheduling", {}).get("maxRunDuration")
    if limit is None:
        return

    def out(at: float) -> None:
        if instance.running_seconds != running_seconds or instance.status != "RUNNING":
            return
        kind = "deferredDelete" if _is_deleted(instance) else "deferredStop"
        instance.status = "STOPPING"
        _end(instance, at)
        announce(project, instance, f"compute.instances.{kind}", at)
        project.agenda.at(at + project.delete_seconds, lambda end: _act(project, instance, end))

    project.agenda.at(running_seconds + float(limit["seconds"]), out)


def _act(project: Project, instance: Instance, seconds: float) -> None:
    """What is to become of an instance that the cloud ends."""
    if _is_deleted(instance):
        vanish(project, instance, seconds)
    else:
        _terminate(instance, seconds)


def _terminate(instance: Instance, seconds: float) -> None:
    if not instance.is_gone:
        instance.status = "TERMINATED"
        instance.stopped_seconds = seconds


def _is_deleted(instance: Instance) -> bool:
    action: str = instance.body.get("scheduling", {}).get("instanceTerminationAction", "STOP")
    return action == "DELETE"


def _end(instance: Instance, seconds: float) -> None:
    if instance.ended_seconds is None:
        instance.ended_seconds = seconds
