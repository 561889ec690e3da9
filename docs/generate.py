"""Write the generated documentation, or with `--check` say what is out of date (exit code 1).

    python docs/generate.py
    python docs/generate.py --check

What comes from where, so that nothing is said twice:

    docs/formats/NAME.md    the docstring of the log format's module
    docs/engines/NAME.md    the engine's TOML file
    docs/cli.md             the command line's own help texts
    docs/json.md            the JSON Schemas in `prefixlint/schemas`
    docs/messages.md        where the sources raise an error, skip a line or note something, and `logs/recipes.toml`
    docs/worked-example.md  a conversation counted by hand: fixtures/traces/worked-tools.toml
    README.md and others    the block between the markers `<!-- output: COMMAND -->` and `<!-- end -->` is what the
                            command prints, with `COMMAND :: WORDS` the part that begins with these words;
                            `<!-- measured: NAME -->` begins a table of docs/accuracy.toml

A page without a source is removed. The same sources give the same bytes, whatever the terminal and the clock.
"""

from __future__ import annotations

import argparse
import ast
import difflib
import importlib
import inspect
import os
import pkgutil
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from operator import itemgetter
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parents[1]
HELP_WIDTH = 100
FILLED = ("README.md", "docs/how-wrong.md", "docs/low-hit-rate.md", "docs/report.md")
GENERATED_FOLDERS = ("docs/formats", "docs/engines")
GENERATED_FILES = (
    "docs/cli.md",
    "docs/json.md",
    "docs/messages.md",
    "docs/how-wrong.md",
    "docs/worked-example.md",
    *FILLED,
)
OUTPUT_BLOCK = re.compile(r"(<!-- output: (?P<command>[^\n]+?) -->\n)(?P<body>.*?)(<!-- end -->)", re.DOTALL)
# Commands of an output block run as a reader would run them, but offline and without colours.
ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "NO_COLOR": "1", "COLUMNS": str(HELP_WIDTH), "LC_ALL": "C.UTF-8"}


def format_modules() -> Iterator[tuple[str, str]]:
    """Give each log format's name (the word users type) and its module's docstring, by name."""
    package = importlib.import_module("prefixlint.logs")
    for info in sorted(pkgutil.iter_modules(package.__path__), key=lambda info: info.name):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"prefixlint.logs.{info.name}")
        doc = inspect.getdoc(module)
        if not doc:
            raise SystemExit(f"prefixlint/logs/{info.name}.py has no docstring, so its page would be empty")
        yield getattr(module, "NAME", info.name.replace("_", "-")), doc


def format_pages() -> dict[str, str]:
    """Build one page per log format, and the list of them."""
    pages = {}
    rows = []
    for name, doc in format_modules():
        title, _, rest = doc.partition("\n")
        pages[f"docs/formats/{name}.md"] = f"# {name}\n\n{doc}\n"
        rows.append(f"| [{name}]({name}.md) | {_cell(title or rest)} |")
    table = "\n".join(["| format | what it is |", "|---|---|", *rows])
    pages["docs/formats/README.md"] = (
        "# Log formats\n\n"
        "A log is recognised by its content, never by its name; two formats in one file work. `--log-format NAME` "
        "names one instead.\n\n" + table + "\n"
    )
    return pages


def engine_pages() -> dict[str, str]:
    """Build one page per engine from its TOML file, and the list of them."""
    pages = {}
    rows = []
    for path in sorted((ROOT / "prefixlint" / "engines").glob("*.toml")):
        facts = tomllib.loads(path.read_text(encoding="utf-8"))
        title = str(facts.get("title", path.stem))
        pages[f"docs/engines/{path.stem}.md"] = f"# {title}\n\n" + "\n".join(_facts(facts)).strip() + "\n"
        rows.append(f"| [{path.stem}]({path.stem}.md) | {_cell(title)} |")
    if rows:
        table = "\n".join(["| engine | what it is |", "|---|---|", *rows])
        pages["docs/engines/README.md"] = (
            f"# Engines\n\nFacts about each cache, with their dates and sources.\n\n{table}\n"
        )
    return pages


