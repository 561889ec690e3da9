"""Markdown for pull requests and job summaries, read as GitHub reads it: what it says, and what it never does."""

import copy
import html
import json
import re
import subprocess
from pathlib import Path

import cmarkgfm
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from prefixlint.cli import main
from prefixlint.errors import UsageError
from prefixlint.reports import _markup, markdown
from prefixlint.reports._terminal import visible
from tests.clocked import PROMPT, bodies

ROOT = Path(__file__).parents[1]
DEMO = str(ROOT / "fixtures" / "logs" / "demo.jsonl")
COMMENT = 65_536  # characters of a comment on GitHub
CLOCK = f"{{{{ now() }}}}\n{PROMPT}\n"
EVIL = "a`b``c|d @octocat #12 <img src=x onerror=alert(1)> [x](javascript:1) \x1b[31m\u202e\x00 https://evil.example www.evil.example $x$"


def run(*arguments, **environment):
    return CliRunner(env=environment).invoke(main, [str(argument) for argument in arguments])


def rendered(text):
    """Give what GitHub's own library makes of it, with HTML of the text let through, as GitHub does before it cleans."""
    return cmarkgfm.github_flavored_markdown_to_html(text, options=cmarkgfm.cmark.Options.CMARK_OPT_UNSAFE)


def shown(page):
    return html.unescape(re.sub(r"<[^>]*>", "", page))


def outside_code(page):
    return shown(re.sub(r"<code.*?</code>", "", page, flags=re.DOTALL))


def alive(page):
    """Give what GitHub would make a notification or a link of, in the text of a page outside of code."""
    return re.findall(r"[@#]\w|://|www\.", outside_code(page))


@given(st.text(max_size=60))
def test_any_text_stays_text_in_code(text):
    page = rendered(f"before {_markup.code(text)} after")
    expected = visible(text) if visible(text).strip() else None
    found = re.fullmatch(r"<p>before <code>(.*?)</code> after</p>\n", page, flags=re.DOTALL)
    assert (found is None) == (expected is None)
    assert expected is None or html.unescape(found[1]) == expected


@given(st.lists(st.text(max_size=40), min_size=2, max_size=2))
def test_any_text_stays_in_its_cell(texts):
    page = rendered(_markup.table(["a", "b"], [[_markup.code(texts[0]), _markup.prose(texts[1])]], "<>"))
    cells = re.findall(r"<td[^>]*>(.*?)</td>", page, flags=re.DOTALL)
    assert len(cells) == 2
    assert not re.findall(r"<(?!/?code>)", cells[0] + cells[1])


@given(st.text(max_size=60))
def test_any_text_stays_a_sentence(text):
    page = rendered(f"x {_markup.prose(text)} y")
    words = shown(page).replace("\u200b", "").split()
    assert words == f"x {visible(text)} y".split()
    assert not re.search(r"<(?!/?p>)", page)
    assert not alive(page)


@given(st.lists(st.text(max_size=40), max_size=4))
def test_any_lines_stay_a_block(lines):
    page = rendered(_markup.block(lines))
    assert html.unescape(re.fullmatch(r"<pre[^>]*><code[^>]*>(.*)</code></pre>\n", page, flags=re.DOTALL)[1]).split(
        "\n"
    )[:-1] == [visible(line) for line in lines]


def test_what_folds_holds_no_markup_of_strangers():
    page = rendered(_markup.details(EVIL, "text", EVIL))
    assert "<img" not in page
    assert "<code>" in page
    assert not alive(page)


def test_what_does_not_fit_is_said():
    parts = [f"part {number} " + "x" * 1_000 for number in range(200)]
    text = _markup.fitted(["head"], parts, ["end"], "left out")
    assert len(text) <= _markup.LIMIT < COMMENT
    assert text.startswith("head\n\npart 0 ")
    assert text.endswith("left out\n\nend\n")
    assert "left out" not in _markup.fitted(["head"], parts[:3], ["end"], "left out")


@pytest.fixture
def project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text("[project]\nname = 'x'\n")
    (tmp_path / "clock.j2").write_text(CLOCK)
    return tmp_path


