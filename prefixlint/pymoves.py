"""Moves of text inside Python: a line of a literal, the first operand of a sum, an element of a joined list.

A move must keep what runs: the values that change places may only be read (names, attributes, clocks), placeholders
that count (`{}`, `%s`) stay where they are, and the rest of the syntax tree must be equal before and after.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Sequence

from prefixlint import pysyntax, volatility
from prefixlint.pysyntax import NotPythonError
from prefixlint.sources import _literals

Change = tuple[int, int, str]
"""Replace bytes from, to (excluded) by a text."""

_NEWLINE_UNIT = re.compile(rb"\\n|\r?\n")
_COUNTED = re.compile(r"\{(?:[!:][^{}]*)?\}|%[-#0 +]*\d*(?:\.\d+)?[sdrfgiax]")
_ENDS_A_SENTENCE = (b".", b"!", b"?", b">", b"}", b")", b'"', b"'", b"`", b"]", b"*")
_WORD = re.compile(rb"[A-Za-z]{2,}")
_HOLE = re.compile(rb"\{+[^{}]*\}+|\$\{?\w+\}?|%\(\w+\)[a-z]")
_STATES = re.compile(rb"(?!You\b|Your\b|Act\b|As\b|Given\b|Use\b|Please\b)(?:\*\*|__)?(?:[A-Z\[{(]|[^\x00-\x7f])")
"""How a line begins that states something: with a capital or a value, not with a list's mark and not with an order."""
_LABEL = re.compile(
    rb"[ \t]*(?:\*\*|__)?[\w\x80-\xff][\w\x80-\xff /'()-]{0,60}(?:\*\*|__)?:(?:\*\*|__)?[ \t]*\S*[{$%<]"
)
_READS = frozenset(
    ["strftime", "isoformat", "date", "time", "year", "month", "day", "strip", "title", "lower", "upper"]
)


def is_label(line: bytes) -> bool:
    """Tell whether a line is a `name: value` pair, whose value is filled in."""
    return _LABEL.match(line) is not None


def edits(data: bytes, start: int, end: int) -> list[Change] | None:
    """Give the edits that move the line around the bytes `start` to `end` behind the text after it, None if unsure."""
    tree = _parsed(data)
    if tree is None or data.startswith(b"\xef\xbb\xbf"):
        return None
    starts = pysyntax.line_starts(data)
    literal, around = _literal_at(tree, starts, start)
    if literal is None or not _movable(literal):
        return None
    span = pysyntax.extent(literal, starts)
    found = (
        _line(data, span, start, end)
        or _token(data, span, start, end)
        or _operand(data, literal, around, starts)
        or _element(data, literal, around, starts)
    )
    if found is None:
        return None
    moved = _parsed(_spliced(data, found))
    return found if moved is not None and _same_values(tree, moved) else None


def speaks_for_itself(lines: Sequence[bytes], at: int, first: int) -> bool:
    """Tell whether a line is a sentence or a `name: value` of its own, and neither neighbour needs it.

    `first` is the first line of the text.
    """
    line = lines[at]
    words = _WORD.findall(_HOLE.sub(b" ", line))
    said = line.strip()
    if not words or not _STATES.match(said) or said.endswith((b":", b",", b";", b"(", b"-", b"\\")):
        return False
    if not is_label(line) and not said.endswith(_ENDS_A_SENTENCE):
        return False
    before = lines[at - 1].rstrip() if at > first else b""
    after = next((each.strip() for each in lines[at + 1 :]), b"")
    if before and (not before.endswith(_ENDS_A_SENTENCE) or before.endswith((b"```", b"~~~"))):
        return False
    if after[:1].islower() or _open_tags(lines[first:at]):
        return False
    return at == first or _indent(line) == _indent(lines[at - 1]) or not before