def _facts(table: Mapping[str, Any], depth: int = 2) -> Iterator[str]:
    """Show a TOML table: plain values, then facts with a source in one table, then the tables below under headings."""
    plain = {key: value for key, value in table.items() if not _is_table(value)}
    sourced = {key: value for key, value in table.items() if isinstance(value, dict) and "value" in value}
    if plain:
        yield "| | |\n|---|---|"
        yield from (f"| {key} | {_cell(_value(value))} |" for key, value in plain.items())
        yield ""
    if sourced:
        yield "| fact | value | known from | note |\n|---|---|---|---|"
        yield from (_fact(key, fact) for key, fact in sourced.items())
        yield ""
    for key, value in table.items():
        if key in plain or key in sourced:
            continue
        for part in value if isinstance(value, list) else [value]:
            name = part.get("name") if isinstance(value, list) else None
            yield f"{'#' * min(depth, 6)} {key}{f': {name}' if name else ''}\n"
            yield from _facts(part, depth + 1)


def _fact(key: str, fact: Mapping[str, Any]) -> str:
    """Show one fact; what it holds beside the usual four keys goes into the note, so that nothing is left out."""
    shown = ("value", "source", "confidence", "note")
    rest = "; ".join(f"{name}: {_value(value)}" for name, value in fact.items() if name not in shown)
    note = " ".join(part for part in (str(fact.get("note", "")), rest) if part)
    known = f"{fact.get('source', '')} ({fact['confidence']})" if "confidence" in fact else str(fact.get("source", ""))
    return f"| {key} | `{_value(fact['value']) or 'none'}` | {_cell(known)} | {_cell(note)} |"


def _is_table(value: object) -> bool:
    return isinstance(value, dict) or (isinstance(value, list) and bool(value) and isinstance(value[0], dict))


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(_value(item) for item in value)
    return str(value)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def messages_page() -> str:
    """List everything that the program says with a slug: what it means for the reader is in the words themselves."""
    found: dict[str, dict[str, None]] = {}
    for path in sorted((ROOT / "prefixlint").rglob("*.py")):
        for slug, text in _said(ast.parse(path.read_text(encoding="utf-8"))):
            found.setdefault(slug, {})[text] = None
    for slug, refusal in _refusals().items():
        found[slug] = {f"{refusal['reason']}; {refusal['hint']}": None}
    rows = [f"| `{slug}` | {'<br>'.join(map(_cell, texts))} |" for slug, texts in sorted(found.items())]
    head = "# Messages\n\nEach message has a slug that stays the same; `…` stands for what differs.\n\n"
    return head + "| slug | message |\n|---|---|\n" + "\n".join(rows) + "\n"


def _refusals() -> Mapping[str, Any]:
    recipes = tomllib.loads((ROOT / "prefixlint" / "logs" / "recipes.toml").read_text(encoding="utf-8"))
    refusals: Mapping[str, Any] = recipes["refusals"]
    return refusals


# Where these calls hold the slug and the words: Skip(path, line, slug, reason), Note and Failure(slug, message).
POSITIONS = {"Skip": (2, 3), "Note": (0, 1), "Failure": (0, 1)}


