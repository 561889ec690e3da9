"""The files of a project as summaries, read when asked for: modules by dotted name, templates by path, uses by name.

Names of other files are looked up by their paths alone, so only files that a lint touches are read. Nothing is
imported.
"""

from __future__ import annotations

import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from prefixlint.sources import CallSite, Class, Function, Summary
from prefixlint.values import Call, Name, Value, bare, dotted

MAX_HOPS = 12
"""Re-exports and base classes followed for one name."""


class Definition(NamedTuple):
    """What a dotted name leads to: `rest` are the attributes that follow the thing found.

    `kind` is const, func, class or module; `name` the qualified name inside `summary`.
    """

    kind: str
    summary: Summary
    name: str
    rest: tuple[str, ...] = ()


class Project:
    """Looks things up across files. `load` reads a path, None if it cannot; `paths` are all paths of the project."""

    def __init__(self, paths: Iterable[str], load: Callable[[str], Summary | None]) -> None:
        self._load = load
        self._summaries: dict[str, Summary | None] = {}
        self._by_stem: dict[str, list[str]] = defaultdict(list)
        self._texts: dict[str, list[str]] = defaultdict(list)
        self._exact: dict[str, str] = {}
        self._unindexed: list[Summary] = []
        self._site_index: dict[str, list[tuple[CallSite, Summary]]] = defaultdict(list)
        self._found: dict[tuple[str, str], str | None] = {}
        self._defined: dict[tuple[str, str], Definition | None] = {}
        self._brought: dict[tuple[str, tuple[str, ...]], Definition | None] = {}
        self._paths = sorted(paths)
        for path in self._paths:
            name = path.rsplit("/", 1)[-1]
            if name.endswith(".py"):
                module = _module(path)
                self._by_stem[module.rsplit("/", 1)[-1]].append(path)
                self._exact.setdefault("/" + module.replace("/", "."), path)
            else:
                self._texts[name.lower()].append(path)
                self._texts[name.split(".", 1)[0].lower()].append(path)

    def summary(self, path: str) -> Summary | None:
        """Give a file's summary."""
        if path not in self._summaries:
            summary = self._load(path)
            self._summaries[path] = summary
            if summary is not None and summary.calls:
                self._unindexed.append(summary)
        return self._summaries[path]

    def loaded(self) -> Iterator[Summary]:
        """Give the summaries read so far, by path."""
        for path in sorted(self._summaries):
            summary = self._summaries[path]
            if summary is not None:
                yield summary

    def module(self, name: str, importer: str) -> tuple[str, tuple[str, ...]] | None:
        """Give the file of the longest module prefix of a dotted name, and what is left of the name."""
        if name.startswith("/"):
            parts = name[1:].split(".")
            for size in range(len(parts), 0, -1):
                path = self._exact.get("/" + ".".join(parts[:size]))
                if path is not None:
                    return path, tuple(parts[size:])
            return None
        parts = name.split(".")
        if parts[0] in sys.stdlib_module_names:
            return None
        for size in range(len(parts), 0, -1):
            path = self._find("/".join(parts[:size]), parts[size - 1], importer)
            if path is not None:
                return path, tuple(parts[size:])
        return None

    def _find(self, module: str, stem: str, importer: str) -> str | None:
        folder = importer.rpartition("/")[0]
        if (module, folder) not in self._found:
            found = [path for path in self._by_stem.get(stem, ()) if f"/{_module(path)}".endswith(f"/{module}")]
            self._found[module, folder] = min(found, key=lambda path: _distance(path, importer)) if found else None
        return self._found[module, folder]

    def template(self, target: str, near: str) -> Summary | None:
        """Give the text or template file that a loader's argument names: a path's tail, a name, or a stem."""
        tail = target.strip("/").lower()
        name = tail.rsplit("/", 1)[-1]
        found = self._texts.get(name, ())
        if "/" in tail:
            exact = [
                path for path in found if f"/{path.lower()}".endswith(f"/{tail}") or _without(path).endswith(f"/{tail}")
            ]
            found = exact
        for path in sorted(found, key=lambda path: _distance(path, near)):
            summary = self.summary(path)
            if summary is not None and summary.text is not None:
                return summary
        return None

    def definition(self, name: str, summary: Summary) -> Definition | None:
        """Give what a dotted name means in a file."""
        key = name, summary.path
        if key not in self._defined:
            self._defined[key] = self._definition(name, summary, MAX_HOPS)
        return self._defined[key]

    def _definition(self, name: str, summary: Summary, hops: int) -> Definition | None:
        if hops <= 0:
            return None
        if name.startswith("."):
            return self._local(tuple(name[1:].split(".")), summary, hops)
        found = self.module(name, summary.path)
        if found is None:
            return None if name.startswith("/") else self._starred(tuple(name.split(".")), summary, hops)
        path, rest = found
        other = self.summary(path)
        if other is None:
            return None
        return self._local(rest, other, hops - 1) if rest else Definition("module", other, "")

    def _local(self, parts: tuple[str, ...], summary: Summary, hops: int) -> Definition | None:
        for size in range(len(parts), 0, -1):
            name = ".".join(parts[:size])
            rest = parts[size:]
            if name in summary.classes:
                return self._member(name, rest, summary, hops) if rest else Definition("class", summary, name)
            if name in summary.constants:
                return Definition("const", summary, name, rest)
            if name in summary.functions:
                return Definition("func", summary, name, rest)
        target = summary.imports.get(parts[0])
        if target is not None:
            return self._definition(".".join([target, *parts[1:]]), summary, hops - 1)
        return self._starred(parts, summary, hops) or self._submodule(parts, summary)

    def _starred(self, parts: tuple[str, ...], summary: Summary, hops: int) -> Definition | None:
        """Give what a name means that only `from module import *` can have brought."""
        key = summary.path, parts
        if key not in self._brought and is_starred(summary):
            self._brought[key] = None  # files may import all of each other
            modules = (module for local, module in summary.imports.items() if local.startswith("*"))
            found = (self._definition(".".join([module, *parts]), summary, hops - 1) for module in modules)
            self._brought[key] = next(filter(None, found), None)
        return self._brought.get(key)

    def _submodule(self, parts: tuple[str, ...], summary: Summary) -> Definition | None:
        if not summary.path.endswith("/__init__.py"):
            return None
        path = self._exact.get("/" + ".".join([_module(summary.path).replace("/", "."), parts[0]]))
        other = self.summary(path) if path is not None else None
        if other is None:
            return None
        return self._local(parts[1:], other, 2) if parts[1:] else Definition("module", other, "")

    def _member(self, name: str, rest: tuple[str, ...], summary: Summary, hops: int) -> Definition | None:
        return self.member(summary, name, rest[0], rest[1:], hops)

    def member(
        self, summary: Summary, cls: str, attribute: str, rest: tuple[str, ...] = (), hops: int = MAX_HOPS
    ) -> Definition | None:
        """Give a class's attribute or method, looking through its bases."""
        own = f"{cls}.{attribute}"
        if own in summary.constants:
            return Definition("const", summary, own, rest)
        if own in summary.functions:
            return Definition("func", summary, own, rest)
        if own in summary.classes:
            return Definition("class", summary, own, rest)
        if hops <= 0:
            return None
        for base in summary.classes[cls].bases:
            found = self._definition(base, summary, hops - 1)
            if found is not None and found.kind == "class":
                inherited = self.member(found.summary, found.name, attribute, rest, hops - 1)
                if inherited is not None:
                    return inherited
        return None

    def function(self, found: Definition) -> Function | None:
        """Give the function of a definition."""
        return found.summary.functions.get(found.name) if found.kind == "func" and not found.rest else None

    def method(self, found: Definition, hops: int = MAX_HOPS) -> Definition | None:
        """Give the method that a constant's only attribute is: `made.ask` where a module has `made = Service()`."""
        made = bare(found.summary.constants[found.name]) if found.kind == "const" and len(found.rest) == 1 else None
        name = made.func if isinstance(made, Call) else made
        held = self.definition(name.dotted, found.summary) if isinstance(name, Name) and hops > 0 else None
        if held is None:
            return None
        if isinstance(made, Name):
            return self.method(held._replace(rest=(*held.rest, *found.rest)), hops - 1)
        return self.member(held.summary, held.name, found.rest[0]) if held.kind == "class" else None

    def klass(self, found: Definition) -> Class | None:
        """Give the class of a definition."""
        return found.summary.classes.get(found.name) if found.kind == "class" else None

    def call_sites(self, summary: Summary, function: str) -> list[tuple[CallSite, Summary]]:
        """Give the calls, in files read so far, that may call a function of a file."""
        last = function.rsplit(".", 1)[-1]
        if last == "__init__":
            last = function.rsplit(".", 2)[-2]
        out = []
        for site, other in self._sites().get(last, ()):
            if self._may_call(site, other, summary, function):
                out.append((site, other))
        return out

    def _may_call(self, site: CallSite, other: Summary, summary: Summary, function: str) -> bool:
        name = dotted(site.call.func)
        if name is not None and ("." in name or other is summary or is_starred(other)):
            found = self.definition(name, other)
            found = found and (self.method(found) or found)
            if found is not None:
                constructs = found.kind == "class" and function == f"{found.name}.__init__"
                return found.summary is summary and (found.name == function or constructs)
            if name.startswith("."):
                return False
        return "." in function and "_" in function.rsplit(".", 1)[-1].strip("_")

    def _sites(self) -> Mapping[str, list[tuple[CallSite, Summary]]]:
        for summary in self._unindexed:
            for site in summary.calls:
                name = _last(site.call.func)
                if name is not None:
                    self._site_index[name].append((site, summary))
        self._unindexed.clear()
        return self._site_index


def is_starred(summary: Summary) -> bool:
    """Tell whether a file imports all names of another one."""
    return "*0" in summary.imports


def _last(func: Value) -> str | None:
    name = getattr(func, "name", None) or getattr(func, "dotted", None)
    return name.rsplit(".", 1)[-1] if isinstance(name, str) else None


def _module(path: str) -> str:
    """Give a Python file's module path with slashes: a package's is its folder."""
    return path.removesuffix("/__init__.py") if path.endswith("/__init__.py") else path.removesuffix(".py")


def _without(path: str) -> str:
    """Give a path, lower case with a leading slash, without the endings of its name."""
    folder, _, name = f"/{path.lower()}".rpartition("/")
    return f"{folder}/{name.split('.', 1)[0]}"


def _distance(path: str, near: str) -> tuple[int, int, str]:
    """Order candidates by how much of their folder they share with a file."""
    shared = 0
    for one, two in zip(path.split("/")[:-1], near.split("/")[:-1], strict=False):
        if one != two:
            break
        shared += 1
    return -shared, path.count("/"), path