def test_a_check_names_its_places_with_what_to_do(project):
    done = run("check", "--format", "markdown")
    assert done.exit_code == 1
    page = rendered(done.stdout)
    assert done.stdout.startswith("<!-- prefixlint check -->\n\n### prefixlint: 1 place breaks the prefix cache\n")
    assert "<td><code>clock.j2:1</code></td>\n<td>PFX101 clock-in-prefix</td>" in page
    assert "<code>clock.j2:1</code> PFX101 clock-in-prefix</summary>" in page
    assert "{{ now() }}" in shown(page)
    assert "put the time into the newest user message" in shown(page)


def test_a_check_that_finds_nothing_says_so(project):
    (project / "clock.j2").write_text(PROMPT)
    done = run("check", "--format", "markdown")
    assert (done.exit_code, "nothing breaks the prefix cache" in done.stdout) == (0, True)
    (project / "broken.py").write_text('prompt = "\n')
    done = run("check", "--format", "markdown")
    assert "nothing found" in done.stdout
    assert "**1 problem** while reading" in done.stdout
    assert "`broken.py:1`" in done.stdout


def git(*arguments):
    settings = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *settings, *arguments], check=True, capture_output=True)


def test_what_a_change_brought_and_took_away(project):
    (project / "other.j2").write_text(CLOCK)
    (project / "same.j2").write_text(CLOCK)
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "x")
    (project / "clock.j2").write_text(PROMPT)
    (project / "new.j2").write_text("{{ uuid4() }}\n" + PROMPT)
    page = run("check", "--format", "markdown", "--diff-base", "HEAD").stdout
    assert "### prefixlint: 1 place new since `HEAD` breaks the prefix cache" in page
    assert "`new.j2:1`" in page
    assert "**1 place repaired by this change**\n\n- ~~PFX101 clock-in-prefix~~ `clock.j2:1`" in page
    assert "other.j2" not in page
    assert "2 suppressed" in page
    found = json.loads(run("check", "--format", "json", "--diff-base", "HEAD").stdout)
    assert (found["base"]["ref"], [gone["path"] for gone in found["base"]["gone"]]) == ("HEAD", ["clock.j2"])
    assert "; 1 gone since HEAD" in run("check", "--diff-base", "HEAD").stdout
    (project / "new.j2").unlink()
    page = run("check", "--format", "markdown", "--diff-base", "HEAD").stdout
    assert "### prefixlint: nothing new since `HEAD` breaks the prefix cache" in page


def test_silencing_is_no_repair(project):
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "x")
    (project / "clock.j2").write_text(CLOCK.replace("\n", " {# prefixlint: ignore[PFX101] wanted #}\n", 1))
    found = json.loads(run("check", "--format", "json", "--diff-base", "HEAD").stdout)
    assert found["suppressed"]


def test_an_analysis_says_what_was_served_and_what_breaks_the_prefix():
    page = run("analyze", DEMO, "--format", "markdown").stdout
    assert page.startswith(
        "<!-- prefixlint analyze -->\n\n### Prefix cache: 49.1 % of the prompt tokens could come from it"
    )
    shape = rendered(page)
    assert shape.count("<table>") == 4
    assert "PFX304 tool-order-unstable" in shown(shape)
    assert page.index("| reported | 42.8 % |") < page.index("| unexplained |") < page.index("| as logged")
    assert "**Since" not in page
    assert len(page) < COMMENT


def test_an_analysis_says_what_moved(tmp_path):
    old = tmp_path / "old.json"
    run("analyze", DEMO, "--sample", "60", "--format", "json", "-o", old)
    page = run("analyze", DEMO, "--format", "markdown", "--compare", old).stdout
    assert f"**Since `{old}`**" in page
    assert "| worse | PFX101 clock-in-prefix | `messages[*].content` |" in page
    assert re.search(r"\| sglang \| 49\.1 % \| 48\.9 % \| \+0\.2 \|", page)
    same = tmp_path / "same.json"
    run("analyze", DEMO, "--format", "json", "-o", same)
    assert "nothing moved" in run("analyze", DEMO, "--format", "markdown", "--compare", same).stdout


def test_a_saved_result_looks_the_same(tmp_path, project):
    for command in (("analyze", DEMO), ("check",)):
        saved = tmp_path / "saved.json"
        run(*command, "--format", "json", "-o", saved)
        again = run("report", saved, "--format", "markdown")
        assert again.stdout == run(*command, "--format", "markdown").stdout
    assert run("report", saved, "--format", "markdown").exit_code == 0


