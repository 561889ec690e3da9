"""Makes a result small enough to be sent around: long lists and texts are cut, and what was left out is counted."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from prefixlint.reports.json import clean

_ITEMS = 2_000  # of a list, where everything fits
_CHARS = 2_000  # of a text
_DEPTH = 24  # of values in values; results have less, a strange file may have more
_ROUNDS = 12  # after which lists have one item and texts a few characters
_EXACT = 1 << 53  # from which on a page's numbers are no whole numbers any more
_BINS = 48  # a side, for points that are drawn together
_SEVERITIES = ("error", "warning", "info")


@dataclass(slots=True)
class Cuts:
    """What was left out: the items left out and all of them, by the name of the list; and the texts that were cut."""

    left_out: Counter[str] = field(default_factory=Counter)
    of: Counter[str] = field(default_factory=Counter)
    texts: int = 0

    def rows(self) -> list[dict[str, Any]]:
        """Give what was left out as JSON values, in the order of the names."""
        return [
            {"what": name.replace("_", " "), "left_out": self.left_out[name], "of": self.of[name]}
            for name in sorted(self.left_out)
        ]


def fit(result: Mapping[str, Any], limit: int) -> tuple[bytes, Cuts]:
    """Give the result as JSON of at most `limit` bytes, and what had to be left out for it.

    Numbers that are none become null. Findings are kept by severity where not all can be; residuals of many requests
    are drawn together.
    """
    whole = _ranked(dict(result))
    items, chars = _ITEMS, _CHARS
    for _ in range(_ROUNDS):
        cuts = Cuts()
        data = orjson.dumps(_cut(whole, "", _Size(items, chars), cuts, 0))
        if len(data) <= limit:
            break
        items, chars = max(1, items // 2), max(40, chars * 2 // 3)
    return data, cuts


@dataclass(frozen=True, slots=True)
class _Size:
    items: int
    chars: int


def _cut(value: Any, name: str, size: _Size, cuts: Cuts, depth: int) -> Any:
    """Rebuild a JSON value within the size; `name` is the key that it stands at."""
    if isinstance(value, str):
        return _text(value, size, cuts)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if -_EXACT < value < _EXACT else _number(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth == _DEPTH:
        return None
    if isinstance(value, Mapping):
        return {
            _text(str(key), size, cuts): _cut(item, str(key), size, cuts, depth + 1)
            for key, item in list(value.items())[: max(64, size.items)]
        }
    if isinstance(value, Sequence):
        if len(value) > size.items:
            cuts.left_out[name] += len(value) - size.items
            cuts.of[name] += len(value)
        return [_cut(item, name, size, cuts, depth + 1) for item in value[: size.items]]
    return None


def _number(value: int) -> float | None:
    try:
        return float(value)
    except OverflowError:
        return None


def _text(text: str, size: _Size, cuts: Cuts) -> str:
    if len(text) > size.chars:
        cuts.texts += 1
        text = text[: size.chars] + "…"
    return clean(text)


def _ranked(result: dict[str, Any]) -> dict[str, Any]:
    """Put first what must not be cut: the worst findings; and draw the points of many requests together."""
    found, points = result.get("findings"), result.get("residuals")
    if result.get("schema") == "prefixlint.check/1" and isinstance(found, list) and len(found) > _ITEMS:
        result["findings"] = sorted(found, key=_severity)
    if isinstance(points, list) and len(points) > _ITEMS:
        result["residuals"] = _together(points)
    return result


def _severity(finding: Any) -> int:
    word = finding.get("severity") if isinstance(finding, dict) else None
    return _SEVERITIES.index(word) if word in _SEVERITIES else len(_SEVERITIES)


def _together(points: Sequence[Any]) -> list[dict[str, Any]]:
    """Join residuals that lie close to each other and have one reason; each row counts its `requests`."""
    good = [
        p
        for p in points
        if isinstance(p, dict) and all(isinstance(p.get(key), int | float) for key in ("predicted", "measured"))
    ]
    step = max((max(p["predicted"], p["measured"]) for p in good), default=0) / _BINS or 1
    cells: dict[tuple[int, int, bool, str | None], list[dict[str, Any]]] = {}
    for p in good:
        reason = p.get("reason") if isinstance(p.get("reason"), str) else None
        equal = p["predicted"] == p["measured"]
        cells.setdefault((int(p["predicted"] / step), int(p["measured"] / step), equal, reason), []).append(p)
    return [_joined(members, reason) for (*_, reason), members in sorted(cells.items(), key=lambda c: str(c[0]))]


def _joined(members: Sequence[dict[str, Any]], reason: str | None) -> dict[str, Any]:
    means = {key: sum(p[key] for p in members) / len(members) for key in ("predicted", "measured")}
    line = members[0].get("line") if len(members) == 1 else None
    return {"line": line, **means, "reason": reason, "requests": len(members)}
