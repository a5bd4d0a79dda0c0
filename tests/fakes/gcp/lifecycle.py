"""Life of instances: capacity, boot, run time, preemption, stop and deletion."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tests.fakes.gcp import operations, subscriptions
from tests.fakes.gcp.geography import (
    ACCELERATORS,
    GLOBAL,
    MACHINE_TYPES,
    UNNAMED_METRICS,
    region_of,
)
from tests.fakes.gcp.project import Body, Instance, Operation, Project

DISCOUNTED: Final = frozenset({"SPOT", "FLEX_START"})
_SPOT: Final = "PREEMPTIBLE_"
# Use that counts against the standard or the spot quota, whichever has room.
_EITHER: Final = "EITHER_"
_WEEK_SECONDS: Final = 7 * 86_400
_RETRY_SECONDS: Final = 5.0
# A launch with at least this patience is queued, with the status PENDING.
_QUEUE_SECONDS: Final = 90.0
_SYSTEM: Final = "system"
# Use of each quota metric by one instance.
Need = dict[str, float]


@dataclass(frozen=True, slots=True)
class Lack:
    """Quota that is too small for a launch."""

    metric: str
    limit: float
    region: str


def lack(project: Project, zone: str, needs: list[Need]) -> Lack | None:
    """Return the first quota that is too small for one more instance of each of `needs`.

    None means that all quotas suffice.
    """
    for (region, metric), limit in project.quotas.items():
        if region not in (GLOBAL, region_of(zone)):
            continue
        for metrics, maximum in _limits(project, region, metric, limit):
            more = sum(need.get(counted, 0.0) for need in needs for counted in metrics)
            if (
                more
                and sum(_used(project, region, counted) for counted in metrics) + more > maximum
            ):
                return Lack(metric, limit, region)
    return None


def _limits(
    project: Project, region: str, metric: str, limit: float
) -> Iterator[tuple[tuple[str, ...], float]]:
    """Yield metrics that count together, and their common limit.

    Short-lived instances may use the standard or the spot quota of a GPU.
    """
    yield (metric,), limit
    spot = project.quotas.get((region, f"{_SPOT}{metric}"))
    if spot is not None:
        yield (metric, f"{_SPOT}{metric}", f"{_EITHER}{metric}"), limit + spot


def usage(project: Project, region: str, metric: str) -> float:
    """Return the use of a quota; use that fits either quota counts as standard."""
    return _used(project, region, metric) + _used(project, region, f"{_EITHER}{metric}")


def _used(project: Project, region: str, metric: str) -> float:
    return sum(
        needs_of(instance.kind, instance.purchase, instance.body).get(metric, 0.0)
        for instance in project.instances.values()
        if instance.status != "TERMINATED" and region in (GLOBAL, region_of(instance.zone))
    )


def is_short(body: Body) -> bool:
    """Return whether an instance may use either quota of its GPUs: deleted within a week."""
    seconds = float((body.get("scheduling", {}).get("maxRunDuration") or {}).get("seconds", 0))
    action = body.get("scheduling", {}).get("instanceTerminationAction")
    return action == "DELETE" and 0 < seconds <= _WEEK_SECONDS


def needs_of(kind: str, purchase: str, body: Body) -> Need:
    """Return the quota use of an instance's body; a reservation counts its GPUs itself."""
    if is_reserved(body):
        return {"INSTANCES": 1.0}
    return needs(kind, purchase, accelerators(kind, body), is_short(body))


def is_reserved(body: Body) -> bool:
    """Return whether an instance is bound to one reservation."""
    affinity = body.get("reservationAffinity") or {}
    return bool(affinity.get("consumeReservationType") == "SPECIFIC_RESERVATION")


def needs(kind: str, purchase: str, accelerators: dict[str, int], is_short: bool = False) -> Need:
    """Return the quota use of one instance, by metric."""
    machine = MACHINE_TYPES[kind]
    prefix = _SPOT if purchase in DISCOUNTED else ""
    cpus = "A2_CPUS" if machine.family == "a2" and not prefix else f"{prefix}CPUS"
    counts = {"INSTANCES": 1.0, cpus: float(machine.cpus)}
    for name, count in accelerators.items():
        metric = ACCELERATORS[name].metric
        counts[(prefix or (_EITHER if is_short else "")) + metric] = float(count)
        if not prefix:
            counts["GPUS_ALL_REGIONS"] = counts.get("GPUS_ALL_REGIONS", 0.0) + count
    return {
        metric: count
        for metric, count in counts.items()
        if metric.removeprefix(_EITHER) not in UNNAMED_METRICS
    }