def _open_tags(lines: Sequence[bytes]) -> bool:
    """Tell whether a tag or a code fence is open at the end of some lines."""
    text = b"\n".join(lines)
    opened = Counter(re.findall(rb"<([A-Za-z_][\w-]*)(?:\s[^<>]*)?>", text))
    opened.subtract(re.findall(rb"</([A-Za-z_][\w-]*)\s*>", text))
    return (
        any(count > 0 for count in opened.values()) or len(re.findall(rb"^\s*(?:```|~~~)", text, re.MULTILINE)) % 2 == 1
    )


def _indent(line: bytes) -> int:
    return len(line) - len(line.lstrip(b" \t"))


def _parsed(data: bytes) -> ast.Module | None:
    try:
        return pysyntax.parse(data)
    except NotPythonError:
        return None


def _spliced(data: bytes, changes: Sequence[Change]) -> bytes:
    for start, end, text in sorted(changes, reverse=True):
        data = data[:start] + text.encode() + data[end:]
    return data


def _literal_at(
    tree: ast.Module, starts: Sequence[int], offset: int
) -> tuple[ast.JoinedStr | ast.Constant | None, list[ast.AST]]:
    """Give the outermost string literal around a byte, and the nodes around it, the nearest last."""
    above: dict[ast.AST, ast.AST] = {}
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))
        ) and _holds(node, starts, offset):
            around = []
            outer = above.get(node)
            while outer is not None:
                around.append(outer)
                outer = above.get(outer)
            return node, around[::-1]
        for child in ast.iter_child_nodes(node):
            above[child] = node
    return None, []


def _holds(node: ast.expr | ast.stmt, starts: Sequence[int], offset: int) -> bool:
    start, end = pysyntax.extent(node, starts)
    return start <= offset < end


# ---------------------------------------------------------------------- what may change places


def _movable(literal: ast.JoinedStr | ast.Constant) -> bool:
    """Tell whether the order of a literal's values does not matter."""
    if isinstance(literal, ast.JoinedStr):
        return all(_only_read(part.value) for part in literal.values if isinstance(part, ast.FormattedValue))
    return isinstance(literal.value, str) and not _COUNTED.search(literal.value)


def _only_read(node: ast.expr) -> bool:
    """Tell whether an expression is only read: names, attributes, constants, and clocks with what formats them."""
    if isinstance(node, (ast.Name, ast.Constant)):
        return True
    if isinstance(node, ast.Attribute):
        return _only_read(node.value)
    if isinstance(node, ast.Subscript):
        return _only_read(node.value) and _only_read(node.slice)
    if isinstance(node, ast.Call):
        known = _dotted(node.func)
        source = volatility.of_call(known) if known else None
        reads = isinstance(node.func, ast.Attribute) and node.func.attr in _READS and _only_read(node.func.value)
        clock = source is not None and source.kind in ("clock", "date", "environment")
        given = [*node.args, *(keyword.value for keyword in node.keywords)]
        return (reads or clock) and all(_only_read(each) for each in given)
    return False


def _dotted(node: ast.expr) -> str | None:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        base = _dotted(node.value)
        return None if base is None else f"{base}.{node.attr}"
    return None


# ---------------------------------------------------------------------- the three moves


def _line(data: bytes, span: tuple[int, int], start: int, end: int) -> list[Change] | None:
    """Move a line of one quoted token to the token's end."""
    tokens = _literals.tokens(data, *span)
    token = next((each for each in tokens if each.start <= start and end <= each.end), None)
    if token is None or len(tokens) != 1:
        return None
    pieces = _pieces(data, token)
    at = next((number for number, (low, high, _) in enumerate(pieces) if low <= start and end <= high), None)
    if at is None:
        return None
    texts = [data[low:high] for low, high, _ in pieces]
    first = 1 if not texts[0].strip() else 0
    last = max((number for number, text in enumerate(texts) if text.strip()), default=at)
    if last <= at or not speaks_for_itself(texts, at, first) or not closes(texts[last]):
        return None
    if at == 0 and _indent(texts[0]) != _indent(next(text for text in texts[1:] if text.strip())):
        return None
    low, high, unit = pieces[at]
    moved = data[low:high].decode("utf-8", "strict")
    target, following = pieces[last][1], pieces[last][2]
    if following:
        place = target + len(following)
        return [(low, high + len(unit), ""), (place, place, moved + unit.decode())]
    return [(low, high + len(unit), ""), (target, target, unit.decode() + moved)]


