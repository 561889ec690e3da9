"""Starts in YAML: containers of Compose files and Kubernetes manifests, Helm values, engines' configuration files."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from prefixlint import servers
from prefixlint.servers import Program, Setting, Start
from prefixlint.shellwords import Command, Mapped, Word, commands, named
from prefixlint.sources import _starts
from prefixlint.textmap import offset
from prefixlint.values import Lit

_MAX_DEPTH = 60
_MAX_NODES = 200_000
"""Nodes of one file that are visited, those behind an anchor each time that it is used."""
_COMMAND = ("entrypoint", "command", "cmd")
_ARGS = re.compile(r"(?i)(?:^|.*[_a-z])args\Z")
_REPLICAS = ("replicas", "replicaCount", "minReplicas", "min_replicas", "scale", "num_replicas")
_SCRIPTS = frozenset({"run", "script"})
_AFFINITY = re.compile(
    r"sessionAffinity:\s*[\"']?ClientIP|kind:\s*[\"']?InferencePool|consistentHash|consistent_hash|cache_aware|cache-aware|prefixaware|prefix-aware|"
    r"kvaware|prefix-cache-scorer|upstream-hash-by|ring_hash|maglev|sticky|session[-_]?[kK]ey|PrefixHash|router[-_]mode[\"',\s]+kv"
)
_TEMPLATE_LINE = re.compile(r"^[ \t]*(?:- )?\{\{.*?\}\}[ \t]*$", re.MULTILINE)
_TEMPLATE = re.compile(r"\{\{.*?\}\}")
_BRANCH = re.compile(r"\{\{-?\s*(?P<word>if|with|range|else|end|define|block)\b")


class UnreadableError(Exception):
    """A document that the parser refuses; `line` is 1-based, 0 if unknown."""

    def __init__(self, message: str, line: int) -> None:
        super().__init__(message)
        self.line = line


@cache
def flags() -> re.Pattern[bytes]:
    """Give what a file may hold without naming a program: flags that one program has, as flags or as keys."""
    names = sorted(servers.flags())
    spelled = {name.encode() for name in names} | {name.replace("-", "_").encode() for name in names}
    return re.compile(rb"(?<![\w-])(?:--)?(?:" + b"|".join(map(re.escape, sorted(spelled))) + rb")(?![\w-])")


def starts(whole: Lit, env_of: str = "") -> Iterator[Start]:
    """Give the starts of a YAML or JSON file. Raises UnreadableError; Helm's template tags are read as plain text.

    `env_of` names the program that the environment at the top is for, where the file is that program's own.
    """
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    text = whole.text
    templated = "{{" in text
    if templated:
        text = _TEMPLATE.sub(lambda m: "x" * len(m[0]), _TEMPLATE_LINE.sub(lambda m: "#" + " " * (len(m[0]) - 1), text))
    branches = _branches(whole) if templated else []
    walker = _Walker(Lit(text, whole.start, whole.end, whole.marks), {})
    if _AFFINITY.search(text):
        walker.around["@affinity"] = Setting("@affinity", "affinity", "yes", 0, 0)
    try:
        for node in yaml.compose_all(text, Loader=loader):
            for start in walker.visit(node, walker.around, 0):
                yield _unbranched(start, branches) if branches else start
            if env_of and type(node).__name__ == "MappingNode":
                yield walker.own(node, env_of)
    except (yaml.YAMLError, ValueError) as error:
        if not templated:
            mark = getattr(error, "problem_mark", None)
            raise UnreadableError(str(getattr(error, "problem", error)), mark.line + 1 if mark else 0) from None


def _branches(whole: Lit) -> list[tuple[int, int]]:
    """Give the bytes of a Helm template that a condition writes."""
    found: list[tuple[int, int]] = []
    opened: list[tuple[str, int]] = []
    for match in _BRANCH.finditer(whole.text):
        word = match["word"]
        if word == "end" and opened:
            kind, start = opened.pop()
            if kind not in ("define", "block"):
                found.append((offset(whole, start), offset(whole, match.start())))
        elif word not in ("else", "end"):
            opened.append((word, match.start()))
    return found


def _unbranched(start: Start, branches: list[tuple[int, int]]) -> Start:
    """Give a start without the flags that only some values switch on."""
    kept = tuple(s for s in start.settings if not any(begin <= s.start < end for begin, end in branches))
    return Start(start.program, start.start, start.end, kept, start.complete and len(kept) == len(start.settings))


class _Walker:
    """Walks the nodes of a file; `around` is what the file says about all of them."""

    def __init__(self, whole: Lit, around: dict[str, Setting]) -> None:
        self.whole = whole
        self.around = around
        self.path: set[int] = set()
        self.left = _MAX_NODES

    def visit(self, node: Any, around: Mapping[str, Setting], depth: int) -> Iterator[Start]:
        """Visit a node; what contains itself or lies too deep ends there, and anchors that multiply end somewhere."""
        self.left -= 1
        if depth > _MAX_DEPTH or id(node) in self.path or self.left < 0:
            return
        self.path.add(id(node))
        kind = type(node).__name__
        if kind == "SequenceNode":
            for item in node.value:
                yield from self.visit(item, around, depth + 1)
        elif kind == "MappingNode":
            entries = {key.value: (key, value) for key, value in node.value if type(key).__name__ == "ScalarNode"}
            inner = {**around, **self._replicas(entries)}
            yield from self._container(entries, inner)
            yield from self._values(entries, inner)
            yield from self._configuration(entries, inner, depth)
            for name, (_, value) in entries.items():
                if type(value).__name__ == "ScalarNode":
                    if name in _SCRIPTS and "\n" in value.value:
                        yield from _starts.in_script(self.word(value).mapped(), {})
                elif not (name in _COMMAND or _ARGS.match(name)):
                    yield from self.visit(value, inner, depth + 1)
        self.path.discard(id(node))

    def word(self, node: Any) -> Word:
        """Give a scalar as a word."""
        at = _aligned(node, self.whole)
        begin = offset(self.whole, node.start_mark.index)
        end = at[-1] + 1 if at else begin
        return Word(node.value, at, at[0] if at else begin, end, "$" in node.value or "xxxx" in node.value)

    def own(self, node: Any, program: str) -> Start:
        """Give the start of a program whose own configuration this is."""
        entries = {key.value: (key, value) for key, value in node.value if type(key).__name__ == "ScalarNode"}
        settings = tuple(Setting(n, n, w.text, w.start, w.end) for n, w in sorted(self._environment(entries).items()))
        begin = offset(self.whole, node.start_mark.index)
        return Start(program, begin, begin + 1, settings, complete=False)

    def words(self, node: Any) -> list[Word]:
        """Give the words of a command: a list, or a string as a shell splits it."""
        if type(node).__name__ == "SequenceNode":
            return [self.word(item) for item in node.value if type(item).__name__ == "ScalarNode"]
        if type(node).__name__ != "ScalarNode" or not node.value.strip():
            return []
        source = self.word(node).mapped()
        found = list(commands(Mapped(re.sub(r"(?<!\\)\n", " ", source.text), source.at, source.end), docker=True))
        return list(found[0].words) if len(found) == 1 else []

    def _replicas(self, entries: Mapping[str, tuple[Any, Any]]) -> dict[str, Setting]:
        found: dict[str, Setting] = {}
        for name in _REPLICAS:
            key, value = entries.get(name, (None, None))
            if value is not None and type(value).__name__ == "ScalarNode" and value.value.isdigit():
                found["@replicas"] = self._setting("@replicas", name, key, value)
        for name in ("deploy", "autoscaling"):
            _, value = entries.get(name, (None, None))
            if type(value).__name__ == "MappingNode" and id(value) not in self.path:
                inner = {key.value: (key, item) for key, item in value.value if type(key).__name__ == "ScalarNode"}
                found.update(self._replicas({n: pair for n, pair in inner.items() if n in _REPLICAS}))
        return found

    def _setting(self, name: str, written: str, key: Any, value: Any) -> Setting:
        return Setting(
            name,
            written,
            value.value,
            offset(self.whole, key.start_mark.index),
            offset(self.whole, value.end_mark.index),
        )

    def _container(self, entries: Mapping[str, tuple[Any, Any]], around: Mapping[str, Setting]) -> Iterator[Start]:
        """Read image, command, args and environment of a container."""
        words = [word for name in _COMMAND if name in entries for word in self.words(entries[name][1])]
        env = self._environment(entries)
        whole_script = [entries[name][1] for name in _COMMAND if name in entries and not words]
        image = _text(entries.get("image"))
        args = [(name, pair[1]) for name, pair in entries.items() if _ARGS.match(name)]
        for name, node in args:
            own = self.words(node)
            both = [*words, *own] if name == "args" else own
            found = list(_starts.of_command(Command(tuple(both), env), image=image)) if both else []
            if not found and own and both and both[0].text.startswith("-"):
                program = _by_flags(own)
                found = [_starts.start(program, (), own, env)] if program is not None else []
                found = [_partial(item) for item in found]
            yield from (_within(item, around) for item in found)
        if not any(name == "args" for name, _ in args) and words:
            yield from (_within(item, around) for item in _starts.of_command(Command(tuple(words), env), image=image))
        elif (
            not words and not args and image and ("environment" in entries or "env" in entries or "@replicas" in around)
        ):
            program = servers.by_image(image)
            if program is not None:
                word = self.word(entries["image"][1])
                yield _within(_partial(_starts.start(program, (word,), (), env)), around)
        for node in whole_script:
            if type(node).__name__ == "ScalarNode":
                yield from (_within(item, around) for item in _starts.in_script(self.word(node).mapped(), env))

    def _environment(self, entries: Mapping[str, tuple[Any, Any]]) -> dict[str, Word]:
        """Read `environment:` (mapping or NAME=value) and `env:` (name and value)."""
        env: dict[str, Word] = {}
        for name in ("environment", "env", "extraEnv", "envVars"):
            _, node = entries.get(name, (None, None))
            for key, value in node.value if type(node).__name__ == "MappingNode" else ():
                if type(value).__name__ == "ScalarNode":
                    env[str(key.value)] = self.word(value)
            for item in node.value if type(node).__name__ == "SequenceNode" else ():
                if type(item).__name__ == "ScalarNode":
                    word = self.word(item)
                    left, equals, _ = word.text.partition("=")
                    if equals:
                        env[left] = named(word, len(left) + 1)
                elif type(item).__name__ == "MappingNode":
                    pair = {str(key.value): value for key, value in item.value}
                    if "name" in pair and type(pair.get("value")).__name__ == "ScalarNode":
                        env[str(pair["name"].value)] = self.word(pair["value"])
        return env

    def _values(self, entries: Mapping[str, tuple[Any, Any]], around: Mapping[str, Setting]) -> Iterator[Start]:
        """Read settings in Helm values: `vllmConfig: {enablePrefixCaching: false}`."""
        for name, (key, value) in entries.items():
            program = servers.by_key(name)
            if program is None or type(value).__name__ != "MappingNode":
                continue
            settings = tuple(
                self._setting(servers.flag_name(str(k.value)), str(k.value), k, v)
                for k, v in value.value
                if type(v).__name__ == "ScalarNode" and type(k).__name__ == "ScalarNode"
            )
            at, end = offset(self.whole, key.start_mark.index), offset(self.whole, key.end_mark.index)
            yield _within(Start(program.name, at, end, settings, complete=False), around)

    def _configuration(
        self, entries: Mapping[str, tuple[Any, Any]], around: Mapping[str, Setting], depth: int
    ) -> Iterator[Start]:
        """Read an engine's own configuration file: flags as keys at the top."""
        if depth or not any(
            name in entries for name in ("model", "model-path", "model_path", "model-tag", "served-model-name", "port")
        ):
            return
        owners = {servers.flags().get(servers.flag_name(name)) for name in entries} - {None}
        if len(owners) != 1:
            return
        settings = tuple(
            self._setting(servers.flag_name(name), name, key, value)
            for name, (key, value) in entries.items()
            if type(value).__name__ == "ScalarNode"
        )
        yield _within(Start(str(owners.pop()), settings[0].start, settings[0].end, settings, complete=False), around)


