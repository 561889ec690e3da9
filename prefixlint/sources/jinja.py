"""Jinja2 files (`.j2`, `.jinja`, `.jinja2`, `.prompty`) that render prompts.

A template that renders something else is told by its inner ending (`x.yml.j2`, `Dockerfile.j2`), by its first lines
(HTML, Kubernetes, a shebang), or because it is a model's chat template, which other rules judge.
"""

from __future__ import annotations

import re

from prefixlint.sources import Diagnostic, Sink, SourceFile, Summary, _texts
from prefixlint.values import Lit, Seq
from prefixlint.wordset import word_set

NAME = "jinja"
ORDER = 20
_ENDINGS = (".j2", ".jinja", ".jinja2", ".prompty")
_TEXT_ENDINGS = word_set(" .txt .text .prompt .system .user .md .markdown")
_OTHER = re.compile(
    r"\A\s*(?:<!DOCTYPE|<html|<\?xml|#!|apiVersion:|FROM \w|\{\{-?\s*/\*|import \w|from \w+ import|package \w|#include|"
    r"<div|<table|---\s*\n\s*apiVersion)"
    r"|^\s*(?:def \w+\(|class \w+[(:]|import \w+$|from [\w.]+ import |FROM \S+|RUN |apiVersion:)",
    re.IGNORECASE | re.MULTILINE,
)
_CHAT = re.compile(r"add_generation_prompt|\bbos_token\b|for\s+\w+\s+in\s+(?:loop_)?messages\b[^%]*%\}")
_NAMES = re.compile(r"(?:^|/)(?:dockerfile|readme|changelog|makefile|license|contributing)[^/]*\Z", re.IGNORECASE)


def claims(file: SourceFile) -> bool:
    """Claim the endings of Jinja files."""
    return file.suffix in _ENDINGS


def wanted(file: SourceFile) -> bool:
    """Tell whether the file can be a prompt; it costs little to read, so only the name decides."""
    return renders_text(file.path)


def renders_text(path: str) -> bool:
    """Tell from a template's name whether it renders plain text."""
    name = path.rsplit("/", 1)[-1].lower()
    stem = name[: name.rindex(".")] if "." in name else name
    inner = stem[stem.rindex(".") :] if "." in stem else ""
    known = inner in _TEXT_ENDINGS or not re.fullmatch(r"\.[a-z]{1,5}", inner)
    return known and not (
        _NAMES.search(path) or (inner in (".md", ".markdown") and not _texts.PROMPT_PATH.search(path))
    )


def summarize(file: SourceFile) -> Summary:
    """Read a template."""
    decoded = _texts.decode(file)
    if isinstance(decoded, Diagnostic):
        return Summary(path=file.path, kind=NAME, diagnostics=(decoded,))
    text, marks = decoded
    lit = Lit(text, marks[0][1], len(file.data), marks)
    if file.suffix == ".prompty":
        lit = _texts.without_front_matter(lit)
    value, problems = _texts.value_of(lit, "jinja", file.path)
    sinks: tuple[Sink, ...] = ()
    if renders_text(file.path) and not _OTHER.search(lit.text[:4000]) and not _CHAT.search(lit.text):
        kind = "messages" if isinstance(value, Seq) else "text"
        sinks = (Sink(kind, value, lit.start, lit.end, name="<template>"),)
    return Summary(path=file.path, kind=NAME, sinks=sinks, text=value, diagnostics=problems)
