"""Warm-up of a replica before it joins others, so that they need not wait for it.

The first batch starts the workers and opens files; the first step compiles, loads kernels and
allocates memory. Members wait for a joining replica as soon as it asks to join.
"""

from __future__ import annotations

from autoscaler.goodput.batch_choice import split_batch
from autoscaler.training.arguments import Script
from autoscaler.training.data.loader import Indices
from autoscaler.training.data.sampler import dealt
from autoscaler.training.opening import Parts
from autoscaler.training.state.buffers import BufferGuard
from autoscaler.training.steps.step import require_loss


def rehearsed(script: Script, parts: Parts) -> Parts:
    """Return `parts` after a rehearsal, which is run only if other instances may exist."""
    if parts.may_join:
        rehearse(script, parts)
    return parts


def rehearse(script: Script, parts: Parts) -> None:
    """Fetch a batch, and run the script's rehearsal step on it, which has no effect on training.

    All ranks of an instance must call this. Weights, buffers and optimizer state stay unchanged.

    Raises:
        TypeError, ValueError: the script's function returns no loss, or a loss that does not use
            all trained parameters of a static graph.
    """
    batch = parts.loader.fetch_first(_first_share(parts))
    if script.rehearsal is None:
        return
    model = parts.reducer.model
    buffers = BufferGuard(parts.reducer.bare_model)
    buffers.keep()
    loss = script.rehearsal(model, batch)
    require_loss(loss, "rehearsal")
    loss.backward()  # type: ignore[no-untyped-call]
    if script.static_graph:
        _require_all_used(parts)
    buffers.restore()
    for optimizer in script.optimizers:
        optimizer.zero_grad()
    model.zero_grad()


def _require_all_used(parts: Parts) -> None:
    """Check that a rehearsal of a static graph used all trained parameters.

    DDP can't begin another pass otherwise.

    Raises:
        ValueError: the pass left a trained parameter out.
    """
    try:
        parts.reducer.require_synchronised()
    except ValueError as error:
        raise ValueError(f"rehearsal: {error}") from None


def _first_share(parts: Parts) -> Indices:
    """Return the examples this rank would take first if its instance trained alone."""
    job_ranks, counters, replica = parts.job_ranks, parts.state.counters, parts.replica
    place = parts.sampler.place_after(counters.pass_index, counters.position, taken=0)
    indices = parts.sampler.take(*place, counters.batch_total)
    ranks, device_maximum = job_ranks.local_ranks, replica.bounds.device_maximum
    micro_steps = split_batch(counters.batch_total, ranks, device_maximum).accumulation + 1
    share, _ = dealt(indices, ranks, job_ranks.local_rank, ranks, micro_steps, replica.least_share)
    return share.micro_steps[0]
