"""The generated documentation: what its generator writes, and that it notices what is out of date."""

import importlib.util
import re
import sys
import tomllib
from pathlib import Path

import click
import pytest

from prefixlint import schemas

ROOT = Path(__file__).parents[1]


def load():
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


generate = load()


def test_every_log_format_has_a_page_and_a_row():
    pages = generate.format_pages()
    modules = [path for path in (ROOT / "prefixlint" / "logs").glob("*.py") if not path.name.startswith("_")]
    assert len(pages) == len(modules) + 1
    listed = pages["docs/formats/README.md"]
    for path in pages:
        if not path.endswith("README.md"):
            assert f"({Path(path).name})" in listed


def test_a_format_is_called_what_users_type():
    assert "docs/formats/openai-chat.md" in generate.format_pages()


def test_no_fact_of_an_engine_is_left_out():
    pages = generate.engine_pages()
    files = sorted((ROOT / "prefixlint" / "engines").glob("*.toml"))
    assert files
    for path in files:
        page = pages[f"docs/engines/{path.stem}.md"].replace("\\|", "|")
        for text in strings(tomllib.loads(path.read_text(encoding="utf-8"))):
            assert " ".join(text.split()) in page


def strings(value):
    if isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    else:
        yield generate._value(value)


def test_messages_are_found_where_the_sources_say_them():
    source = """
raise ModelError(f"no model {name!r}", slug="no-model", hint="name one " "with --model")
raise Other("plain", slug="plain")
yield Skip(path, 3, "too-long", f"more than {MAX >> 20} MiB")
Note("reversed", "the log runs" + " backwards")
Note(slug, "not a constant")
Skip(path, 1)
"""
    assert list(generate._said(generate.ast.parse(source))) == [
        ("no-model", "no model …; name one with --model"),
        ("plain", "plain"),
        ("too-long", "more than … MiB"),
        ("reversed", "the log runs backwards"),
    ]


def test_every_refusal_is_explained_with_what_to_do():
    page = generate.messages_page()
    for slug, refusal in generate._refusals().items():
        assert f"| `{slug}` | {generate._cell(refusal['reason'])}; " in page
        assert refusal["hint"], slug


def properties(node):
    if isinstance(node, dict):
        yield from node.get("properties", {})
        for value in node.values():
            yield from properties(value)
    elif isinstance(node, list):
        for value in node:
            yield from properties(value)


def test_every_field_of_every_schema_is_listed_and_every_link_leads_somewhere():
    page = generate.json_page()
    for name in schemas.names():
        for field in properties(schemas.load(name)):
            assert f"`{field}`" in page or f".{field}`" in page, (name, field)
    heads = [
        re.sub(r"[^a-z0-9 -]", "", line.strip("# ").lower()).replace(" ", "-")
        for line in page.splitlines()
        if line.startswith("#")
    ]
    assert len(heads) == len(set(heads)), "two headings with one anchor"
    assert set(re.findall(r"\]\(#([a-z-]+)\)", page)) <= set(heads)


def test_types_of_fields_are_named():
    types = {
        "string": {"type": "string"},
        "integer or null": {"type": ["integer", "null"]},
        "`a`, `b`": {"enum": ["a", "b"]},
        "list of [x y](#x-y)": {"type": "array", "items": {"$ref": "#/$defs/x_y"}},
        "map to number": {"type": "object", "additionalProperties": {"type": "number"}},
        "object": {"type": "object", "additionalProperties": False},
        "[a](#a) or null": {"anyOf": [{"$ref": "#/$defs/a"}, {"type": "null"}]},
        "anything": {"description": "whatever"},
    }
    assert {generate._type(field): field for field in types.values()} == types


def test_tables_of_tables_get_headings():
    facts = {
        "name": "x",
        "price": [{"name": "small", "input": 1.5}, {"name": "large", "input": 3}],
        "ttl": {"deep": {"s": 5}},
    }
    text = "\n".join(generate._facts(facts))
    assert "## price: small" in text
    assert "## price: large" in text
    assert "### deep" in text
    assert "| input | 1.5 |" in text


def test_a_bar_in_a_fact_does_not_break_the_table():
    row = generate._fact("match", {"value": "a", "source": "x | y", "confidence": "seen", "since": "1.2"})
    assert row == "| match | `a` | x \\| y (seen) | since: 1.2 |"


def test_help_does_not_depend_on_the_terminal(monkeypatch):
    @click.command(help="One " + "word " * 60)
    @click.option("--name", help="What it is called.")
    def command(name):
        pass

    monkeypatch.setenv("COLUMNS", "40")
    narrow = generate._help(command, "it", None)
    monkeypatch.setenv("COLUMNS", "200")
    assert generate._help(command, "it", None) == narrow
    assert max(map(len, narrow.splitlines())) > 60


def test_the_check_says_which_file_is_stale_and_how(capsys):
    same = {"a.md": "one\ntwo\n"}
    assert generate.check(same, dict(same)) == 0
    assert capsys.readouterr().out == ""
    assert generate.check({"a.md": "one\nthree\n"}, same) == 1
    told = capsys.readouterr()
    assert "+three" in told.out
    assert "-two" in told.out
    assert "a.md" in told.err
    assert "make docs" in told.err


@pytest.mark.parametrize(("new", "old"), [({"new.md": "x\n"}, {}), ({}, {"gone.md": "x\n"})])
def test_the_check_notices_missing_and_left_over_pages(new, old):
    assert generate.check(new, old) == 1


