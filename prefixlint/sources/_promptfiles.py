"""Shapes of data files that frameworks load as prompts, where keys alone do not say what becomes one text.

LangChain's `_type: prompt | few_shot | chat` and its constructor form of the hub, promptfoo's and NeMo's lists under
`prompts`, and promptflow's graph, whose nodes hand values to templates.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from prefixlint.sources import CallSite, _texts
from prefixlint.values import Attr, Call, Const, Join, Lit, Loop, Name, Param, Seq, Value

Tree = Lit | list["Tree"] | dict[str, "Tree"] | None
Found = tuple[str, str, str, Value]
"""Kind of the sink, role, name, value."""

_STYLES = {"f-string": "brace", "jinja2": "jinja", "mustache": "mustache"}
_ROLES = {
    "SystemMessagePromptTemplate": "system",
    "SystemMessage": "system",
    "HumanMessagePromptTemplate": "user",
    "HumanMessage": "user",
    "AIMessagePromptTemplate": "assistant",
    "AIMessage": "assistant",
    "MessagesPlaceholder": "history",
}
_TEXT_FILE = re.compile(r"(?:file://)?(?:\./)?([^\s*]+\.(?:txt|md|j2|jinja2?|prompt|prompty))\Z")
_REFERENCE = re.compile(r"\$\{(?P<node>\w+)\.(?P<rest>[\w.]+)\}\Z")


def known(tree: Mapping[str, Tree], key: str, path: str) -> list[Found] | None:
    """Give the prompts of a mapping in a shape of its own; None where its keys are to be looked at one by one."""
    kind = _text(tree.get("_type"))
    if kind in ("prompt", "few_shot"):
        value = _langchain(tree, path)
        return [] if value is None else [("text", "text", key, value)]
    if (_text(tree.get("type")) == "constructor" and "lc" in tree) or _class_of(tree):
        return _constructed(tree, key, path)
    return [] if _is_graph(tree) else None


def entry(item: Tree, path: str) -> Found | None:
    """Give the prompt that an item of a list called `prompts` is: a text, a file, or a mapping around one."""
    if isinstance(item, dict):
        found = next((item[name] for name in ("raw", "content", "template", "prompt") if name in item), None)
        name = _text(item.get("task")) or _text(item.get("label")) or _text(item.get("id")) or "prompts"
        if not isinstance(found, Lit):
            file = item.get("id", item.get("path"))
            return None if found is not None or not isinstance(file, Lit) else _referenced(file, name)
        item = found
    else:
        name = "prompts"
    if not isinstance(item, Lit):
        return None
    file_ = _referenced(item, name)
    if file_ is not None:
        return file_
    value = _texts.styled(item, path) if " " in item.text.strip() else None
    return None if value is None else ("messages" if isinstance(value, Seq) else "text", "text", name, value)


def _referenced(lit: Lit, name: str) -> Found | None:
    value = _load(lit)
    return None if value is None else ("text", "text", name, value)


def _load(lit: Lit) -> Call | None:
    """Give the call that loads a text file, None where a string names none."""
    match = _TEXT_FILE.match(lit.text.strip())
    if match is None:
        return None
    return Call(Name("load", lit.start, lit.end), (Lit(match[1], lit.start, lit.end),), (), lit.start, lit.end)


def _text(tree: Tree) -> str:
    return tree.text.strip() if isinstance(tree, Lit) else ""


# ---------------------------------------------------------------------- LangChain


def _langchain(tree: Mapping[str, Tree], path: str) -> Value | None:
    """Give a prompt's text; of a few-shot prompt, its prefix, its examples and its suffix one after the other."""
    style = _STYLES.get(_text(tree.get("template_format")), "brace")
    template = _part(tree, "template", style, path)
    if template is not None:
        return template
    example = tree.get("example_prompt")
    shown = _langchain(example, path) if isinstance(example, dict) else None
    parts = [_part(tree, "prefix", style, path), shown, _part(tree, "suffix", style, path)]
    if shown is not None:
        parts[1] = _examples(tree.get("examples"), shown)
    kept = [part for part in parts if part is not None]
    return Join(tuple(kept), kept[0].start, kept[-1].end) if kept else None


