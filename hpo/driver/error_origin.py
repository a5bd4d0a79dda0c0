"""Which sampler or pruner of a study an error comes from."""

from __future__ import annotations

import optuna


def origin_of(error: BaseException, study: optuna.Study) -> str | None:
    """Return the sampler or pruner that raised an error, in words; None if neither did.

    That is, one of its methods was at work as the error was raised.
    """
    step = error.__traceback__
    while step is not None:
        at_work = step.tb_frame.f_locals.get("self")
        for word, method in (("sampler", study.sampler), ("pruner", study.pruner)):
            if at_work is method:
                return f"the study's {word}, {type(method).__name__}"
        step = step.tb_next
    return None