def _aligned(node: Any, whole: Lit) -> tuple[int, ...]:
    """Give the byte of each character of a scalar: what is written in quotes, in folded lines, with escapes."""
    raw = whole.text[node.start_mark.index : node.end_mark.index]
    at: list[int] = []
    j = 0
    for char in node.value:
        if not char.isspace():
            found = raw.find(char, j)
            j = found if 0 <= found <= j + 200 else j
        at.append(offset(whole, node.start_mark.index + min(j, max(len(raw) - 1, 0))))
        j += 1 if not char.isspace() or raw[j : j + 1].isspace() else 0
    return tuple(at)


def _text(pair: tuple[Any, Any] | None) -> str:
    return pair[1].value if pair is not None and type(pair[1]).__name__ == "ScalarNode" else ""


def _by_flags(words: list[Word]) -> Program | None:
    """Give the program that alone has one of these flags."""
    for word in words:
        owner = (
            servers.flags().get(servers.flag_name(word.text.partition("=")[0])) if word.text.startswith("--") else None
        )
        if owner is not None:
            return next(program for program in servers.programs() if program.name == owner)
    return None


def _partial(start: Start) -> Start:
    return Start(start.program, start.start, start.end, start.settings, complete=False)


def _within(start: Start, around: Mapping[str, Setting]) -> Start:
    """Give a start with what surrounds it."""
    return Start(start.program, start.start, start.end, (*start.settings, *around.values()), start.complete)
