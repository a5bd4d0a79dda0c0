"""Replica of a job, seen from one rank: its rows, batch proposals and measurements by round."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from autoscaler.clock import Clock
from autoscaler.domain.goodput import Batch, BatchBounds, NoiseScale, StepParameters
from autoscaler.domain.report import MembershipPause, StepObservation
from autoscaler.goodput.batch_choice import batch_to_look_at, next_batch_total, split_batch, within
from autoscaler.training.collectives.gradient_reducer import GradientReducer
from autoscaler.training.data.sampler import share_sizes
from autoscaler.training.decisions import decision_of, gain_inputs, repeated
from autoscaler.training.device_limits import DeviceLimits
from autoscaler.training.gradients.noise import GradientSquares
from autoscaler.training.members.job_ranks import Exchange, JobRanks
from autoscaler.training.members.round_times import (
    Halts,
    Round,
    Speed,
    pause_of,
    samples_seconds,
)
from autoscaler.training.members.rounds import (
    ROUND_SECONDS,
    Agreement,
    ReplicaRow,
    agree,
    combined_squares,
    observation,
)
from autoscaler.training.state.batch_log import BatchReason, BatchReplay
from autoscaler.training.state.fingerprint import Fingerprint
from autoscaler.training.state.training_state import TrainingState
from autoscaler.training.steps.stepper import Stepper
from autoscaler.training.stopping import Stop

_REDECIDE_SECONDS = 2.0
_LONGEST_ROUND_SECONDS = 2 * ROUND_SECONDS
# Weight of a new round's step time in the moving average.
_NEW_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class ReplicaSettings:
    """Settings of one rank that stay constant while it trains.

    `kind_number` identifies the kind of device in rows. A leaving replica goes on training for
    `farewell_seconds`, so that the others can continue without it at once. The job's first
    `warm_up_steps` take no gradient squares. A rank takes at least `least_share` examples at once.
    `fingerprint` must equal the peers'. `batches` is another run's log to replay, or None.
    """

    bounds: BatchBounds
    device_kind: str
    kind_number: float
    farewell_seconds: float
    warm_up_steps: int = 0
    least_share: int = 1
    fingerprint: Fingerprint = field(default_factory=Fingerprint)
    batches: BatchReplay | None = None


class Replica:
    """Part of one rank in the rounds of the job.

    The next exchange sends `leaves` and `wants_checkpoint`. `throughput` is the controller's
    fitted model, None before the first. `limits` holds the examples that devices take at once.
    `sees_lighthouse` and `sees_change` report as `MembershipEngine` does. `decides`: whether this
    rank leads the deciding replica. `observations` and `pauses` are those since the last report.
    `training_seconds`, committed `steps` and `halts` count from this start.
    """

    def __init__(
        self,
        settings: ReplicaSettings,
        state: TrainingState,
        job_ranks: JobRanks,
        stepper: Stepper,
        reducer: GradientReducer,
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._state = state
        self._job_ranks = job_ranks
        self._stepper = stepper
        self._reducer = reducer
        self._clock = clock
        self._round: Round | None = None
        self._rounds_joined = 0
        self._proposed_seconds = 0.0
        self._proposed_members = (0, 0)
        self._step_times: tuple[float, float, int] = (0.0, 0.0, 0)
        self._spent_seconds: tuple[float, float] = (0.0, 0.0)
        self._step_seconds: dict[tuple[int, int], float] = {}
        self._has_probed = False
        self._failed_step_seconds: float | None = None
        self._speed = Speed()
        self._evaluates = False
        self.stop = Stop(job_ranks)
        self.limits = DeviceLimits(settings.bounds, settings.device_kind, settings.least_share)
        self.leaves = False
        self.wants_checkpoint = False
        self.throughput: StepParameters | None = None
        self.sees_lighthouse: Callable[[], bool] = lambda: True
        self.sees_change: Callable[[], bool] = lambda: False
        self.observations: list[StepObservation] = []
        self.pauses: list[MembershipPause] = []
        self.training_seconds = 0.0
        self.halts = Halts()
        self.steps = 0
        self.decides = False

    @property
    def has_begun(self) -> bool:
        """Whether a round has begun."""
        return self._round is not None

    @property
    def agreement(self) -> Agreement:
        """Agreement of the present round."""
        assert self._round is not None, "no round has begun"
        return self._round.agreement

    @property
    def batch(self) -> Batch:
        """Split of the present batch over the ranks."""
        return self.batch_over(self.agreement.ranks)

    def batch_over(self, shares: int) -> Batch:
        """Return the present batch split over `shares` devices; the largest if unequal."""
        agreement, total = self.agreement, self.agreement.batch_total
        device_maximum = self.limits.agreed(agreement).device_maximum
        if shares != agreement.ranks or not agreement.speeds:
            return split_batch(total, shares, device_maximum)
        largest = max(share_sizes(total, shares, self.least_share, agreement.speeds))
        return replace(split_batch(largest, 1, device_maximum), total=total)

    @property
    def rank(self) -> int:
        """Index of this rank among all ranks of the round."""
        return self.agreement.first_rank + self._job_ranks.local_rank

    @property
    def noise(self) -> NoiseScale | None:
        """Gradient noise scale as estimated so far; None before the first estimate."""
        return self._state.counters.noise.noise_scale(self.limits.own.initial)

    @property
    def bounds(self) -> BatchBounds:
        """Bounds of the job's batch size."""
        return self._settings.bounds

    @property
    def least_share(self) -> int:
        """Fewest examples that a rank takes at once."""
        return self._settings.least_share

    def share_buffers(self) -> None:
        """Set the model's buffers on all replicas to those of the deciding replica."""
        agreement = self.agreement
        if agreement.replicas > 1:
            self._job_ranks.share_buffers(is_source=agreement.decides)

    def begin_round(self) -> Agreement:
        """Agree with all other ranks on the next steps. Blocks; a joiner receives the state."""
        asked_seconds = self._clock.monotonic()
        last = self._round
        squares = self._stepper.take_squares()
        gathers, self._evaluates = self._evaluates, False
        stopping_rank = self.stop.asking_rank()
        exchange = self._job_ranks.exchange(lambda: self._row(squares, stopping_rank), gathers)
        self._job_ranks.require_equal_to_decider(self._settings.fingerprint, exchange)
        index = exchange.membership.index
        agreement = agree(exchange.rows, index, self._settings.farewell_seconds)
        agreement = repeated(agreement, self._settings.batches, self._state.counters.step)
        self.stop.settle(agreement, index)
        self.decides = self._job_ranks.is_leader and agreement.decides
        self._learn(exchange, last, asked_seconds)
        counters = self._state.counters
        counters.batch_total = agreement.batch_total
        counters.gradient_square = agreement.gradient_square
        counters.gradient_variance = agreement.gradient_variance
        is_repeated = self._settings.batches is not None
        initial, learning_rate = self._settings.bounds.initial, self._stepper.learning_rate()
        decision = decision_of(agreement, counters.step, initial, learning_rate)
        self._state.batches.add(decision, agreement.batch_reason, is_repeated)
        self._round = Round(
            agreement,
            clean=last is not None
            and not exchange.membership.changed
            and agreement.batch_total == last.agreement.batch_total,
            started_seconds=self._clock.monotonic() if gathers else asked_seconds,
        )
        self._rounds_joined += 1
        self._reducer.take_waited_seconds()
        self._reducer.take_sampling_seconds()
        self._round.waited_seconds = self._clock.monotonic() - self._round.started_seconds
        ranks_by_instance = [int(row.ranks) for row in exchange.rows]
        self._reducer.take_route(ranks_by_instance, index, self._job_ranks.uses_rails)
        if agreement.someone_joins:
            self.share_buffers()
            self._reducer.forget_factors()
        if agreement.someone_leaves and not agreement.everyone_leaves:
            self._job_ranks.expect_leave(agreement.we_leave)
        return agreement

    @property
    def ends_round(self) -> bool:
        """Whether the present round ends with the last step, by a request or an evaluation.

        A round in which a replica leaves never ends early: the lighthouse must notice the missing
        heartbeats.
        """
        is_requested = self._stepper.ends_round or self._evaluates or self._stops_alone
        return is_requested and not self.agreement.someone_leaves

    @property
    def _stops_alone(self) -> bool:
        return self.stop.is_asked and self.agreement.ranks == 1

    def begin_evaluation(self) -> None:
        """Stop the round's step clock until the next round, as the script evaluates.

        All ranks must call this after the same step. The time until the next round counts as no
        step's.
        """
        assert self._round is not None
        self._evaluates = True
        if self._round.paused_seconds is None and not self.agreement.someone_leaves:
            self._round.paused_seconds = self._clock.monotonic()

    @property
    def is_round_overdue(self) -> bool:
        """Whether the present round lasts `_LONGEST_ROUND_SECONDS` or longer."""
        assert self._round is not None
        lasted_seconds = self._clock.monotonic() - self._round.started_seconds
        return lasted_seconds >= _LONGEST_ROUND_SECONDS

    def samples_step(self, step: int, step_examples: int) -> bool:
        """Return whether step `step` of the job takes gradient squares, in the present round.

        Steps that the end of a pass cuts short take none, nor do steps of a job with a fixed
        batch.
        """
        agreement = self.agreement
        if not self.limits.own.may_grow or self._settings.batches is not None:
            return False
        if step_examples < max(agreement.ranks, 2) * self.least_share:
            return False
        is_due = step >= self._settings.warm_up_steps and step % agreement.steps_per_sample == 0
        return is_due and step_examples == agreement.batch_total

    def count_step(
        self,
        committed: bool,
        step_examples: int,
        micro_steps: int,
        began_seconds: float,
        skipped: bool = False,
    ) -> None:
        """Record a step of `micro_steps` micro-steps, begun at `began_seconds` of the clock.

        `skipped`: whether the step was committed and moved no weight.
        """
        assert self._round is not None
        seconds = self._clock.monotonic() - began_seconds
        self.steps += committed
        self.halts.lost_seconds += seconds if skipped else 0.0
        if not committed:
            self._round.clean = False
            self._failed_step_seconds = began_seconds
        elif step_examples != self._round.agreement.batch_total:
            self._round.cut_steps += 1
            self._round.cut_seconds += seconds
        elif micro_steps > self.batch.accumulation + 1:
            self._round.split_steps += 1
            self._round.split_seconds += seconds
        else:
            self._round.steps += 1

    def end_round(self) -> None:
        """Compute the round's step times, which the next exchange sends."""
        assert self._round is not None
        round_ = self._round
        round_.waited_seconds += self._reducer.take_waited_seconds()
        paused_seconds = round_.paused_seconds
        ended_seconds = self._clock.monotonic() if paused_seconds is None else paused_seconds
        elapsed_seconds = ended_seconds - round_.started_seconds
        self.training_seconds += elapsed_seconds
        sampling_seconds = self._reducer.take_sampling_seconds()
        if self._failed_step_seconds is not None:
            return
        step_count = round_.steps + round_.cut_steps + round_.split_steps
        if round_.steps > 0:
            others_seconds = round_.cut_seconds + round_.split_seconds
            if round_.split_steps == 0:
                others_seconds += sampling_seconds
            step_seconds = max(elapsed_seconds - others_seconds, 0.0) / round_.steps
            self._step_times = (
                step_seconds,
                min(round_.waited_seconds / step_count, step_seconds),
                round_.steps if round_.clean else 0,
            )
            if round_.clean:
                self._speed.count(self._own_examples(round_.agreement), self._step_times)
        step_seconds = self._step_times[0]
        sampled_seconds = samples_seconds(
            round_, self._stepper.sampled_steps, sampling_seconds, step_seconds
        )
        self._spent_seconds = (step_count * step_seconds, sampled_seconds)

    def _own_examples(self, agreement: Agreement) -> int:
        total, ranks, speeds = agreement.batch_total, agreement.ranks, agreement.speeds
        return share_sizes(total, ranks, self.least_share, speeds)[self.rank]

    def _row(self, squares: GradientSquares, stops: int) -> ReplicaRow:
        counters = self._state.counters
        step_seconds, sync_seconds, timed_steps = self._step_times
        trained_seconds, sampled_seconds = self._spent_seconds
        noise = self.noise
        gradient_square, gradient_variance = gain_inputs(counters, noise)
        batch_total, reason = self._proposed_batch(noise)
        return ReplicaRow(
            ranks=self._job_ranks.local_ranks,
            kind=self._settings.kind_number,
            age=self._rounds_joined,
            leaves=self.leaves,
            sees_lighthouse=self.sees_lighthouse(),
            sees_change=self.sees_change(),
            stops=stops,
            wants_checkpoint=self.wants_checkpoint,
            device_maximum=self.limits.own.device_maximum,
            speed=self._speed.examples_per_second,
            batch_total=batch_total,
            batch_reason=reason,
            gradient_square=gradient_square,
            gradient_variance=gradient_variance,
            step_seconds=step_seconds,
            sync_seconds=sync_seconds,
            timed_steps=timed_steps,
            steps_per_sample=counters.sampling.steps_per_sample(
                step_seconds, noise.log_standard_deviation if noise else None
            ),
            trained_seconds=trained_seconds,
            sampled_seconds=sampled_seconds,
            squares_samples=squares.samples,
            squares_smalls=squares.smalls,
            squares_small=squares.small_square,
            squares_small_inverse=squares.small_inverse,
            squares_big=squares.big_square,
            squares_big_inverse=squares.big_inverse,
            fingerprint=self._settings.fingerprint,
        )

    def _proposed_batch(self, noise: NoiseScale | None) -> tuple[int, BatchReason]:
        """Return the batch size that this replica proposes, and the reason.

        The proposal is recomputed every `_REDECIDE_SECONDS` and after each change of membership,
        once a round with the new members has shown their number of devices.
        """
        current = within(self.limits.own, self._state.counters.batch_total)
        if self._round is None:
            return current, BatchReason.KEPT
        agreement = self._round.agreement
        bounds = self.limits.agreed(agreement)
        members = (agreement.replicas, agreement.ranks)
        now_seconds = self._clock.monotonic()
        is_recent = now_seconds - self._proposed_seconds < _REDECIDE_SECONDS
        if members == self._proposed_members and is_recent:
            return current, BatchReason.KEPT
        self._proposed_members, self._proposed_seconds = members, now_seconds
        if not self._has_probed and self.throughput is not None and self._step_seconds:
            self._has_probed = True
            wanted = batch_to_look_at(bounds, agreement.ranks, self._step_seconds)
            if wanted is not None:
                return wanted, BatchReason.MEASUREMENT
        best = next_batch_total(
            current, bounds, self.throughput, noise, members, self._step_seconds
        )
        return best, BatchReason.GOODPUT if best != current else BatchReason.KEPT

    def _learn(self, exchange: Exchange, last: Round | None, asked_seconds: float) -> None:
        """Update statistics from the rows, which describe the round that has ended."""
        counters, squares = self._state.counters, combined_squares(exchange.rows)
        self.limits.hear(exchange.rows, self._settings.kind_number)
        counters.noise.update(squares)
        counters.sampling.count(
            max(row.trained_seconds for row in exchange.rows),
            max(row.sampled_seconds for row in exchange.rows),
            squares.samples,
        )
        failed_seconds, self._failed_step_seconds = self._failed_step_seconds, None
        self._step_times, self._spent_seconds = (*self._step_times[:2], 0), (0.0, 0.0)
        if last is not None:
            self._count_halt(exchange, last.agreement, asked_seconds, failed_seconds)
        if last is None or not self.decides:
            return
        if exchange.membership.changed:
            self._step_seconds.clear()
            since_seconds = asked_seconds if failed_seconds is None else failed_seconds
            seconds = self._clock.monotonic() - since_seconds
            self.pauses.append(pause_of(last.agreement, len(exchange.rows), seconds))
            return
        split = split_batch(
            last.agreement.batch_total,
            last.agreement.ranks,
            self.limits.agreed(last.agreement).device_maximum,
        )
        observed = observation(
            exchange.rows, self._settings.device_kind, split.device, split.accumulation
        )
        if observed is not None:
            self.observations.append(observed)
            key = split.device, split.accumulation
            mean = self._step_seconds.get(key, observed.step_seconds)
            self._step_seconds[key] = mean + _NEW_SHARE * (observed.step_seconds - mean)

    def _count_halt(
        self,
        exchange: Exchange,
        last: Agreement,
        asked_seconds: float,
        failed_seconds: float | None,
    ) -> None:
        """Count the time before a round if it went to a change, a lost step or a checkpoint."""
        since_seconds = asked_seconds if failed_seconds is None else failed_seconds
        seconds = self._clock.monotonic() - since_seconds
        if exchange.membership.changed:
            is_lost = pause_of(last, len(exchange.rows), seconds).kind == "loss"
        elif failed_seconds is not None or last.saves_checkpoint:
            is_lost = failed_seconds is not None
        else:
            return
        if is_lost:
            self.halts.lost_seconds += seconds
        else:
            self.halts.paused_seconds += seconds
