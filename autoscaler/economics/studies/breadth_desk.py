"""What is left to give to asynchronous trials: instances, room under limits, money."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from autoscaler.economics.studies.async_trials import (
    AsyncAction,
    AsyncDecision,
    AsyncTerms,
    AsyncTrial,
    expected_improvement,
    reachable_values,
)
from autoscaler.economics.studies.room import Room
from autoscaler.economics.studies.rung import StudySupply
from autoscaler.economics.wording import duration, money

_LEAST_RATE = 1e-300
_NOTHING = 1e-12
# What is left may be just what is needed, but for this share of the budget.
_ROUNDING = 1e-6


class Desk:
    """Hands out what there is, one trial after the other; the guards are those of `breadth`.

    `finalists` are the trials likeliest to be the best at their ends, of those that train and
    have passed a decision; `others` train too, the most promising first. `reserve_usd` is what
    the finalists need to their ends.
    """

    def __init__(
        self, supply: StudySupply, terms: AsyncTerms, trials: Sequence[AsyncTrial]
    ) -> None:
        self._supply, self._terms = supply, terms
        self._room = Room(supply)
        self._gathers: dict[str, tuple[int, str]] = {}
        # Seconds for which each free instance of an offer is paid for, the longest first.
        self._free: dict[str, list[float]] = {offer.id: [] for offer in supply.offers}
        for one in sorted(terms.freed, key=lambda one: -one.paid_seconds):
            self._free[one.offer] += [one.paid_seconds] * one.instances
            self._room.take(supply.place_of[one.offer], one.instances)
        held = [trial for trial in trials if trial.held is not None]
        for trial in held:
            size = self._size(trial)
            self._room.take(int(supply.offer_of[size]), int(supply.instances[size]))
        proven = sorted((one for one in held if one.decisions > 0), key=self._final_value)
        self.finalists = tuple(proven[::-1][: terms.finalists])
        self.others = tuple(
            sorted((one for one in held if one not in self.finalists), key=self._promise)
        )[::-1]
        self.reserve_usd = 0.0
        self._left_usd = self._spare_usd = float("inf")
        self._rounding_usd = _ROUNDING * (terms.budget_usd or 0.0)
        if terms.budget_usd is not None:
            self.reserve_usd = sum(self._usd(one, one.to_end) for one in self.finalists)
            self._spare_usd = terms.budget_usd - self.reserve_usd
            self._left_usd = self._spare_usd
        fresh = [self._per_dollar(one) for one in trials if one.held is None]
        self._fresh_per_dollar = max(fresh, default=0.0)

    def held(self, trial: AsyncTrial) -> AsyncDecision:
        """It goes on as it is; what that is likely to cost is no longer there for others."""
        if trial not in self.finalists:
            self._left_usd -= self._usd(trial, trial.expected_work(self._terms.survival))
        size = self._supply.sizes[self._size(trial)]
        reason = f"hold {trial.id} at {size}: a trial that trains is stopped by its pruner only"
        return AsyncDecision(trial.id, AsyncAction.HOLD, size, reason)

    def paused(self, trial: AsyncTrial) -> AsyncDecision | None:
        """G5: what would be cut before its next decision leaves the money to those who won't."""
        usd = self._usd(trial, trial.to_rung)
        if usd <= self._spare_usd + self._rounding_usd:
            self._spare_usd -= usd
            return None
        size = self._size(trial)
        offer = self._supply.sizes[size].offer
        self._free[offer] += [trial.paid_seconds] * int(self._supply.instances[size])
        self._free[offer].sort(reverse=True)
        reason = (
            f"wait {trial.id}, paused: its next rung costs {money(usd)}; beyond the "
            f"{money(self.reserve_usd)} for finalists and what better ones need "
            f"{money(max(self._spare_usd, 0.0))} is left"
        )
        return AsyncDecision(trial.id, AsyncAction.PAUSE, None, reason)

    def grown_to_be_in_time(self, trial: AsyncTrial) -> AsyncDecision | None:
        """G2: to the smallest size at which it is there in time, if it isn't as it is."""
        deadline, held = self._terms.deadline_seconds, self._size(trial)
        assert deadline is not None
        is_finalist = trial in self.finalists
        work = trial.to_end if is_finalist else trial.to_rung
        if work / trial.goodput[held] <= deadline or self._rests(trial):
            return None
        for size in self._by_price():
            change = self._change_seconds(trial, size)
            is_elsewhere = self._supply.offer_of[size] != self._supply.offer_of[held]
            if trial.goodput[size] <= 0 or is_elsewhere:
                continue
            if change + work / trial.goodput[size] > deadline:
                continue
            if not self._gains(trial, size, change) or not self._pays(trial, size, change, work):
                continue
            if not self._take(trial, size):
                if is_finalist:
                    self._gather(trial, size)
                    return None
                continue
            what = "the end of its training" if is_finalist else "its next rung"
            return self._grow(
                trial,
                size,
                f"at {self._supply.sizes[held]} it would not reach {what} within "
                f"{duration(deadline)}",
            )
        return None

    def grown_for_nothing(self, trial: AsyncTrial) -> AsyncDecision | None:
        """G2: by what is paid for up to its next decision and nobody else takes."""
        held = self._size(trial)
        if self._rests(trial):
            return None
        best = None
        for size in self._by_price():
            more = self._more(trial, size)
            offer = self._supply.sizes[size].offer
            if more <= 0 or offer != self._supply.sizes[held].offer:
                continue
            pause = self._supply.switching.pause_seconds
            if len(self._free[offer]) < more or not self._gains(trial, size, pause):
                continue
            if pause + trial.to_rung / trial.goodput[size] <= self._free[offer][more - 1]:
                best = size
        if best is None or not self._take(trial, best):
            return None
        return self._grow(trial, best, "what it grows by is paid for already")

    def started(self, trial: AsyncTrial) -> AsyncDecision:
        """G1: at the smallest size, if it can be of use (G3) and the money is there (G5)."""
        size = self._size(trial)
        offer = self._supply.sizes[size].offer
        wait = self._start_seconds(size)
        seconds = wait + trial.to_rung / trial.goodput[size]
        deadline = self._terms.deadline_seconds
        if deadline is not None and seconds > deadline:
            return _waits(
                trial,
                f"its first rung takes {duration(seconds)}, the deadline is in "
                f"{duration(deadline)}",
            )
        if offer in self._gathers:
            return _waits(trial, f"what comes free is kept for {self._gathers[offer][1]}")
        usd = self._usd_to_begin(trial, size, wait)
        if usd > self._left_usd + self._rounding_usd:
            return _waits(
                trial,
                f"it is likely to cost {money(usd)}; beyond the {money(self.reserve_usd)} for "
                f"finalists and what trains already "
                f"{money(max(self._left_usd, 0.0))} is left",
            )
        if not self._take(trial, size):
            return _waits(trial, "the limits leave no room for one more")
        self._left_usd -= usd
        chosen = self._supply.sizes[size]
        return AsyncDecision(
            trial.id,
            AsyncAction.START,
            chosen,
            f"start {trial.id} on {chosen}: smallest size, breadth first",
        )

    def release(self) -> tuple[tuple[str, int], ...]:
        """What is free, not paid for, and kept for nobody."""
        kept = {offer: count for offer, (count, _) in self._gathers.items()}
        unpaid = {
            offer: len(free) - max(sum(paid > 0 for paid in free), kept.get(offer, 0))
            for offer, free in self._free.items()
        }
        return tuple((offer, count) for offer, count in sorted(unpaid.items()) if count > 0)

    def _usd_to_begin(self, trial: AsyncTrial, size: int, wait_seconds: float) -> float:
        """What it is likely to cost beyond what is paid; of new instances the least bill too."""
        free, needed = self._free[self._supply.sizes[size].offer], self._supply.instances[size]
        work = trial.expected_work(self._terms.survival)
        if len(free) >= needed:
            return self._usd(replace(trial, paid_seconds=free[needed - 1]), work, wait_seconds)
        least = float(
            self._supply.minimum_billed_seconds[size] * self._supply.usd_per_second[size]
        )
        return max(self._usd(trial, work, wait_seconds), least)

    def _gather(self, trial: AsyncTrial, size: int) -> None:
        offer = self._supply.sizes[size].offer
        self._gathers[offer] = self._more(trial, size), trial.id

    def _grow(self, trial: AsyncTrial, size: int, why: str) -> AsyncDecision:
        held, chosen = self._supply.sizes[self._size(trial)], self._supply.sizes[size]
        reason = f"grow {trial.id} {held.instances} -> {chosen}: {why}"
        return AsyncDecision(trial.id, AsyncAction.GROW, chosen, reason)

    def _rests(self, trial: AsyncTrial) -> bool:
        return trial.rests_seconds < self._terms.cooldown_seconds

    def _gains(self, trial: AsyncTrial, size: int, change_seconds: float) -> bool:
        """G6: the resize saves a tenth of the time to the end."""
        now = trial.to_end / trial.goodput[self._size(trial)]
        if trial.goodput[size] <= 0:
            return False
        then = change_seconds + trial.to_end / trial.goodput[size]
        return bool(then < now * (1.0 - self._terms.hysteresis))

    def _pays(self, trial: AsyncTrial, size: int, change_seconds: float, work: float) -> bool:
        """G2: it improves more per dollar added than a fresh trial; G5: the money is there."""
        held = self._size(trial)
        gain = self._improvement(trial, size, change_seconds)
        gain -= self._improvement(trial, held, 0.0)
        seconds = change_seconds + work / trial.goodput[size]
        usd = seconds * float(self._supply.usd_per_second[size]) - self._usd(trial, work)
        if usd > self._left_usd + self._rounding_usd:
            return False
        return bool(gain > max(usd, 0.0) * self._fresh_per_dollar)

    def _more(self, trial: AsyncTrial, size: int) -> int:
        held = 0 if trial.held is None else int(self._supply.instances[trial.held])
        return int(self._supply.instances[size]) - held

    def _change_seconds(self, trial: AsyncTrial, size: int) -> float:
        ready = len(self._free[self._supply.sizes[size].offer]) >= self._more(trial, size)
        boot = 0.0 if ready else float(self._supply.boot_seconds[size])
        return boot + self._supply.switching.pause_seconds

    def _start_seconds(self, size: int) -> float:
        if len(self._free[self._supply.sizes[size].offer]) >= self._supply.instances[size]:
            return self._supply.switching.handover_seconds
        return float(self._supply.boot_seconds[size]) + self._supply.switching.start_seconds

    def _take(self, trial: AsyncTrial, size: int) -> bool:
        """Take what a trial needs beyond what it holds, free instances first."""
        chosen = self._supply.sizes[size]
        needed = self._more(trial, size)
        free = min(len(self._free[chosen.offer]), max(needed, 0))
        new = needed - free
        offer = int(self._supply.offer_of[size])
        if not self._room.bears(offer, new):
            return False
        del self._free[chosen.offer][:free]
        self._room.take(offer, new)
        return True

    def _size(self, trial: AsyncTrial) -> int:
        """What it holds, or would begin on: the size of least $ per progress."""
        if trial.held is not None:
            return trial.held
        rate = np.maximum(trial.goodput, _LEAST_RATE)
        return int((self._supply.usd_per_second / rate).argmin())

    def _by_price(self) -> list[int]:
        order: list[int] = np.argsort(self._supply.usd_per_second, kind="stable").tolist()
        return order

    def _usd(self, trial: AsyncTrial, work: float, wait_seconds: float = 0.0) -> float:
        """What so much work costs on its size, to the deadline at most, beyond what is paid."""
        size = self._size(trial)
        seconds = wait_seconds + work / float(trial.goodput[size])
        if self._terms.deadline_seconds is not None:
            seconds = min(seconds, self._terms.deadline_seconds)
        seconds = max(seconds - trial.paid_seconds, 0.0)
        return seconds * float(self._supply.usd_per_second[size])

    def _reachable(self, trial: AsyncTrial, size: int, change_seconds: float) -> float:
        """Work that it can do on a size by the deadline."""
        if self._terms.deadline_seconds is None:
            return trial.to_end
        trains = max(self._terms.deadline_seconds - change_seconds, 0.0)
        return min(trial.to_end, trains * float(trial.goodput[size]))

    def _improvement(self, trial: AsyncTrial, size: int, change_seconds: float) -> float:
        """Expected improvement that is reachable by the deadline on a size."""
        work = self._reachable(trial, size, change_seconds)
        return expected_improvement(reachable_values(trial, work), self._terms.best)

    def _promise(self, trial: AsyncTrial) -> float:
        return self._improvement(trial, self._size(trial), 0.0)

    def _final_value(self, trial: AsyncTrial) -> float:
        return float(reachable_values(trial, trial.to_end).mean())

    def _per_dollar(self, trial: AsyncTrial) -> float:
        """What a fresh trial is expected to improve for each dollar that it is likely to cost."""
        fresh = replace(trial, held=None)
        size = self._size(fresh)
        starts = float(self._supply.boot_seconds[size]) + self._supply.switching.start_seconds
        usd = self._usd(fresh, fresh.expected_work(self._terms.survival), starts)
        return self._improvement(fresh, size, starts) / max(usd, _NOTHING)


def _waits(trial: AsyncTrial, why: str) -> AsyncDecision:
    return AsyncDecision(trial.id, AsyncAction.WAIT, None, f"wait {trial.id}: {why}")
