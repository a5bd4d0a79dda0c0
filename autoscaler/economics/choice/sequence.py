"""Sequences of allocations over pieces of remaining work with predicted noise scales.

With one allocation for the whole rest, a job can cost 20 % more than with a sequence. Dynamic
programming over the pieces finds the open-loop sequence of least mean cost over all draws. A
change costs the same now or later, or the best plan would always change at the next piece. Pieces
end at fixed progress, so that a planned change does not recede.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from autoscaler.economics.allocation.candidates import Candidates
from autoscaler.economics.choice.switching import SwitchContext, done_meanwhile, switches
from autoscaler.economics.supply.supply import IntArray
from autoscaler.goodput.throughput import FloatArray

# Number of cheapest allocations considered in each piece; the first piece considers all.
_BEST_OF_PIECE = 4


@dataclass(frozen=True, slots=True, eq=False)
class _LaterPieces:
    """B allocations for later pieces, (B,), and the cost of all later work from each, (K, B)."""

    among: IntArray
    cost: FloatArray


@dataclass(frozen=True, slots=True, eq=False)
class Sequences:
    """Best sequence that begins with each of A candidates.

    Attributes:
        cost: $ for all the work, waiting included, (K, A).
        entry_usd: part of the cost for changing to the first allocation, (A,).
        following: index of the next candidate, (A,); its own index without a change.
        change_examples: useful examples until that change.
    """

    cost: FloatArray
    entry_usd: FloatArray
    following: IntArray
    change_examples: float


def best_sequences(at: SwitchContext, value_of_time: float, work: float) -> Sequences:
    """Return the best sequence from each candidate, with its cost.

    The candidates must have predictions (`Candidates.ahead`).

    Args:
        at: what the job may change to, and at what cost.
        value_of_time: $ per second.
        work: useful examples left.
    """
    candidates = at.candidates
    ahead = candidates.ahead
    assert ahead is not None, "nothing is known of what is ahead"
    lengths = _piece_examples(ahead.work, work)
    price = candidates.usd_per_second + value_of_time
    seconds = lengths[:, None, None] * ahead.seconds_per_example[: len(lengths)]
    pieces: FloatArray = seconds * price
    later = _later_pieces(at, value_of_time, pieces)
    everything = np.arange(len(candidates))
    entry = _switch_usd(at, value_of_time, candidates.held, everything)
    cost: FloatArray = entry + pieces[0]
    stay_cost = pieces[1:].sum(axis=0)
    if later is None:
        return Sequences(cost + stay_cost, entry, everything, work)
    following = _switch_usd_pairs(at, value_of_time, everything, later.among)
    chosen = (following + later.cost.mean(axis=0)).argmin(axis=1)
    change_cost = following[everything, chosen] + later.cost[:, chosen]
    is_to_stay = stay_cost.mean(axis=0) <= change_cost.mean(axis=0)
    return Sequences(
        cost=cost + np.where(is_to_stay, stay_cost, change_cost),
        entry_usd=entry,
        following=np.where(is_to_stay, everything, later.among[chosen]),
        change_examples=float(lengths[0]),
    )


def cost_of_changing_now(at: SwitchContext, sequences: Sequences, work: float) -> FloatArray:
    """Return $ of each sequence if the held instances train during the first boot, (K, A).

    Near the end they finish all the work, and a change comes too late.
    """
    candidates = at.candidates
    if candidates.held is None or not work > 0:
        return sequences.cost
    changes = switches(at, candidates.held, np.arange(len(candidates)))
    share = done_meanwhile(candidates.goodput[:, [candidates.held]], changes, work) / work
    later_cost = sequences.cost - sequences.entry_usd
    cost: FloatArray = (
        sequences.entry_usd + share * later_cost[:, [candidates.held]] + (1.0 - share) * later_cost
    )
    return cost


def due_now(at: SwitchContext, sequences: Sequences, replan_seconds: float) -> int | None:
    """Return the candidate to order before the next plan; None for nothing.

    It follows the held allocation, and its boot must end when the present piece does. The
    candidate must be allowed.
    """
    held = at.candidates.held
    if held is None or sequences.following[held] == held:
        return None
    following = int(sequences.following[held])
    boot_seconds = float(switches(at, held, np.array([following])).ready_seconds[0])
    change_seconds = sequences.change_examples / float(at.candidates.goodput[:, held].mean())
    is_due = change_seconds - boot_seconds <= replan_seconds
    return following if is_due and at.candidates.allowed[following] else None


def _later_pieces(
    at: SwitchContext, value_of_time: float, pieces: FloatArray
) -> _LaterPieces | None:
    """Return the best sequences from the second piece on; None if there are none.

    `pieces` are $ of each piece on each candidate, (S, K, A).
    """
    if len(pieces) == 1:
        return None
    considered = _cheapest_of_pieces(at.candidates, pieces[1:])
    if not len(considered):
        return None
    between = _switch_usd_pairs(at, value_of_time, considered, considered)
    cost = pieces[-1][:, considered]
    for piece in pieces[-2:0:-1]:
        chosen = (between + cost.mean(axis=0)).argmin(axis=1)
        change_cost = between[np.arange(len(considered)), chosen]
        cost = piece[:, considered] + change_cost + cost[:, chosen]
    return _LaterPieces(considered, cost)


def _cheapest_of_pieces(candidates: Candidates, pieces: FloatArray) -> IntArray:
    """Return indices of the cheapest allowed allocations of each piece, and of the held one."""
    mean = np.where(candidates.allowed, pieces.mean(axis=1), np.inf)
    best = np.argsort(mean, axis=1)[:, :_BEST_OF_PIECE].ravel()
    best = best[candidates.allowed[best]]
    held = [] if candidates.held is None else [candidates.held]
    return np.unique(np.append(best, np.array(held, dtype=np.int64)))


def _piece_examples(pieces: FloatArray, work: float) -> FloatArray:
    """Return the useful examples of each piece within `work`, (S,)."""
    begins = np.concatenate([[0.0], np.cumsum(pieces)[:-1]])
    lengths: FloatArray = np.clip(work - begins, 0.0, pieces)
    return lengths[: max(int((lengths > 0).sum()), 1)]


def _switch_usd_pairs(
    at: SwitchContext, value_of_time: float, source: IntArray, target: IntArray
) -> FloatArray:
    """Return $ of every change from B sources to C targets, (B, C)."""
    pairs = np.meshgrid(source, target, indexing="ij")
    flat = _switch_usd(at, value_of_time, pairs[0].ravel(), pairs[1].ravel())
    return flat.reshape(len(source), len(target))


def _switch_usd(
    at: SwitchContext, value_of_time: float, source: int | IntArray | None, target: IntArray
) -> FloatArray:
    changes = switches(at, source, target)
    paused = changes.pause_seconds * (at.candidates.usd_per_second[target] + value_of_time)
    waits = np.where(changes.trains_during_boot, 0.0, changes.ready_seconds) * value_of_time
    usd: FloatArray = changes.boot_usd + paused + waits
    return usd
