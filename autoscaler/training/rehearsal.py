"""What a replica does before it joins others, so that these need not wait for it.

The first batch starts the workers and opens files; the first step compiles, loads kernels and
takes memory. Members wait for a joiner from the moment at which it asks to be one.
"""

from __future__ import annotations

from autoscaler.goodput.batching import split_batch
from autoscaler.training.arguments import Script
from autoscaler.training.data.loader import Indices
from autoscaler.training.data.sampler import dealt
from autoscaler.training.opening import Parts
from autoscaler.training.state.buffers import BufferGuard
from autoscaler.training.steps.step import require_loss


def rehearsed(script: Script, parts: Parts) -> Parts:
    """Return the parts of a session after a rehearsal, if there can be other instances."""
    if parts.may_join:
        rehearse(script, parts)
    return parts


def rehearse(script: Script, parts: Parts) -> None:
    """Fetch a batch and, where the script says how, make a step with it that counts for nothing.

    All ranks of an instance call it. Weights, buffers and the state of the optimizer stay.

    Raises:
        TypeError, ValueError: the script's function returns no loss, or one that leaves a
            parameter of a static graph out.
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
    """Check a rehearsal of a static graph: DDP could not begin another pass after it otherwise.

    Raises:
        ValueError: its pass has not used all trained parameters.
    """
    try:
        parts.reducer.require_synchronised()
    except ValueError as error:
        raise ValueError(f"rehearsal: {error}") from None


def _first_share(parts: Parts) -> Indices:
    """The examples that this rank would take first if its instance were alone."""
    crew, counters, replica = parts.crew, parts.state.counters, parts.replica
    place = parts.sampler.place_after(counters.pass_index, counters.position, taken=0)
    indices = parts.sampler.take(*place, counters.batch_total)
    ranks, most = crew.local_ranks, replica.bounds.device_maximum
    micro_steps = split_batch(counters.batch_total, ranks, most).accumulation + 1
    own, _ = dealt(indices, ranks, crew.local_rank, ranks, micro_steps, replica.least_share)
    return own.micro_steps[0]
