"""Origin of an error in the sampler or pruner of a study."""

from __future__ import annotations

import optuna


def error_origin(error: BaseException, study: optuna.Study) -> str | None:
    """Return the sampler or pruner that raised an error, as text; None for other origins.

    The traceback has a frame of one of its methods.
    """
    traceback = error.__traceback__
    while traceback is not None:
        owner = traceback.tb_frame.f_locals.get("self")
        for role, method in (("sampler", study.sampler), ("pruner", study.pruner)):
            if owner is method:
                return f"the study's {role}, {type(method).__name__}"
        traceback = traceback.tb_next
    return None
