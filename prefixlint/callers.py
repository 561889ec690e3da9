"""Whether anything that serves requests leads to a place in Python code, told by who mentions its function's name.

A name that stands anywhere counts, whoever's it is: in code, or as a whole string. So a function is found to have no
callers only where no file of the project, tests and archived code aside, writes its name. What is called through names
that are put together at run time, by a framework's own rules, or from outside the project is taken for reached:
decorated functions, special methods, methods of classes with bases from elsewhere, the public names of a library.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cached_property

from prefixlint import pysyntax
from prefixlint.prompts import Span
from prefixlint.pysyntax import NotPythonError
from prefixlint.sources._pyscope import words
from prefixlint.wordset import path_words, word_set

MOST_FILES = 24
"""Files that mention one name and are read; a name in more of them is taken for reached."""
MOST_STEPS = 200
"""Functions looked at for one place; beyond, it is taken for reached."""
_LARGEST = 200_000
"""Bytes of a file of settings that is searched for the name of a function."""
_IDENTIFIER = re.compile(r"(?:[\w/.-]*[.:])?([A-Za-z_]\w*)\Z")
_UNUSED = word_set(
    "test tests testing archive archived archives attic backup backups bak deprecated graveyard legacy obsolete old "
    "unused"
)
"""Words of folders and files whose code no longer runs, or runs only to test."""
_ENTRIES = word_set("main handler lambda_handler application create_app run_app cli entrypoint")
"""Functions that platforms call by these names."""
_OWN_BASES = word_set("object ABC Protocol Generic Enum StrEnum IntEnum Exception BaseModel TypedDict NamedTuple")
"""Bases from elsewhere that call none of a class's own methods."""
_PLAIN = word_set(
    "staticmethod classmethod property cached_property cache lru_cache abstractmethod override overload wraps "
    "contextmanager asynccontextmanager retry backoff traceable observe timeit timer dataclass final deprecated setter "
    "inject singleton log_execution_time async_retry with_retry"
)
"""Decorators that hand a function to nobody."""
_SELDOM = word_set("nightly midnight overnight morning daily weekly monthly cron cronjob crontab")
"""Words of functions and files that run once in a long while."""
_SCHEDULES = word_set(
    "add_job do schedule scheduled_job cron crontab run_daily run_monthly loop periodic_task add_periodic_task aiocron"
)
"""Functions and decorators that are given what runs by the clock."""
_OFTEN = re.compile(rb"\b(?:seconds?|minutes?)\s*=\s*(?!0\b)\S*\w|\.(?:seconds?|minutes?)\b|\*/|interval\s*=\s*\d")
_RARE = re.compile(rb"cron|hour|\bday|\bdaily|\bat\(|week|time\s*=|24|86400", re.IGNORECASE)
_SERVES = re.compile(
    rb"__main__|\b(?:FastAPI|Flask|Quart|Sanic|Starlette|Celery|Typer|FastMCP|APIRouter|Blueprint)\(|"
    rb"\b(?:streamlit|chainlit|gradio|uvicorn|argparse|click|telegram|aiogram|discord)\b"
)
"""What code has that is run, not imported."""
_DEPLOYED = re.compile(
    r"(?:^|/)(?:(?:docker|container)file[^/]*|(?:docker-)?compose[^/]*\.ya?ml|procfile)\Z", re.IGNORECASE
)
_MANIFESTS = ("pyproject.toml", "setup.py", "setup.cfg")
_PACKAGED = re.compile(rb"^\[build-system\]|\bsetup\(|^\[metadata\]", re.MULTILINE)
_NAME = re.compile(rb"[A-Za-z_]\w+")


class Reach(IntEnum):
    """What leads to a place: nothing, only what runs by the clock, or what serves requests."""

    NOTHING = 0
    SELDOM = 1
    REQUESTS = 2


@dataclass(frozen=True, slots=True)
class _Unit:
    """A function or a class: byte range, name, the unit that it stands in, what decorates it, its bases."""

    start: int
    end: int
    name: str
    owner: _Unit | None
    function: bool
    decorators: tuple[tuple[str, bytes], ...] = ()
    bases: tuple[str, ...] = ()


@dataclass(slots=True)
class _File:
    """A file's units, where it mentions which name (and whether to have it run by the clock), and how it dispatches."""

    path: str
    units: list[_Unit] = field(default_factory=list)
    mentions: dict[str, list[tuple[int, bool]]] = field(default_factory=lambda: defaultdict(list))
    dynamic: bool = False

    def unit_at(self, offset: int) -> _Unit | None:
        """Give the innermost unit around a byte."""
        inside = [unit for unit in self.units if unit.start <= offset < unit.end]
        return max(inside, key=lambda unit: unit.start) if inside else None


