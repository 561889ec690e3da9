"""Python sources of newer grammars: read, position for position, whatever Python runs."""

import ast
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from prefixlint import pysyntax
from prefixlint.pysyntax import NotPythonError

NEWER = {
    "type X = int\n": "X = int",
    "if a:\n    type X[T: (int, str)] = list[T]\n": "if a:\n    X = list[T]",
    'type X[T = f"{a["b"]}"] = int\n': "X = int",
    "def f[T](a: T) -> T:\n    pass\n": "def f(a: T) -> T:\n    pass",
    "class A[T = dict[str, 'x]'], *Ts]:\n    pass\n": "class A:\n    pass",
    "async def g [K] (a):\n    '''[doc'''\n": "async def g(a):\n    '''[doc'''",
    'x = f"{a["b"]}"\n': "x = f\"{a['b']}\"",
    "x = f'{a['b']}' + \"it's\"\n": 'x = f"{a[\'b\']}" + "it\'s"',
    'x = f"{d["it\'s"]!r:>{w["n"]}} {{no}} {z:%H:%M}"\n': "x = f\"{d['it`s']!r:>{w['n']}} {{no}} {z:%H:%M}\"",
    'x = f"""a "q" {f"{b["c"]}"} """\n': 'x = f"""a "q" {f"{b[\'c\']}"} """',
    "x = f\"{'\\n'.join(y)}\"\n": "x = f\"{'  '.join(y)}\"",
    "x = f\"{s['n'] or f'#{s[\"i\"] + 1}'}\"\n": "x = f\"{s['n'] or f'#{s[0]+1}'}\"",
    "x = rf'\\{{%{a['b']}'\n": "x = rf'\\{{%{a[\"b\"]}'",
    'x = f"{a != b} {c!s} \\N{BULLET}"\n': 'x = f"{a != b} {c!s} \\N{BULLET}"',
}
STRINGS = ["'", '"', "'''", '"""', 'f"', "rb'", "t'", "\\", "\\N{", "{", "}", "{{", "#", "\n", "\r\n"]
WORDS = ["type X", "type X[", "=", "def f[", "except A, B:", "]", "(", ")", ":", "!r", "x", " ", "é"]


def tree(text):
    return ast.unparse(ast.parse(text))


@pytest.mark.parametrize("text", NEWER)
def test_what_newer_grammars_added_is_read_as_what_older_ones_say(text):
    plain = pysyntax.older(text.encode())
    assert len(plain) == len(text.encode())
    assert tree(plain) == tree(NEWER[text])
    pysyntax.parse(text.encode())  # by itself or so


@pytest.mark.parametrize("text", ["try:\n    pass\nexcept A, B:\n    pass\n", "x = t'{a['b']}'\n"])
def test_what_the_newest_added_is_read_as_well(text):
    assert isinstance(pysyntax.parse(text.encode()), ast.Module)


def test_lines_and_columns_are_those_of_the_file():
    text = 'x = 1\ny = f"é {json.dumps(\n    {"é": str(e)},  # note\n    k=d)}"\nz = f"{a["b"]}"\n'
    data = text.encode()
    lines = data.split(b"\n")
    found = pysyntax.parse(data)
    assert [(node.lineno, node.end_lineno, node.end_col_offset) for node in found.body] == [
        (1, 1, 5),
        (2, 4, 10),
        (5, 5, 15),
    ]
    for node in ast.walk(found):
        if isinstance(node, ast.Name):
            assert lines[node.lineno - 1][node.col_offset : node.end_col_offset] == node.id.encode()


@pytest.mark.parametrize(
    ("data", "slug", "line"),
    [
        (b"print 'x'\n", "syntax-error", 1),
        (b'x = 1\nx = f"{a["b"]\n', "syntax-error", 2),
        (b'x = f"{f"{f"{f"{y}"}"}"\nx = (\n', "syntax-error", 1),
        (b"x = '\xff'\n", "syntax-error", 1),
        (b"# coding: klingon\n", "syntax-error", 1),
        (b"x = 1\0", None, None),
        (b"def f" + b"[def f" * 5_000, None, None),
        (b"x = " + b'f"{' * 5_000, None, None),
    ],
    ids=["two", "open", "deep", "bytes", "coding", "nul", "params", "fields"],
)
def test_what_is_no_python_is_said_to_be_none(data, slug, line):
    with pytest.raises(NotPythonError) as raised:
        pysyntax.parse(data)
    if slug is not None:
        assert raised.value.slug == slug
        assert f"not valid Python {sys.version_info[0]}.{sys.version_info[1]}: " in str(raised.value)
        assert line == 1 or raised.value.line >= line


@given(st.lists(st.sampled_from(STRINGS + WORDS), max_size=20).map("".join))
def test_bytes_stay_in_their_place(text):
    data = text.encode()
    try:
        plain = pysyntax.older(data)
    except SyntaxError:
        return
    assert len(plain) == len(data)
    assert all(byte in b" `0XfF'\"" or byte == old for byte, old in zip(plain, data, strict=True))


@given(st.recursive(
    st.sampled_from(["a", "1", "b['k']", '"s"', "'s'", "f(a)", "x != y"]),
    lambda inner: st.builds(lambda e, q: f"f{q}t {{{e}}}{q}", inner, st.sampled_from(['"', "'", '"""'])),
    max_leaves=4,
))  # fmt: skip
def test_nested_strings_say_the_same(expression):
    try:
        wanted = ast.dump(ast.parse(expression))
    except SyntaxError:  # this Python needs the other form
        wanted = None
    plain = pysyntax.older(expression.encode())
    if wanted is not None and b"0" not in plain:
        assert ast.dump(ast.parse(plain)) == wanted