def _token(data: bytes, span: tuple[int, int], start: int, end: int) -> list[Change] | None:
    """Move one of several quoted tokens that stand one a line, and end with a newline each, behind the last."""
    tokens = _literals.tokens(data, *span)
    at = next((number for number, each in enumerate(tokens) if each.start <= start and end <= each.end), None)
    if at is None or at == len(tokens) - 1:
        return None
    whole = [_quoted(data, token) for token in tokens]
    if any(b"\n" not in data[one[1] : two[0]] for one, two in zip(whole[at:], whole[at + 1 :], strict=False)):
        return None
    texts = [_ending(data, token) for token in tokens]
    lines = [text for text, _ in texts]
    unit, (low, high) = texts[at][1], whole[at]
    if unit != rb"\n" or not speaks_for_itself(lines, at, 0) or not closes(lines[-1]):
        return None
    gap = data[high : whole[at + 1][0]]
    if b"#" in gap or tokens[-1].raw:
        return None
    last_low, last_high = tokens[-1].end, whole[-1][1]
    moved = data[low:high].decode()
    if texts[-1][1]:
        return [(low, high + len(gap), ""), (last_high, last_high, gap.decode() + moved)]
    head, tail = data[low : tokens[at].start], data[tokens[at].end : high]
    bare = (head + lines[at] + tail).decode()
    return [
        (low, high + len(gap), ""),
        (last_low, last_low, unit.decode()),
        (last_high, last_high, gap.decode() + bare),
    ]


def _quoted(data: bytes, token: _literals.Token) -> tuple[int, int]:
    """Give the extent of a token with its prefix and quotes."""
    quote = (
        3
        if data[token.end : token.end + 3] in (b'"""', b"'''")
        and data[token.start - 3 : token.start] == data[token.end : token.end + 3]
        else 1
    )
    low = token.start - quote
    while data[low - 1 : low].isalpha():
        low -= 1
    return low, token.end + quote


def _ending(data: bytes, token: _literals.Token) -> tuple[bytes, bytes]:
    """Give a token's text and the newlines at its end."""
    body = data[token.start : token.end]
    text = re.sub(rb"(?:\\n)+\Z", b"", body)
    return text, body[len(text) :]


def closes(line: bytes) -> bool:
    """Tell whether a text's last line waits for nothing: no answer is to follow it."""
    return not line.rstrip().endswith((b":", b"=", b"->"))


def _pieces(data: bytes, token: _literals.Token) -> list[tuple[int, int, bytes]]:
    """Give the lines of a token's body: where their text begins and ends, and what ends the line."""
    out = []
    position = token.start
    for match in _NEWLINE_UNIT.finditer(data, token.start, token.end):
        escaped = match[0] == b"\\n"
        backslashes = len(data[: match.start()]) - len(data[: match.start()].rstrip(b"\\"))
        if (escaped and (token.raw or backslashes % 2)) or (not escaped and backslashes % 2):
            continue
        out.append((position, match.start(), match[0]))
        position = match.end()
    out.append((position, token.end, b""))
    return out


