"""Parameters of one job's goodput: throughput, gradient noise scale, batch sizes."""

from __future__ import annotations

from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class ThroughputParameters:
    """The seven parameters of one job's throughput model on one kind of device.

    Source: Pollux (OSDI'21) section 3.2; Sia (SOSP'23) section 3.2. Here synchronisation time
    grows with each doubling of the devices; there with each device (reasons: docs/goodput.md).
    With N instances, R devices, m examples per device and micro-step, and s accumulation steps::

        T_compute = alpha_compute + beta_compute * m
        T_sync    = 0                                                  R = 1
                    alpha_within + beta_within * log2(R / 2)           N = 1, R > 1
                    alpha_across + beta_across * log2(R / 2)           N > 1
        T_step    = s * T_compute + (T_compute^gamma + T_sync^gamma)^(1/gamma)

    All times are in seconds.
    """

    alpha_compute_seconds: float
    beta_compute_seconds_per_example: float
    alpha_across_seconds: float
    beta_across_seconds_per_doubling: float
    alpha_within_seconds: float
    beta_within_seconds_per_doubling: float
    gamma: float


@dataclass(frozen=True, slots=True)
class LocalityParameters:
    """Throughput model with a further term beyond one rack or zone.

    The model is `ThroughputParameters`, but only `near_instances` lie in one rack or zone. More
    instances lie in G = ceil(N / near_instances) such groups, which add to the synchronisation::

        T_sync = ... + alpha_far + beta_far * log2(G / 2)          G > 1
    """

    alpha_compute_seconds: float
    beta_compute_seconds_per_example: float
    alpha_across_seconds: float
    beta_across_seconds_per_doubling: float
    alpha_within_seconds: float
    beta_within_seconds_per_doubling: float
    alpha_far_seconds: float
    beta_far_seconds_per_doubling: float
    gamma: float
    near_instances: int = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class PipelineParameters:
    """Throughput model of a job in which every `stages` devices form one replica.

    A replica's examples pass its P stages in M micro-batches of at least one example. A stage's
    backward pass takes twice its forward pass. A device has m examples in a micro-step on average,
    so a micro-batch has P * m / M. The R / P replicas synchronise as devices do in
    `ThroughputParameters`::

        T_compute = 3 * (P - 1 + M) * (alpha_stage + beta_stage * P * m / M + handover)

    `handover_seconds` count only if a replica spans several instances.

    Source: GPipe (NeurIPS'19), section 2.3; Sia (SOSP'23), its hybrid-parallel GPT.
    """

    alpha_stage_seconds: float
    beta_stage_seconds_per_example: float
    handover_seconds: float
    alpha_across_seconds: float
    beta_across_seconds_per_doubling: float
    alpha_within_seconds: float
    beta_within_seconds_per_doubling: float
    gamma: float
    stages: int = field(kw_only=True)
    microbatches: int = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class ShardedParameters:
    """Throughput model of a job in which every `shard` devices hold one copy of the model.

    The F devices of a copy gather the parameters twice in each micro-step, and reduce and scatter
    its gradients once; `gather_within_seconds` are the seconds of all three on one instance,
    `gather_across_seconds` on a gang of instances. With m examples per device and micro-step, s
    accumulation steps and C = R / F copies, d devices each on N instances::

        T_compute = alpha_compute + beta_compute * m
        T_gather  = gather_within                                      d >= F
                    gather_across                                      d < F
        T_micro   = (T_compute^q + T_gather^q)^(1/q)                   q = 1 + gather_overlap
        T_sync    = 0                                                  C = 1
                    alpha_within + beta_within * log2(C / 2)           N = 1
                    min(1, d / F) * (alpha_across + beta_across * log2(C / 2))   N > 1
        T_step    = s * T_micro + (T_micro^gamma + T_sync^gamma)^(1/gamma)

    `alpha_across` and `beta_across` are for instances that exchange the gradient of a whole copy;
    an instance of a gang exchanges its part.

    Source: PyTorch FSDP (VLDB'23), sections 3.2 and 3.3.
    """

    alpha_compute_seconds: float
    beta_compute_seconds_per_example: float
    gather_within_seconds: float
    gather_across_seconds: float
    gather_overlap: float
    alpha_across_seconds: float
    beta_across_seconds_per_doubling: float
    alpha_within_seconds: float
    beta_within_seconds_per_doubling: float
    gamma: float
    shard: int = field(kw_only=True)


