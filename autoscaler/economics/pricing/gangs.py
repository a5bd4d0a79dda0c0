"""Boots and waits for capacity of gangs: instances that are ordered, start and are lost together.

A gang trains when the last of its instances has booted, and is ordered all or nothing. Instances
are assumed to boot, and capacity for each of them to return, independently of each other. Where
capacity returns for all at once, a gang waits less than stated here.
"""

from __future__ import annotations

from dataclasses import replace

from autoscaler.domain.lives import HazardByAge, LifetimeEstimate

# Standard deviation of boots of one offer over their mean, before any gang of it has started. A
# boot has a fixed part and an exponential one.
BOOT_DEVIATION_SHARE = 0.25


def harmonic(count: int) -> float:
    """Return the mean of the largest of `count` exponentials, in means of one."""
    return sum(1.0 / place for place in range(1, count + 1))


def gang_boot_seconds(boot_seconds: float, gang: int) -> float:
    """Return the mean boot of the slowest of `gang` instances; `boot_seconds` is that of one."""
    return boot_seconds * (1.0 + BOOT_DEVIATION_SHARE * (harmonic(gang) - 1.0))


def gang_wait_seconds(wait_seconds: float, gang: int) -> float:
    """Return the wait until there is capacity for all `gang` instances, from that for one."""
    return wait_seconds * harmonic(gang)


def lives_of_gang(lives: LifetimeEstimate, gang: int) -> LifetimeEstimate:
    """Return the outages of an offer for orders of `gang` instances, all or nothing.

    Hazards of reclaims stay those of one instance.
    """
    if gang == 1:
        return lives
    outage = lives.outage
    per_second = tuple(hazard / harmonic(gang) for hazard in outage.per_second)
    return replace(
        lives,
        outage=HazardByAge(outage.ages_seconds, per_second, outage.ends),
        there=lives.there**gang,
        usually_there=lives.usually_there**gang,
    )