def _operand(
    data: bytes, literal: ast.JoinedStr | ast.Constant, around: list[ast.AST], starts: Sequence[int]
) -> list[Change] | None:
    r"""Turn `f"It is {now}.\n" + RULES` into `RULES + f"\nIt is {now}."`."""
    parent = around[-1] if around else None
    if not isinstance(parent, ast.BinOp) or not isinstance(parent.op, ast.Add) or parent.left is not literal:
        return None
    if len(around) > 1 and isinstance(around[-2], ast.BinOp):
        return None
    low, high = pysyntax.extent(literal, starts)
    tokens = _literals.tokens(data, low, high)
    if len(tokens) != 1 or tokens[0].raw:
        return None
    body = data[tokens[0].start : tokens[0].end]
    text = re.sub(rb"(?:\\n|\r?\n)+\Z", b"", body)
    unit = body[len(text) :]
    if not unit or not speaks_for_itself([text], 0, 0) or not _is_name_or_text(parent.right):
        return None
    right_low, right_high = pysyntax.extent(parent.right, starts)
    head, tail = data[low : tokens[0].start], data[tokens[0].end : high]
    moved = (head + unit + text + tail).decode()
    return [(low, right_low, ""), (right_high, right_high, f" + {moved}")]


def _is_name_or_text(node: ast.expr) -> bool:
    return isinstance(node, (ast.Name, ast.Attribute, ast.JoinedStr)) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


def _element(
    data: bytes, literal: ast.JoinedStr | ast.Constant, around: list[ast.AST], starts: Sequence[int]
) -> list[Change] | None:
    r"""Move an element of `"\n".join([…])` to the end of the list."""
    if len(around) < 2 or not isinstance(around[-1], (ast.List, ast.Tuple)) or not isinstance(around[-2], ast.Call):
        return None
    items, call = around[-1].elts, around[-2]
    joins = (
        isinstance(call.func, ast.Attribute) and call.func.attr == "join" and isinstance(call.func.value, ast.Constant)
    )
    at = next((number for number, item in enumerate(items) if item is literal), None)
    if not joins or at is None or at == len(items) - 1 or not all(map(_is_name_or_text, items[at:])):
        return None
    low, high = pysyntax.extent(literal, starts)
    tokens = _literals.tokens(data, low, high)
    if len(tokens) != 1 or not speaks_for_itself([data[tokens[0].start : tokens[0].end]], 0, 0):
        return None
    next_low, _ = pysyntax.extent(items[at + 1], starts)
    _, last_high = pysyntax.extent(items[-1], starts)
    if b"#" in data[high:next_low]:
        return None
    between = data[high:next_low].decode()
    return [(low, next_low, ""), (last_high, last_high, between + data[low:high].decode())]


# ---------------------------------------------------------------------- the proof


def _same_values(before: ast.Module, after: ast.Module) -> bool:
    """Tell whether two programs are equal but for the order of lines in texts, of sums, and of joined lists."""
    try:
        return _canonical(before) == _canonical(after)
    except RecursionError:
        return False


def _canonical(node: object) -> str:
    """Write a tree in a form in which texts are their sorted lines, and sums and joined lists their sorted parts."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return f"+{sorted(map(_canonical, _operands(node)))}"
    if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str)):
        return f"text{sorted(line for line in _shown(node).split(chr(10)) if line.strip())}"
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join":
        given = [
            sorted(map(_canonical, a.elts)) if isinstance(a, (ast.List, ast.Tuple)) else _canonical(a)
            for a in node.args
        ]
        return f"{_canonical(node.func)}{given}"
    if isinstance(node, ast.AST):
        return f"{type(node).__name__}({','.join(_canonical(value) for _, value in ast.iter_fields(node))})"
    if isinstance(node, list):
        return f"[{','.join(map(_canonical, node))}]"
    return repr(node)


def _operands(node: ast.expr) -> list[ast.expr]:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return [*_operands(node.left), *_operands(node.right)]
    return [node]


def _shown(node: ast.JoinedStr | ast.Constant) -> str:
    """Give a literal's text, its values as the code that they are."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    return "".join(
        part.value if isinstance(part, ast.Constant) and isinstance(part.value, str) else f"\0{ast.unparse(part)}\0"
        for part in node.values
    )
