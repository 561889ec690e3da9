"""Phrases that findings share: how much is recomputed, and how often."""

from __future__ import annotations

from prefixlint.placement import Place
from prefixlint.prompts import Period, Scope

_PERIODS = {
    Period.PROCESS: "in each process",
    Period.DAY: "each day",
    Period.MINUTE: "each minute",
    Period.SECOND: "each second",
    Period.CALL: "on each call",
}
_SCOPES = {
    Scope.TENANT: "for each tenant",
    Scope.USER: "for each user",
    Scope.SESSION: "for each session",
    Scope.REQUEST: "on each call",
    Scope.DEPLOY: "on each machine",
}


def cadence(place: Place) -> str:
    """Say how often the text behind a place is recomputed."""
    if place.origin.frozen:
        return "in each process: the value is computed once, at import"
    volatility = place.origin.volatility
    if volatility.period in _PERIODS:
        return _PERIODS[volatility.period]
    return _SCOPES.get(volatility.scope, "when it changes")


def amount(place: Place) -> str:
    """Say what is recomputed."""
    if place.open_ended and place.role != "tools" and place.behind:
        return f"; the {place.behind:,} static tokens after it, and the conversation, are recomputed"
    if place.open_ended:
        return "; everything after it is recomputed"
    return f"; the {place.behind:,} static tokens after it are recomputed"
