"""The report in a terminal: the story on a page, the rest with -v, and nothing wider than it may be."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from prefixlint import pipeline
from prefixlint.cli import main
from prefixlint.fleet import Limits
from prefixlint.model import MissCause
from prefixlint.reports import Look
from prefixlint.reports import text as report
from prefixlint.reports._terminal import banded, columns

DEMO = Path(__file__).resolve().parents[1] / "fixtures" / "logs" / "demo.jsonl"
FIVE = ("sglang", "vllm", "tensorrt-llm", "lmcache", "llama.cpp")
MORE = ("Mean of the requests' own rates", "Largest shared prefixes", "over 2, 4, 8 replicas", "entries that live")


def shown(*options, width=80):
    done = CliRunner().invoke(main, ["analyze", str(DEMO), *options], env={"COLUMNS": str(width)})
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def short():
    return shown()


@pytest.fixture(scope="module")
def verbose():
    return shown("-v")


def test_the_report_tells_the_story_on_a_page_in_plain_text(short):
    assert len(short.splitlines()) <= 62  # 60, and what a longer path of the log takes
    assert "\x1b" not in short
    order = ["In short: ", "What the prefix cache", "What breaks the prefix", "What fixing gives", "Families", "next: "]
    assert [short.index(head) for head in order] == sorted(short.index(head) for head in order)
    assert not any(text in short for text in MORE)
    assert "-v shows more" in " ".join(short.split("next: ")[1].split())
    assert "prefixlint explain" in " ".join(short.split("next: ")[1].split())


def test_the_way_up_adds_its_points_to_the_row_above(short):
    """The unexplained part of the gap stands first, and no row says less than nothing of nothing."""
    table = short.split("What fixing gives")[1].split("\n\n")[0]
    rows = [line.split() for line in table.splitlines() if line.startswith(("  fix ", "as logged"))]
    rates = [float(row[-2]) for row in rows]
    points = [float(row[-3]) for row in rows[1:]]
    for before, after, added in zip(rates, rates[1:], points, strict=False):
        assert abs(after - before - added) < 0.11
    lines = table.splitlines()
    assert lines[2].split()[0] == "unexplained"
    assert "-0.0" not in short
    assert "alone" not in table


def test_the_first_sentence_names_what_was_served_what_could_be_and_the_first_cause(short):
    said = " ".join(short[short.index("In short: ") :].partition("\n\n")[0].split())
    first = next(line for line in short.splitlines() if line.startswith("  PFX")).split()[1].rstrip(":")
    fixed = [line for line in short.splitlines() if line.startswith("  fix ")][-1]
    served = short.split("did serve")[1].split("\n")[0].split()[-3]
    assert f"{served} % served" in said
    assert said.endswith(f"{first} (21.7 %)")
    assert f"{fixed.split()[-5]} % once fixed (sglang); worst" in said


def test_the_first_sentence_promises_nothing_below_what_was_served(short):
    result = pipeline.analyze([str(DEMO)])
    better = replace(result, reported=replace(result.reported, cached_tokens=result.reported.prompt_tokens))
    assert "100.0 % served; worst" in report.analysis(better, Look(width=200))


def test_the_first_sentence_promises_what_the_limits_allow():
    limits = Limits(replicas=8)
    result = pipeline.analyze([str(DEMO)], pipeline.Options(engines=("sglang",), limits=limits))
    bare = replace(result, reported=None)
    within = [row for row in result.what_if if row.family is None and row.cumulative][-1].hit_rate
    unlimited = [step for step in result.waterfalls[0].steps if step.kind == "fix"][-1].hit_rate
    assert result.engines[0].hit_rate < within < unlimited
    assert f"{100 * within:.1f} % once fixed (sglang)" in report.analysis(bare, Look(width=200))
    assert "by itself, within the limits" in report.analysis(bare, Look(width=200, verbose=True))


def test_what_is_written_and_how_long_it_lives_is_said_of_each_engine(tmp_path):
    """Lifetimes that marks ask for are no lifetime of five minutes, and a rule of writing is no unlimited cache."""
    mark = {"type": "ephemeral", "ttl": "1h"}
    system = [{"type": "text", "text": "be kind " * 1500, "cache_control": mark}]
    rows = [
        {
            "timestamp": f"2026-03-03T09:{20 * n:02}:00Z",
            "request": {
                "model": "claude-sonnet-4-5",
                "max_tokens": 9,
                "system": system,
                "messages": [{"role": "user", "content": f"question {n}"}],
            },
        }
        for n in range(3)
    ]
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = report.analysis(pipeline.analyze([str(log)], pipeline.Options()), Look(width=200))
    assert "anthropic: only what is marked is written, entries live 5 min unless marked otherwise." in said
    found = pipeline.analyze([str(log)], pipeline.Options(engines=("deepseek",)))
    assert MissCause.NOT_WRITTEN in found.engines[0].misses
    said = report.analysis(found, Look(width=200))
    assert "limits: deepseek: not everything is written." in said
    assert "unlimited cache." not in said


def test_causes_without_weight_are_shown_in_short(short, verbose):
    for text, full in ((short, False), (verbose, True)):
        part = text.split("PFX105 identity-in-prefix: ")[1].split("\n  sglang")[0]
        assert ("before Henrik Jensen" in part) is full


def test_what_is_left_out_is_shown_with_v(short, verbose):
    assert all(text in verbose for text in MORE)
    assert "character 0: 12,781 tokens behind it were computed again" in " ".join(verbose.split())
    assert "-v shows" not in verbose
    assert {line.split(":")[0] for line in short.splitlines() if line.startswith("  PFX")} <= {
        line.split(":")[0] for line in verbose.splitlines()
    }


@pytest.mark.parametrize("options", [(), ("-v",)])
def test_five_engines_keep_within_the_width(options):
    text = shown(*options, *(word for name in FIVE for word in ("--engine", name)))
    assert max(columns(line) for line in text.splitlines()) <= 80
    fixing = text.split("What fixing gives")
    assert len(fixing) <= 4  # three tables at most
    assert all(name in text for name in FIVE)
    assert [table.count("fix PFX101") for table in fixing[1:]] == [1] * (len(fixing) - 1)


def test_families_have_a_column_for_each_engine():
    """A log's own provider comes last, and is what its reader looks for."""
    said = shown(*(part for name in FIVE for part in ("--engine", name)))
    heads = [line for line in said.splitlines() if line.startswith("Families, by tokens lost")]
    assert [name for line in heads for name in line.split() if name in FIVE] == list(FIVE)


