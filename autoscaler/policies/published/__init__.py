"""Published schedulers and simple baselines that `marginal` is compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_CLASSES = {
    "allox": "allox:AlloxPolicy",
    "antman": "antman:AntmanPolicy",
    "drf": "drf:DrfPolicy",
    "fifo": "fifo:FifoPolicy",
    "gandiva": "gandiva:GandivaPolicy",
    "gandiva-fair": "gandiva_fair:GandivaFairPolicy",
    "gandiva-fair-by-time": "gandiva_fair:GandivaFairByTimePolicy",
    "gavel": "gavel:GavelPolicy",
    "gavel-cost": "gavel:GavelCostPolicy",
    "gavel-finish-time-fairness": "gavel:GavelFinishTimeFairnessPolicy",
    "gavel-makespan": "gavel:GavelMakespanPolicy",
    "gavel-max-min": "gavel:GavelMaxMinPolicy",
    "hyperdrive": "hyperdrive:HyperdrivePolicy",
    "optimus": "optimus:OptimusPolicy",
    "optimus-oracle": "optimus:OptimusOraclePolicy",
    "pollux": "pollux:PolluxPolicy",
    "pollux-crowded": "pollux_crowded:PolluxCrowdedPolicy",
    "pollux-unaware": "pollux_unaware:PolluxUnawarePolicy",
    "ref": "ref:RefPolicy",
    "shockwave": "shockwave:ShockwavePolicy",
    "sia": "sia:SiaPolicy",
    "slaq": "slaq:SlaqPolicy",
    "themis": "themis:ThemisPolicy",
    "throughput": "throughput:ThroughputPolicy",
    "tiresias": "tiresias:TiresiasPolicy",
    "tiresias-gittins": "tiresias_gittins:TiresiasGittinsPolicy",
}
# "module:Class" of each policy by its name.
PUBLISHED: Final[Mapping[str, str]] = {
    name: f"{__name__}.{class_path}" for name, class_path in _CLASSES.items()
}
