"""What `job.step` returns: the facts of one step that a script logs."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Step:
    """One call of `job.step`.

    All fields but `loss` are equal on all ranks of the job. Tensors are on the model's device and
    have not been read: `float(...)` waits for the device, and nothing else here does.

    Attributes:
        number: steps of the job that are committed so far.
        is_last: the step is over. False before the last micro-step of a step that is given
            out in several batches; then `committed` is False and `loss` None. False before the
            last phase of a batch, too; then `committed` is False and `loss` that of the phase.
        committed: the step counts. False also where an instance was lost meanwhile, or a device
            ran out of memory: the step is taken again, by those who are left or in smaller parts.
        skipped: the step counts, but moves nothing: a loss or the gradient was not finite.
        loss: mean loss over this rank's examples of the step, by the weights given; None where it
            had none, or memory ran out. `job.mean(step.loss)` is the mean over the examples of
            all ranks.
        gradient_norm: norm of the summed gradient before clipping; None without `max_grad_norm`.
        learning_rate: the first parameter group's, as the step took it; in a phase that of its
            own optimizer.
        batch_size: examples in the step, over all ranks.
        members: instances that took the step together.
    """

    number: int
    is_last: bool
    committed: bool
    skipped: bool
    loss: Tensor | None
    gradient_norm: Tensor | None
    learning_rate: float
    batch_size: int
    members: int


def require_loss(loss: object, argument: str = "job.step(loss)") -> None:
    """Check that `loss` is one number with a gradient.

    Args:
        argument: what the user knows it by: a call that it is passed to, or a function of the
            script's own that returns it.

    Raises:
        TypeError, ValueError: it is not; the message says what to do.
    """
    is_passed = argument.endswith("(loss)")
    the_loss, give = ("the loss", "pass") if is_passed else ("its loss", "return")
    if not isinstance(loss, Tensor):
        raise TypeError(
            f"{argument}: {the_loss} is of type {type(loss).__name__}: {give} the tensor itself, "
            "not float(loss) or loss.item()"
        )
    if loss.numel() != 1:
        shape = "x".join(str(size) for size in loss.shape)
        raise ValueError(
            f"{argument}: {the_loss} has shape {shape}: {give} one number, the mean over the "
            "batch, such as loss.mean()"
        )
    if not loss.requires_grad:
        source = "job.model(...)" if is_passed else "the model that it is given"
        raise ValueError(
            f"{argument}: {the_loss} has no gradient: compute it from {source}, without "
            "detach() and outside torch.no_grad()"
        )