def test_writing_makes_and_removes_pages_and_then_the_check_passes(tmp_path, monkeypatch):
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    left_over = tmp_path / "docs" / "formats" / "gone.md"
    left_over.parent.mkdir(parents=True)
    left_over.write_text("old\n")
    assert generate.existing() == {"docs/formats/gone.md": "old\n"}
    wanted = {"docs/formats/here.md": "new …\n", "docs/cli.md": "help\n"}
    generate.write(wanted, generate.existing())
    assert generate.existing() == wanted
    assert generate.check(wanted, generate.existing()) == 0


def test_the_readme_shows_output_only_of_this_program():
    with pytest.raises(SystemExit, match="only prefixlint is run"):
        generate._output("rm -rf fixtures")


def test_the_readme_block_is_replaced_and_the_rest_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    monkeypatch.setattr(generate, "_output", lambda command: f"[{command}]")
    text = "before\n<!-- output: prefixlint x -->\nstale\n<!-- end -->\nafter\n"
    (tmp_path / "README.md").write_text(text)
    shown = generate.readme_page()
    assert shown == (
        "before\n<!-- output: prefixlint x -->\n```text\n$ prefixlint x\n[prefixlint x]\n```\n<!-- end -->\nafter\n"
    )
    (tmp_path / "README.md").write_text(shown)
    assert generate.readme_page() == shown, "doing it twice changes nothing"


def test_a_part_of_the_output_is_shown_by_its_first_words(tmp_path, monkeypatch):
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    monkeypatch.setattr(generate, "_output", lambda command: "head\n\nWay up  1\nrow\n\nend")
    (tmp_path / "p.md").write_text("<!-- output: prefixlint x :: Way up -->\n<!-- end -->\n")
    shown = (
        "<!-- output: prefixlint x :: Way up -->\n```text\n$ prefixlint x\n…\nWay up  1\nrow\n…\n```\n<!-- end -->\n"
    )
    assert generate.filled_page("p.md") == shown
    (tmp_path / "p.md").write_text("<!-- output: prefixlint x :: Nothing -->\n<!-- end -->\n")
    with pytest.raises(SystemExit, match="0 parts"):
        generate.filled_page("p.md")


def test_the_readme_opens_with_the_way_up_its_unexplained_row_and_how_wrong_it_is():
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert lines[0] == "# prefixlint"
    block = next(number for number, line in enumerate(lines) if line.startswith("<!-- "))
    assert block < 8
    assert lines[block].startswith("<!-- output: prefixlint analyze ")
    rows = [line.strip() for line in lines[block : lines.index("<!-- end -->")]]
    served = next(number for number, line in enumerate(rows) if line.startswith("reported"))
    assert rows[served + 1].startswith("unexplained")
    after = [line for line in lines[lines.index("<!-- end -->") + 1 :] if line]
    assert any(line == "<!-- measured: summary -->" for line in after[:3])


PAGES = sorted({ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_to_a_file_leads_somewhere(page):
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"(?<!`)\]\((?!https?://|#)([^)#\s]+)", text):
        assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_command_that_a_page_names_has_its_options():
    """A command in a page is one that can be typed: it exists, and so does each option behind it."""
    from prefixlint.cli import main

    top = click.Context(main)
    known = {name: main.get_command(top, name) for name in main.list_commands(top)}
    options = {
        name: {word for option in one.params for word in (*option.opts, *option.secondary_opts)}
        for name, one in known.items()
    }
    seen = 0
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for name, rest in re.findall(r"(?<![\w/])prefixlint ([a-z]+)((?:(?! [|#&] |`)[^\n]|\\\n)*)", text):
            if name not in known:
                continue
            seen += 1
            given = set(re.findall(r"(?<=\s)--[a-z][a-z-]+", rest))
            assert given <= options[name] | {"--help", "--port", "--enable-prompt-tokens-details"}, (
                page.name,
                name,
                rest,
            )
    assert seen > 50


def test_the_guide_names_rules_that_exist():
    from prefixlint import rulebook

    text = (ROOT / "docs" / "low-hit-rate.md").read_text(encoding="utf-8")
    codes = set(re.findall(r"PFX\d{3}", text))
    assert len(codes) >= 5
    assert codes <= set(rulebook.rules())


def test_what_was_measured_is_dated_and_adds_up():
    data = tomllib.loads((ROOT / "docs" / "accuracy.toml").read_text(encoding="utf-8"))
    for name, rows in data.items():
        for row in rows:
            counts = [row[key] for key in ("equal", "right", "token_counts_equal", "cached_equal") if key in row]
            assert all(0 <= count <= row["of"] for count in counts), row
            assert name == "published" or row["date"].year >= 2026
    tables = generate.measured_tables()
    assert set(tables) == {"summary", *data}
    assert "11 of 25" in tables["precision"]
    for page in ("README.md", "docs/how-wrong.md"):
        assert "<!-- measured: " in (ROOT / page).read_text(encoding="utf-8")


def test_a_measured_block_is_filled_and_the_rest_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(generate, "measured_tables", lambda: {"x": "| a |"})
    monkeypatch.setattr(generate, "ROOT", tmp_path)
    (tmp_path / "p.md").write_text("before\n<!-- measured: x -->\nstale\n<!-- end -->\nafter\n")
    assert generate.filled_page("p.md") == "before\n<!-- measured: x -->\n| a |\n<!-- end -->\nafter\n"


def test_the_count_by_hand_is_shown_request_by_request():
    page = generate.worked_page()
    assert page.count("## Request ") == 4
    assert "SGLang serves 36 of 65 tokens, vLLM 32 of 65." in page
    assert "| 23 | 18 | 16 | 5 cold |" in page