class Callers:
    """Answers for the places of one project. `paths` are its files, `read` gives their bytes, None if it cannot."""

    def __init__(self, paths: Iterable[str], read: Callable[[str], bytes | None]) -> None:
        self._read = read
        self._paths = sorted(paths)
        self._code = [path for path in self._paths if path.endswith(".py") and not _is_unused(path)]
        self._files: dict[str, _File | None] = {}
        self._known: dict[tuple[str, int], Reach] = {}
        self._holding: dict[str, list[str] | None] = {}
        self._steps = 0

    def reach(self, span: Span) -> tuple[Reach, str]:
        """Give what leads to a place, and the function that says so; REQUESTS where that cannot be told."""
        if not span.path.endswith(".py") or not self._application:
            return Reach.REQUESTS, ""
        file = self._file(span.path)
        unit = file.unit_at(span.start) if file is not None else None
        if file is None or unit is None:
            return Reach.REQUESTS, ""
        self._steps = 0
        return self._of_unit(file, unit, ()), unit.name

    def unfilled(self, span: Span) -> str:
        """Give the name of a placeholder in a template that no code of a program says, empty where some does.

        Whatever renders the template leaves it empty, or is no part of the project.
        """
        if span.path.endswith((".py", ".ipynb")) or not self._application:
            return ""
        said = _NAME.findall((self._read(span.path) or b"")[span.start : span.end])
        own = span.path.rpartition(".")[2]
        others = (path for path in self._paths if path != span.path and path.rpartition(".")[2] != own)
        filled = not said or any(name in data for path in others if (data := self._read(path)) for name in said)
        return "" if filled else said[-1].decode()

    @cached_property
    def _deployed(self) -> bool:
        return any(_DEPLOYED.search(path.lower()) for path in self._paths)

    @cached_property
    def _application(self) -> bool:
        """Whether the project is run: the functions of one that is only imported are called from outside."""
        return self._deployed or self._holds(_SERVES, self._code)

    @cached_property
    def _library(self) -> bool:
        """Whether the project is packaged, and not deployed: its public names may be called from outside."""
        named = [path for path in self._paths if path.rsplit("/", 1)[-1] in _MANIFESTS]
        return not self._deployed and self._holds(_PACKAGED, named)

    def _holds(self, pattern: re.Pattern[bytes], paths: Iterable[str]) -> bool:
        return any(pattern.search(self._read(path) or b"") for path in paths)

    def _file(self, path: str) -> _File | None:
        if path not in self._files:
            data = self._read(path)
            self._files[path] = None if data is None else _parsed(path, data)
        return self._files[path]

    def _of_unit(self, file: _File, unit: _Unit, above: tuple[_Unit, ...]) -> Reach:
        """Give what leads to a unit; `above` are those whose callers are being looked for."""
        self._steps += 1
        key = (file.path, unit.start)
        if key in self._known:
            return self._known[key]
        if unit in above:
            return Reach.NOTHING
        if self._steps > MOST_STEPS:
            return Reach.REQUESTS
        above = (*above, unit)
        owner = Reach.REQUESTS if unit.owner is None else self._of_unit(file, unit.owner, above)
        own = owner if owner is Reach.NOTHING else min(owner, self._called(file, unit, above))
        if unit.function and (words(unit.name) | words(_stem(file.path))) & _SELDOM:
            own = min(own, Reach.SELDOM)
        if own is Reach.REQUESTS or len(above) == 1:
            self._known[key] = own
        return own

    def _called(self, file: _File, unit: _Unit, above: tuple[_Unit, ...]) -> Reach:
        method = unit.owner is not None and not unit.owner.function
        if unit.owner is not None and unit.owner.function:
            return Reach.REQUESTS  # as often as what it stands in
        if unit.name.startswith("test_"):
            return Reach.NOTHING
        handed = [(name, text) for name, text in unit.decorators if name not in _PLAIN]
        if handed:
            timed = all(name in _SCHEDULES and _is_rare(text) for name, text in handed)
            return Reach.SELDOM if timed else Reach.REQUESTS
        if file.dynamic or unit.name in _ENTRIES or (unit.name.startswith("__") and unit.name.endswith("__")):
            return Reach.REQUESTS
        if method and unit.owner is not None and self._is_framed(unit.owner):
            return Reach.REQUESTS
        if self._library and not unit.name.startswith("_"):
            return Reach.REQUESTS
        return self._mentioned(file, unit, above)

    def _is_framed(self, owner: _Unit, depth: int = 0) -> bool:
        """Tell whether a class has a base from elsewhere, which may call its methods."""
        for base in owner.bases:
            if base in _OWN_BASES:
                continue
            known = [
                each
                for path in self._holders(base) or ()
                if (other := self._file(path)) is not None
                for each in other.units
                if each.name == base and not each.function
            ]
            if not known or depth > 4 or all(self._is_framed(each, depth + 1) for each in known):
                return True
        return False

    def _mentioned(self, file: _File, unit: _Unit, above: tuple[_Unit, ...]) -> Reach:
        """Give the most that leads to the places which mention a unit's name."""
        holders = self._holders(unit.name)
        if holders is None:
            return Reach.REQUESTS
        best = Reach.NOTHING
        for path in sorted(holders, key=lambda path: path != file.path):
            other = self._file(path)
            if other is None:
                return Reach.REQUESTS
            for offset, timed in other.mentions.get(unit.name, ()):
                if other.path == file.path and unit.start <= offset < unit.end:
                    continue
                around = other.unit_at(offset)
                found = Reach.REQUESTS if around is None else self._of_unit(other, around, above)
                best = max(best, min(found, Reach.SELDOM) if timed else found)
                if best is Reach.REQUESTS:
                    return best
        return best if best or not self._is_set(unit.name) else Reach.REQUESTS

    def _holders(self, name: str) -> list[str] | None:
        """Give the files whose code holds a name, None where they are too many to read."""
        if name not in self._holding:
            said = name.encode()
            found = [path for path in self._code if said in (self._read(path) or b"")]
            self._holding[name] = found if len(found) <= MOST_FILES else None
        return self._holding[name]

    def _is_set(self, name: str) -> bool:
        """Tell whether settings name a function: `app.jobs:main`, `handler: app.answer`."""
        named = re.compile(rb"[.:]" + name.encode() + rb"\b")
        others = (path for path in self._paths if not path.endswith((".py", ".md", ".txt", ".ipynb", ".jsonl")))
        return any(len(data := self._read(path) or b"") <= _LARGEST and named.search(data) for path in others)