StepParameters = ThroughputParameters | LocalityParameters | PipelineParameters | ShardedParameters


@dataclass(frozen=True, slots=True)
class NoiseScale:
    """Gradient statistics at the job's initial batch size, and the noise scale they give.

    `gradient_square` is |G|^2 and `gradient_variance` is tr(Sigma)/initial batch. The noise scale
    is ``initial_batch * gradient_variance / gradient_square`` examples (McCandlish et al. 2018,
    B_simple; preconditioned where the optimizer is Adam: Pollux 3.1). `log_standard_deviation` is
    the standard deviation of the logarithm of that ratio.
    """

    initial_batch: int
    gradient_square: float
    gradient_variance: float
    log_standard_deviation: float

    @property
    def examples(self) -> float:
        """Noise scale in examples."""
        return self.initial_batch * self.gradient_variance / self.gradient_square


@dataclass(frozen=True, slots=True)
class NoiseCurve:
    """Noise scale over the progress of an earlier run of the same program.

    `progress_examples` are useful examples, at least one point, increasing. `noise_examples` is
    the noise scale at each point. The curve gives the shape of later noise scales; their level is
    measured in the present run.
    """

    progress_examples: tuple[float, ...]
    noise_examples: tuple[float, ...]


KindMaxima = tuple[tuple[str, int], ...]


def with_limit(maxima: KindMaxima, device_kind: str, most: int) -> KindMaxima:
    """Return maximal examples per device by kind, with the maximum of one kind lowered.

    The maximum of `device_kind` becomes at most `most`; a lower known maximum stays.
    """
    limits = dict(maxima)
    limits[device_kind] = min(most, limits.get(device_kind, most))
    return tuple(sorted(limits.items()))


@dataclass(frozen=True, slots=True)
class BatchBounds:
    """Bounds of a job's batch sizes, in examples.

    If not `adaptive`, the total batch is always `initial` and statistical efficiency is 1.
    `kind_maxima` (kind of device, examples) lists kinds whose maximum per micro-step differs from
    `device_maximum`.
    """

    initial: int
    maximum: int
    device_maximum: int
    adaptive: bool
    kind_maxima: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        maxima = (maximum for _, maximum in self.kind_maxima)
        if min(self.initial, self.maximum, self.device_maximum, *maxima) < 1:
            raise ValueError(f"batch sizes must be at least 1: {self}")
        if self.maximum < self.initial:
            raise ValueError(f"maximum={self.maximum} is below initial={self.initial}")

    @property
    def may_grow(self) -> bool:
        """Whether the job may train at a total batch above its initial one."""
        return self.adaptive and self.maximum > self.initial

    def on(self, device_kind: str) -> BatchBounds:
        """Return the bounds on devices of one kind alone."""
        if not self.kind_maxima:
            return self
        device_maximum = dict(self.kind_maxima).get(device_kind, self.device_maximum)
        return replace(self, device_maximum=device_maximum, kind_maxima=())

    @property
    def memory_messages(self) -> tuple[str, ...]:
        """Messages for each kind of device that takes fewer examples than the others."""
        limited_kinds = [
            (kind, most) for kind, most in self.kind_maxima if most < self.device_maximum
        ]
        return tuple(
            f"out of memory with more than {most} {'example' if most == 1 else 'examples'} at "
            f"once on a device of kind {kind}: larger shares are split"
            for kind, most in limited_kinds
        )

    def limited(self, device_kind: str, most: int) -> BatchBounds:
        """Return the bounds with at most `most` examples at once on devices of one kind."""
        if most >= self.on(device_kind).device_maximum:
            return self
        return replace(self, kind_maxima=with_limit(self.kind_maxima, device_kind, most))


@dataclass(frozen=True, slots=True)
class Batch:
    """Distribution of one step's examples: `total` over all devices and accumulation steps.

    Each of R devices runs `accumulation` micro-steps without synchronisation and one with it, of
    at most `device` examples each; ``(accumulation + 1) * device * R >= total``.
    """

    total: int
    device: int
    accumulation: int