def accelerators_of(instance: Instance) -> dict[str, int]:
    return accelerators(instance.kind, instance.body)


def accelerators(kind: str, body: Body) -> dict[str, int]:
    """Return the number of accelerators by kind: built-in ones, or attached ones."""
    machine = MACHINE_TYPES[kind]
    if machine.accelerator:
        return {machine.accelerator: machine.accelerators}
    asked = body.get("guestAccelerators") or []
    return {
        accelerator["acceleratorType"].rpartition("/")[2]: int(accelerator["acceleratorCount"])
        for accelerator in asked
    }


@dataclass(frozen=True, slots=True)
class Launch:
    """Instances that one operation creates.

    Attributes:
        least: smallest number of instances to create; with fewer there are none.
        failure: failure of the operation whatever the capacity; None for none.
        patience_seconds: time to wait for capacity.
    """

    instances: tuple[Instance, ...]
    operation: Operation
    least: int = 1
    failure: operations.Failure | None = None
    patience_seconds: float = 0.0


def begin(project: Project, launch: Launch) -> None:
    """Create the instances now; their capacity is decided later."""
    for instance in launch.instances:
        if launch.patience_seconds >= _QUEUE_SECONDS:
            instance.status = "PENDING"
        project.instances[instance.zone, instance.name] = instance
        project.history.append(instance)
    project.count()
    _report_progress(launch, "CREATING")
    due_seconds = launch.operation.insert_seconds + project.provision_seconds
    project.events.schedule(due_seconds, lambda at: _decide(project, launch, at))


def _decide(project: Project, launch: Launch, seconds: float) -> None:
    wanted = [instance for instance in launch.instances if instance.ended_seconds is None]
    if launch.failure is not None:
        _report_progress(launch, "DONE")
        _fail(project, launch, wanted, launch.failure, seconds)
        return
    held = [instance for instance in wanted if _take_capacity(project, instance)]
    if len(held) < launch.least:
        for instance in held:
            _give_capacity(project, instance)
        give_up_seconds = launch.operation.insert_seconds + launch.patience_seconds
        if wanted and seconds + _RETRY_SECONDS <= give_up_seconds:
            project.events.schedule(
                seconds + _RETRY_SECONDS, lambda at: _decide(project, launch, at)
            )
            return
        _report_progress(launch, "DONE", created=len(held), deleted=len(held))
        zone = launch.instances[0].zone
        stockout = _stockout(project, wanted or list(launch.instances), zone)
        _fail(project, launch, wanted, stockout, seconds)
        return
    _report_progress(launch, "DONE", created=len(held))
    for instance in wanted:
        if instance in held:
            _stage(project, instance, seconds)
        else:
            stockout = _stockout(project, [instance], instance.zone)
            _vanish_with(project, instance, stockout, seconds)
    if launch.operation.end_seconds is None:
        done_seconds = seconds + project.staging_seconds
        project.events.schedule(done_seconds, lambda at: _finish(launch.operation, at))


def _report_progress(launch: Launch, status: str, created: int = 0, deleted: int = 0) -> None:
    """Report the progress of a bulk insert in its operation."""
    if launch.operation.kind != "bulkInsert":
        return
    wanted = len(launch.instances)
    progress = {
        "status": status,
        "targetVmCount": wanted,
        "createdVmCount": created,
        "deletedVmCount": deleted,
        "failedToCreateVmCount": wanted - created if status == "DONE" else 0,
    }
    places = {f"zones/{launch.instances[0].zone}": progress}
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
    for instance in wanted:
        _vanish_with(project, instance, failure, seconds)
    if launch.operation.end_seconds is None:
        operations.fail(launch.operation, seconds, failure)


def _vanish_with(
    project: Project, instance: Instance, failure: operations.Failure, seconds: float
) -> None:
    vanish(project, instance, seconds)
    operations.fail(instance.insert, seconds, failure)