def hostile(value):
    """Put evil text into every string of a document, but for its schema."""
    if isinstance(value, str):
        return value + EVIL
    if isinstance(value, list):
        return [hostile(item) for item in value]
    return (
        {key: hostile(item) if key != "schema" else item for key, item in value.items()}
        if isinstance(value, dict)
        else value
    )


@pytest.mark.parametrize("command", ["analyze", "check"])
def test_hostile_text_is_inert_wherever_it_stands(command, project):
    done = run("analyze", DEMO, "--format", "json") if command == "analyze" else run("check", "--format", "json")
    page = rendered(markdown.document(hostile(json.loads(done.stdout))))
    assert not re.search(
        r"<(?!/?(?:p|code|pre|table|thead|tbody|tr|td|th|details|summary|h3|strong|ul|li|sub|del)\b)(?!!-- prefixlint)",
        page,
    )
    assert not alive(page)
    assert not set("\x1b\x00\u202e") & set(page)


def test_a_result_with_thousands_of_places_fits_into_a_comment(project):
    found = json.loads(run("check", "--format", "json").stdout)
    (finding,) = found["findings"]
    found["findings"] = [
        {**copy.deepcopy(finding), "path": f"prompts/{n}.j2", "message": "x" * 900} for n in range(3_000)
    ]
    page = markdown.document(found)
    assert len(page) < COMMENT
    assert "3,000 places break the prefix cache" in page
    assert "_3,000 places in all" in page
    many_causes = json.loads(run("analyze", DEMO, "--format", "json").stdout)
    many_causes["findings"] *= 1_000
    many_causes["families"] *= 1_000
    page = markdown.document(many_causes)
    assert len(page) < COMMENT
    assert "and 2,990 more causes" in page


@pytest.mark.parametrize(
    "change",
    [
        {"schema": "prefixlint.engine/1"},
        {"schema": None},
        {"engines": None},
        {"engines": [{}]},
        {"findings": [5]},
        {"reported": []},
    ],
)
def test_what_is_no_result_is_refused_in_words(change):
    found = {**json.loads(run("analyze", DEMO, "--format", "json", "--what-if", "none").stdout), **change}
    if change == {"reported": []}:
        assert markdown.document(found)
    else:
        with pytest.raises(UsageError) as caught:
            markdown.document(found)
        assert caught.value.slug == "bad-result"


@pytest.mark.parametrize("command", [("check",), ("analyze", DEMO)])
def test_the_summary_of_a_job_is_written_where_github_asks_for_it(project, command):
    summary = project / "summary.md"
    summary.write_text("from an earlier command\n")
    code = run(*command, "--format", "github", GITHUB_STEP_SUMMARY=str(summary)).exit_code
    text = summary.read_text(encoding="utf-8")
    assert text.startswith("from an earlier command\n<!-- prefixlint ")
    assert text.endswith(run(*command, "--format", "markdown").stdout)
    before = text
    for form in ("text", "json", "markdown"):
        assert run(*command, "--format", form, GITHUB_STEP_SUMMARY=str(summary)).exit_code == code
    assert summary.read_text(encoding="utf-8") == before


def test_a_summary_that_cannot_be_written_changes_nothing_else(project):
    done = run("check", "--format", "github", GITHUB_STEP_SUMMARY=str(project))
    assert done.exit_code == 1
    assert "::error file=clock.j2" in done.stdout
    assert "[cannot-write]" in done.stderr
    assert "Traceback" not in done.stderr


def test_causes_are_annotations_at_the_lines_that_wrote_them(project):
    (project / "shop.py").write_text(
        f"import time\nSYSTEM_PROMPT = f\"It is {{time.strftime('%H:%M:%S')}}. {PROMPT}\"\n"
    )
    (project / "log.jsonl").write_text("".join(json.dumps(body) + "\n" for body in bodies(5)))
    done = run("analyze", "log.jsonl", "--source", ".", "--format", "github", "--fail-under", "99")
    assert done.exit_code == 1
    failure, cause = done.stdout.splitlines()
    assert failure.startswith("::error title=prefixlint::hit rate below 99 %25: ")
    assert re.match(r"::(error|warning) file=shop.py,line=2,col=\d+,title=PFX101 clock-in-prefix::", cause)
    assert "%0Ahelp: " in cause
    plain = run("analyze", "log.jsonl", "--format", "github").stdout.splitlines()
    assert len(plain) == 1
    assert plain[0].partition(" ")[2].startswith("title=PFX101")
