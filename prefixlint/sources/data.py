"""YAML, JSON and TOML files that hold prompts under telling keys.

Positions come from PyYAML's nodes (JSON is read as YAML). TOML has no parser with positions in the standard library,
so a TOML value is looked for in the file's text. Keys decide what is a prompt; files of tools (workflows, charts,
compose) are left out by their first keys.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from prefixlint.sources import Diagnostic, Sink, SourceFile, Summary, _promptfiles, _texts
from prefixlint.sources._promptfiles import Tree
from prefixlint.textmap import offset
from prefixlint.values import Join, Lit, Map, Seq, Value

NAME = "data"
ORDER = 60
_ENDINGS = (".yaml", ".yml", ".json", ".toml")
_WANTED = re.compile(
    rb"prompt|system|instruction|template|[\"']?role[\"']?\s*:|backstory|messages|persona|expected_output|\.jinja2?\b",
    re.IGNORECASE,
)
_TOOLING = re.compile(
    rb"^(?:apiVersion|kind|openapi|swagger|jobs|on|services|stages|repos|interactions)\s*:|\"\$schema\"|\{\{-?\s*\.(?:Values|Release|Chart)",
    re.MULTILINE,
)
_SKIP_NAMES = re.compile(
    r"(?:^|/)(?:package(?:-lock)?|tsconfig|composer|pyproject|poetry|cargo|uv)[^/]*\Z", re.IGNORECASE
)
_PLACEHOLDER = re.compile(rb"\{[^\s{}\"]|\{\{|\{%|\$\w|file://|template_path|prefix_path|suffix_path")
MAX_BYTES = 1_000_000
"""Larger data files hold data sets, not prompts."""

_SYSTEM = re.compile(
    r"(?:^|_)(?:system(?:_prompt|_message|_template)?|instructions?|backstory|persona|sys_prompt|preamble)$"
)
_ROLE_GOAL = frozenset({"role", "goal"})
_PROMPT = re.compile(
    r"prompt|_template$|^template$|^prefix$|^suffix$|instruction|^system|_messages?$|^task$|^report$|^initial_|^update_"
)


def claims(file: SourceFile) -> bool:
    """Claim the endings of data files."""
    return file.suffix in _ENDINGS


def wanted(file: SourceFile) -> bool:
    """Want small files that have a word of prompts and a placeholder."""
    data = file.data
    return (
        len(data) <= MAX_BYTES
        and _SKIP_NAMES.search(file.path) is None
        and _WANTED.search(data) is not None
        and _PLACEHOLDER.search(data) is not None
        and _TOOLING.search(data) is None
    )


def summarize(file: SourceFile) -> Summary:
    """Read the prompts of a data file."""
    decoded = _texts.decode(file)
    if isinstance(decoded, Diagnostic):
        return Summary(path=file.path, kind=NAME, diagnostics=(decoded,))
    text, marks = decoded
    whole = Lit(text, marks[0][1], len(file.data), marks)
    try:
        found = list(_toml(whole) if file.suffix == ".toml" else _yaml(whole))
    except _UnreadableError as error:
        severe = not _templated(text)
        problem = Diagnostic(file.path, error.line, "data-syntax", f"not valid {file.suffix[1:].upper()}: {error}")
        return Summary(path=file.path, kind=NAME, diagnostics=(problem,) if severe else ())
    except RecursionError:
        return Summary(
            path=file.path,
            kind=NAME,
            diagnostics=(Diagnostic(file.path, 0, "too-deep", "nested too deeply to be read"),),
        )
    sinks = [
        Sink(kind, value, value.start, value.end, role, name=name)
        for kind, role, name, value in _prompts(found, file.path)
    ]
    renders = tuple(site for tree in found for site in _promptfiles.renders(tree))
    return Summary(path=file.path, kind=NAME, sinks=tuple(sinks), renders=renders)


def _templated(text: str) -> bool:
    return "{%" in text or "{{" in text


class _UnreadableError(Exception):
    """A document that its parser refuses."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


def _yaml(whole: Lit) -> Iterator[Tree]:
    import yaml

    loader_class = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        for node in yaml.compose_all(whole.text, Loader=loader_class):
            yield _tree(node, whole, 0, set(), {})
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        raise _UnreadableError(str(getattr(error, "problem", error)), mark.line + 1 if mark else 0) from None
    except ValueError as error:
        raise _UnreadableError(str(error), 0) from None


def _tree(node: Any, whole: Lit, depth: int, inside: set[int], made: dict[int, Tree]) -> Tree:
    """Give strings with their places; anchors that contain themselves and deep nesting end there.

    `made` are the nodes read so far: what an anchor names is made once, however often it is used.
    """
    if depth > 60 or id(node) in inside:
        return None
    if id(node) not in made:
        made[id(node)] = _made(node, whole, depth, inside, made)
    return made[id(node)]


def _made(node: Any, whole: Lit, depth: int, inside: set[int], made: dict[int, Tree]) -> Tree:
    kind = type(node).__name__
    if kind == "ScalarNode":
        return _scalar(node, whole) if node.tag == "tag:yaml.org,2002:str" else None
    inside = inside | {id(node)}
    if kind == "SequenceNode":
        return [_tree(item, whole, depth + 1, inside, made) for item in node.value]
    if kind == "MappingNode":
        return {
            str(key.value): _tree(value, whole, depth + 1, inside, made)
            for key, value in node.value
            if type(key).__name__ == "ScalarNode"
        }
    return None