def _examples(examples: Tree, shown: Value) -> Value:
    """Give the text of examples: all in the file, so the same each time; else once per example that is chosen."""
    if isinstance(examples, list):
        texts = [lit for item in examples if isinstance(item, dict) for lit in item.values() if isinstance(lit, Lit)]
        text = "\n".join(lit.text for lit in texts)
        return Lit(text, shown.start, shown.end)
    return Loop(Param("", "examples", shown.start, shown.end), shown, "text", None, shown.start, shown.end)


def _part(tree: Mapping[str, Tree], name: str, style: str, path: str) -> Value | None:
    lit, file = tree.get(name), tree.get(f"{name}_path")
    if isinstance(lit, Lit):
        return _texts.value_of(lit, style, path)[0]
    return _load(file) if isinstance(file, Lit) else None


def _class_of(tree: Mapping[str, Tree]) -> str:
    """Give the class that a mapping in constructor form makes."""
    path = tree.get("id")
    return _text(path[-1]) if isinstance(path, list) and path and "kwargs" in tree else ""


def _constructed(tree: Mapping[str, Tree], key: str, path: str) -> list[Found] | None:
    given = tree.get("kwargs")
    if not isinstance(given, dict):
        return None
    messages = given.get("messages")
    if isinstance(messages, list):
        items = [value for item in messages if isinstance(item, dict) and (value := _message(item, path)) is not None]
        return [("messages", "text", key, Seq("list", tuple(items), items[0].start, items[-1].end))] if items else []
    value = _content(tree, path)
    return None if value is None else [("text", "text", key, value)]


def _message(item: Mapping[str, Tree], path: str) -> Value | None:
    role, given = _ROLES.get(_class_of(item), ""), item.get("kwargs")
    if not role or not isinstance(given, dict):
        return None
    if role == "history":
        name = given.get("variable_name")
        return name if isinstance(name, Lit) else None
    prompt = given.get("prompt")
    content = _content(prompt, path) if isinstance(prompt, dict) else given.get("content")
    if content is None or isinstance(content, (list, dict)):
        return None
    return _texts.message(role, content)


def _content(tree: Mapping[str, Tree], path: str) -> Value | None:
    given = tree.get("kwargs")
    if not isinstance(given, dict):
        return None
    return _part(given, "template", _STYLES.get(_text(given.get("template_format")), "brace"), path)


# ---------------------------------------------------------------------- promptflow


def _is_graph(tree: Mapping[str, Tree]) -> bool:
    return isinstance(tree.get("nodes"), list) and "outputs" in tree


def renders(tree: Tree) -> Iterator[CallSite]:
    """Give, for each node of a graph that fills a template, the call that renders the file with the node's inputs."""
    nodes = tree.get("nodes") if isinstance(tree, dict) and _is_graph(tree) else None
    for node in nodes if isinstance(nodes, list) else ():
        if not isinstance(node, dict) or _text(node.get("type")) not in ("llm", "prompt"):
            continue
        source, inputs = node.get("source"), node.get("inputs")
        file = source.get("path") if isinstance(source, dict) else None
        loading = _load(file) if isinstance(file, Lit) else None
        if loading is None or not isinstance(inputs, dict):
            continue
        at = (loading.start, loading.end)
        kwargs = tuple((name, _input(it) if isinstance(it, Lit) else Const(None, *at)) for name, it in inputs.items())
        func = Attr(loading, "render", loading.start, loading.end)
        yield CallSite(Call(func, (), kwargs, loading.start, loading.end))


def _input(lit: Lit) -> Value:
    """Give an input of a node: `${inputs.question}` and `${today.output}` by their names, all else as it stands."""
    match = _REFERENCE.match(lit.text.strip())
    if match is None:
        return lit
    name = match["rest"].split(".")[-1] if match["node"] == "inputs" else match["node"]
    return Param("", name, lit.start, lit.end)