def test_families_of_one_name_are_told_apart_by_their_models(tmp_path):
    import json

    path = tmp_path / "log.jsonl"
    messages = [{"role": "system", "content": "Weigh each crate. " * 40}, {"role": "user", "content": "go"}]
    path.write_text("\n".join(json.dumps({"model": f"model-{n % 2}", "messages": messages}) for n in range(8)))
    text = CliRunner().invoke(main, ["analyze", str(path)]).stdout
    assert [text.count(f"\nmodel-{n}: Weigh each") for n in range(2)] == [1, 1]


def test_texts_that_a_log_cut_are_told(tmp_path):
    import json

    path = tmp_path / "log.jsonl"
    rows = []
    for n in range(6):
        head = (
            "Weigh each crate, note the road it takes, and never guess. " * 9 + f"... ({1990 + 7 * n} more characters)"
        )
        messages = [{"role": "system", "content": head}, {"role": "user", "content": "go"}]
        rows += [{"model": "m", "messages": messages}]
        rows += [{"model": "m", "messages": [*messages, {"role": "assistant", "content": "ok"}, messages[1]]}]
    path.write_text("\n".join(map(json.dumps, rows)))
    text = " ".join(CliRunner().invoke(main, ["analyze", str(path)]).stdout.split())
    assert "note: 12 prompts have a text that ends as if it was cut" in text
    assert "low confidence, since the text is cut short there" in text