def _stockout(project: Project, wanted: list[Instance], zone: str) -> operations.Failure:
    """Return the failure for a zone without capacity, which names other zones that have some."""
    region, first = region_of(zone), wanted[0]
    others = [
        other_zone
        for kind, other_zone, purchase in project.capacity
        if (kind, purchase) == (first.kind, first.purchase)
        and region_of(other_zone) == region
        and project.capacity[kind, other_zone, purchase] > 0
    ]
    return operations.stockout(project.stockout, project.id, zone, others)


def _take_capacity(project: Project, instance: Instance) -> bool:
    """Take capacity for one instance; return whether there was some."""
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
    """Boot an instance that has capacity, and let it run."""
    instance.status = "STAGING"

    def run(at: float) -> None:
        _finish(instance.insert, at)
        if instance.status != "STAGING":
            return
        instance.status = "RUNNING"
        instance.running_seconds = at
        _bound(project, instance, at)

    project.events.schedule(seconds + project.staging_seconds, run)


def delete(project: Project, instance: Instance, operation: Operation) -> None:
    """End an instance in any state; an operation that still creates it fails."""
    now = project.clock.now()
    if instance.insert.end_seconds is None:
        # The status 409 is reported from the real cloud; the code is a guess.
        message = "Operation was canceled by user ''."
        canceled = operations.Failure("OPERATION_CANCELED_BY_USER", message, 409)
        operations.fail(instance.insert, now, canceled)
    _end(instance, now)
    instance.status = "STOPPING"

    def gone(at: float) -> None:
        vanish(project, instance, at)
        operations.finish(operation, at)

    project.events.schedule(now + project.delete_seconds, gone)


def stop(project: Project, instance: Instance, operation: Operation) -> None:
    """Stop an instance, which keeps its disks and its name."""
    now = project.clock.now()
    _end(instance, now)
    instance.status = "STOPPING"

    def stopped(at: float) -> None:
        _terminate(instance, at)
        operations.finish(operation, at)

    project.events.schedule(now + project.delete_seconds, stopped)


def preempt(project: Project, name: str, ahead_seconds: float | None = None) -> None:
    """Preempt an instance: notice by its metadata server, then stop or deletion.

    `ahead_seconds` pass from the notice to the ACPI signal, unless the instance requests a time.
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
            project.events.schedule(
                at + project.notice_seconds, lambda end: _act(project, instance, end)
            )

        project.events.schedule(signal_seconds, signal)
    project.now()


def take(project: Project, name: str) -> None:
    """Preempt an instance at once, without notice or time to save."""
    instance = project.instance(name)
    with project.lock:
        now = project.clock.now()
        instance.preempted_seconds = now
        _end(instance, now)
        announce(project, instance, "compute.instances.preempted", now)
        _act(project, instance, now)


def shut_down(project: Project, name: str) -> None:
    """Let the instance shut itself down; Compute Engine stops it and does not delete it."""
    instance = project.instance(name)
    with project.lock:
        now = project.clock.now()
        _end(instance, now)
        announce(project, instance, "compute.instances.guestTerminate", now)
        _terminate(instance, now)


def break_host(project: Project, name: str) -> None:
    """Fail the host: the instance restarts elsewhere if its scheduling says so, or stops."""
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
    """Remove an instance from all answers."""
    _end(instance, seconds)
    instance.is_gone = True
    instance.status = "TERMINATED"
    place = (instance.zone, instance.name)
    if project.instances.get(place) is instance:  # a newer instance may have the name
        del project.instances[place]


def announce(project: Project, instance: Instance, kind: str, seconds: float) -> None:
    """Record an operation of the system, and its entry in the audit log."""
    target = f"zones/{instance.zone}/instances/{instance.name}"
    begun = operations.begin(
        project, f"zones/{instance.zone}", kind, target, instance.id, user=_SYSTEM
    )
    begun.insert_seconds = begun.start_seconds = seconds
    operations.finish(begun, seconds)
    subscriptions.log(project, instance, kind, seconds)


def _bound(project: Project, instance: Instance, running_seconds: float) -> None:
    """Schedule the end of an instance's maximum run time."""
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
        project.events.schedule(
            at + project.delete_seconds, lambda end: _act(project, instance, end)
        )

    project.events.schedule(running_seconds + float(limit["seconds"]), out)


def _act(project: Project, instance: Instance, seconds: float) -> None:
    """Delete or stop an instance that the cloud ends, as its scheduling says."""
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
