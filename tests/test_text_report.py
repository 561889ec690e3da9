"""The report in a terminal: the story on a page, the rest with -v, and nothing wider than it may be."""

from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from prefixlint.cli import main
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
    assert len(short.splitlines()) <= 80
    assert "\x1b" not in short
    order = ["What the prefix cache", "What breaks the prefix", "What fixing gives", "Advice", "next: "]
    assert [short.index(head) for head in order] == sorted(short.index(head) for head in order)
    assert not any(text in short for text in MORE)
    assert "-v shows where families part, shared prefixes, lifetimes and replicas." in short


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
    assert len(fixing) == 3  # two tables
    assert all(name in text for name in FIVE)
    assert fixing[1].count("fix PFX101") == fixing[2].count("fix PFX101") == 1


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


def test_one_table_where_all_fits():
    rows = [("what", "a", "b", "c"), ("one", "1", "2", "3")]
    assert banded(rows, align="<>>>", width=80, fixed=1) == [["what  a  b  c", "one   1  2  3"]]
