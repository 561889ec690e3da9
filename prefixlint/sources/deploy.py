"""Deployment files that start an engine or its router.

Dockerfiles, Compose files, Kubernetes manifests, Helm values, engines' own configuration files, shell scripts, systemd
units, Makefiles, files of variables (`.env`). A summary's sinks are the starts found (`start_of` gives one back).
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from prefixlint import servers
from prefixlint.servers import Setting, Start
from prefixlint.shellwords import Command, Mapped, Word, commands, named, whole
from prefixlint.sources import Diagnostic, Sink, SourceFile, Summary, _envfiles, _manifests, _starts, _texts, data
from prefixlint.textmap import offset
from prefixlint.values import Lit, Map, text_of

NAME = "deploy"
ORDER = 15
SINK = "start"
MEASURED = "measured"
"""Kind of the sinks for lines that a comment with a measured number speaks of."""
MAX_BYTES = 1_000_000
"""Larger files are data."""

_SHELL_ENDINGS = frozenset({".sh", ".bash", ".zsh", ".ksh"})
_UNIT_ENDINGS = frozenset({".service", ".container"})
_DATA_ENDINGS = frozenset({".yaml", ".yml"})
_DOCKER = re.compile(r"(?:^|[._-])(?:docker|container)file(?:[._-][\w.-]*)?\Z", re.IGNORECASE)
_AGENT = re.compile(r"(?:^|/)\.claude/settings(?:\.local)?\.json\Z")
_COMMENT = re.compile(r"(?:^|(?<=\s))#.*", re.MULTILINE)
_MEASURED = re.compile(r"\d\s*(?:%|m?s\b|x\b|tok|[GMT]i?B\b|req|qps)", re.IGNORECASE)
_SHEBANG = re.compile(rb"\A#!\s*\S*/(?:env\s+)?(?:ba|da|z|k|a)?sh\b")
_DEPLOYS = re.compile(
    rb"^\s*-?\s*[\"']?(?:services|apiVersion|image|command|args|entrypoint|replicas|replicaCount|\w*[aA]rgs|\w+Config|routerSpec|"
    rb"modelSpec|env|environment|model|model[-_]path|ExecStart|repository|run|cmd|script)[\"']?\s*:",
    re.MULTILINE,
)
_INSTRUCTION = re.compile(r"^[ \t]*(?P<word>[A-Za-z]+)[ \t]+", re.MULTILINE)
_UNIT = re.compile(r"^(?:(?P<key>Environment|Image|Exec)[ \t]*=[ \t]*|ExecStart[ \t]*=[ \t]*[-@:+!]*)", re.MULTILINE)
_RECIPE = re.compile(r"^\t[@+-]*((?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE)


def claims(file: SourceFile) -> bool:
    """Claim scripts, units and Dockerfiles by name, YAML by what it holds."""
    name = file.name
    if _AGENT.search(file.path):
        return True
    if file.suffix in _DATA_ENDINGS:
        return wanted(file) and _DEPLOYS.search(file.data) is not None
    if (
        file.suffix in _SHELL_ENDINGS | _UNIT_ENDINGS
        or _DOCKER.search(name) is not None
        or name in ("Procfile", "Makefile")
        or _envfiles.claims(name)
    ):
        return True
    return file.suffix == "" and _SHEBANG.match(file.data) is not None


def wanted(file: SourceFile) -> bool:
    """Want small files that have a word of a known program, or a flag of one."""
    content = file.data
    if _AGENT.search(file.path):
        return b"ANTHROPIC_BASE_URL" in content
    return len(content) <= MAX_BYTES and (
        servers.words().search(content) is not None
        or _manifests.flags().search(content) is not None
        or (_envfiles.claims(file.name) and _envfiles.wanted(content))
    )


def summarize(file: SourceFile) -> Summary:
    """Read the starts of a file."""
    decoded = _texts.decode(file)
    if isinstance(decoded, Diagnostic):
        return Summary(path=file.path, kind=NAME, diagnostics=(decoded,))
    text, marks = decoded
    lit = Lit(text, marks[0][1], len(file.data), marks)
    problems: tuple[Diagnostic, ...] = ()
    try:
        starts = list(_starts_of(file, lit))
    except _manifests.UnreadableError as error:
        starts, problems = [], (Diagnostic(file.path, error.line, "data-syntax", f"not valid YAML: {error}"),)
    except RecursionError:
        starts, problems = [], (Diagnostic(file.path, 0, "too-deep", "nested too deeply to be read"),)
    found = list(_COMMENT.finditer(text)) if starts else []
    sinks = (
        *(_sink(start) for start in dict.fromkeys(starts)),
        *(_measured(lit, m) for m in found if _MEASURED.search(m[0])),
    )
    comments = tuple((offset(lit, m.start()), offset(lit, m.end())) for m in found)
    if file.suffix in _DATA_ENDINGS and data.wanted(file):  # the same file may hold prompts
        other = data.summarize(file)
        return replace(other, sinks=(*other.sinks, *sinks), comments=comments)
    return Summary(path=file.path, kind=NAME, sinks=sinks, comments=comments, diagnostics=problems)


def _measured(lit: Lit, comment: re.Match[str]) -> Sink:
    """Give the line of a comment; the next one as well where the comment stands alone."""
    start = lit.text.rfind("\n", 0, comment.start()) + 1
    end = comment.end()
    if not lit.text[start : comment.start()].strip():
        following = lit.text.find("\n", end + 1)
        end = len(lit.text) if following < 0 else following
    at, stop = offset(lit, start), offset(lit, end)
    return Sink(MEASURED, Lit(comment[0], at, stop), at, stop)


def _starts_of(file: SourceFile, lit: Lit) -> Iterator[Start]:
    if _AGENT.search(file.path):
        yield from _manifests.starts(lit, env_of="claude-code")
    elif file.suffix in _DATA_ENDINGS:
        yield from _manifests.starts(lit)
    elif file.suffix in _UNIT_ENDINGS:
        yield from _unit(lit)
    elif _DOCKER.search(file.name):
        yield from _dockerfile(lit)
    elif file.name == "Procfile":
        for match in re.finditer(r"^[\w-]+:[ \t]*(.*)$", lit.text, re.MULTILINE):
            yield from _starts.in_script(_mapped(lit, match.start(1), match.end(1)), {})
    elif file.name == "Makefile":
        for match in _RECIPE.finditer(lit.text):
            yield from _starts.in_script(_mapped(lit, match.start(1), match.end(1)), {})
    elif _envfiles.claims(file.name):
        yield from _envfiles.starts(_mapped(lit, 0, len(lit.text)))
    else:
        yield from _script(_mapped(lit, 0, len(lit.text)))


def _script(source: Mapped, env: Mapping[str, Word] | None = None, depth: int = 0) -> Iterator[Start]:
    """Give what a script starts, what here-documents hand to shells, and what they write into files that start it."""
    yield from _starts.in_script(source, env or {})
    if "<<" in source.text and depth < _MAX_HERES:
        for command in commands(source, dict(env or {})):
            for body in command.heres:
                yield from _here(command, body, depth + 1)


_MAX_HERES = 4
"""Here-documents inside here-documents."""
_APPLIES = re.compile(r"(?:^|/)(?:kubectl|oc|helm|docker|docker-compose|podman)\Z")


def _here(command: Command, body: Mapped, depth: int) -> Iterator[Start]:
    names = [word.text for word in command.words]
    behind = names[names.index("tee") + 1 :] if "tee" in names else []
    target = command.into or next((name for name in behind if not name.startswith("-")), "")
    lit = Lit(body.text, body.at[0] if body.at else body.end, body.end, _marks(body))
    if "-" in names and any(map(_APPLIES.search, names)):
        with contextlib.suppress(_manifests.UnreadableError):
            yield from _manifests.starts(lit)
    elif any(name.rsplit("/", 1)[-1] in _starts.SHELLS for name in names) or names[0] == "ssh":
        yield from _script(body, command.env, depth)
    elif target:
        yield from _written(SourceFile(target, body.text.encode("utf-8", "replace")), lit, body, depth)


def _written(file: SourceFile, lit: Lit, body: Mapped, depth: int) -> Iterator[Start]:
    if file.suffix in _SHELL_ENDINGS or _SHEBANG.match(file.data):
        yield from _script(body, None, depth)
    elif file.suffix in _UNIT_ENDINGS | _DATA_ENDINGS or _DOCKER.search(file.name) or _envfiles.claims(file.name):
        with contextlib.suppress(_manifests.UnreadableError):
            yield from _starts_of(file, lit)


def _marks(body: Mapped) -> tuple[tuple[int, int], ...]:
    """Give where the bytes of a text do not follow one another."""
    at = body.at
    return tuple((i, at[i]) for i in range(len(at)) if i == 0 or at[i] != at[i - 1] + 1) or ((0, body.end),)


def _mapped(lit: Lit, start: int, end: int) -> Mapped:
    """Map a stretch of a file; files without CR line ends are mapped at once."""
    if len(lit.marks) == 1 or not any(b - a != lit.marks[0][1] - lit.marks[0][0] for a, b in lit.marks):
        return whole(lit.text[start:end], offset(lit, start))
    return Mapped(lit.text[start:end], [offset(lit, i) for i in range(start, end)], offset(lit, end))


def _dockerfile(lit: Lit) -> Iterator[Start]:
    """Read ENV, ENTRYPOINT and CMD of the stages; a JSON array and a shell form read alike."""
    stage = _Stage()
    for word, begin, end in _instructions(lit.text):
        body = _mapped(lit, begin, end)
        if word == "FROM":
            yield from stage.starts()
            stage = _Stage(image=lit.text[begin:end].strip())
        elif word in ("ENV", "ARG"):
            stage.env.update(_pairs(*_assigned(body)))
        elif word in ("ENTRYPOINT", "CMD"):
            stage.parts[word] = body
    yield from stage.starts()


@dataclass(slots=True)
class _Stage:
    """A stage of a Dockerfile: what it sets, and its last ENTRYPOINT and CMD."""

    image: str = ""
    env: dict[str, Word] = field(default_factory=dict)
    parts: dict[str, Mapped] = field(default_factory=dict)

    def starts(self) -> Iterator[Start]:
        """Give what the stage starts: a shell form alone, or the arrays one after the other."""
        words: list[Word] = []
        for name in ("ENTRYPOINT", "CMD"):
            body = self.parts.get(name)
            if body is None:
                continue
            own = _array(body)
            if own is None:
                yield from _starts.in_script(body, self.env, docker=True)
                if name == "ENTRYPOINT":
                    return  # a shell does not hand the CMD on
            else:
                words += own
        if words:
            yield from _starts.of_command(Command(tuple(words), dict(self.env)), image=self.image)


def _array(body: Mapped) -> list[Word] | None:
    """Give the words of an instruction's JSON array, None for the shell form."""
    stripped = body.text.lstrip()
    if not stripped.startswith("["):
        return None
    inner = re.sub(r"\\\n", "  ", body.text)
    words = []
    for match in re.finditer(r'"((?:[^"\\]|\\.)*)"|\]', inner):
        if match[0] == "]":
            break
        at = tuple(body.at[match.start(1) : match.end(1)])
        text = match[1]
        if "\\" in text:
            keep = list(re.finditer(r"\\(.)|[^\\]", text, re.DOTALL))
            at = tuple(at[m.start()] for m in keep)
            text = "".join(m[1] or m[0] for m in keep)
        start = at[0] if at else body.at[match.start()]
        words.append(Word(text, at, start, at[-1] + 1 if at else start, "$" in text))
    return words