def _said(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Give the slug and the words of each message in a module, in the order of its lines."""
    calls = (node for node in ast.walk(tree) if isinstance(node, ast.Call))
    for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset)):
        keywords = {keyword.arg: keyword.value for keyword in call.keywords}
        name = call.func.id if isinstance(call.func, ast.Name) else ""
        slug, words = (call.args[at] if at < len(call.args) else None for at in POSITIONS.get(name, (99, 0)))
        slug = keywords.get("slug", slug)
        if isinstance(slug, ast.Constant) and isinstance(slug.value, str):
            said = [_words(words), _words(keywords.get("hint"))]
            yield slug.value, "; ".join(part for part in said if part.strip("… ")) or "…"


def _words(node: ast.expr | None) -> str:
    """Give the text of an expression as far as it is in the source."""
    if isinstance(node, ast.Constant):
        return str(node.value) if node.value is not None else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_words(part) if isinstance(part, ast.Constant) else "…" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return _words(node.left) + _words(node.right)
    return "" if node is None else "…"


def cli_page() -> str:
    """Show the help of the program and of each command."""
    module = importlib.import_module("prefixlint.cli")
    group = next((value for value in vars(module).values() if isinstance(value, click.Group)), None)
    if group is None:
        raise SystemExit("prefixlint.cli holds no click group, so there is no help to show")
    parts = ["# The command line", _help(group, "prefixlint", None)]
    top = click.Context(group, info_name="prefixlint")
    for name in group.list_commands(top):
        command = group.get_command(top, name)
        if command is not None and not command.hidden:
            parts += [f"## prefixlint {name}", _help(command, name, top)]
    return "\n\n".join(parts) + "\n"


def _help(command: click.Command, name: str, parent: click.Context | None) -> str:
    context = click.Context(
        command, info_name=name, parent=parent, terminal_width=HELP_WIDTH, max_content_width=HELP_WIDTH
    )
    text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    return f"```text\n{text}\n```"


JSON_HEAD = """# The JSON of each command

`--format json` writes one document; `null` means that a thing is not known, and never 0. Tokens are counts, rates and
shares go from 0 to 1. Fields may be added; those that are here keep their meaning. `prefixlint schema NAME` prints the
JSON Schema (draft 2020-12), which the package holds as `prefixlint/schemas/NAME-1.json`:

```sh
prefixlint check --format json -o found.json
prefixlint schema check -o check.schema.json
check-jsonschema --schemafile check.schema.json found.json    # or any other validator
```"""


def json_page() -> str:
    """Show each output's fields, and the objects that they hold, from the schemas."""
    schemas = importlib.import_module("prefixlint.schemas")
    parts = [JSON_HEAD]
    shown: dict[str, dict[str, Any]] = {}
    for name in schemas.names():
        schema = schemas.load(name)
        parts += [f"## {schema['title']}", schema["description"], _fields(schema)]
        shown |= schema.get("$defs", {})
    parts.append("## What the documents hold")
    for name, schema in sorted(shown.items()):
        parts += [f"### {name.replace('_', ' ')}", schema.get("description", ""), _fields(schema)]
    return "\n\n".join(part for part in parts if part) + "\n"


def _fields(schema: Mapping[str, Any]) -> str:
    """List the fields of an object, those of objects within it by their path; for what is none, its type."""
    rows = list(_field_rows(schema, ""))
    return "\n".join(["| field | type | |", "|---|---|---|", *rows]) if rows else f"Type: {_type(schema)}"


def _field_rows(schema: Mapping[str, Any], head: str) -> Iterator[str]:
    required = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        kind = _type(field) + ("" if name in required else ", optional")
        yield f"| `{head}{name}` | {kind} | {_cell(field.get('description', ''))} |"
        inner, suffix = field, ""
        while "properties" not in inner and ("items" in inner or isinstance(inner.get("additionalProperties"), dict)):
            suffix += "[]" if "items" in inner else ".*"
            inner = inner["items"] if "items" in inner else inner["additionalProperties"]
        yield from _field_rows(inner, f"{head}{name}{suffix}.")


def _type(field: Mapping[str, Any]) -> str:
    """Name the type of a field: a word of JSON, a link to an object of the page, or the words that it may be."""
    if "$ref" in field:
        name = field["$ref"].rpartition("/")[2]
        return f"[{name.replace('_', ' ')}](#{name.replace('_', '-')})"
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return ", ".join(f"`{word}`" for word in field["enum"])
    if "anyOf" in field:
        return " or ".join(_type(option) for option in field["anyOf"])
    words = field.get("type", "anything")
    kind, *null = words if isinstance(words, list) else [words]
    held = field.get("items", field.get("additionalProperties"))
    if kind == "array":
        kind = f"list of {_type(held)}"
    elif kind == "object" and isinstance(held, dict):
        kind = f"map to {_type(held)}"
    return " or ".join([kind, *null])


def measured_tables() -> dict[str, str]:
    """Give the tables of what was measured of how right the numbers are, by name; `summary` is a short list of them."""
    data = tomllib.loads((ROOT / "docs" / "accuracy.toml").read_text(encoding="utf-8"))

    def of(row: Mapping[str, Any], key: str) -> str:
        return f"{row[key]:,} of {row['of']:,}"

    def table(head: str, name: str, *cells: Callable[[Mapping[str, Any]], object]) -> str:
        names = head.split(" | ")
        rows = [" | ".join(_cell(str(cell(row))) for cell in cells) for row in data[name]]
        return "\n".join(f"| {row} |" for row in [" | ".join(names), "|".join(["---"] * len(names)), *rows])

    worst = data["precision"][0]
    firsts: dict[str, Mapping[str, Any]] = {}
    for row in data["server"]:
        firsts.setdefault(row["engine"].partition(",")[0], row)
    servers = "; ".join(f"{name} {of(row, 'cached_equal')}" for name, row in firsts.items())
    furthest = min(data["server"], key=lambda row: row["cached_equal"] / row["of"])
    if furthest["cached_equal"] < furthest["of"]:
        servers += f"; at worst {of(furthest, 'cached_equal')} ({furthest['engine']})"
    caches = "; ".join(f"{row['engine'].partition(':')[0]} {of(row, 'equal')}" for row in data["cache"])
    share = f"{100 * worst['right'] / worst['of']:.0f} %, {worst['date']}; the aim is 90 %"
    summary = [
        f"cached tokens equal, request by request, on whole servers: {servers}",
        f"random traces without a difference from the engines' own caches: {caches}",
        f"warnings and errors of `check` that are true, on {worst['what']}: {of(worst, 'right')} ({share})",
        "a hit rate is no speed: 94.6 % of reuse gave about 6 % of throughput in one measurement by others",
    ]
    return {
        "summary": "\n".join(f"* {line}" for line in summary),
        "server": table(
            "engine | model | token counts equal | cached tokens equal | measured | with",
            "server",
            itemgetter("engine"),
            itemgetter("model"),
            lambda row: of(row, "token_counts_equal"),
            lambda row: of(row, "cached_equal"),
            itemgetter("date"),
            lambda row: f"`{row['command']}`",
        ),
        "cache": table(
            "cache | traces without a difference | measured | with",
            "cache",
            itemgetter("engine"),
            lambda row: of(row, "equal"),
            itemgetter("date"),
            lambda row: f"`{row['command']}`",
        ),
        "published": table(
            "trace | published | here | held by",
            "published",
            *map(itemgetter, ("what", "published", "ours")),
            lambda row: f"`{row['test']}`",
        ),
        "planted": table(
            "what | right | measured", "planted", itemgetter("what"), lambda row: of(row, "equal"), itemgetter("date")
        ),
        "precision": table(
            "where | true | | measured",
            "precision",
            itemgetter("what"),
            lambda row: of(row, "right"),
            lambda row: f"{100 * row['right'] / row['of']:.0f} %",
            itemgetter("date"),
        ),
    }


def worked_page() -> str:
    """Show the conversation that was counted by hand, request by request."""
    text = (ROOT / "fixtures" / "traces" / "worked-tools.toml").read_text(encoding="utf-8")
    data = tomllib.loads(text)
    head = " ".join(line.removeprefix("#").strip() for line in text.split("\n\nblock_size")[0].splitlines())
    parts = ["# A conversation with tools, counted by hand", head.split(". ", 1)[1]]
    for number, row in enumerate(data["request"], 1):
        misses = ", ".join(f"{tokens} {cause}" for cause, tokens in row["misses"].items())
        parts += [
            f"## Request {number}",
            f"```text\n{row['prompt']}\n```",
            f"The model answers `{row['output']}`.",
            f"| tokens | SGLang serves | vLLM serves, blocks of {data['block_size']} | SGLang computes |",
            f"|---:|---:|---:|---|\n| {row['tokens']} | {row['sglang']} | {row['vllm']} | {misses} |",
            row["why"],
        ]
    rates = f"SGLang serves {data['sglang'].replace('/', ' of ')} tokens, vLLM {data['vllm'].replace('/', ' of ')}."
    parts.append(f"## Together\n\n{rates} `tests/test_worked.py` holds the simulators against these counts.")
    return "\n\n".join(parts).replace(" |\n\n|---:", " |\n|---:") + "\n"


MEASURED_BLOCK = re.compile(r"(<!-- measured: (?P<name>\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def readme_page() -> str:
    """Fill the README."""
    return filled_page("README.md")


def filled_page(name: str) -> str:
    """Run the commands that a page shows and put their output where it belongs."""
    text = (ROOT / name).read_text(encoding="utf-8")
    if MEASURED_BLOCK.search(text):
        tables = measured_tables()
        text = MEASURED_BLOCK.sub(lambda match: f"{match[1]}{tables[match['name']]}\n{match[4]}", text)

    def fill(match: re.Match[str]) -> str:
        command, _, words = match["command"].partition(" :: ")
        return f"{match[1]}```text\n$ {command}\n{_part(_output(command), words)}\n```\n{match[4]}"

    return OUTPUT_BLOCK.sub(fill, text)


def _part(text: str, words: str) -> str:
    """Give the paragraph that begins with some words, marked as a part; all of the text without any."""
    if not words:
        return text
    found = [part for part in text.split("\n\n") if part.startswith(words)]
    if len(found) != 1:
        raise SystemExit(f"{len(found)} parts of the output begin with {words!r}")
    return f"…\n{found[0]}\n…"


def _output(command: str) -> str:
    """Run a command of this project in its root; what it prints, without trailing blanks. Findings are no failure."""
    program, *arguments = shlex.split(command)
    if program != "prefixlint":
        raise SystemExit(f"README.md shows the output of {program}; only prefixlint is run")
    code = "import sys; from prefixlint.cli import main; sys.argv[0] = 'prefixlint'; sys.exit(main())"
    done = subprocess.run(  # noqa: S603 - a command that the README shows
        [sys.executable, "-c", code, *arguments],
        cwd=ROOT,
        env={**os.environ, **ENVIRONMENT},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    if done.returncode not in (0, 1):
        raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stderr}")
    return "\n".join(line.rstrip() for line in done.stdout.strip("\n").splitlines())


def wanted() -> dict[str, str]:
    """Give every generated file with the text it should have, by path from the root."""
    return {
        **format_pages(),
        **engine_pages(),
        "docs/messages.md": messages_page(),
        "docs/cli.md": cli_page(),
        "docs/json.md": json_page(),
        "docs/worked-example.md": worked_page(),
        **{name: filled_page(name) for name in FILLED},
    }


def existing() -> dict[str, str]:
    """Give the generated files that are there, with their text."""
    paths = [path for folder in GENERATED_FOLDERS for path in sorted((ROOT / folder).glob("*.md"))]
    paths += [path for name in GENERATED_FILES if (path := ROOT / name).exists()]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def check(new: Mapping[str, str], old: Mapping[str, str]) -> int:
    """Print how the files differ from what they should be; 1 if any does."""
    stale = sorted(path for path in new.keys() | old.keys() if new.get(path) != old.get(path))
    for path in stale:
        before, after = (pages.get(path, "").splitlines() for pages in (old, new))
        print(
            "\n".join(
                difflib.unified_diff(before, after, f"{path} (as it is)", f"{path} (as it should be)", lineterm="")
            )
        )
    if stale:
        print(f"\nout of date: {', '.join(stale)}; run `make docs`", file=sys.stderr)
    return 1 if stale else 0


def write(new: Mapping[str, str], old: Mapping[str, str]) -> None:
    """Write what changed and remove pages that nothing stands behind."""
    for path in sorted(old.keys() - new.keys()):
        (ROOT / path).unlink()
    for path, text in sorted(new.items()):
        if old.get(path) != text:
            (ROOT / path).parent.mkdir(parents=True, exist_ok=True)
            (ROOT / path).write_text(text, encoding="utf-8")
            print(f"wrote {path}")


def main() -> int:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a file is out of date")
    args = parser.parse_args()
    new, old = wanted(), existing()
    if args.check:
        return check(new, old)
    write(new, old)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
