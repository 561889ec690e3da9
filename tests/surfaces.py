"""Lints files that exist only in a test."""

from prefixlint import lint, rulebook
from prefixlint.project import Project
from prefixlint.sources import SourceFile, kind_of


def run(files, codes=None, min_tokens=0):
    """Give the outcome for files by path; `codes` restricts the rules."""
    data = {path: text if isinstance(text, bytes) else text.encode() for path, text in files.items()}
    summaries = {}
    for path, content in data.items():
        file = SourceFile(path, content)
        kind = kind_of(file)
        summaries[path] = kind.summarize(file) if kind is not None and kind.wanted(file) else None
    rules = {code: rule for code, rule in rulebook.rules().items() if codes is None or code in codes}
    return lint.run(Project(data, summaries.get), data, rules, min_tokens)


def found(name, text, codes=None):
    """Give (code, line, text of the span) of each finding in one file."""
    data = text if isinstance(text, bytes) else text.encode()
    outcome = run({name: data}, codes)
    assert not [error for error in outcome.errors if error.slug == "check-crashed"], outcome.errors
    return [
        (f.rule.code, data.count(b"\n", 0, f.span.start) + 1, data[f.span.start : f.span.end].decode())
        for f in outcome.findings
    ]


def codes(name, text, wanted=None):
    """Give the codes of the findings in one file."""
    return {code for code, _, _ in found(name, text, wanted)}