def _assigned(body: Mapped) -> tuple[tuple[Word, ...], dict[str, Word]]:
    """Give the words of `ENV NAME value`, or `NAME=value …` as the shell reads assignments."""
    words: list[Word] = []
    for command in commands(Mapped("_ " + body.text, [0, 0, *body.at], body.end), {}, docker=True):
        words += command.words[1:]
    return tuple(words), {}


def _pairs(words: tuple[Word, ...], env: dict[str, Word]) -> dict[str, Word]:
    found = dict(env)
    if len(words) >= 2 and "=" not in words[0].text:
        found[words[0].text] = words[1]
    for word in words:
        name, equals, _ = word.text.partition("=")
        if equals and name.isidentifier():
            found[name] = named(word, len(name) + 1)
    return found


def _instructions(text: str) -> Iterator[tuple[str, int, int]]:
    """Give a Dockerfile's instructions with the stretch of their arguments, continuation lines included."""
    at = 0
    while at < len(text):
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        match = _INSTRUCTION.match(text, at, end)
        if match is None:
            at = end + 1
            continue
        while text[at:end].rstrip().endswith("\\") or (
            at > match.start() and re.match(r"[ \t]*(?:#|\Z)", text[at:end])
        ):
            at = end + 1
            if at >= len(text):
                break
            following = text.find("\n", at)
            end = len(text) if following < 0 else following
        yield match["word"].upper(), match.end(), end
        at = end + 1


