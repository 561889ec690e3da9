"""Helpers for tests of the linter: files in memory, findings as short words."""

from prefixlint import lint, rulebook
from prefixlint.project import Project
from prefixlint.sources import SourceFile, kind_of


def project_of(files):
    data = {path: text.encode() if isinstance(text, str) else text for path, text in files.items()}

    def load(path):
        file = SourceFile(path, data[path])
        kind = kind_of(file)
        return kind.summarize(file) if kind is not None else None

    return Project(data, load), data


def findings(files, min_tokens=0, rules=None):
    """Lint files given as {path: text}; give (findings, errors)."""
    project, data = project_of(files)
    wanted = [
        path
        for path in data
        if (kind := kind_of(SourceFile(path, data[path]))) and kind.wanted(SourceFile(path, data[path]))
    ]
    outcome = lint.run(project, wanted, rulebook.rules() if rules is None else rules, min_tokens)
    return outcome.findings, outcome.errors


def places(files, min_tokens=0):
    """Give findings as (code, path, line)."""
    _, data = project_of(files)
    found, _ = findings(files, min_tokens)
    return [(f.rule.code, f.span.path, data[f.span.path].count(b"\n", 0, f.span.start) + 1) for f in found]


def codes(files, min_tokens=0):
    """Give the codes that fire."""
    return {code for code, _, _ in places(files, min_tokens)}