def _stem(path: str) -> str:
    return path.rsplit("/", 1)[-1].removesuffix(".py")


def _is_unused(path: str) -> bool:
    return not _UNUSED.isdisjoint(path_words(path))


def _is_rare(text: bytes) -> bool:
    """Tell whether the text of a schedule says that hours pass between two runs."""
    return _RARE.search(text) is not None and _OFTEN.search(text) is None


def _parsed(path: str, data: bytes) -> _File | None:
    body = data.removeprefix(b"\xef\xbb\xbf")
    shift = len(data) - len(body)
    try:
        tree = pysyntax.parse(body)
    except (NotPythonError, RecursionError):
        return None
    reader = _Reader(_File(path), data, pysyntax.line_starts(body, shift))
    try:
        reader.body(tree, None)
    except RecursionError:
        return None
    mentions = reader.file.mentions
    for local, name in reader.renamed.items():
        if local != name:
            mentions[name].extend(mentions.get(local, ()))
    return reader.file


class _Reader:
    """Reads a tree into a `_File`."""

    def __init__(self, file: _File, data: bytes, starts: list[int]) -> None:
        self.file = file
        self.data = data
        self.starts = starts
        self.renamed: dict[str, str] = {}

    def body(self, node: ast.AST, owner: _Unit | None, timed: bool = False) -> None:
        for child in ast.iter_child_nodes(node):
            self._node(child, owner, timed)

    def _node(self, node: ast.AST, owner: _Unit | None, timed: bool) -> None:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            self._unit(node, owner)
            return
        if isinstance(node, ast.ImportFrom):
            self.renamed.update({each.asname: each.name for each in node.names if each.asname})
        if isinstance(node, (ast.Import, ast.ImportFrom)) or _is_export(node):
            return
        if isinstance(node, ast.Name):
            self._mention(node.id, node, timed)
        elif isinstance(node, ast.Attribute):
            self._mention(node.attr, node, timed)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            said = _IDENTIFIER.match(node.value)
            if said is not None:
                self._mention(said[1], node, timed)
        elif isinstance(node, ast.Call):
            called = _last(node.func)
            if called in ("getattr", "globals", "locals", "vars") and _is_dispatch(node, called):
                self.file.dynamic = True
            if called in _SCHEDULES:
                start, end = pysyntax.extent(node, self.starts)
                timed = timed or _is_rare(self.data[start:end])
        self.body(node, owner, timed)

    def _mention(self, name: str, node: ast.expr, timed: bool) -> None:
        self.file.mentions[name].append((pysyntax.extent(node, self.starts)[0], timed))

    def _unit(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef, owner: _Unit | None) -> None:
        start, end = pysyntax.extent(node, self.starts)
        decorators = []
        for each in node.decorator_list:
            first, last = pysyntax.extent(each, self.starts)
            decorators.append((_last(each.func if isinstance(each, ast.Call) else each), self.data[first:last]))
        function = not isinstance(node, ast.ClassDef)
        bases = tuple(map(_last, node.bases)) if isinstance(node, ast.ClassDef) else ()
        unit = _Unit(start, end, node.name, owner, function, tuple(decorators), bases)
        self.file.units.append(unit)
        self.body(node, unit)


def _is_export(node: ast.AST) -> bool:
    """Tell whether a statement only says what a module offers."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, _SETS) else ()
    return any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets)


_SETS = (ast.AnnAssign, ast.AugAssign)


def _is_dispatch(call: ast.Call, called: str) -> bool:
    """Tell whether a call finds a function by a name that is made at run time: `getattr(self, f"on_{kind}")`."""
    if called != "getattr":
        return True
    return len(call.args) > 1 and not isinstance(call.args[1], ast.Constant) and _last(call.args[0]) in ("self", "cls")


def _last(node: ast.expr) -> str:
    """Give the last name of a dotted one, of a subscripted one that of its base; empty for anything else."""
    while isinstance(node, ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""
