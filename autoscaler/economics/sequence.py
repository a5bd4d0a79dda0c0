"""One allocation after another: what the rest of a job costs if it may change between pieces.

Where a noise curve tells what is ahead, one allocation for all the rest can be 20 % over. Dynamic
programming over the pieces, open loop: the sequence that costs least in the mean of all draws. A
change costs the same whether it is made now or later, or the best plan would always be to change
at the next piece; and pieces end at fixed progress, so that it can't recede.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.economics.candidates import Candidates
from autoscaler.economics.supply import IntArray
from autoscaler.economics.switching import Ground, done_meanwhile, switches
from autoscaler.goodput.throughput import FloatArray

# Of each piece, so many of the cheapest allocations are gone on with; the first may be any.
_BEST_OF_PIECE = 4


@dataclass(frozen=True, slots=True, eq=False)
class _Onward:
    """The allocations worth going on with, (B,), and what all the rest costs on each, (K, B)."""

    among: IntArray
    cost: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Sequences:
    """The best sequence that begins with each candidate.

    Attributes:
        cost: $ for all the work, waiting included, (K, A).
        entry_usd: of that, what coming there costs, (A,).
        following: the candidate that comes next, (A,); itself where nothing changes then.
        change_examples: after how much work that is.
    """

    cost: FloatArray
    entry_usd: FloatArray
    following: IntArray
    change_examples: float


def best_sequences(at: Ground, value_of_time: float, work: float) -> Sequences:
    """What follows best on each candidate, and what that costs.

    There must be something ahead (`Candidates.ahead`).
    """
    every = at.candidates
    ahead = every.ahead
    assert ahead is not None, "nothing is known of what is ahead"
    lengths = _lengths(ahead.work, work)
    price = every.usd_per_second + value_of_time
    seconds = lengths[:, None, None] * ahead.seconds_per_example[: len(lengths)]
    pieces: FloatArray = seconds * price
    onward = _onward(at, value_of_time, pieces)
    everything = np.arange(len(every))
    entry = _switch_usd(at, value_of_time, every.held, everything)
    cost: FloatArray = entry + pieces[0]
    stays = pieces[1:].sum(axis=0)
    if onward is None:
        return Sequences(cost + stays, entry, everything, work)
    following = _switch_usd_pairs(at, value_of_time, everything, onward.among)
    chosen = (following + onward.cost.mean(axis=0)).argmin(axis=1)
    changes = following[everything, chosen] + onward.cost[:, chosen]
    is_to_stay = stays.mean(axis=0) <= changes.mean(axis=0)
    return Sequences(
        cost=cost + np.where(is_to_stay, stays, changes),
        entry_usd=entry,
        following=np.where(is_to_stay, everything, onward.among[chosen]),
        change_examples=float(lengths[0]),
    )


def cost_of_changing_now(at: Ground, sequences: Sequences, work: float) -> FloatArray:
    """What each sequence costs, (K, A), if what is held does a part of it while the first boots.

    Near the end that is all of it, and a change comes too late.
    """
    every = at.candidates
    if every.held is None or not work > 0:
        return sequences.cost
    taken = switches(at, every.held, np.arange(len(every)))
    share = done_meanwhile(every.goodput[:, [every.held]], taken, work) / work
    rest = sequences.cost - sequences.entry_usd
    cost: FloatArray = sequences.entry_usd + share * rest[:, [every.held]] + (1.0 - share) * rest
    return cost


def due_now(at: Ground, sequences: Sequences, replan_seconds: float) -> int | None:
    """What has to be ordered now, before the next plan, to be there when it follows on what is
    held; None for nothing. The candidate is one that may be held."""
    held = at.candidates.held
    if held is None or sequences.following[held] == held:
        return None
    following = int(sequences.following[held])
    boot_seconds = float(switches(at, held, np.array([following])).ready_seconds[0])
    change_seconds = sequences.change_examples / float(at.candidates.goodput[:, held].mean())
    is_due = change_seconds - boot_seconds <= replan_seconds
    return following if is_due and at.candidates.allowed[following] else None


def _onward(at: Ground, value_of_time: float, pieces: FloatArray) -> _Onward | None:
    """The best from the second piece on; None where there is only one, or nothing is allowed.

    `pieces` are (S, K, A).
    """
    if len(pieces) == 1:
        return None
    among = _worth_going_on_with(at.candidates, pieces[1:])
    if not len(among):
        return None
    between = _switch_usd_pairs(at, value_of_time, among, among)
    cost = pieces[-1][:, among]
    for piece in pieces[-2:0:-1]:
        chosen = (between + cost.mean(axis=0)).argmin(axis=1)
        changes = between[np.arange(len(among)), chosen]
        cost = piece[:, among] + changes + cost[:, chosen]
    return _Onward(among, cost)


def _worth_going_on_with(candidates: Candidates, pieces: FloatArray) -> IntArray:
    """The cheapest allocations of each piece, and what is held."""
    mean = np.where(candidates.allowed, pieces.mean(axis=1), np.inf)
    best = np.argsort(mean, axis=1)[:, :_BEST_OF_PIECE].ravel()
    best = best[candidates.allowed[best]]
    held = [] if candidates.held is None else [candidates.held]
    return np.unique(np.append(best, np.array(held, dtype=np.int64)))


def _lengths(pieces: FloatArray, work: float) -> FloatArray:
    """The pieces as far as `work` goes, (S,)."""
    before = np.concatenate([[0.0], np.cumsum(pieces)[:-1]])
    lengths: FloatArray = np.clip(work - before, 0.0, pieces)
    return lengths[: max(int((lengths > 0).sum()), 1)]


def _switch_usd_pairs(
    at: Ground, value_of_time: float, source: IntArray, target: IntArray
) -> FloatArray:
    """$ of every change from `source`, (B,), to `target`, (C,): (B, C)."""
    pairs = np.meshgrid(source, target, indexing="ij")
    flat = _switch_usd(at, value_of_time, pairs[0].ravel(), pairs[1].ravel())
    return flat.reshape(len(source), len(target))


def _switch_usd(
    at: Ground, value_of_time: float, source: int | IntArray | None, target: IntArray
) -> FloatArray:
    taken = switches(at, source, target)
    paused = taken.pause_seconds * (at.candidates.usd_per_second[target] + value_of_time)
    waits = np.where(taken.works_on, 0.0, taken.ready_seconds) * value_of_time
    usd: FloatArray = taken.boot_usd + paused + waits
    return usd
