"""Settings of the OpenID Connect provider that people log in through."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from autoscaler.domain.access import Role

EMAIL: Final = "email"


@dataclass(frozen=True, slots=True)
class OidcSettings:
    """Identity provider of a controller, and who may log in through it.

    Attributes:
        issuer: the provider's URL, exactly as it names itself.
        client_id, client_secret: the registration of this controller; None for a public client.
        claim: the claim whose value is the name of a person.
        domains: domains of e-mail addresses whose people are added at their first login.
        new_role: the role of people who are added so; None: no one is.
        valid_seconds: the validity of the tokens.
    """

    issuer: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    claim: str = EMAIL
    domains: frozenset[str] = frozenset()
    new_role: Role | None = None
    valid_seconds: float = 12 * 3600.0
