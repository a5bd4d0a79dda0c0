"""Result of `job.step`: the facts of one step for logging."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True, slots=True)
class Step:
    """Result of one call of `job.step`.

    All fields except `loss` are equal on all ranks of the job. Tensors are on the model's device
    and have not been read: `float(...)` waits for the device, and nothing else here does.

    Attributes:
        number: committed steps of the job so far.
        is_last: whether the step is over. False before the last micro-step of a step with several
            batches; then `committed` is False and `loss` None. False before the last phase of a
            batch, too; then `committed` is False and `loss` that of the phase.
        committed: whether the step counts. False also if an instance was lost meanwhile, or a
            device ran out of memory. The remaining instances then retake the step, or all in
            smaller parts.
        skipped: whether the step counts but moves no weight: a loss or the gradient was not
            finite.
        loss: weighted mean loss over this rank's examples of the step. None if the rank had no
            examples or ran out of memory. `job.mean(step.loss)` is the mean over all ranks.
        gradient_norm: norm of the summed gradient before clipping; None without `max_grad_norm`.
        learning_rate: the first parameter group's learning rate in the step; in a phase, that of
            its own optimizer.
        batch_size: examples in the step, over all ranks.
        members: number of instances that took the step together.
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
        loss: the object to check.
        argument: the user's name for the loss: a call that receives it, or a function of the
            script that returns it.

    Raises:
        TypeError, ValueError: it is not; the message gives a remedy.
    """
    is_passed = argument.endswith("(loss)")
    subject, verb = ("the loss", "pass") if is_passed else ("its loss", "return")
    if not isinstance(loss, Tensor):
        raise TypeError(
            f"{argument}: {subject} is of type {type(loss).__name__}: {verb} the tensor itself, "
            "not float(loss) or loss.item()"
        )
    if loss.numel() != 1:
        shape = "x".join(str(size) for size in loss.shape)
        raise ValueError(
            f"{argument}: {subject} has shape {shape}: {verb} one number, the mean over the "
            "batch, such as loss.mean()"
        )
    if not loss.requires_grad:
        source = "job.model(...)" if is_passed else "the model that it is given"
        raise ValueError(
            f"{argument}: {subject} has no gradient: compute it from {source}, without "
            "detach() and outside torch.no_grad()"
        )