def test_causes_beyond_the_most_costly_are_counted(tmp_path):
    import json

    rules = "Weigh each crate, note the road it takes, and never guess. " * 30
    rows = []
    for talk, word in enumerate(("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf")):
        for n in range(6):
            system = f"You are the {word} desk of {word * 3}. Now: 09:{talk * 7 + n:02}:17.\n{word} {rules}"
            messages = [{"role": "system", "content": system}, {"role": "user", "content": f"how heavy is {n * 7919}?"}]
            rows.append(json.dumps({"model": "m", "messages": messages}))
    path = tmp_path / "log.jsonl"
    path.write_text("\n".join(rows))
    few, every = (CliRunner().invoke(main, ["analyze", str(path), *v]).stdout for v in ((), ("-v",)))
    heads = [text.count("  PFX101 clock-in-prefix: ") for text in (few, every)]
    assert heads[0] <= heads[1]
    assert ("-v shows them" in few) == (heads[0] < heads[1])
    assert "-v shows them" not in every


@given(
    st.lists(st.lists(st.text("abc ", min_size=1, max_size=12), min_size=6, max_size=6), min_size=1, max_size=4),
    st.integers(60, 120),
    st.sampled_from([1, 2]),
)
def test_bands_hold_every_column_once_within_the_width(rows, width, step):
    rows = [[f"name {number}", *(cell.strip() or "x" for cell in row)] for number, row in enumerate(rows)]
    bands = banded(rows, align="<" + ">" * 6, width=width, fixed=1, step=step)
    assert all(columns(line) <= width for band in bands for line in band)
    for number, row in enumerate(rows):
        cells = [cell for band in bands for cell in band[number].split()[2:]]
        assert cells == [word for cell in row[1:] for word in cell.split()]


def test_a_band_leaves_out_sparse_rows_that_say_nothing_in_it():
    rows = [("row", "a" * 30, "b" * 30), ("both", "1", "2"), ("first", "3", ""), ("second", "", "4")]
    first, second = banded(rows, align="<>>", width=50, fixed=1, sparse=True)
    assert [line.split()[0] for line in first] == ["row", "both", "first"]
    assert [line.split()[0] for line in second] == ["row", "both", "second"]
    assert [len(band) for band in banded(rows, align="<>>", width=50, fixed=1)] == [4, 4]


def test_tokens_that_nobody_counted_are_not_none(tmp_path):
    usage = {"prompt_tokens": 1_234, "prompt_tokens_details": {"cached_tokens": 0}}
    rows = [{"model": "m", "user": "u1", "timestamp": 1, "usage": usage}, {"model": "m", "user": "u2", "timestamp": 2}]
    rows[1]["usage"] = {"prompt_tokens": 3}
    log = tmp_path / "log.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = report.analysis(pipeline.analyze([str(log)], pipeline.Options(by=("user",))), Look(width=100))
    told = {line.split()[0]: line.split()[2] for line in said.splitlines() if line.startswith(("u1", "u2"))}
    assert told == {"u1": "1.23", "u2": "unknown"}  # 1.23 k


def test_one_time_is_no_span(tmp_path):
    log = tmp_path / "log.jsonl"
    rows = [{"model": "m", "timestamp": 5, "messages": [{"role": "user", "content": "hi"}]} for _ in range(2)]
    log.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = report.analysis(pipeline.analyze([str(log)], pipeline.Options()), Look(width=100))
    assert "  openai-chat, in time order" in said
    assert "over 0 s" not in said


def test_one_table_where_all_fits():
    rows = [("what", "a", "b", "c"), ("one", "1", "2", "3")]
    assert banded(rows, align="<>>>", width=80, fixed=1) == [["what  a  b  c", "one   1  2  3"]]
