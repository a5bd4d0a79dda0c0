"""Catalogue of all metrics of `/metrics`: names, labels and meanings, which stay stable.

Names follow Prometheus: base units in the name, and `_total` at the end of a counter's. Dollars
are US dollars. docs/monitoring.md has the same table.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class MetricKind(StrEnum):
    """Kind of a metric, as Prometheus names it."""

    GAUGE = "gauge"
    COUNTER = "counter"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """One metric: its name in the text of `/metrics`, kind, meaning and labels.

    A histogram has `buckets`, their upper bounds in its unit.
    """

    name: str
    kind: MetricKind
    meaning: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()


JOB_LABELS: Final = ("job_id", "person", "team")
"""Labels of each metric of a job; `team` is empty for a job without one.

A label `job` would be the scrape's own in Prometheus, which renames that of the metric.
"""

_FAST: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 30.0)
_SLOW: Final = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 120.0)


def _gauge(name: str, meaning: str, *labels: str) -> MetricSpec:
    return MetricSpec(name, MetricKind.GAUGE, meaning, labels)


def _counter(name: str, meaning: str, *labels: str) -> MetricSpec:
    return MetricSpec(name, MetricKind.COUNTER, meaning, labels)


def _job(name: str, meaning: str) -> MetricSpec:
    return MetricSpec(name, MetricKind.GAUGE, meaning, JOB_LABELS)


def _seconds(
    name: str, meaning: str, *labels: str, buckets: tuple[float, ...] = _SLOW
) -> MetricSpec:
    return MetricSpec(name, MetricKind.HISTOGRAM, meaning, labels, buckets)


BUILD: Final = _gauge("castor_build_info", "1, with the version", "version")
LEADER: Final = _gauge("castor_leader", "1 if this controller leads its store, 0 if it follows")
LAST_TICK: Final = _gauge(
    "castor_last_tick_timestamp_seconds", "end of the last tick that succeeded, since the epoch"
)
LOOP_QUIET: Final = _gauge(
    "castor_loop_quiet_seconds", "time since the last begin or end of a tick"
)
TICKS: Final = _seconds(
    "castor_tick_duration_seconds", "ticks of the control loop, by outcome: ok, failed", "outcome"
)
PLANS: Final = _seconds(
    "castor_plan_duration_seconds", "calls of the policy, by outcome: ok, failed", "outcome"
)
FAILED_PLANS: Final = _counter(
    "castor_failed_plans_total", "plans that failed for some or all jobs"
)
SOLVER_FAILURES: Final = _counter(
    "castor_solver_failures_total", "plans made without the policy's solver"
)
STORE_WRITE_AGE: Final = _gauge(
    "castor_store_write_age_seconds", "time since the last test write to the store that succeeded"
)
STORE_WRITE_FAILS: Final = _gauge(
    "castor_store_write_failing", "1 if the last test write to the store failed"
)
CERTIFICATE_END: Final = _gauge(
    "castor_certificate_expiry_timestamp_seconds",
    "end of the validity of the API's certificate, since the epoch; absent without HTTPS",
)
REQUESTS: Final = _counter(
    "castor_http_requests_total",
    "answered requests of the API; an unknown path has the route other",
    *("method", "route", "status"),
)
REQUEST_SECONDS: Final = _seconds(
    "castor_http_request_duration_seconds",
    "requests of the API, long polls with their waits",
    "route",
    buckets=_FAST,
)
HEARTBEATS: Final = _counter(
    "castor_heartbeats_total", "heartbeats of agents, by outcome: stored, refused", "outcome"
)
CALLS: Final = _seconds(
    "castor_provider_call_duration_seconds",
    "calls of a provider, by outcome: ok, or the class of the error",
    *("provider", "operation", "outcome"),
)
LAUNCHES: Final = _counter(
    "castor_launches_total",
    "calls to launch an instance, by outcome: accepted, or the class of the refusal",
    *("offer", "outcome"),
)

JOBS: Final = _gauge("castor_jobs", "jobs that have not ended", "phase")
JOBS_LEFT_OUT: Final = _gauge(
    "castor_jobs_without_series", "live jobs beyond --metrics-jobs, which have no series here"
)
INSTANCES: Final = _gauge("castor_instances", "instances held", *("offer", "phase"))
DEVICES: Final = _gauge("castor_devices_used", "devices that jobs use", "offer")
SILENCE: Final = _gauge(
    "castor_oldest_heartbeat_age_seconds",
    "longest time since the last report of an instance that has joined",
)
FLEET_RATE: Final = _gauge("castor_fleet_usd_per_hour", "price of all instances held")
FLEET_SPENT: Final = _gauge(
    "castor_fleet_spent_usd", "spending of all jobs, ever; absent without --fleet-usd"
)
FLEET_BUDGET: Final = _gauge("castor_fleet_budget_usd", "--fleet-usd; absent without it")
LIMIT: Final = _gauge("castor_limit", "quota, capacity or cap of the fleet", *("limit", "unit"))
LIMIT_USED: Final = _gauge("castor_limit_used", "use of that limit", *("limit", "unit"))
LIMIT_PRICE: Final = _gauge(
    "castor_limit_shadow_price_usd_per_hour", "worth of one more unit of that limit", "limit"
)
OFFER_PRICE: Final = _gauge(
    "castor_offer_usd_per_hour", "price of one instance", *("offer", "provider", "purchase")
)
OFFER_REFUSED: Final = _gauge(
    "castor_offer_unavailable", "1 while an offer is not ordered, since its cloud refused it",
    "offer",
)  # fmt: skip
PROVIDER_SILENT: Final = _gauge(
    "castor_provider_silent", "1 if the provider did not answer the last questions", "provider"
)
PROVIDER_ANSWERED: Final = _gauge(
    "castor_provider_answer_timestamp_seconds",
    "time of the question that was last answered with offers, since the epoch",
    "provider",
)
STRAYS: Final = _gauge(
    "castor_stray_instances", "instances of this deployment that no job holds, being ended"
)
HANDS_OFF: Final = _gauge(
    "castor_frozen", "1 while decisions are not carried out: frozen, or --observe"
)
TROUBLE: Final = _gauge(
    "castor_troubles", "present errors, by scope: fleet, jobs, studies", "scope"
)

JOB_INFO: Final = _gauge(
    "castor_job_info",
    "1, with the study (empty for a job of none), the program and the phase",
    *(*JOB_LABELS, "study", "program", "phase"),
)
JOB_GOODPUT: Final = _job(
    "castor_job_goodput_examples_per_second", "useful examples a second, measured"
)
JOB_PREDICTED_GOODPUT: Final = _job(
    "castor_job_predicted_goodput_examples_per_second",
    "the same by the fitted model, for the instances held",
)
JOB_THROUGHPUT: Final = _job(
    "castor_job_throughput_examples_per_second", "examples a second: goodput by efficiency"
)
JOB_EFFICIENCY: Final = _job(
    "castor_job_efficiency_ratio", "useful examples per example at the present batch, 0 to 1"
)
JOB_NOISE: Final = _job("castor_job_noise_scale_examples", "gradient noise scale")
JOB_BATCH: Final = _job("castor_job_batch_examples", "examples of one step, on all devices")
JOB_PROGRESS: Final = _job(
    "castor_job_progress_examples", "useful examples so far; less again after a lost checkpoint"
)
JOB_TOTAL: Final = _job("castor_job_total_examples", "useful examples of the whole job")
JOB_STEPS: Final = _job("castor_job_steps", "steps so far; fewer again after a lost checkpoint")
JOB_REPORTED: Final = _job(
    "castor_job_report_timestamp_seconds", "time of the last training report, since the epoch"
)
JOB_INSTANCES: Final = _job("castor_job_instances", "instances held")
JOB_TRAINING: Final = _job("castor_job_training_instances", "instances that train")
JOB_GPUS: Final = _job("castor_job_gpus", "GPUs whose agents report their use")
JOB_GPU_SHARE: Final = _job(
    "castor_job_gpu_utilization_ratio", "time in which a GPU computed, mean of the GPUs, 0 to 1"
)
JOB_GPU_MEMORY_USED: Final = _job("castor_job_gpu_memory_used_bytes", "memory in use, all GPUs")
JOB_GPU_MEMORY: Final = _job("castor_job_gpu_memory_bytes", "memory of all GPUs")
JOB_RATE: Final = _job("castor_job_usd_per_hour", "price of the instances held")
JOB_SPENT: Final = _job(
    "castor_job_spent_usd", "cost so far; a gauge, since a cloud may correct it downwards"
)
JOB_BILLED: Final = _gauge(
    "castor_job_billed_seconds",
    "billed time of its instances by purpose, as in its receipt; minutes old",
    *(*JOB_LABELS, "category"),
)
JOB_GOODPUT_RATIO: Final = _job(
    "castor_job_goodput_ratio", "useful part of the billed time, which AWS and Google call goodput"
)
JOB_BUDGET: Final = _job("castor_job_budget_usd", "budget; absent without one")
JOB_PREDICTED_COST: Final = _job(
    "castor_job_predicted_usd", "cost at the end, at the present goodput and price"
)
JOB_REMAINING: Final = _job(
    "castor_job_remaining_seconds", "time to the end, at the present goodput"
)
JOB_DEADLINE: Final = _job(
    "castor_job_deadline_timestamp_seconds", "deadline, since the epoch; absent without one"
)
JOB_ATTEMPT: Final = _job("castor_job_attempt", "starts of the script after failures, from 1")
JOB_STALLED: Final = _job("castor_job_stalled", "1 while the job costs money without progress")
JOB_TROUBLE: Final = _job(
    "castor_job_trouble", "1 while an error keeps the job from being planned or served"
)