def _unit(lit: Lit) -> Iterator[Start]:
    """Read Environment= and ExecStart= of a systemd unit, Image= and Exec= of a Quadlet file."""
    env: dict[str, Word] = {}
    image = ""
    for match in _UNIT.finditer(lit.text):
        end = match.end()
        while True:
            stop = lit.text.find("\n", end)
            stop = len(lit.text) if stop < 0 else stop
            if not lit.text[end:stop].rstrip().endswith("\\") or stop == len(lit.text):
                break
            end = stop + 1
        body = _mapped(lit, match.end(), stop)
        if match["key"] == "Environment":
            env.update(_pairs(*_assigned(body)))
        elif match["key"] == "Image":
            image = body.text.strip()
        else:
            for command in commands(body, env, docker=True):
                yield from _starts.of_command(command, image=image if match["key"] == "Exec" else "")


def _sink(start: Start) -> Sink:
    entries = tuple(
        (
            Lit(f"{setting.name}\0{setting.written}", setting.start, setting.end),
            Lit(setting.value, setting.start, setting.end),
        )
        for setting in start.settings
    )
    value = Map(entries, start.start, start.end)
    return Sink(
        SINK, value, start.start, start.end, role="complete" if start.complete else "partial", name=start.program
    )


def start_of(sink: Sink) -> Start:
    """Give the start that a sink holds."""
    settings = []
    for key, value in sink.value.entries if isinstance(sink.value, Map) else ():
        name, _, written = (text_of(key) or "").partition("\0")
        settings.append(Setting(name, written, text_of(value) or "", value.start, value.end))
    return Start(sink.name, sink.start, sink.end, tuple(settings), sink.role == "complete")
