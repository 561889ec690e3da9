"""Shell scripts as commands of words, each character with its place in the file. Nothing is run.

Quotes, continuation lines, comments, here-documents, arrays and variables that the script itself sets are followed, in
the order of the text; branches count as taken. What a script gets from outside stays as it is written, and is `open`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

MAX_WORDS = 20_000
"""Words of one script that are read; deployment scripts have hundreds."""
MAX_CHARS = 200_000
"""Characters that variables may put into one script; behind it they stay as they are written."""

_ASSIGN = re.compile(r"(?P<name>[A-Za-z_]\w*)(?P<add>\+?)=")
_EXPAND = re.compile(r"\$(?:\{(?P<braced>[^}]*)\}|(?P<name>[A-Za-z_]\w*|[@*#?$!0-9-]))")
_BRACED = re.compile(
    r"(?P<name>[A-Za-z_]\w*|[@*#0-9])(?P<array>\[[@*]\])?(?::?(?P<kind>[-=+?])(?P<default>.*))?\Z", re.DOTALL
)
_HERE = re.compile(r"<<(?P<tab>-?)[ \t]*(?P<quote>['\"]?)(?P<word>\w+)(?P=quote)")
_OPENERS = frozenset(["if", "elif", "then", "else", "while", "until", "do", "{", "!", "time"])
_DECLARE = frozenset(["export", "declare", "local", "readonly", "typeset"])


@dataclass(frozen=True, slots=True)
class Mapped:
    """Text whose character `i` stands at byte `at[i]`; `end` is the byte behind the last one."""

    text: str
    at: Sequence[int]
    end: int


@dataclass(frozen=True, slots=True)
class Word:
    """A word as a program gets it; `open` says that a part of it comes from outside."""

    text: str
    at: tuple[int, ...]
    start: int
    end: int
    open: bool = False

    def mapped(self) -> Mapped:
        """Give the word as text that can be read as a script."""
        return Mapped(self.text, self.at, self.end)


@dataclass(frozen=True, slots=True)
class Command:
    """A simple command; `env` holds what is assigned or exported before it and on its line, by name.

    `heres` are the here-documents that it reads, or that the command before it in a pipe hands on; `into` is the file
    to which its output goes, empty without one.
    """

    words: tuple[Word, ...]
    env: dict[str, Word]
    heres: tuple[Mapped, ...] = ()
    into: str = ""


@dataclass(slots=True)
class _Builder:
    text: list[str] = field(default_factory=list)
    at: list[int] = field(default_factory=list)
    start: int | None = None
    open: bool = False
    quoted: bool = False

    def put(self, char: str, at: int) -> None:
        self.text.append(char)
        self.at.append(at)

    def put_word(self, word: Word) -> None:
        self.text.extend(word.text)
        self.at.extend(word.at)
        self.open = self.open or word.open

    def word(self, end: int) -> Word:
        first = self.at[0] if self.at else end
        start = first if self.start is None else self.start
        last = self.at[-1] + 1 if self.at else end
        stop = min(end, last + 1) if self.quoted else last  # a closing quote belongs to the word
        return Word("".join(self.text), tuple(self.at), min(start, first), max(last, stop), self.open)


class _Reader:
    """Reads one text; `variables` are shared with the texts inside it."""

    def __init__(self, source: Mapped, variables: dict[str, tuple[Word, ...]], *, docker: bool) -> None:
        self.text, self.at, self.end = source.text, source.at, source.end
        self.variables = variables
        self.docker = docker
        self.i = 0
        self.left = MAX_WORDS
        self.chars = MAX_CHARS
        self.heres: list[re.Match[str]] = []
        self.bodies: list[Mapped] = []
        self.into = ""
        self.piped = False

    def byte(self, i: int) -> int:
        return self.at[i] if i < len(self.at) else self.end

    def commands(self) -> Iterator[Command]:
        while self.i < len(self.text) and self.left > 0:
            self.into = ""
            if not self.piped:
                self.bodies = []
            self.piped = False
            words = self._simple()
            yield from self._command(words)

    def _command(self, words: list[Word]) -> Iterator[Command]:
        own: dict[str, Word] = {}
        rest = list(words)
        declared = False
        while rest and rest[0].text in _OPENERS:
            rest.pop(0)
        while rest:
            match = _ASSIGN.match(rest[0].text)
            if match is not None:
                own[match["name"]] = self._assign(match, rest[0])
            elif rest[0].text in _DECLARE:
                declared = True
            elif not (declared and (rest[0].text.startswith("-") or rest[0].text.isidentifier())):
                break
            rest.pop(0)
        env = {name: value[0] for name, value in self.variables.items() if len(value) == 1}
        if rest:
            yield Command(tuple(rest), {**env, **own}, tuple(self.bodies), self.into)
            return
        for name, value in own.items():
            self.variables[name] = (value,)

    def _assign(self, match: re.Match[str], word: Word) -> Word:
        value = named(word, match.end())
        before = self.variables.get(match["name"], ()) if match["add"] else ()
        if not before:
            return value
        texts = [*before, value]
        joined = " ".join(item.text for item in texts)
        at: list[int] = []
        for item in texts:
            at += ([at[-1]] if at else []) + list(item.at)
        return Word(joined, tuple(at[: len(joined)]), value.start, value.end, any(item.open for item in texts))

    def _simple(self) -> list[Word]:
        """Read the words up to an operator or the end of the line."""
        words: list[Word] = []
        while self.i < len(self.text):
            char = self.text[self.i]
            if char in " \t\r":
                self.i += 1
            elif char == "\\" and self.text[self.i + 1 : self.i + 2] in ("\n", "\r"):
                self._continue()
            elif char == "#":
                self._comment()
                if self.docker and words:
                    self.i += 1
            elif char == "\n":
                self.i += 1
                self._skip_heres()
                break
            elif char in "<>":
                self._redirect()
            elif char in ";&|()":
                self.piped = char == "|" and self.text[self.i + 1 : self.i + 2] != "|" and bool(words)
                self.i += 1
                break
            else:
                found = self._word()
                number = len(found) == 1 and found[0].text.isdigit() and self.text[self.i : self.i + 1] in ("<", ">")
                words += [] if number else found
                self.left -= max(1, len(found))
                if self.left <= 0:
                    break
        return words

    def _continue(self) -> None:
        self.i = self.text.find("\n", self.i) + 1 or len(self.text)

    def _comment(self) -> None:
        end = self.text.find("\n", self.i)
        self.i = len(self.text) if end < 0 else end

    def _skip_heres(self) -> None:
        for match in self.heres:
            _, self.i = self._until(match, self.i)
        self.heres.clear()

    def _until(self, here: re.Match[str], begin: int) -> tuple[int, int]:
        """Give where a here-document that begins somewhere ends, and where the text behind it begins."""
        indent = r"\t*" if here["tab"] else ""
        end = re.compile(rf"^{indent}{here['word']}[ \t]*$", re.MULTILINE).search(self.text, begin)
        return (len(self.text),) * 2 if end is None else (end.start(), min(end.end() + 1, len(self.text)))

    def _body(self) -> Mapped:
        """Give the text of the here-document met last: it begins on the next line, behind those met before."""
        following = self.text.find("\n", self.i) + 1 or len(self.text)
        begin = end = following
        for match in self.heres:
            begin = following
            end, following = self._until(match, begin)
        kept = list(range(begin, end))
        if self.heres[-1]["tab"]:
            tabs = re.compile(r"^\t+", re.MULTILINE).finditer(self.text[:end], begin)
            dropped = {at for match in tabs for at in range(match.start(), match.end())}
            kept = [at for at in kept if at not in dropped]
        return Mapped("".join(self.text[at] for at in kept), [self.byte(at) for at in kept], self.byte(end))

    def _redirect(self) -> None:
        here = _HERE.match(self.text, self.i)
        if here is not None and self.text[self.i : self.i + 3] != "<<<":
            self.heres.append(here)
            self.bodies.append(self._body())
            self.i = here.end()
            return
        written = self.text[self.i] == ">"
        while self.i < len(self.text) and self.text[self.i] in "<>&|":
            self.i += 1
        while self.i < len(self.text) and self.text[self.i] in " \t":
            self.i += 1
        if self.i < len(self.text) and self.text[self.i] not in "\n;&|()<>#":
            target = self._word()
            self.into = target[0].text if written and target else self.into

    def _word(self) -> list[Word]:
        """Read one word; a variable without quotes may make it several, or none."""
        builder = _Builder(start=self.byte(self.i))
        split: list[Word] = []
        begun = self.i
        while self.i < len(self.text):
            char = self.text[self.i]
            if char in " \t\r\n;&|<>)":
                break
            if char == "(":
                if self._array(builder):
                    continue
                break
            if char == "\\":
                self._escape(builder)
            elif char == "'":
                self._single(builder)
            elif char == '"':
                split += self._double(builder)
            elif char == "`" or self.text.startswith("$(", self.i):
                self._substitution(builder)
            elif char == "$":
                split += self._expansion(builder, quoted=False)
            else:
                builder.put(char, self.byte(self.i))
                self.i += 1
        if self.i == begun:
            self.i += 1
        if builder.text or builder.quoted or not split:
            split.append(builder.word(self.byte(self.i)))
        return [word for word in split if word.text or builder.quoted]

    def _array(self, builder: _Builder) -> bool:
        """Read `NAME=( … )`; its words become the variable, and the word is forgotten."""
        match = _ASSIGN.fullmatch("".join(builder.text))
        if match is None:
            return False
        self.i += 1
        words: list[Word] = []
        while self.i < len(self.text) and self.text[self.i] != ")" and self.left > 0:
            char = self.text[self.i]
            if char in " \t\r\n":
                self.i += 1
            elif char == "\\" and self.text[self.i + 1 : self.i + 2] in ("\n", "\r"):
                self._continue()
            elif char == "#":
                self._comment()
            else:
                found = self._word()
                words += found
                self.left -= max(1, len(found))
        self.i += 1
        before = self.variables.get(match["name"], ()) if match["add"] else ()
        self.variables[match["name"]] = (*before, *words)
        builder.text.clear()
        builder.at.clear()
        return True

    def _escape(self, builder: _Builder) -> None:
        following = self.text[self.i + 1 : self.i + 2]
        if following in ("\n", "\r"):
            self._continue()
            return
        if following:
            builder.put(following, self.byte(self.i + 1))
        self.i += 2

    def _single(self, builder: _Builder) -> None:
        end = self.text.find("'", self.i + 1)
        end = len(self.text) if end < 0 else end
        for i in range(self.i + 1, end):
            builder.put(self.text[i], self.byte(i))
        builder.quoted = True
        self.i = end + 1

    def _double(self, builder: _Builder) -> list[Word]:
        builder.quoted = True
        self.i += 1
        words: list[Word] = []
        while self.i < len(self.text) and self.text[self.i] != '"':
            char = self.text[self.i]
            if char == "\\" and self.text[self.i + 1 : self.i + 2] in ('"', "\\", "$", "`", "\n", "\r"):
                self._escape(builder)
            elif char == "`" or self.text.startswith("$(", self.i):
                self._substitution(builder)
            elif char == "$":
                words += self._expansion(builder, quoted=True)
            else:
                builder.put(char, self.byte(self.i))
                self.i += 1
        self.i += 1
        if words and not builder.text:
            builder.quoted = False  # "${array[@]}" alone is its elements
        return words

    def _substitution(self, builder: _Builder) -> None:
        """Skip `$( … )`: what it gives is not known."""
        start = self.i
        if self.text[self.i] == "`":
            end = self.text.find("`", self.i + 1)
            self.i = len(self.text) if end < 0 else end + 1
        else:
            depth = 0
            while self.i < len(self.text):
                depth += {"(": 1, ")": -1}.get(self.text[self.i], 0)
                self.i += 1
                if depth == 0 and self.text[self.i - 1] == ")":
                    break
        builder.put("$", self.byte(start))
        builder.open = True

    def _expansion(self, builder: _Builder, *, quoted: bool) -> list[Word]:
        """Read `$NAME`; known text is put into the word, or gives words of its own."""
        match = _EXPAND.match(self.text, self.i)
        if match is None:
            builder.put("$", self.byte(self.i))
            self.i += 1
            return []
        start, self.i = self.i, match.end()
        inner = _BRACED.match(match["braced"]) if match["braced"] is not None else None
        name = inner["name"] if inner is not None else match["name"]
        values = self.variables.get(name or "")
        if values is None and inner is not None and inner["kind"] in ("-", "="):
            shift = match.start("braced") + inner.start("default")
            values = (
                Word(
                    inner["default"],
                    tuple(self.byte(shift + k) for k in range(len(inner["default"]))),
                    self.byte(shift),
                    self.byte(self.i),
                ),
            )
        self.chars -= sum(len(value.text) + 1 for value in values or ())
        if values is None or self.chars < 0:
            for i in range(start, self.i):
                builder.put(self.text[i], self.byte(i))
            builder.open = True
            return []
        if inner is not None and inner["array"]:
            return list(values)
        if quoted:
            for value in values[:1]:
                builder.put_word(value)
            return []
        pieces = [piece for value in values for piece in _split(value)]
        if builder.text or (self.i < len(self.text) and self.text[self.i] not in " \t\r\n;&|<>)\\\"'"):
            for piece in pieces:
                builder.put_word(piece)
            return []
        return pieces


def part(word: Word, start: int, end: int) -> Word:
    """Give some characters of a word as a word."""
    at = word.at[start:end]
    first = at[0] if at else word.end
    text = word.text[start:end]
    return Word(text, at, first, at[-1] + 1 if at else word.end, word.open and "$" in text)


def named(word: Word, start: int) -> Word:
    """Give the value of `NAME=value`, whose text begins at character `start`; its span holds the name as well."""
    value = part(word, start, len(word.text))
    return Word(value.text, value.at, word.start, word.end, value.open)


def _split(word: Word) -> Iterator[Word]:
    for match in re.finditer(r"\S+", word.text):
        yield part(word, match.start(), match.end())


def commands(source: Mapped, env: dict[str, Word] | None = None, *, docker: bool = False) -> Iterator[Command]:
    """Give the simple commands of a script in order. `docker`: a comment line does not end a continued line."""
    variables: dict[str, tuple[Word, ...]] = {name: (word,) for name, word in (env or {}).items()}
    yield from _Reader(source, variables, docker=docker).commands()


def whole(text: str, start: int = 0) -> Mapped:
    """Map a whole text: its first character stands at byte `start` of its file, and it is encoded in UTF-8."""
    if text.isascii():
        return Mapped(text, range(start, start + len(text)), start + len(text))
    at, byte = [], start
    for char in text:
        at.append(byte)
        byte += len(char.encode("utf-8", "surrogatepass"))
    return Mapped(text, at, byte)
