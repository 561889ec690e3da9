"""Phrases that findings share: how much is recomputed, and how often."""

from __future__ import annotations

from prefixlint.placement import CONTENT, Place
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
    if is_once(place):
        return "for each object that is made: the value stays in it"
    if place.origin.frozen:
        return "in each process: the value is computed once, at import"
    volatility = place.origin.volatility
    if volatility.period in _PERIODS:
        return _PERIODS[volatility.period]
    return _SCOPES.get(volatility.scope, "when it changes")


def amount(place: Place) -> str:
    """Say what is recomputed for the sake of a place: not what the next value that each request brings costs anyway."""
    tokens = at_risk(place)
    if place.role == "tools" or (place.open_ended and not tokens):
        return "; everything after it is recomputed"
    text = f"; the {tokens:,} static tokens after it"
    if place.cut and tokens < place.behind:
        return f"{text}, up to the next value that changes, are recomputed"
    return f"{text}, and the conversation, are recomputed" if _goes_on(place) else f"{text} are recomputed"


def is_once(place: Place) -> bool:
    """Tell whether a value is made with an object that holds it from then on, a conversation for one."""
    return place.prompt.once or place.origin.once


def at_risk(place: Place) -> int:
    """Give the static tokens that are recomputed for the sake of a place."""
    return place.shared if place.shared and place.origin.kind not in CONTENT else place.behind


def _goes_on(place: Place) -> bool:
    """Tell whether a conversation may follow: a request that the source shows whole, with its question, has none.

    One that is the user's own no other user shares: a name in front of it costs it nothing.
    """
    if not place.open_ended or is_once(place) or place.origin.kind == "identity":
        return False
    return place.history or not place.prompt.messages or place.prompt.messages[-1].role not in ("user", "tool")