def _scalar(node: Any, whole: Lit) -> Lit:
    """Map a scalar's characters to bytes: exact for block and plain scalars, near for quoted ones with escapes."""
    start, stop = node.start_mark.index, node.end_mark.index
    raw, value = whole.text[start:stop], node.value
    marks = _folded(raw, value, start, whole) if (node.style or ">") == ">" and "\n" in raw else []
    search = 0
    position = 0
    for line in value.split("\n") if not marks else ():
        content = line.strip(" ") if not marks or node.style in ("|", ">") else line.strip()
        found = raw.find(content[:60], search) if content else -1
        if found >= 0:
            lead = len(line) - len(line.lstrip(" "))
            marks.append((position + lead, offset(whole, start + found)))
            search = found + len(content) if raw.startswith(content, found) else found + 1
        position += len(line) + 1
    if not marks or marks[0][0] > 0:
        marks.insert(0, (0, marks[0][1] if marks else offset(whole, start)))
    return Lit(value, offset(whole, start), offset(whole, stop), tuple(marks))


def _folded(raw: str, value: str, start: int, whole: Lit) -> list[tuple[int, int]]:
    """Map the lines of a scalar that YAML folds to the places where they stand in its value, one behind the other."""
    marks: list[tuple[int, int]] = []
    search = position = 0
    for line in raw.split("\n"):
        content = line.strip()
        found = value.find(content, search) if content else -1
        if found >= 0 and not value[search:found].strip():
            lead = len(line) - len(line.lstrip())
            marks.append((found, offset(whole, start + position + lead)))
            search = found + len(content)
        position += len(line) + 1
    return marks


def _toml(whole: Lit) -> Iterator[Tree]:
    try:
        table = tomllib.loads(whole.text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"at line (\d+)", str(error))
        raise _UnreadableError(str(error), int(line[1]) if line else 0) from None
    yield _placed(table, whole)


def _placed(value: Any, whole: Lit) -> Tree:
    if isinstance(value, dict):
        return {str(key): _placed(inner, whole) for key, inner in value.items()}
    if isinstance(value, list):
        return [_placed(inner, whole) for inner in value]
    if not isinstance(value, str) or not value:
        return None
    at = whole.text.find(value)
    if at >= 0:
        return Lit(value, offset(whole, at), offset(whole, at + len(value)), ((0, offset(whole, at)),))
    return Lit(value, whole.start, whole.start)


def _prompts(trees: list[Tree], path: str) -> Iterator[tuple[str, str, str, Value]]:
    strong = _texts.PROMPT_PATH.search(path) is not None
    seen: set[int] = set()
    for tree in trees:
        yield from _visit(tree, "", strong, path, seen)


def _visit(tree: Tree, key: str, strong: bool, path: str, seen: set[int]) -> Iterator[tuple[str, str, str, Value]]:
    if id(tree) in seen and isinstance(tree, (list, dict)):
        return
    seen.add(id(tree))
    if isinstance(tree, list):
        messages = _messages(tree, path)
        if messages is not None:
            yield "messages", "text", key, messages
            return
        for item in tree:
            found = _promptfiles.entry(item, path) if key == "prompts" else None
            if found is not None:
                yield found
            else:
                yield from _visit(item, key, strong, path, seen)
    elif isinstance(tree, dict):
        whole = _promptfiles.known(tree, key, path)
        if whole is not None:
            yield from whole
            return
        crew = "backstory" in tree or "expected_output" in tree
        agent = _agent(tree, path)
        if agent is not None:
            yield "messages", "system", key, agent
        for name, inner in tree.items():
            if agent is not None and name in _AGENT:
                continue
            if isinstance(inner, Lit):
                role = _role(name, crew, strong, inner)
                if role is not None:
                    value = _texts.styled(inner, path)
                    if value is not None:
                        yield ("messages" if isinstance(value, Seq) else "text"), role, name, value
            else:
                yield from _visit(inner, name, strong, path, seen)


_AGENT = ("role", "backstory", "goal")


def _agent(tree: dict[str, Tree], path: str) -> Seq | None:
    """Give an agent's role, backstory and goal as the one system message that they become, None for other mappings."""
    if not all(isinstance(tree.get(name), Lit) for name in _AGENT):
        return None
    texts = [inner for name in _AGENT if isinstance(inner := tree[name], Lit)]
    content = Join(tuple(_texts.styled(text, path) or text for text in texts), texts[0].start, texts[-1].end)
    return Seq("list", (_texts.message("system", content),), content.start, content.end)


def _role(name: str, crew: bool, strong: bool, lit: Lit) -> str | None:
    """Give the role that a key's text has, None where it is no prompt."""
    lower = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).lower()
    if _SYSTEM.search(lower) or (crew and lower in _ROLE_GOAL):
        return "system"
    if crew and lower in ("description", "expected_output"):
        return "user"
    if _PROMPT.search(lower) and (" " in lit.text.strip()):
        return "text"
    return "text" if strong and len(lit.text) >= 200 else None


def _messages(items: list[Tree], path: str) -> Seq | None:
    """Give the value of a list of `{role|type, content}` mappings, None for other lists."""
    out: list[Value] = []
    for item in items:
        if isinstance(item, Lit):  # `{{ history | to_chat_messages }}`: the turns before
            out.append(item)
            continue
        if not isinstance(item, dict):
            return None
        role, content = item.get("role", item.get("type")), item.get("content", item.get("text"))
        if not isinstance(role, Lit) or role.text not in _ROLES or not isinstance(content, Lit):
            return None
        out.append(_texts.message(_ROLES[role.text], _texts.styled(content, path) or content))
    if not any(isinstance(item, Map) for item in out):
        return None
    return Seq("list", tuple(out), out[0].start, out[-1].end)


_ROLES = {
    "system": "system",
    "developer": "developer",
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "bot": "assistant",
    "tool": "tool",
}
