"""Python files. Read with `ast`; values are followed through each function in one forward pass.

What is not read: `exec`, dynamic attribute names, and code of other files (that is what `link` is for). Nothing is
imported or run.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator

from prefixlint import pysyntax
from prefixlint.pysyntax import NotPythonError
from prefixlint.sources import Diagnostic, SourceFile, Summary, _pyflow, _pysinks
from prefixlint.sources._pyscope import Module, Scope

NAME = "python"
ORDER = 50
_WORDS = (
    *(b"messages", b"prompt", b"Prompt", b"history", b"instruction", b"Instruction", b"PROMPT", b"SYSTEM"),
    *(b'"role"', b"'role'", b'"description"', b"'description'", b"Messages", b"MESSAGES", b"INSTRUCTION"),
    *(
        b"ackstory",
        b"ersona",
        b"SamplingParams",
        b"sampling_params",
        b"input_schema",
        b"cache_control",
        b"as_completed",
        b"presigned",
    ),
    *(b"role=", b"prefix_caching", b"radix_cache", b"WindowMemory", b"@ell.", b"dspy.", b"sglang"),
    *(b"ystemMessage", b"ystem_message", b"ystem_Message", b"ystemmessage", b"You are a"),
    *(text.encode() for text in ("你是", "请根据", "あなたは", "당신은")),
)
"""Words without which no Python file holds a prompt, the frequent ones first. A plain search for each is several times
as fast as one pattern for all."""
_MORE = (re.compile(rb"tools\s*="), re.compile(rb"ystem(?:[\"']|\s*[=:]|(?<!\.system)\(|(?<=_system)\b)"))
_ENCODING = re.compile(rb"^[ \t\f]*#.*?coding[:=][ \t]*([-\w.]+)")
_PROMPT_PATH = re.compile(r"(?:^|[/_-])(?:prompts?|templates?|instructions?|personas?)(?:[/_.-]|$)", re.IGNORECASE)


def claims(file: SourceFile) -> bool:
    """Claim `.py` and `.pyi`, and scripts that name Python in their first line."""
    if file.suffix in (".py", ".pyw"):
        return True
    return not file.suffix and file.data.startswith(b"#!") and b"python" in file.data[:80].split(b"\n", 1)[0]


def wanted(file: SourceFile) -> bool:
    """Look for a word without which no Python file holds a prompt."""
    data = file.data
    if data.startswith((b"\xff\xfe", b"\xfe\xff")):  # UTF-16: reading it says so
        return True
    words = (*_WORDS, *file.declared.words())
    return any(word in data for word in words) or any(more.search(data) for more in _MORE)


def summarize(file: SourceFile) -> Summary:
    """Read a file; what cannot be parsed gives a diagnostic."""
    data = file.data.removeprefix(b"\xef\xbb\xbf")
    shift = len(file.data) - len(data)
    if b"\0" in data:
        line = data.count(b"\n", 0, data.index(b"\0")) + 1
        return _failed(file, line, "not-text", "holds NUL bytes: not Python, or UTF-16; save it as UTF-8")
    try:
        tree = pysyntax.parse(data)
    except NotPythonError as error:
        return _failed(file, error.line, error.slug, str(error))
    stem = file.name.rsplit(".", 1)[0]
    prompt_file = bool(_PROMPT_PATH.search(file.path))
    module = Module(file.data, pysyntax.line_starts(data, shift), _package(file.path), stem, prompt_file, file.declared)
    try:
        _follow(tree, module, file)
    except RecursionError:
        return _failed(file, 0, "too-deep", "nested too deeply to be followed")
    return Summary(
        path=file.path,
        kind=NAME,
        sinks=tuple(module.sinks),
        constants=module.constants,
        functions=module.functions,
        classes=module.classes,
        imports=module.imports,
        calls=tuple(module.calls),
        renders=tuple(module.renders),
        comments=_comments(data, shift),
    )


def _failed(file: SourceFile, line: int, slug: str, message: str) -> Summary:
    return Summary(path=file.path, kind=NAME, diagnostics=(Diagnostic(file.path, line, slug, message),))


def _package(path: str) -> str:
    return ".".join(part for part in path.split("/")[:-1] if part)


def _follow(tree: ast.Module, module: Module, file: SourceFile) -> None:
    bound = Counter(_bound_names(tree.body))
    module.defined = frozenset(bound)
    module.once = frozenset(name for name, count in bound.items() if count == 1)
    _imports(tree, module, file)
    scope = Scope(module)
    _pyflow.run(tree.body, scope)
    for name, value in scope.env.items():
        module.add_constant(name, value)
    _pysinks.of_names(scope.env, {}, scope)


def _bound_names(body: list[ast.stmt]) -> list[str]:
    """Give the names that the module's statements bind, once per binding; twice where a loop binds them."""
    out: list[str] = []
    stack: list[tuple[ast.AST, int]] = [(node, 1) for node in body]
    while stack:
        node, times = stack.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            out.append(node.name)
        elif isinstance(node, ast.Name):
            out.extend([node.id] * times if isinstance(node.ctx, ast.Store) else [])
        elif isinstance(node, _HOLDERS):
            times = 2 if isinstance(node, (ast.For, ast.AsyncFor, ast.While)) else times
            stack.extend((child, times) for child in ast.iter_child_nodes(node))
    return out


_HOLDERS = (ast.stmt, ast.Tuple, ast.List, ast.Starred, ast.ExceptHandler, ast.match_case, ast.withitem)


def _imports(tree: ast.Module, module: Module, file: SourceFile) -> None:
    """Map imported names, wherever in the file they are imported, to dotted ones.

    Relative ones by the file's folder.
    """
    stars = 0
    for node in _statements(tree.body):
        if isinstance(node, ast.Import):
            for alias in node.names:
                local = alias.asname or alias.name.split(".", 1)[0]
                module.imports.setdefault(local, alias.name if alias.asname else local)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, file.path)
            for alias in node.names:
                if alias.name == "*":
                    module.imports[f"*{stars}"] = base
                    stars += 1
                else:
                    module.imports.setdefault(
                        alias.asname or alias.name, f"{base}.{alias.name}" if base else alias.name
                    )
    for name in module.imports:
        if name in module.defined:
            module.defined = module.defined - {name}


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Give all statements, nested ones too, in order."""
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody"):
            inner = getattr(node, name, None)
            if inner:
                yield from _statements(inner)
        for handler in getattr(node, "handlers", ()):
            yield from _statements(handler.body)
        for case in getattr(node, "cases", ()):
            yield from _statements(case.body)


def _absolute(node: ast.ImportFrom, path: str) -> str:
    if not node.level:
        return node.module or ""
    folder = path.split("/")[:-1]
    kept = folder[: len(folder) - node.level + 1] if node.level > 1 else folder
    return "/" + "/".join([*kept, *(node.module or "").split(".")]).rstrip("/").replace("/", ".")


_COMMENT = re.compile(rb"#[^\r\n]*prefixlint[^\r\n]*")


def _comments(data: bytes, shift: int) -> tuple[tuple[int, int], ...]:
    """Give the comments that speak to prefixlint; those inside strings are told apart by the tokenizer."""
    found = [(match.start() + shift, match.end() + shift) for match in _COMMENT.finditer(data)]
    return tuple(found)
